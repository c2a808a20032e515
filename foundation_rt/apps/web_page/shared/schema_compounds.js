/** Controls of schemas that have others inside: objects, lists, tuples, maps, unions. */

import { button, el, fill } from "./dom.js";
import { choices, isRecord, mayMean, resolved, variants, withoutNull } from "./schema.js";

const MOST_ITEMS = 100;

/** Return the control of a compound schema, as `control` does; null if the schema is none, or too deep for fields. */
export function compound(id, schema, { label, isRequired, isDeep }, context) {
  if (isDeep || choices(schema) !== null || "const" in schema) return null;
  const union = variants(schema, context.root);
  if (union !== null && schema.properties === undefined) {
    return union.length === 1
      ? compound(id, { ...union[0].schema, default: schema.default }, { label, isRequired, isDeep }, context)
      : unionControl(id, schema, union, { label, isRequired }, context);
  }
  const preset = schema.default;
  if (Array.isArray(schema.prefixItems)) return optional(tupleParts, id, schema, { label, isRequired }, context);
  if (schema.type === "array") {
    const items = withoutNull(resolved(schema.items, context.root), context.root).schema;
    if (choices(items) !== null || !isRecord(schema.items)) return null;
    if (Array.isArray(preset) && preset.length > MOST_ITEMS) return null;
    return listControl(id, schema, label, context);
  }
  if (isRecord(schema.properties) && Object.keys(schema.properties).length > 0)
    return optional(objectParts, id, schema, { label, isRequired }, context);
  if (schema.type === "object" && isRecord(schema.additionalProperties)) {
    if (isRecord(preset) && Object.keys(preset).length > MOST_ITEMS) return null;
    return mapControl(id, schema, label, context);
  }
  return null;
}

function group(id, node, { read, focus }) {
  node.id = id;
  return {
    node,
    read,
    focus,
    describe: () => undefined,
    mark: () => undefined,
    isGroup: true,
  };
}

/** Make a part that is there from the start if it is required or has a value; else a button adds it. */
function optional(makeParts, id, schema, { label, isRequired }, context) {
  const box = el("div", { class: "nested" });
  const node = el("div", {});
  let parts = null;
  const add = button("Fill in", { picture: "add", quiet: true, class: "small-button" });
  add.setAttribute("aria-label", `Fill in ${label}`);
  const remove = button("Leave out", { picture: "close", quiet: true, class: "small-button" });
  remove.setAttribute("aria-label", `Leave out ${label}`);
  const show = (isThere) => {
    parts = isThere ? makeParts(schema, context) : null;
    fill(box, parts?.nodes ?? []);
    fill(node, isThere ? box : add, isThere && !isRequired && remove);
  };
  add.addEventListener("click", () => {
    show(true);
    parts.focus();
  });
  remove.addEventListener("click", () => {
    show(false);
    add.focus();
  });
  show(isRequired || (schema.default !== undefined && schema.default !== null));
  return group(id, node, {
    read: (isQuiet) => parts?.read(isQuiet) ?? { value: undefined },
    focus: () => (parts ? parts.focus() : add.focus()),
  });
}

function objectParts(schema, context) {
  const given = isRecord(schema.default) ? schema.default : undefined;
  const fields = context.fieldsOf(schema, given, context);
  return {
    nodes: fields.map((field) => field.node),
    focus: () => (fields.find((field) => field.hasProblem) ?? fields[0])?.focus(),
    read: (isQuiet) => {
      const values = fields.map((field) => [field, field.read(isQuiet)]);
      const kept = values.filter(([, { value }]) => value !== undefined);
      const value = Object.fromEntries(kept.map(([field, each]) => [field.name, each.value]));
      return inside(
        value,
        values.some(([, { problem }]) => problem !== null),
      );
    },
  };
}

function tupleParts(schema, context) {
  const given = Array.isArray(schema.default) ? schema.default : [];
  const fields = schema.prefixItems.map((member, at) =>
    context.fieldOf(String(at + 1), member, true, given[at], context),
  );
  return { nodes: fields.map((field) => field.node), ...ordered(() => fields) };
}

function ordered(fields) {
  return {
    focus: () => (fields().find((field) => field.hasProblem) ?? fields()[0])?.focus(),
    read: (isQuiet) => {
      const values = fields().map((field) => field.read(isQuiet));
      return inside(
        values.map(({ value }) => value),
        values.some(({ problem }) => problem !== null),
      );
    },
  };
}

function inside(value, isWrong) {
  return isWrong ? { value, problem: "See inside.", isWrongInside: true } : { value };
}

