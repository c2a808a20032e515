/** What a request has come to: its result or its error in words, and as JSON. */

import { el } from "/shared/dom.js";
import { textOf } from "/shared/exact_numbers.js";
import { errorNodes, errorWords, jsonNode, safely } from "/shared/results.js";
import { CancelledError, LostError, RpcError } from "./rpc_errors.js";
import { visible } from "./shown_text.js";
import { Tabs } from "./tabs.js";

const MEANINGS = new Map([
  ["-32700", "the message was no JSON"],
  ["-32600", "the request was not valid"],
  ["-32601", "the server has no such method"],
  ["-32602", "the parameters were not valid"],
  ["-32603", "the server failed"],
  ["-32002", "there is no such resource"],
]);

/** Make the tabs of an outcome; `nodes` makes what people read, `raw` is what came, `more` are further tabs. */
export function outcomeTabs(title, { isError, nodes, raw }, more = []) {
  return new Tabs(`Outcome of ${visible(title, 80)}`, [
    { id: "result", label: isError ? "Error" : "Result", make: () => el("div", { class: "result" }, safely(nodes, raw)) },
    { id: "json", label: "JSON", make: () => jsonNode(raw) },
    ...more,
  ]);
}

/** Return the outcome of a request that has thrown. */
export function outcomeOfError(error) {
  const { code, message, data } = error;
  const raw = { error: { ...(code === undefined ? {} : { code }), message, ...(data === undefined ? {} : { data }) } };
  return { isError: !(error instanceof CancelledError), nodes: () => failureNodes(error), raw };
}

/** Return the outcome of a request that was answered; `nodes` makes what people read of its result. */
export function outcomeOfResult(result, nodes) {
  const isError = result?.isError === true;
  const words = isError ? errorWords(result) : null;
  const note = isError ? [el("p", { class: "error-text" }, "The tool reported an error.")] : [];
  return { isError, nodes: () => (words ? errorNodes(words) : [...note, ...nodes(result)]), raw: result };
}

/** Return how a request has ended: done | failed | cancelled | unknown. */
export function endOf(error) {
  if (error instanceof CancelledError) return "cancelled";
  return error instanceof LostError ? "unknown" : "failed";
}

function failureNodes(error) {
  if (error instanceof CancelledError) return [el("p", { class: "muted" }, "Cancelled here; the server was told.")];
  const said = el("p", { class: "error-text" }, visible(error.message, 4000));
  if (error instanceof LostError)
    return [said, el("p", { class: "muted small" }, "Whether the request was carried out is not known.")];
  const { code, data } = error;
  const meaning = MEANINGS.has(textOf(code)) ? `: ${MEANINGS.get(textOf(code))}` : "";
  return [
    said,
    ...(error instanceof RpcError && code !== undefined ? [el("p", { class: "muted small" }, `Error ${visible(code, 20)}${meaning}`)] : []),
    ...(data === undefined ? [] : [jsonNode(data)]),
  ];
}
