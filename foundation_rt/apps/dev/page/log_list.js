/** A list of log records, and of log messages of the protocol. */

import { el } from "/shared/dom.js";
import { duration } from "/shared/format.js";
import { isRecord } from "/shared/schema.js";
import { preciseTime, visible } from "./shown_text.js";

const MOST_FRAMES = 20;

const TONES = new Map([
  ["warn", "warn"],
  ["error", "bad"],
  ["critical", "bad"],
  ["alert", "bad"],
  ["emergency", "bad"],
]);

/**
 * Make the node of a record: {at, level, message, fields, server}.
 *
 * `since`: the Unix time in ms from which its time is counted; without it, it has the time of day and its server.
 */
export function recordNode({ at, level, message, fields, server }, { since = null } = {}) {
  const members = Object.entries(fields ?? {});
  const errors = members.filter(([, value]) => isException(value)).map(([, value]) => exceptionNode(value));
  const rest = members.filter(([, value]) => !isException(value));
  const isPlain = since !== null && (level === "info" || level === "stderr");
  return el(
    "li",
    { class: "record-line", data: { tone: TONES.get(level) ?? "plain" } },
    el("time", { class: "muted" }, since === null ? preciseTime(at) : `+${duration(Math.max(0, at - since))}`),
    isPlain ? null : el("span", { class: "level" }, visible(level, 12)),
    el(
      "span",
      { class: "said-line" },
      since === null && server ? el("span", { class: "muted" }, `${visible(server, 40)}: `) : null,
      ...errors,
      visible(message, 2000),
      rest.length > 0 ? el("span", { class: "muted" }, ` ${rest.map(member).join(" ")}`) : null,
    ),
  );
}

function member([name, value]) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return `${visible(name, 60)}=${visible(text, 300)}`;
}

/** Return whether a value is an exception, as the runtime logs it. */
function isException(value) {
  return value !== null && typeof value === "object" && Array.isArray(value.frames) && typeof value.type === "string";
}

/** A group of one exception is shown as that one, a larger group before its exceptions. */
function exceptionNode({ type, message, frames, exceptions = [] }) {
  if (exceptions.length === 1) return exceptionNode(exceptions[0]);
  return el(
    "span",
    { class: "exception" },
    el("span", { class: "error-text" }, `${visible(type, 120)}: ${visible(message, 1000)}`),
    // The innermost first: it is the author's, more often than not.
    ...frames.slice(-MOST_FRAMES).reverse().map((frame) => el("span", { class: "muted" }, `at ${visible(frame, 300)}`)),
    ...exceptions.map(exceptionNode),
  );
}

/** Return a log message of the protocol in the form of a record. */
export function messageRecord({ level, logger, data }, at) {
  const isText = typeof data === "string";
  const { message, ...rest } = isRecord(data) ? data : {};
  const said = isText ? data : typeof message === "string" ? message : JSON.stringify(data);
  return { at, level: level === "warning" ? "warn" : level, message: said, fields: typeof message === "string" ? rest : {}, server: logger };
}
