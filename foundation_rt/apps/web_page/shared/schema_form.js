/**
 * A form made from a JSON Schema of an object (HPAGE-15, HPAGE-16, DEV-64). Knows nothing of chats.
 *
 * It has a field for each string (formats, lengths, patterns, base64), number, integer, boolean, constant, choice
 * (`enum` with `enumNames`, `oneOf` or `anyOf` with titles), choice of several (an array of those), list, tuple, object,
 * map and union, with references followed. Anything else is written as JSON. Fields that are not required and are left
 * empty or untouched are left out of the value; those with a default only in a sparse form.
 */

import { el } from "./dom.js";
import { compound } from "./schema_compounds.js";
import { control } from "./schema_controls.js";
import { hintOf, resolved, withoutNull } from "./schema.js";

// Objects in objects: beyond this depth, and beyond so many fields, they are written as JSON.
const DEEPEST = 8;
const MOST_FIELDS = 1000;
let formCount = 0;

export class SchemaForm {
  #fields;

  /**
   * `value`: what the fields hold at first, instead of the defaults of the schema. `hasHints`: each field says the type
   * and the limits of its value. `isSparse`: what nobody touches has its default at the receiver.
   */
  constructor(schema, value, { hasHints = false, isSparse = false } = {}) {
    formCount += 1;
    this.#fields = fieldsOf(resolved(schema, schema), value, {
      root: schema,
      hasHints,
      isSparse,
      depth: 0,
      prefix: `form-${formCount}`,
      counter: { next: 0 },
      fieldsOf,
      fieldOf: (name, member, isRequired, own, context) => new Field(name, member, isRequired, own, context),
    });
    this.node = el("div", { class: "fields" }, this.#fields.map((field) => field.node));
  }

  /** Return {value, problems}; what is wrong is shown at its field, and the first such field gets the focus. */
  read() {
    const { value, problems } = readFields(this.#fields);
    this.#fields.find((field) => field.hasProblem)?.focus();
    return { value, problems };
  }

  /** Return what the fields hold, as far as it can be read; nothing is shown as wrong. */
  peek() {
    return readFields(this.#fields, true).value;
  }

  /** Give the focus to the first field; returns whether there is one. */
  focus() {
    this.#fields[0]?.focus();
    return this.#fields.length > 0;
  }
}

// A member may be called `__proto__`.
const MEMBER = { enumerable: true, writable: true, configurable: true };

/** Read fields as the members of an object: {value, problems}. */
export function readFields(fields, isQuiet = false) {
  const value = {};
  const problems = [];
  for (const field of fields) {
    const { value: own, problem } = field.read(isQuiet);
    if (problem !== null) problems.push({ name: field.name, problem });
    if (own !== undefined && (problem === null || isQuiet))
      Object.defineProperty(value, field.name, { value: own, ...MEMBER });
  }
  return { value, problems };
}

/** Make the fields of an object's members. */
function fieldsOf(schema, value, context) {
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  return Object.entries(schema.properties ?? {}).map(([name, member]) => {
    const own = value !== undefined && Object.hasOwn(value ?? {}, name) ? value[name] : undefined;
    // A value that was given for the object is the whole of it: what it lacks has no default.
    return new Field(name, member, required.has(name), own, context, value !== undefined);
  });
}

class Field {
  hasProblem = false;

  constructor(name, member, isRequired, value, context, isWhole = false) {
    const id = `${context.prefix}-${context.counter.next++}`;
    const { schema, isNullable } = withoutNull(resolved(member, context.root), context.root);
    const inner = { ...context, depth: context.depth + 1, counter: context.counter };
    const preset = isWhole || value !== undefined ? { ...schema, default: value } : schema;
    const isNull = preset.default === null && isNullable;
    const own = isNull ? { ...preset, default: undefined } : preset;
    this.name = name;
    this.label = schema.title || name;
    this.isRequired = isRequired;
    this.isNullable = isNullable;
    const isEmpty = context.isSparse || schema.default === undefined;
    this.isLeftOut = isEmpty && !isRequired && value === undefined;
    const isDeep = context.depth >= DEEPEST || context.counter.next > MOST_FIELDS;
    this.control =
      compound(id, own, { label: this.label, isRequired: isRequired && !isNullable, isDeep }, inner) ??
      control(id, own, { isRequired, isNullable });
    this.#makeNode(id, schema, context.hasHints ? hintOf(schema) : "");
  }

  #makeNode(id, schema, hint) {
    this.problem = el("p", { class: "problem", id: `${id}-problem` });
    const presence = this.isRequired ? (this.isNullable ? "required; empty: null" : "required") : "optional";
    const notes = [hint, presence].filter(Boolean).join("; ");
    const note = notes && el("span", { class: "muted" }, ` (${notes})`);
    const description = schema.description
      ? el("p", { class: "muted small", id: `${id}-help` }, schema.description)
      : null;
    this.control.describe([description && `${id}-help`, `${id}-problem`].filter(Boolean).join(" "));
    const isGroup = this.control.isGroup;
    const heading = isGroup ? el("legend", {}, this.label, note) : el("label", { for: id }, this.label, note);
    const parts = [heading, description, this.control.node, this.problem];
    this.node = el(isGroup ? "fieldset" : "div", { class: "field" }, ...parts);
    this.node.addEventListener("input", () => (this.isLeftOut = false));
    this.node.addEventListener("click", ({ target }) => {
      if (target.closest("button")) this.isLeftOut = false;
    });
    if (this.control.isTick) {
      this.node.classList.add("tick");
      this.node.prepend(this.control.node);
    }
  }

  read(isQuiet = false) {
    if (this.isLeftOut) return { value: undefined, problem: null };
    const { value: read, problem = null, isWrongInside = false } = this.control.read(isQuiet);
    const value = read === undefined && this.isRequired && this.isNullable ? null : read;
    if (isQuiet) return { value, problem };
    const isMissing = problem === null && value === undefined && this.isRequired;
    const shown = isMissing ? "Fill this in." : problem;
    this.hasProblem = shown !== null;
    this.problem.textContent = isWrongInside ? "" : (shown ?? "");
    this.control.mark(this.hasProblem && !isWrongInside);
    return { value, problem: shown };
  }

  focus() {
    this.control.focus();
  }
}
