/**
 * JSON whose numbers stay as they were written: 9007199254740993, 25 digits, `1.0` (HPAGE-71, DEV-90).
 *
 * A number that JavaScript would write otherwise is kept as `JSON.rawJSON`, an object that `JSON.stringify` writes as it
 * came. Whatever walks a value asks `isExact` before it takes such an object apart, and reckons with `numberOf`. Where the
 * browser knows no `JSON.rawJSON`, numbers are JavaScript's. Pure.
 */

// Only such texts have a number that JavaScript writes otherwise; a reviver takes five times as long as parsing alone.
const MAY_DIFFER = /\d{16}|\d[eE]|\.\d*0(?!\d)|-0/;
const WRITTEN = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

/** Parse JSON as `JSON.parse` does. */
export function parseJson(text) {
  if (JSON.rawJSON === undefined || !MAY_DIFFER.test(text)) return JSON.parse(text);
  try {
    return JSON.parse(text, kept);
  } catch (error) {
    if (error instanceof RangeError) return JSON.parse(text); // too deep for a reviver
    throw error;
  }
}

function kept(_, value, context) {
  if (typeof value !== "number") return value;
  const source = context?.source;
  return source === undefined || String(value) === source ? value : JSON.rawJSON(source);
}

/** Read the body of a response as `response.json()` does. */
export async function jsonOf(response) {
  return parseJson(await response.text());
}

/** Tell whether a value is a number that is kept as it was written. */
export function isExact(value) {
  return typeof value === "object" && JSON.isRawJSON?.(value) === true;
}

/** Return a number to reckon with; what is none stays as it is. */
export function numberOf(value) {
  return isExact(value) ? Number(value.rawJSON) : value;
}

/** Return a single value as text. */
export function textOf(value) {
  return isExact(value) ? value.rawJSON : String(value);
}

/** Return the number that somebody wrote, as it is written; NaN if it is none. */
export function writtenNumber(text) {
  return WRITTEN.test(text) ? parseJson(text) : Number(text);
}

/** Tell whether two single values are the same: 1.0 is 1, and long integers are compared digit by digit. */
export function isSame(one, other) {
  if (!isExact(one) && !isExact(other)) return one === other;
  const areWhole = [one, other].every((each) => /^-?\d+$/.test(textOf(each)));
  return areWhole ? textOf(one) === textOf(other) : numberOf(one) === numberOf(other);
}

/** Return an object whose own numbers can be reckoned with; what is in its members stays as it is. */
export function withNumbers(object) {
  if (object === null || typeof object !== "object" || isExact(object)) return object;
  for (const [name, value] of Object.entries(object)) if (isExact(value)) object[name] = numberOf(value);
  return object;
}
