/** Controls of single values: texts, numbers, ticks, choices, bytes, JSON. */

import { el } from "./dom.js";
import { isSame, numberOf, parseJson, textOf, writtenNumber } from "./exact_numbers.js";
import { choices } from "./schema.js";

const INPUT_OF_FORMAT = new Map([
  ["email", "email"],
  ["uri", "url"],
  ["date", "date"],
  ["date-time", "datetime-local"],
]);

/** Return the control of a schema: {node, read, describe, mark, focus, isGroup, isTick}. */
export function control(id, schema, { isRequired, isNullable = false }) {
  if ("const" in schema) return constant(id, schema, isRequired);
  const options = choices(schema);
  if (options !== null) return selection(id, schema, options, isRequired && !isNullable);
  if (schema.type === "array" && choices(schema.items ?? {}) !== null)
    return severalOf(id, schema, choices(schema.items));
  if (schema.type === "boolean")
    return isNullable ? selection(id, schema, YES_OR_NO, false) : tick(id, schema);
  if (schema.type === "integer" || schema.type === "number") return number(id, schema);
  if (schema.type === "string") return isBytes(schema) ? bytes(id, schema) : text(id, schema);
  return json(id, schema);
}

const YES_OR_NO = [
  { value: true, title: "Yes" },
  { value: false, title: "No" },
];

function constant(id, schema, isRequired) {
  const node = el("input", { type: "text", id, readonly: true });
  node.value = typeof schema.const === "string" ? schema.const : JSON.stringify(schema.const);
  return single(node, () => ({ value: isRequired ? schema.const : undefined }));
}

function isBytes({ contentEncoding, format }) {
  return contentEncoding === "base64" || ["byte", "base64", "binary"].includes(format);
}

/** Text of base64, which a file can be read into. */
function bytes(id, schema) {
  const area = el("textarea", { id, rows: 2, class: "mono", spellcheck: "false", placeholder: "base64" });
  area.value = schema.default ?? "";
  const file = el("input", { type: "file", "aria-label": `File for ${schema.title || "these bytes"}` });
  file.addEventListener("change", async () => {
    if (file.files[0]) area.value = await asBase64(file.files[0]);
  });
  const own = single(area, () => {
    const written = area.value.replaceAll(/\s/g, "");
    if (written === "") return { value: undefined };
    const isWhole = /^[A-Za-z0-9+/_-]*={0,2}$/.test(written) && written.length % 4 === 0;
    return { value: written, problem: isWhole ? null : "Write base64, or choose a file." };
  });
  return { ...own, node: el("div", { class: "bytes" }, area, file) };
}

function asBase64(file) {
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result.slice(reader.result.indexOf(",") + 1)));
    reader.addEventListener("error", () => resolve(""));
    reader.readAsDataURL(file);
  });
}

function single(node, read) {
  return {
    node,
    read,
    describe: (ids) => node.setAttribute("aria-describedby", ids),
    mark: (isWrong) => node.setAttribute("aria-invalid", String(isWrong)),
    focus: () => node.focus(),
  };
}

function selection(id, schema, options, isRequired) {
  const at = options.findIndex(({ value }) => isSame(value, schema.default));
  const none = el("option", { value: "" }, isRequired ? "Choose…" : "No choice");
  const node = el(
    "select",
    { id, "aria-required": String(isRequired) },
    at >= 0 && isRequired ? null : none,
    options.map(({ title }, index) =>
      el("option", { value: String(index), selected: index === at }, title),
    ),
  );
  return single(node, () => ({ value: node.value === "" ? undefined : options[Number(node.value)].value }));
}

function severalOf(id, schema, options) {
  const preset = Array.isArray(schema.default) ? schema.default : [];
  const ticked = options.map(({ value }) => preset.some((each) => isSame(each, value)));
  const boxes = options.map((_, at) =>
    el("input", { type: "checkbox", id: `${id}-${at}`, checked: ticked[at] }),
  );
  const node = el(
    "div",
    { class: "several" },
    options.map(({ title }, at) => el("label", {}, boxes[at], el("span", {}, title))),
  );
  const read = () => {
    const value = options.filter((_, at) => boxes[at].checked).map((option) => option.value);
    return value.length === 0 && !schema.minItems
      ? { value }
      : { value, problem: lengthProblem(value.length, schema) };
  };
  const describe = (ids) => boxes.forEach((box) => box.setAttribute("aria-describedby", ids));
  const mark = (isWrong) => boxes.forEach((box) => box.setAttribute("aria-invalid", String(isWrong)));
  return { node, read, describe, mark, focus: () => boxes[0]?.focus(), isGroup: true };
}

function lengthProblem(length, { minItems = 0, maxItems = Infinity }) {
  if (length < minItems) return `Choose at least ${minItems}.`;
  return length > maxItems ? `Choose at most ${maxItems}.` : null;
}

function tick(id, schema) {
  const node = el("input", { type: "checkbox", id, checked: schema.default === true });
  return { ...single(node, () => ({ value: node.checked })), isTick: true };
}

function number(id, schema) {
  const isInteger = schema.type === "integer";
  const node = el("input", {
    type: "text",
    id,
    inputmode: isInteger ? "numeric" : "decimal",
    autocomplete: "off",
  });
  node.value = textOf(schema.default ?? "");
  return single(node, () => {
    const written = node.value.trim();
    if (written === "") return { value: undefined };
    const value = writtenNumber(written);
    return { value, problem: numberProblem(numberOf(value), isInteger, schema) };
  });
}

