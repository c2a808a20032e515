/** One message of the wire as a row that opens. */

import { el, fill } from "/shared/dom.js";
import { jsonNode, textNode } from "/shared/results.js";
import { clientName, preciseTime, size, visible } from "./shown_text.js";

const LEGS = { client: "client", server: "program" };

/** Return what a message is, in a few words. */
export function wireTitle({ kind, method, message }) {
  if (kind === "response") return message?.error ? "error" : "result";
  if (kind === "batch") return "batch";
  return method ?? kind;
}

/** Make the row of a message; its content is made when it is opened. */
export function wireRow(entry) {
  const isIn = entry.direction === "in";
  const body = el("div", { class: "wire-body" });
  const details = el(
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
      el("span", { class: "wire-title" }, visible(wireTitle(entry), 80), name(entry)),
      el("span", { class: "muted wire-size" }, entry.id === null || entry.id === undefined ? null : el("span", { class: "wire-id" }, `#${visible(entry.id, 16)} `), size(entry.bytes)),
    ),
    body,
  );
  details.addEventListener("toggle", () => {
    if (details.open && body.childNodes.length === 0) fill(body, ...contentNodes(entry));
  });
  return el("li", {}, details);
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
  return said === null || method === "initialize" ? null : el("span", { class: "muted" }, ` ${visible(said, 80)}`);
}

function contentNodes(entry) {
  if (entry.message !== null && entry.message !== undefined) return [jsonNode(entry.message)];
  const note = entry.truncated ? `The first ${entry.text?.length ?? 0} characters of ${size(entry.bytes)}.` : "This is no JSON.";
  return [el("p", { class: "muted small" }, note), textNode(entry.text ?? "")];
}
