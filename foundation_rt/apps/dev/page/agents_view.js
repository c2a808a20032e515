/** Agents of the programs with their states, and the ledger of their requests. */

import { button, el, fill, withCode } from "/shared/dom.js";
import { safely, valueNode } from "/shared/results.js";
import { placeholder } from "./placeholder.js";
import { preciseTime, visible } from "./shown_text.js";

const MOST_SHOWN = 200;
const OUTCOMES = new Map([
  ["COMPLETED", { word: "completed", tone: "good" }],
  ["FAILED", { word: "failed", tone: "bad" }],
  ["UNKNOWN", { word: "open", tone: "accent" }],
]);

export class AgentsView {
  id = "agents";
  title = "Agents";
  picture = "agents";

  constructor(page) {
    this.page = page;
    const again = button("Refresh", { on: { click: () => this.open() } });
    this.body = el("div", { class: "cards" });
    this.node = el("div", { class: "page" }, el("div", { class: "filters" }, again), this.body);
  }

  async reload() {
    if (this.node.isConnected) await this.open();
  }

  async open() {
    const answer = await this.page.get("/dev/agents");
    const servers = answer?.servers ?? [];
    const none = answer === null ? ["The front did not answer."] : ["No program has agents.", withCode("`server.agents.register_agent` adds one.")];
    fill(this.body, servers.length > 0 ? servers.map((server) => safely(programNode, server)) : placeholder(this.picture, ...none));
  }

  update(kinds) {
    const hasEnded = kinds.has("call") && this.page.feed.calls.at(-1)?.name?.includes("agent");
    if (hasEnded && this.node.isConnected) this.open();
  }
}

function programNode({ server, agents = [], ledger, error }) {
  return el(
    "section",
    { class: "card agents", "aria-label": `Agents of ${visible(server, 60)}` },
    el("h2", {}, visible(server, 80)),
    error ? el("p", { class: "note" }, visible(error, 400)) : null,
    agents.slice(0, MOST_SHOWN).map(({ id, state }) => el("div", { class: "agent" }, el("h3", {}, visible(id, 120)), safely(stateNode, state))),
    agents.length === 0 && !error ? el("p", { class: "muted" }, "It has no agents now.") : null,
    ledger ? ledgerNode(ledger) : null,
  );
}

function stateNode(state) {
  const isEmpty = state === null || state === undefined || Object.keys(state).length === 0;
  return isEmpty ? el("p", { class: "muted small" }, "Its state is empty.") : valueNode(state);
}

function ledgerNode({ name, requests = [] }) {
  const head = ["Latest change", "Agent", "Request", "Outcome"];
  const rows = requests.slice(0, MOST_SHOWN).map((request) => {
    const { requestId, targetAgentId, outcome, at, error } = request;
    const { word, tone } = OUTCOMES.get(outcome) ?? { word: outcome, tone: "warn" };
    return el(
      "tr",
      {},
      el("td", { class: "nowrap muted" }, at ? preciseTime(at) : ""),
      el("td", {}, visible(targetAgentId, 80)),
      el("td", {}, el("code", {}, visible(requestId, 40))),
      el("td", {}, el("span", { class: "outcome", data: { tone } }, visible(word, 30)), error ? el("span", { class: "muted small" }, ` ${visible(error.message, 160)}`) : null),
    );
  });
  const table = el(
    "div",
    { class: "scrolls", tabindex: 0, role: "group", "aria-label": "Requests of the ledger" },
    el("table", {}, el("thead", {}, el("tr", {}, ...head.map((each) => el("th", { scope: "col" }, each)))), el("tbody", {}, rows)),
  );
  return el("div", { class: "ledger" }, el("h3", {}, `Ledger: ${visible(name ?? "", 80)}`), rows.length > 0 ? table : el("p", { class: "muted" }, "It has no requests yet."));
}
