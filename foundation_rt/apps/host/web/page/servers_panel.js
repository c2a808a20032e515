/** The servers of the host: their states, circuits, tools, skills and last errors (HPAGE-18). */

import { button, el, fill } from "./dom.js";
import { count } from "./format.js";
import { keepingFocus, Logins } from "./login.js";
import { safely } from "./results.js";

const STATES = new Map([
  ["starting", "Starting"],
  ["ready", "Ready"],
  ["lost", "Lost"],
  ["failed", "Failed"],
  ["needs login", "Needs a login"],
  ["disabled", "Disabled"],
]);
const DOWN = new Set(["lost", "failed", "needs login"]);
const CIRCUITS = new Map([
  ["open", "Circuit open: calls are refused for a while"],
  ["half_open", "Circuit half open: one call is tried"],
]);

/** Return the servers as values of one form, whatever the host left out. Pure. */
export function described(servers) {
  const all = Array.isArray(servers)
    ? servers
    : Object.entries(servers ?? {}).map(([id, each]) => ({ id, ...each }));
  return all.map((server) => {
    const tools = Array.isArray(server.tools)
      ? server.tools.map((tool) => (typeof tool === "string" ? { name: tool } : tool))
      : null;
    return {
      id: String(server.id ?? server.serverId ?? ""),
      state: server.state ?? "starting",
      reason: server.reason ?? null,
      circuit: (server.circuit ?? "closed").replaceAll("-", "_"),
      lastError: server.lastError ?? null,
      login: server.login ?? null,
      tools,
      skills: Array.isArray(server.skills) ? server.skills : null,
      toolCount: tools?.length ?? (typeof server.tools === "number" ? server.tools : 0),
    };
  });
}

/** Return what is said of all of them: {text, label: the same at length, state: good | busy | bad}. Pure. */
export function summary(servers) {
  const used = servers.filter(({ state }) => state !== "disabled");
  const isBad = ({ state, circuit }) => DOWN.has(state) || circuit === "open";
  const bad = used.filter(isBad).length;
  const tools = used.reduce((sum, { toolCount }) => sum + toolCount, 0);
  const whole = `${count(used.length, "server")}, ${count(tools, "tool")}`;
  if (bad > 0) {
    const waiting = used.filter(({ state }) => state === "needs login").length;
    const text = waiting === bad ? `${bad} ${bad === 1 ? "needs" : "need"} a login` : `${count(bad, "server")} down`;
    return { text, label: `${whole}, ${text}`, state: "bad" };
  }
  const isBusy = used.some(({ state }) => state === "starting");
  return { text: count(used.length, "server"), label: whole, state: isBusy ? "busy" : "good" };
}

export class ServersPanel {
  /** `onLogin` is called when a login was begun, or not. */
  constructor({ onLogin }) {
    this.logins = new Logins("api/login", () => {
      this.#show();
      onLogin();
    });
    this.body = el("div", {
      class: "drawer-body",
      tabindex: 0,
      role: "group",
      "aria-label": "List of servers",
    });
    const close = button("Close", {
      picture: "close",
      quiet: true,
      onlyIcon: true,
      on: { click: () => this.node.close() },
    });
    const head = el("div", { class: "drawer-head" }, el("h2", { id: "servers-title" }, "Servers"), close);
    this.node = el("dialog", { class: "drawer", "aria-labelledby": "servers-title" }, head, this.body);
    this.node.addEventListener("click", (event) => event.target === this.node && this.node.close());
  }

  update(servers, status) {
    if (servers === this.servers && status === this.status) return;
    Object.assign(this, { servers, status });
    this.#show();
  }

  #show() {
    keepingFocus(this.body, () => this.#fill(this.servers, this.status));
  }

  #fill(servers, status) {
    const open = new Set([...this.body.querySelectorAll("details[open]")].map((each) => each.dataset.offers));
    const model = status?.model ? [status.provider, status.model].filter(Boolean).join(": ") : null;
    fill(
      this.body,
      el("p", { class: "muted small" }, model ? `Model: ${model}` : null),
      servers.map((server) => safely(() => serverNode(server, open, this.logins), server)),
      servers.length === 0 ? el("p", { class: "muted" }, "There are no servers.") : null,
    );
  }
}

function serverNode(server, open, logins) {
  const { id, state, reason, circuit, lastError, tools, toolCount, skills } = server;
  const tone = circuit === "open" ? "lost" : state === "needs login" ? "failed" : state;
  return el(
    "section",
    { class: "server", "aria-label": `Server ${id}` },
    el(
      "div",
      { class: "server-head" },
      el("span", { class: "dot", data: { state: tone } }),
      el("h3", {}, id),
      el("span", { class: "muted small" }, STATES.get(state) ?? state),
    ),
    reason ? el("p", { class: "small" }, reason) : null,
    logins.node(server),
    CIRCUITS.has(circuit) ? el("p", { class: "small" }, `${CIRCUITS.get(circuit)}.`) : null,
    lastError && lastError !== reason ? el("p", { class: "small muted" }, `Last error: ${lastError}`) : null,
    tools?.length
      ? offersNode(id, "tool", tools, open)
      : state === "ready" || toolCount > 0 ? el("p", { class: "small muted" }, count(toolCount, "tool")) : null,
    skills?.length ? offersNode(id, "skill", skills, open) : null,
  );
}

function offerNodes({ name, title, description, forModel, forApps }) {
  return [
    el("code", {}, name),
    title ? el("span", {}, ` ${title}`) : null,
    description ? el("p", { class: "muted small" }, description) : null,
    forApps ? el("p", { class: "small" }, "For apps alone.") : null,
    forModel?.length > 0 ? el("p", { class: "small" }, `For the model: ${forModel.join("; ")}.`) : null,
  ];
}

/** Make the list of what a server offers of one kind, open if it was. */
function offersNode(id, kind, offered, open) {
  const name = `${kind} ${id}`;
  const entries = offered.map((each) => el("li", {}, safely(offerNodes, each)));
  return el(
    "details",
    { data: { offers: name }, open: open.has(name) },
    el("summary", { class: "small" }, count(offered.length, kind)),
    el("ul", { class: "tools" }, entries),
  );
}