function listControl(id, schema, label, context) {
  const rows = el("div", { class: "rows" });
  const entries = [];
  const add = (value, isAsked) => {
    const field = context.fieldOf(`Item ${entries.length + 1}`, schema.items, true, value, context);
    const entry = { field };
    const remove = removal(`Remove ${field.name.toLowerCase()} of ${label}`, () => {
      entries.splice(entries.indexOf(entry), 1);
      row.remove();
      adding.focus();
    });
    const row = el("div", { class: "row" }, field.node, remove);
    entries.push(entry);
    rows.append(row);
    if (isAsked) field.focus();
  };
  const adding = button("Add item", { picture: "add", quiet: true, class: "small-button" });
  adding.setAttribute("aria-label", `Add item to ${label}`);
  adding.addEventListener("click", () => entries.length < MOST_ITEMS && add(undefined, true));
  const isPreset = Array.isArray(schema.default);
  if (isPreset) schema.default.forEach((value) => add(value));
  else for (let at = 0; at < Math.min(schema.minItems ?? 0, MOST_ITEMS); at += 1) add();
  const { focus, read } = ordered(() => entries.map(({ field }) => field));
  return group(id, el("div", {}, rows, adding), {
    focus: () => (entries.length > 0 ? focus() : adding.focus()),
    read: (isQuiet) => {
      const result = read(isQuiet);
      if (result.problem || isQuiet) return result;
      const { minItems = 0, maxItems = Infinity } = schema;
      if (entries.length < minItems) return { ...result, problem: `Add at least ${minItems}.` };
      if (entries.length > maxItems) return { ...result, problem: `Leave at most ${maxItems}.` };
      return result;
    },
  });
}

function removal(label, click) {
  return button(label, { picture: "trash", quiet: true, onlyIcon: true, class: "remove", on: { click } });
}

function mapControl(id, schema, label, context) {
  const rows = el("div", { class: "rows" });
  const entries = [];
  const add = (key, value, isAsked) => {
    const input = el("input", { type: "text", "aria-label": `Key of ${label}`, placeholder: "key", class: "key" });
    input.value = key ?? "";
    const field = context.fieldOf("Value", schema.additionalProperties, true, value, context);
    const entry = { input, field };
    const remove = removal(`Remove entry of ${label}`, () => {
      entries.splice(entries.indexOf(entry), 1);
      row.remove();
      adding.focus();
    });
    const row = el("div", { class: "row entry" }, el("div", { class: "field" }, input), field.node, remove);
    entries.push(entry);
    rows.append(row);
    if (isAsked) input.focus();
  };
  const adding = button("Add entry", { picture: "add", quiet: true, class: "small-button" });
  adding.setAttribute("aria-label", `Add entry to ${label}`);
  adding.addEventListener("click", () => entries.length < MOST_ITEMS && add(undefined, undefined, true));
  if (isRecord(schema.default)) for (const [key, value] of Object.entries(schema.default)) add(key, value);
  return group(id, el("div", {}, rows, adding), {
    focus: () => (entries[0] ? entries[0].input : adding).focus(),
    read: (isQuiet) => readMap(entries, isQuiet),
  });
}

function readMap(entries, isQuiet) {
  const read = entries.map(({ input, field }) => [input.value, field.read(isQuiet)]);
  const value = Object.fromEntries(read.map(([key, each]) => [key, each.value]));
  if (isQuiet) return { value };
  const keys = read.map(([key]) => key);
  if (keys.includes("")) return { value, problem: "Write a key for each entry." };
  if (new Set(keys).size < keys.length) return { value, problem: "Each key can be there once." };
  return inside(
    value,
    read.some(([, { problem }]) => problem !== null),
  );
}

function unionControl(id, schema, members, { label, isRequired }, context) {
  const given = schema.default;
  const at = given === undefined ? (isRequired ? 0 : -1) : members.findIndex(({ schema: each }) => mayMean(each, given));
  const kind = el(
    "select",
    { "aria-label": `Kind of ${label}` },
    isRequired ? null : el("option", { value: "-1" }, "No value"),
    members.map(({ title }, index) => el("option", { value: String(index), selected: index === at }, title)),
  );
  const body = el("div", { class: "nested" });
  let field = null;
  const show = (value) => {
    const member = members[Number(kind.value)];
    field = member ? context.fieldOf(member.title, member.schema, true, value, context) : null;
    fill(body, field && field.node);
    body.hidden = field === null;
  };
  kind.addEventListener("change", () => show());
  show(given);
  return group(id, el("div", { class: "union" }, kind, body), {
    focus: () => (field?.hasProblem ? field.focus() : kind.focus()),
    read: (isQuiet) => {
      if (field === null) return { value: undefined };
      const { value, problem } = field.read(isQuiet);
      return inside(value, problem !== null);
    },
  });
}