const LIMITS = [
  ["minimum", (value, limit) => value >= limit, (limit) => `Write ${limit} or more.`],
  ["maximum", (value, limit) => value <= limit, (limit) => `Write ${limit} or less.`],
  ["exclusiveMinimum", (value, limit) => value > limit, (limit) => `Write more than ${limit}.`],
  ["exclusiveMaximum", (value, limit) => value < limit, (limit) => `Write less than ${limit}.`],
  ["multipleOf", isMultiple, (limit) => `Write a multiple of ${limit}.`],
];

function numberProblem(value, isInteger, schema) {
  if (!Number.isFinite(value)) return "Write a number.";
  if (isInteger && !Number.isInteger(value)) return "Write a whole number.";
  const broken = LIMITS.find(([name, holds]) => schema[name] !== undefined && !holds(value, numberOf(schema[name])));
  return broken === undefined ? null : broken[2](textOf(schema[broken[0]]));
}

function isMultiple(value, of) {
  return !of || Math.abs(value / of - Math.round(value / of)) <= 1e-9;
}

function text(id, schema) {
  const type = INPUT_OF_FORMAT.get(schema.format);
  const isLong =
    type === undefined && ((schema.maxLength ?? 0) > 200 || textOf(schema.default ?? "").includes("\n"));
  const node = isLong
    ? el("textarea", { id, rows: 3 })
    : el("input", { type: type ?? "text", id, autocomplete: "off" });
  if (type === "datetime-local") node.step = "any";
  node.value = type === "datetime-local" ? localTime(schema.default) : textOf(schema.default ?? "");
  const shown = node.value;
  const { seen } = node.localName === "input" && type === undefined ? growing(node) : { seen: () => node };
  const read = () => {
    if (node.validity?.badInput) return { value: node.value, problem: "Write a whole date or time." };
    const written = seen().value;
    if (written === "") return { value: undefined };
    // A default is sent as it is written, with its offset.
    const isDefault = written === shown && schema.default !== undefined;
    const value = isDefault ? schema.default : type === "datetime-local" ? new Date(written).toISOString() : written;
    return { value, problem: textProblem(value, schema, node) };
  };
  return {
    ...single(node, read),
    mark: (isWrong) => seen().setAttribute("aria-invalid", String(isWrong)),
    focus: () => seen().focus(),
  };
}

/** A line becomes an area with Shift+Enter, or when lines are pasted into it. */
function growing(line) {
  const area = el("textarea", { rows: 4 });
  const grow = (text, at) => {
    for (const { name, value } of line.attributes) if (name !== "type") area.setAttribute(name, value);
    area.value = text;
    line.replaceWith(area);
    area.focus();
    area.setSelectionRange(at, at);
  };
  const put = (text) => {
    const { value, selectionStart, selectionEnd } = line;
    grow(value.slice(0, selectionStart) + text + value.slice(selectionEnd), selectionStart + text.length);
    area.dispatchEvent(new Event("input", { bubbles: true }));
  };
  line.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !event.shiftKey) return;
    event.preventDefault();
    put("\n");
  });
  line.addEventListener("paste", (event) => {
    const pasted = event.clipboardData?.getData("text/plain") ?? "";
    if (!/[\r\n]/.test(pasted.trimEnd())) return;
    event.preventDefault();
    put(pasted.replaceAll(/\r\n?/g, "\n"));
  });
  return { seen: () => (area.isConnected ? area : line) };
}

function localTime(value) {
  const time = new Date(value ?? NaN);
  if (Number.isNaN(time.getTime())) return "";
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, -1);
}

function textProblem(value, schema, node) {
  const length = [...value].length;
  if (schema.minLength !== undefined && length < schema.minLength)
    return `Write at least ${schema.minLength} characters.`;
  if (schema.maxLength !== undefined && length > schema.maxLength)
    return `Write at most ${schema.maxLength} characters.`;
  if (schema.pattern !== undefined && !matches(value, schema.pattern))
    return `Write a text that matches ${schema.pattern}`;
  if (schema.format === "email" && node.validity.typeMismatch)
    return "Write an email address, such as ann@example.org.";
  if (schema.format === "uri" && node.validity.typeMismatch)
    return "Write an address, such as https://example.org.";
  return null;
}

// A pattern of a server could run for hours; one that looks as if it could is left to the server, which checks anyway.
function matches(value, pattern) {
  if (/[+*}][^)]*\)[+*{]/.test(pattern) || value.length > 1000) return true;
  try {
    return new RegExp(pattern, "u").test(value);
  } catch {
    return true;
  }
}

function json(id, schema) {
  const node = el("textarea", { id, rows: 3, class: "mono", spellcheck: "false", placeholder: "JSON" });
  node.value = schema.default === undefined ? "" : JSON.stringify(schema.default, null, 2);
  return single(node, () => {
    if (node.value.trim() === "") return { value: undefined };
    try {
      return { value: parseJson(node.value) };
    } catch (error) {
      return { value: undefined, problem: `This is not JSON: ${error.message}` };
    }
  });
}
