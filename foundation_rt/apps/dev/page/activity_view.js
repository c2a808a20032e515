/** Calls of all clients, restarts and log records, as they come. */

import { el, fill } from "/shared/dom.js";
import { count, duration } from "/shared/format.js";
import { safely } from "/shared/results.js";
import { recordNode } from "./log_list.js";
import { placeholder } from "./placeholder.js";
import { clientName, preciseTime, visible } from "./shown_text.js";
import { Tabs } from "./tabs.js";

const MOST_SHOWN = 200;
// There is one for each key that is pressed; the wire has them.
const COMPLETION = "completion/complete";
const OUTCOMES = new Map([
  ["ok", { word: "done", tone: "good" }],
  ["tool_error", { word: "tool error", tone: "bad" }],
  ["input_required", { word: "asks for input", tone: "warn" }],
  ["error", { word: "error", tone: "bad" }],
  ["cancelled", { word: "cancelled", tone: "warn" }],
  ["lost", { word: "lost", tone: "bad" }],
]);

export class ActivityView {
  id = "activity";
  title = "Activity";
  picture = "activity";

  constructor(page) {
    this.page = page;
    this.calls = el("tbody", {});
    this.logs = el("ol", { class: "record-list tall", tabindex: 0, "aria-label": "Log records" });
    this.restarts = el("ol", { class: "restarts" });
    this.level = el(
      "select",
      { "aria-label": "Least level" },
      ...["debug", "info", "warn", "error"].map((level) => el("option", { value: level }, `${level} and above`)),
    );
    this.words = el("input", { type: "search", placeholder: "Filter records", "aria-label": "Filter records" });
    this.level.addEventListener("change", () => this.#showLogs());
    this.words.addEventListener("input", () => this.#showLogs());
    this.tabs = new Tabs("Activity", [
      { id: "calls", label: "Calls", make: () => this.#callsNode() },
      { id: "logs", label: "Log", make: () => this.#logsNode() },
      { id: "restarts", label: "Restarts", make: () => this.restarts },
    ]);
    this.node = el("div", { class: "page" }, this.tabs.node);
  }

  async reload() {}

  open() {
    this.update(new Set(["call", "log", "restart"]));
  }

  update(kinds) {
    if (!this.node.isConnected) return;
    if (kinds.has("call")) this.#showCalls();
    if (kinds.has("log")) this.#showLogs();
    if (kinds.has("restart")) this.#showRestarts();
  }

  #callsNode() {
    const names = ["Time", "Client", "Call", "Outcome", "Duration"];
    const head = el("tr", {}, ...names.map((name, at) => el("th", { scope: "col", class: at === 4 ? "right" : null }, name)));
    this.noCalls = placeholder(this.picture, "No calls yet.", "Run a tool. Calls of other clients appear here too.");
    this.table = el(
      "div",
      { class: "scrolls", tabindex: 0, role: "group", "aria-label": "Calls of all clients" },
      el("table", { class: "calls" }, el("thead", {}, head), this.calls),
    );
    return el("div", {}, this.noCalls, this.table);
  }

  #logsNode() {
    return el("div", {}, el("div", { class: "filters" }, this.words, this.level), this.logs);
  }

  #showCalls() {
    const calls = this.page.feed.calls.filter(({ method }) => method !== COMPLETION);
    this.tabs.label("calls", `Calls (${calls.length})`);
    this.noCalls.hidden = calls.length > 0;
    this.table.hidden = calls.length === 0;
    fill(this.calls, calls.slice(-MOST_SHOWN).reverse().map((call) => safely(callRow, call)));
  }

  #showLogs() {
    const { logs } = this.page.feed;
    this.tabs.label("logs", `Log (${logs.length})`);
    const order = ["debug", "info", "warn", "error"];
    const least = order.indexOf(this.level.value);
    const wanted = this.words.value.trim().toLowerCase();
    const rank = (level) => (order.includes(level) ? order.indexOf(level) : 1);
    const fits = (record) =>
      rank(record.level) >= least &&
      (wanted === "" || `${record.message} ${JSON.stringify(record.fields ?? {})}`.toLowerCase().includes(wanted));
    const found = logs.filter(fits).slice(-MOST_SHOWN).reverse();
    const none = el("li", { class: "muted small" }, logs.length > 0 ? "Nothing fits." : "No records yet.");
    fill(this.logs, found.length > 0 ? found.map((record) => safely(recordNode, record)) : none);
  }

  #showRestarts() {
    const { restarts } = this.page.feed;
    this.tabs.label("restarts", `Restarts (${restarts.length})`);
    const none = el("li", { class: "muted small" }, "Save a file of the program: it is restarted.");
    fill(this.restarts, restarts.length > 0 ? restarts.toReversed().map((event) => safely(restartNode, event)) : none);
  }
}

function callRow({ at, client, method, name, phase, outcome, durationMs, error }) {
  const { word, tone } = phase === "end" ? (OUTCOMES.get(outcome) ?? { word: outcome, tone: "warn" }) : { word: "running", tone: "accent" };
  const kind = { "tools/call": "", "resources/read": "read ", "prompts/get": "prompt " }[method] ?? `${method} `;
  return el(
    "tr",
    {},
    el("td", { class: "muted nowrap" }, preciseTime(at)),
    el("td", {}, clientName(client)),
    el("td", {}, kind ? el("span", { class: "muted" }, kind) : null, visible(name ?? "", 120)),
    el("td", {}, el("span", { class: "outcome", data: { tone } }, word), error ? el("span", { class: "muted small" }, ` ${visible(error.message, 160)}`) : null),
    el("td", { class: "right nowrap" }, typeof durationMs === "number" ? duration(durationMs) : ""),
  );
}

const LISTS = { tools: "tool", resources: "resource", resourceTemplates: "template", prompts: "prompt", skills: "skill" };

function restartNode({ at, server, first, because, outcome, durationMs, error, ...lists }) {
  const changes = Object.entries(LISTS).flatMap(([key, noun]) =>
    Object.entries(lists[key] ?? {})
      .filter(([, names]) => Array.isArray(names) && names.length > 0)
      .map(([how, names]) => `${count(names.length, noun)} ${how}: ${names.slice(0, 20).map((name) => visible(name, 60)).join(", ")}`),
  );
  const files = (because ?? []).slice(0, 5).map((file) => visible(file, 80));
  const cause = first ? "the first start" : files.length > 0 ? `${files.join(", ")} changed` : "it had ended by itself";
  return el(
    "li",
    { class: "card restart", data: { state: outcome === "running" ? "done" : "failed" } },
    el("p", {}, el("span", { class: "outcome", data: { tone: outcome === "running" ? "good" : "bad" } }, outcome), ` ${visible(server, 60)} `, el("span", { class: "muted small" }, `${preciseTime(at)}, ${duration(durationMs ?? 0)}, ${cause}`)),
    ...changes.map((change) => el("p", { class: "small" }, change)),
    error ? el("p", { class: "small error-text" }, visible(error.message, 400)) : null,
  );
}
