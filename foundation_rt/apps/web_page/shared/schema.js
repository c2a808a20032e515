/** Reads JSON Schemas for forms: references, unions with null, choices. Pure. */

import { isExact, isSame, numberOf, textOf } from "./exact_numbers.js";

const MOST_HOPS = 32;

/** Return a schema with its references followed and `allOf` merged; `root` is the schema that they point into. */
export function resolved(schema, root) {
  let found = isRecord(schema) ? schema : {};
  for (let hop = 0; hop < MOST_HOPS && typeof found.$ref === "string"; hop += 1) {
    const { $ref, ...beside } = found;
    found = { ...(pointed($ref, root) ?? {}), ...beside };
  }
  if (!Array.isArray(found.allOf)) return counted(found);
  const { allOf, ...own } = found;
  return counted(allOf.slice(0, MOST_HOPS).reduce((merged, part) => mergedWith(merged, flat(part, root)), own));
}

const COUNTS = ["minLength", "maxLength", "minItems", "maxItems"];

/** Return a schema whose counts can be reckoned with. */
function counted(schema) {
  const exact = COUNTS.filter((name) => isExact(schema[name]));
  return exact.reduce((own, name) => ({ ...own, [name]: numberOf(own[name]) }), schema);
}

/** A part of `allOf`, with its reference followed; parts of parts are left. */
function flat(part, root) {
  const found = isRecord(part) && typeof part.$ref === "string" ? pointed(part.$ref, root) : part;
  return isRecord(found) ? found : {};
}

function mergedWith(a, b) {
  const merged = { ...b, ...a };
  if (a.properties && b.properties) merged.properties = { ...b.properties, ...a.properties };
  if (a.required && b.required) merged.required = [...new Set([...b.required, ...a.required])];
  return merged;
}

function pointed(reference, root) {
  if (!reference.startsWith("#")) return null;
  let at = root;
  for (const part of reference.slice(1).split("/").slice(1)) {
    const name = decoded(part).replaceAll("~1", "/").replaceAll("~0", "~");
    if (!isRecord(at) && !Array.isArray(at)) return null;
    at = Object.hasOwn(at, name) ? at[name] : null;
  }
  return isRecord(at) ? at : null;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Return {schema, isNullable}: the schema without null, where it allows null. */
export function withoutNull(schema, root) {
  if (Array.isArray(schema.type) && schema.type.length > 1) {
    const types = schema.type.filter((type) => type !== "null");
    const { type, ...rest } = schema;
    const isNullable = types.length < type.length;
    if (types.length === 1) return { schema: { ...rest, type: types[0] }, isNullable };
    const anyOf = types.map((each) => ({ ...rest, type: each, title: each, default: undefined }));
    return { schema: { ...labels(schema), anyOf }, isNullable };
  }
  const key = ["anyOf", "oneOf"].find((each) => Array.isArray(schema[each]));
  if (key === undefined) return { schema, isNullable: schema.type === "null" };
  const members = schema[key].map((each) => resolved(each, root));
  const others = members.filter((each) => each.type !== "null" && each.const !== null);
  if (others.length === members.length) return { schema, isNullable: false };
  const { [key]: _, ...beside } = schema;
  if (others.length === 1) return { schema: { ...others[0], ...beside }, isNullable: true };
  return { schema: { ...beside, [key]: others }, isNullable: true };
}

function labels({ title, description, default: preset }) {
  return { title, description, default: preset };
}

/** Return the choices of a schema as {value, title}; null if it has none. */
export function choices(schema) {
  if (Array.isArray(schema.enum)) {
    return schema.enum.map((value, at) => ({ value, title: titleOf(schema.enumNames?.[at] ?? value) }));
  }
  const titled = schema.oneOf ?? schema.anyOf;
  if (!Array.isArray(titled) || titled.length === 0) return null;
  if (!titled.every((each) => isRecord(each) && "const" in each)) return null;
  return titled.map((each) => ({ value: each.const, title: titleOf(each.title ?? each.const) }));
}

function titleOf(value) {
  return typeof value === "object" ? JSON.stringify(value) : textOf(value);
}

/** Return the members of a union as {title, schema}; null if it is none. */
export function variants(schema, root) {
  const members = schema.anyOf ?? schema.oneOf;
  if (!Array.isArray(members) || members.length === 0) return null;
  return members.map((member, at) => {
    const whole = resolved(member, root);
    return { title: variantTitle(whole, at), schema: whole };
  });
}

function variantTitle(schema, at) {
  if (schema.title) return schema.title;
  const fixed = Object.entries(schema.properties ?? {}).find(([, each]) => isRecord(each) && "const" in each);
  if (fixed) return `${fixed[0]}: ${titleOf(fixed[1].const)}`;
  return typeof schema.type === "string" ? schema.type : `Form ${at + 1}`;
}

const KINDS = new Map([
  ["string", "text"],
  ["integer", "whole number"],
  ["number", "number"],
]);

/** Return what a schema wants of a single value, in a few words: "whole number, 1 to 99"; "" where its control says it. */
export function hintOf(schema) {
  if (choices(schema) !== null || "const" in schema || !KINDS.has(schema.type)) return "";
  const isText = schema.type === "string";
  const kind = (isText ? (schema.format ?? schema.contentEncoding) : null) ?? KINDS.get(schema.type);
  const limits = isText
    ? span(schema.minLength, schema.maxLength, " characters")
    : span(schema.minimum ?? schema.exclusiveMinimum, schema.maximum ?? schema.exclusiveMaximum, "");
  return [String(kind).slice(0, 40), limits].filter(Boolean).join(", ");
}

function span(least, most, noun) {
  const [from, to] = [textOf(least), textOf(most)];
  if (least !== undefined && most !== undefined) return from === to ? `${from}${noun}` : `${from} to ${to}${noun}`;
  if (most !== undefined) return `at most ${to}${noun}`;
  return numberOf(least) ? `at least ${from}${noun}` : "";
}

/** Return whether a value could be meant by a schema: its type, and the constants of an object. */
export function mayMean(schema, value) {
  if ("const" in schema) return isSame(schema.const, value);
  if (Array.isArray(schema.enum)) return schema.enum.some((each) => isSame(each, value));
  const type = Array.isArray(value) ? "array" : value === null ? "null" : typeof numberOf(value);
  if (schema.type !== undefined && schema.type !== type) {
    return schema.type === "integer" && Number.isInteger(numberOf(value));
  }
  if (type !== "object") return true;
  const members = Object.entries(schema.properties ?? {});
  return (
    (schema.required ?? []).every((name) => Object.hasOwn(value, name)) &&
    members.every(([name, each]) => !isRecord(each) || !("const" in each) || isSame(value[name], each.const))
  );
}

export function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !isExact(value);
}
