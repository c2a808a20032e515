/** What an empty chat shows: its model, its servers, examples made from the tools, and what the host lacks (HPAGE-19). */

import { el } from "./dom.js";
import { numberOf } from "./exact_numbers.js";
import { count, cut } from "./format.js";
import { markdown } from "./markdown.js";

const MOST_EXAMPLES = 4;

/** Return examples from the tools, at first one per server: {title, detail, text}. Pure. */
export function examples(servers) {
  const queues = servers
    .filter(({ state, tools }) => state === "ready" && tools)
    .map(({ id, tools }) => tools.filter((tool) => !tool.forApps && !isDeprecated(tool)).map((tool) => ({ id, tool })));
  const chosen = [];
  for (let at = 0; chosen.length < MOST_EXAMPLES && queues.some((queue) => at < queue.length); at += 1) {
    for (const queue of queues) if (at < queue.length) chosen.push(queue[at]);
  }
  return chosen.slice(0, MOST_EXAMPLES).map(({ id, tool }) => example(id, tool));
}

function isDeprecated({ title, description }) {
  return /\bdeprecated\b/i.test(`${title ?? ""} ${description ?? ""}`);
}

function example(server, { name, title, description, inputSchema }) {
  const values = (inputSchema?.required ?? []).map(
    (key, at) => `${key}=${sample(inputSchema.properties?.[key] ?? {}, at)}`,
  );
  return {
    title: title ?? name.replaceAll(/[_-]/g, " "),
    detail: cut((description ?? `A tool of ${server}`).split("\n")[0], 90),
    text: [`/${server}:${name}`, ...values].join(" "),
  };
}

function sample(schema, at) {
  const given = schema.default ?? schema.examples?.[0] ?? schema.enum?.[0];
  if (given !== undefined) return JSON.stringify(given);
  if (schema.type === "integer" || schema.type === "number")
    return Math.max(at + 2, numberOf(schema.minimum) ?? at + 2);
  if (schema.type === "boolean") return "true";
  if (schema.type === "array") return "[]";
  if (schema.type === "object") return "{}";
  return '"hello"';
}

function serverLine({ id, state, tools }) {
  const what = state !== "ready" ? state : tools ? count(tools.length, "tool") : "";
  return el("li", {}, el("strong", {}, id), what && el("span", { class: "muted" }, ` ${what}`));
}

/** Return what one can do here: of the provider without a model, call tools. */
function headingOf(provider, model) {
  if (provider === "rules") return "Call a tool by its name";
  return model || provider ? `Chat with ${model || provider}` : "New chat";
}

/** Make the node; `status`: as the host tells it; `onChoose(text)` gets the text of an example. */
export function welcomeNode({ status, servers, onChoose }) {
  const { hint, provider, model } = status ?? {};
  const cards = examples(servers).map(({ title, detail, text }) =>
    el(
      "button",
      { type: "button", class: "example", on: { click: () => onChoose(text) } },
      el("strong", {}, title),
      el("span", { class: "muted small" }, detail),
    ),
  );
  return el(
    "div",
    { class: "welcome" },
    el("h2", {}, headingOf(provider, model)),
    servers.length > 0 ? el("ul", { class: "server-line", "aria-label": "Servers" }, servers.map(serverLine)) : null,
    hint ? el("div", { class: "hint", role: "note" }, markdown(hint)) : null,
    cards.length > 0 ? el("h3", {}, "Try a tool") : null,
    cards.length > 0 ? el("div", { class: "examples" }, ...cards) : null,
  );
}
