/**
 * A form made from a JSON Schema of an object (HPAGE-15, HPAGE-16). Knows nothing of chats.
 *
 * It has a field for each string (formats, lengths, patterns), number, integer, boolean, choice (`enum` with
 * `enumNames`, `oneOf` or `anyOf` with titles) and choice of several (an array of those). Anything else is written as
 * JSON. Fields that are not required and are left empty are left out of the value.
 */

import { el } from "./dom.js";

const INPUT_OF_FORMAT = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };
let formCount = 0;

export class SchemaForm {
  #fields;

  constructor(schema) {
    formCount += 1;
    const required = new Set(schema?.required ?? []);
    const members = Object.entries(schema?.properties ?? {});
    this.#fields = members.map(
      ([name, member], at) => new Field(`form-${formCount}-${at}`, name, member, required.has(name)),
    );
    this.node = el("div", { class: "fields" }, ...this.#fields.map((field) => field.node));
  }

  /** Return {value, problems}; what is wrong is shown at its field, and the first such field gets the focus. */
  read() {
    const value = {};
    const problems = [];
    for (const field of this.#fields) {
      const { value: own, problem } = field.read();
      if (problem !== null) problems.push({ name: field.name, problem });
      else if (own !== undefined) Object.defineProperty(value, field.name, { value: own, ...MEMBER });
    }
    this.#fields.find((field) => field.hasProblem)?.focus();
    return { value, problems };
  }

  /** Give the focus to the first field; returns whether there is one. */
  focus() {
    this.#fields[0]?.focus();
    return this.#fields.length > 0;
  }
}

// A member may be called `__proto__`.
const MEMBER = { enumerable: true, writable: true, configurable: true };

class Field {
  hasProblem = false;

  constructor(id, name, schema, isRequired) {
    this.name = name;
    this.isRequired = isRequired;
    this.control = control(id, schema ?? {}, isRequired);
    this.problem = el("p", { class: "problem", id: `${id}-problem` });
    const label = schema?.title ?? name;
    const optional = isRequired ? null : el("span", { class: "muted" }, " (optional)");
    const description = schema?.description
      ? el("p", { class: "muted small", id: `${id}-help` }, schema.description)
      : null;
    this.control.describe([description && `${id}-help`, `${id}-problem`].filter(Boolean).join(" "));
    this.node = this.control.isGroup
      ? el(
          "fieldset",
          { class: "field" },
          el("legend", {}, label, optional),
          description,
          this.control.node,
          this.problem,
        )
      : el(
          "div",
          { class: "field" },
          el("label", { for: id }, label, optional),
          description,
          this.control.node,
          this.problem,
        );
    if (this.control.isTick) {
      this.node.classList.add("tick");
      this.node.prepend(this.control.node);
    }
  }

  read() {
    const { value, problem = null } = this.control.read();
    const isMissing = problem === null && value === undefined && this.isRequired;
    const shown = isMissing ? "Fill this in." : problem;
    this.hasProblem = shown !== null;
    this.problem.textContent = shown ?? "";
    this.control.mark(this.hasProblem);
    return { value, problem: shown };
  }

  focus() {
    this.control.focus();
  }
}

/** Return the control of a schema: {node, read, describe, mark, focus, isGroup, isTick}. */
function control(id, schema, isRequired) {
  const options = choices(schema);
  if (options !== null) return selection(id, schema, options, isRequired);
  if (schema.type === "array" && choices(schema.items ?? {}) !== null)
    return severalOf(id, schema, choices(schema.items));
  if (schema.type === "boolean") return tick(id, schema);
  if (schema.type === "integer" || schema.type === "number") return number(id, schema);
  if (schema.type === "string") return text(id, schema);
  return json(id, schema);
}

function choices(schema) {
  if (Array.isArray(schema.enum)) {
    return schema.enum.map((value, at) => ({ value, title: String(schema.enumNames?.[at] ?? value) }));
  }
  const titled = schema.oneOf ?? schema.anyOf;
  if (!Array.isArray(titled) || titled.length === 0 || !titled.every((each) => "const" in each)) return null;
  return titled.map((each) => ({ value: each.const, title: String(each.title ?? each.const) }));
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
  const at = options.findIndex(({ value }) => value === schema.default);
  const none = el("option", { value: "" }, isRequired ? "Choose…" : "No choice");
  const node = el(
    "select",
    { id, "aria-required": String(isRequired) },
    at >= 0 && isRequired ? null : none,
    ...options.map(({ title }, index) =>
      el("option", { value: String(index), selected: index === at }, title),
    ),
  );
  return single(node, () => ({ value: node.value === "" ? undefined : options[Number(node.value)].value }));
}

function severalOf(id, schema, options) {
  const ticked = new Set(schema.default ?? []);
  const boxes = options.map(({ value }, at) =>
    el("input", { type: "checkbox", id: `${id}-${at}`, checked: ticked.has(value) }),
  );
  const node = el(
    "div",
    { class: "several" },
    ...options.map(({ title }, at) => el("label", {}, boxes[at], el("span", {}, title))),
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
  node.value = schema.default ?? "";
  return single(node, () => {
    const written = node.value.trim();
    if (written === "") return { value: undefined };
    const value = Number(written);
    return { value, problem: numberProblem(value, isInteger, schema) };
  });
}

function numberProblem(
  value,
  isInteger,
  { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf },
) {
  if (!Number.isFinite(value)) return "Write a number.";
  if (isInteger && !Number.isSafeInteger(value)) return "Write a whole number.";
  if (minimum !== undefined && value < minimum) return `Write ${minimum} or more.`;
  if (maximum !== undefined && value > maximum) return `Write ${maximum} or less.`;
  if (exclusiveMinimum !== undefined && value <= exclusiveMinimum)
    return `Write more than ${exclusiveMinimum}.`;
  if (exclusiveMaximum !== undefined && value >= exclusiveMaximum)
    return `Write less than ${exclusiveMaximum}.`;
  if (multipleOf && Math.abs(value / multipleOf - Math.round(value / multipleOf)) > 1e-9)
    return `Write a multiple of ${multipleOf}.`;
  return null;
}

function text(id, schema) {
  const type = INPUT_OF_FORMAT[schema.format];
  const isLong = type === undefined && (schema.maxLength ?? 0) > 200;
  const node = isLong
    ? el("textarea", { id, rows: 3 })
    : el("input", { type: type ?? "text", id, autocomplete: "off" });
  node.value = type === "datetime-local" ? localTime(schema.default) : (schema.default ?? "");
  return single(node, () => {
    if (node.validity?.badInput) return { value: node.value, problem: "Write a whole date." };
    if (node.value === "") return { value: undefined };
    const value = type === "datetime-local" ? new Date(node.value).toISOString() : node.value;
    return { value, problem: textProblem(value, schema, node) };
  });
}

function localTime(value) {
  const time = new Date(value ?? NaN);
  if (Number.isNaN(time.getTime())) return "";
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
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
      return { value: JSON.parse(node.value) };
    } catch (error) {
      return { value: undefined, problem: `This is not JSON: ${error.message}` };
    }
  });
}
