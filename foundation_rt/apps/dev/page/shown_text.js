/** Shows names and short texts of servers so that nothing in them is hidden (DEV-77). Pure. */

import { numberOf, textOf } from "/shared/exact_numbers.js";
import { cut } from "/shared/format.js";

const LONGEST = 300;
// Control characters, and those that turn the direction of what follows or take no room.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Return a text of one line: control characters as symbols, cut where it is too long. */
export function visible(text, longest = LONGEST) {
  return cut(textOf(text ?? "").slice(0, longest * 2), longest).replaceAll(HIDDEN, symbol);
}

/** Return a text of several lines: control characters as symbols, all else as it is. */
export function visibleLines(text) {
  return textOf(text ?? "").replaceAll(HIDDEN, (each) => (each === "\n" || each === "\t" ? each : each === "\r" ? "" : symbol(each)));
}

/** The name that the page has as a client. */
export const PAGE_NAME = "foundation-rt-dev-page";

/** Return the name of a client, for people. */
export function clientName(name) {
  return name === PAGE_NAME ? "this page" : visible(name ?? "–", 60);
}

function symbol(character) {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return `\\u${code.toString(16).padStart(4, "0")}`;
}

/** Write a size in bytes. */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} KiB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

/** Write since when something is: the time of day of a Unix time in ms, with the date if that is not today's. */
export function sinceTime(at) {
  const time = new Date(numberOf(at));
  if (time.toDateString() === new Date().toDateString()) return time.toLocaleTimeString([], { hour12: false });
  return time.toLocaleString([], { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hour12: false });
}

/** Write the time of day of a Unix time in ms, with milliseconds. */
export function preciseTime(at) {
  const time = new Date(numberOf(at));
  if (Number.isNaN(time.getTime())) return "";
  const ms = String(time.getMilliseconds()).padStart(3, "0");
  return `${time.toLocaleTimeString([], { hour12: false })}.${ms}`;
}
