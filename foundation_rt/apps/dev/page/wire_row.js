/** One exchange of the wire as a row that opens: a request with its response, or another message. */

import { el, fill } from "/shared/dom.js";
import { precise } from "/shared/format.js";
import { jsonNode, safely, textNode } from "/shared/results.js";
import { clientName, preciseTime, size, visible } from "./shown_text.js";

const LEGS = { client: "client", server: "program" };

/** Return what a message is, in a few words. */
export function wireTitle({ kind, method, message }) {
  if (kind === "response") return message?.error ? "error" : "result";
  if (kind === "batch") return "batch";
  return method ?? kind;
}

/** Return the messages without the responses whose requests are among them. */
export function exchanges(entries) {
  return entries.filter(({ request }) => request === undefined);
}

/** The row of a message; its content is made when it is opened, and again when its response comes. */
export class WireRow {
  #response = null;

  constructor(entry) {
    this.entry = entry;
    this.outcome = el("span", { class: "muted" });
    this.body = el("div", { class: "wire-body" });
    this.details = safely(() => rowNode(entry, this.outcome, this.body), entry.message ?? entry.text);
    this.details.addEventListener("toggle", () => this.details.open && this.#fill());
    this.node = el("li", {}, this.details);
    this.update();
  }

  /** Show the response, if it has come. */
  update() {
    const { response = null } = this.entry;
    if (response === this.#response) return;
    this.#response = response;
    const isError = response.message?.error !== undefined;
    if (isError) this.details.dataset.tone = "bad";
    const took = precise(Math.max(0, response.at - this.entry.at));
    this.outcome.textContent = ` ${wireTitle(response)} in ${took}, ${size(response.bytes)}`;
    if (this.body.childNodes.length > 0) this.#fill();
  }

  #fill() {
    const both = [this.entry, this.#response].filter(Boolean);
    if (this.body.childNodes.length >= both.length) return;
    fill(this.body, both.map((each) => el("div", {}, safely(contentNodes, each))));
  }
}

function rowNode(entry, outcome, body) {
  const isIn = entry.direction === "in";
  return el(
    "details",
    { class: "wire-row", data: { leg: entry.leg, tone: entry.message?.error ? "bad" : entry.kind } },
    el(
      "summary",
      {},
      el("time", { class: "muted" }, preciseTime(entry.at)),
      el(
        "span",
        { class: "wire-way", title: way(entry) },
        el("span", { class: "hidden" }, way(entry)),
        el("span", { "aria-hidden": "true" }, isIn ? "→" : "←"),
        el("span", { class: "muted wire-peer", "aria-hidden": "true" }, peer(entry)),
      ),
      el("span", { class: "wire-title" }, visible(wireTitle(entry), 80), name(entry), outcome),
      el("span", { class: "muted wire-size" }, entry.id === null || entry.id === undefined ? null : el("span", { class: "wire-id" }, `#${visible(entry.id, 16)} `), size(entry.bytes)),
    ),
    body,
  );
}

function peer(entry) {
  return entry.leg === "server" ? visible(entry.server ?? "program", 24) : clientName(entry.client ?? "client");
}

function way(entry) {
  const who = `${LEGS[entry.leg]} ${peer(entry)}`;
  if (entry.leg === "server") return entry.direction === "in" ? `to ${who}` : `from ${who}`;
  return entry.direction === "in" ? `from ${who}` : `to ${who}`;
}

function name({ method, message }) {
  const params = message?.params;
  const said = params?.name ?? params?.uri ?? null;
  return said === null || method === "initialize" ? null : el("span", { class: "wire-name" }, ` ${visible(said, 80)}`);
}

function contentNodes(entry) {
  if (entry.message !== null && entry.message !== undefined) return [jsonNode(entry.message)];
  const note = entry.truncated ? `The first ${entry.text?.length ?? 0} characters of ${size(entry.bytes)}.` : "This is no JSON.";
  return [el("p", { class: "muted small" }, note), textNode(entry.text ?? "")];
}
