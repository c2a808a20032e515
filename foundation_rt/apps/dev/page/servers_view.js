/** The program, or the servers of a gateway: states, circuits, failures; and the clients that are connected. */

import { el, fill } from "/shared/dom.js";
import { count } from "/shared/format.js";
import { keepingFocus } from "/shared/login.js";
import { safely } from "/shared/results.js";
import { codeBlock } from "/shared/markdown.js";
import { clientName, sinceTime, visible } from "./shown_text.js";

const STATES = new Map([
  ["running", "Running"],
  ["starting", "Starting"],
  ["restarting", "Restarting"],
  ["failed", "Failed"],
  ["needs login", "Needs a login"],
  ["disabled", "Disabled"],
]);
const TONES = new Map([
  ["running", "ready"],
  ["starting", "starting"],
  ["restarting", "starting"],
  ["failed", "failed"],
  ["needs login", "failed"],
  ["disabled", "disabled"],
]);
const CIRCUITS = new Map([
  ["open", "circuit open"],
  ["half_open", "circuit half open"],
]);

/** Return what is said of all servers: {text, tone}. Pure. */
export function summaryOf(state) {
  const servers = (state?.servers ?? []).filter((server) => server.state !== "disabled");
  const worst = ["failed", "needs login", "restarting", "starting"].find((each) => servers.some((server) => server.state === each));
  const found = worst ?? "running";
  const many = servers.filter((server) => server.state === found).length;
  const text = servers.length > 1 ? `${STATES.get(found)}: ${many} of ${servers.length}` : STATES.get(found);
  return { text, tone: TONES.get(found) };
}

/** Make the node of a failure: message, file and line, the source line, the traceback. */
export function failureNode({ message, file, line, source, traceback }) {
  const place = file ? `${file}${line ? `:${line}` : ""}` : null;
  return el(
    "div",
    { class: "failure" },
    el("p", { class: "error-text" }, visible(message, 2000)),
    place ? el("p", { class: "small" }, el("code", {}, visible(place))) : null,
    source ? el("pre", { class: "text source" }, visible(source, 500)) : null,
    traceback ? tracebackNode(String(traceback).slice(-40_000), place === null) : null,
  );
}

/** Make the node of a traceback; without a place in a source it is what the program has written, and is open. */
function tracebackNode(text, isOutput) {
  const label = isOutput ? "Last lines of its stderr" : "Traceback";
  return el("details", { open: isOutput }, el("summary", { class: "small" }, label), codeBlock(text));
}

export class ServersView {
  id = "servers";
  title = "Servers";
  picture = "servers";

  constructor(page) {
    this.page = page;
    this.servers = el("div", { class: "cards" });
    this.clients = el("div", {});
    this.node = el("div", { class: "page" }, this.servers, el("h2", {}, "Clients"), this.clients);
  }

  async reload() {}

  open() {
    this.#show();
  }

  update(kinds) {
    if (kinds.has("state") && this.node.isConnected) this.#show();
  }

  #show() {
    const { state } = this.page.feed;
    const { logins } = this.page;
    const key = JSON.stringify([state, (state?.servers ?? []).map((server) => logins.key(server))]);
    if (key === this.key) return;
    this.key = key;
    keepingFocus(this.servers, () => this.#showServers(state, logins));
    fill(this.clients, safely(clientsNode, state?.clients ?? []));
  }

  #showServers(state, logins) {
    const open = [...this.servers.querySelectorAll("details[open]")].map((each) => each.closest("section")?.dataset.server);
    fill(this.servers, (state?.servers ?? []).slice(0, 200).map((server) => safely(() => serverNode(server, logins), server)));
    for (const id of open) {
      const section = [...this.servers.children].find((each) => each.dataset.server === id);
      section?.querySelectorAll("details").forEach((each) => (each.open = true));
    }
  }
}

function serverNode(server, logins) {
  const { id, state, circuit, name, version, revision, transport, pid, startedAt, error, lastError } = server;
  const facts = [
    ["name", [name, version].filter(Boolean).join(" ")],
    ["revision", revision],
    ["transport", transport],
    ["process", pid],
    ["since", startedAt ? sinceTime(startedAt) : null],
    ["restarts", server.restarts],
    ["calls", server.calls],
    ["running", server.running],
    ["waiting", server.waiting],
    ["watches", server.watched ? count(server.watched, "file") : null],
    ["offers", offers(server)],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el(
    "section",
    { class: "card server-card", data: { server: id, state }, "aria-label": `Server ${visible(id, 60)}` },
    el(
      "div",
      { class: "card-head" },
      el("span", { class: "dot", data: { state: TONES.get(state) ?? "disabled" } }),
      el("h2", {}, visible(id, 80)),
      CIRCUITS.get(circuit) ? el("span", { class: "chip warning" }, CIRCUITS.get(circuit)) : null,
      el("span", { class: "card-note muted" }, STATES.get(state) ?? visible(state, 30)),
    ),
    error ? failureNode(error) : null,
    logins.node(server),
    !error && lastError ? el("p", { class: "small muted" }, `Last error: ${visible(lastError, 400)}`) : null,
    el("dl", { class: "facts" }, ...facts.map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, visible(value, 120))))),
  );
}

function offers({ tools = 0, resources = 0, resourceTemplates = 0, prompts = 0, skills = 0 }) {
  const all = [[tools, "tool"], [resources, "resource"], [resourceTemplates, "template"], [prompts, "prompt"], [skills, "skill"]];
  return all
    .filter(([many]) => many > 0)
    .map(([many, noun]) => count(many, noun))
    .join(", ");
}

function clientsNode(clients) {
  if (clients.length === 0) return el("p", { class: "muted" }, "No client is connected.");
  const head = ["Client", "Version", "Revision", "Since", "Calls"];
  return el(
    "div",
    { class: "scrolls", tabindex: 0, role: "group", "aria-label": "Clients" },
    el(
      "table",
      { class: "clients" },
      el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col", class: name === "Calls" ? "right" : null }, name)))),
      el(
        "tbody",
        {},
        ...clients.slice(0, 200).map((client) =>
          el("tr", {}, el("td", {}, clientName(client.name)), el("td", {}, visible(client.version ?? "", 40)), el("td", {}, visible(client.revision ?? "", 20)), el("td", {}, client.since ? sinceTime(client.since) : ""), el("td", { class: "right" }, String(client.calls ?? 0))),
        ),
      ),
    ),
  );
}
