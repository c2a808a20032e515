/** Writes numbers, times and names as people read them. Pure. */

import { isExact } from "./exact_numbers.js";

/** Write a duration given in ms. */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** Write a duration given in ms, with a decimal where it is short. */
export function precise(ms) {
  return ms < 10 ? `${ms.toFixed(1)} ms` : duration(ms);
}

/** Write a count: "1 tool", "2 tools". */
export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** Write a number of bytes. */
export function bytes(number) {
  if (number < 1024) return count(number, "byte");
  return number < 1024 * 1024 ? `${Math.round(number / 1024)} KiB` : `${(number / 1024 / 1024).toFixed(1)} MiB`;
}

/** Write the time of day of a Unix time in ms, or of an ISO 8601 time; null if it is neither. */
export function timeOfDay(value) {
  const time = new Date(value);
  if (value === null || value === undefined || Number.isNaN(time.getTime())) return null;
  return time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/** Cut a text to `length` characters. */
export function cut(text, length) {
  const characters = [...text.slice(0, 2 * length + 2)];
  return characters.length <= length
    ? text
    : `${characters
        .slice(0, length - 1)
        .join("")
        .trimEnd()}…`;
}

/** Split `server:tool` at its first colon. */
export function splitName(name) {
  const at = name.indexOf(":");
  return at < 0 ? { server: "", tool: name } : { server: name.slice(0, at), tool: name.slice(at + 1) };
}

// Format characters, spaces but for the plain one, and what fonts draw nothing for.
const UNSEEN =
  /(?![\n ])[\p{Cc}\p{Cf}\p{Z}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu;

/**
 * Write characters that are not seen, or turn the direction of what follows, as JSON's escapes: what is read is what is
 * there, and JSON stays the same value (HPAGE-38).
 */
export function visible(text) {
  const escape = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return text.replace(UNSEEN, (each) => each.split("").map(escape).join(""));
}

// Deeper lines begin where this one does: a text of n levels has no n² spaces.
const DEEPEST_INDENT = 32;

/**
 * Write a JSON value as `JSON.stringify(value, null, indent)` does, whatever its depth; what is beyond `most` characters
 * is left out.
 */
export function jsonText(value, { most = Infinity, indent = 2 } = {}) {
  const pieces = [];
  const open = [];
  let length = 0;
  const write = (piece) => {
    pieces.push(piece);
    length += piece.length;
  };
  const newLine = () => indent > 0 && write(`\n${" ".repeat(indent * Math.min(open.length, DEEPEST_INDENT))}`);
  const begin = (each) => {
    if (each === null || typeof each !== "object" || isExact(each)) {
      write(JSON.stringify(typeof each === "string" ? each.slice(0, most) : each) ?? "null");
      return;
    }
    const names = Array.isArray(each) ? null : Object.keys(each).filter((name) => each[name] !== undefined);
    open.push({ each, names, at: 0, size: names === null ? each.length : names.length });
    write(names === null ? "[" : "{");
  };
  begin(value);
  while (open.length > 0 && length <= most) {
    const inner = open.at(-1);
    const { each, names, at, size } = inner;
    if (at === size) {
      open.pop();
      if (size > 0) newLine();
      write(names === null ? "]" : "}");
      continue;
    }
    if (at > 0) write(",");
    newLine();
    if (names !== null) write(indent > 0 ? `${JSON.stringify(names[at])}: ` : `${JSON.stringify(names[at])}:`);
    inner.at += 1;
    begin(each[names === null ? at : names[at]]);
  }
  return pieces.join("").slice(0, most);
}
