/** Writes numbers, times and names as people read them. Pure. */

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

/** Write the time of day of a Unix time in ms, or of an ISO 8601 time; null if it is neither. */
export function timeOfDay(value) {
  const time = new Date(value);
  if (value === null || value === undefined || Number.isNaN(time.getTime())) return null;
  return time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/** Cut a text to `length` characters. */
export function cut(text, length) {
  const characters = [...text];
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
