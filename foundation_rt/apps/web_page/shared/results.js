/** Results of tools as people read them: texts, pictures, tables, JSON. Knows nothing of chats. */

import { append, button, el } from "./dom.js";
import { isExact, numberOf, parseJson, textOf } from "./exact_numbers.js";
import { count, cut, jsonText } from "./format.js";
import { codeBlock, link, markdown, safeAddress, tableNode } from "./markdown.js";

// Higher boxes, in px, show their beginning: more than app.css leaves of one, so that folding is worth it.
const FOLDED_FROM = 380;
const MOST_ROWS = 200;
const MOST_COLUMNS = 12;
const MOST_MEMBERS = 200;
// Members and cells of one value: what is in others beyond it is written as JSON.
const MOST_ENTRIES = 5000;
const MOST_BLOCKS = 200;
const MOST_IN_BLOCKS = 300_000;
// Longer texts show their beginning, and are saved whole; a browser takes seconds to lay out megabytes.
const MOST_CHARACTERS = 100_000;
const MOST_COMPARED = 500_000;
const DEEPEST = 6;
const SOUNDS = /^audio\/[\w.+-]+$/;
const MARKDOWN = /^#{1,6} \S|^```|^[ \t]*[-*] \S|^\d+\. \S|\*\*\S|\[[^[\]\n]{1,200}\]\(https?:|^\|.*\|$/m;
// They would show what follows them in another order than it has.
const TURNING = /[\u202a-\u202e\u2066-\u2069]/g;
// An SVG picture is saved, not shown: 2 kB of nested `<use>` are 10^9 shapes, which hold the page for good.
const PICTURES = /^image\/(png|jpeg|gif|webp|avif|bmp)$/;

/** Make a node of what others sent; what cannot be shown as it should is shown as plain text (HPAGE-34). */
export function safely(make, content) {
  try {
    return make(content);
  } catch (error) {
    const text = typeof content === "string" ? content : jsonText(content, { most: MOST_CHARACTERS });
    const note = el("p", { class: "muted small", title: String(error) }, "This can't be shown as it should be. As plain text:");
    return el("div", { class: "plain" }, note, textNode(text));
  }
}

/** Make the nodes of a result of `tools/call`: {content, structuredContent, isError}. */
export function resultNodes(result) {
  if (!isRecord(result)) return [valueNode(result)];
  const blocks = Array.isArray(result.content) ? result.content : [];
  const structured = result.structuredContent;
  if (structured === undefined || structured === null) {
    return blocks.length > 0 ? contentNodes(blocks) : [el("p", { class: "muted" }, "No content.")];
  }
  // A server repeats the structured part as text for clients that do not know it.
  const repeats = repetitionOf(structured);
  const others = blocks.filter((block) => !(block?.type === "text" && repeats(block.text)));
  return [...contentNodes(others), safely(valueNode, unwrapped(structured))];
}

/**
 * Return the error that a server of this runtime writes as JSON (ERR-02), as {message, code, details}; null if a result is
 * none.
 */
export function errorWords(result) {
  const [block, ...others] = Array.isArray(result?.content) ? result.content : [];
  if (others.length > 0 || typeof block?.text !== "string" || block.text.length > MOST_CHARACTERS) return null;
  const error = asJson(block.text);
  if (!isRecord(error) || typeof error.code !== "string" || typeof error.message !== "string") return null;
  const { message, code, details } = error; // the ids are for the server's log
  return { message, code, details };
}

/** Make the nodes of an error: its message, its code, its details. */
export function errorNodes({ message = "The call failed.", code, details }) {
  const noted = code === undefined ? null : el("span", { class: "muted small" }, textOf(code));
  const more = details === undefined ? null : valueNode(details);
  return [el("div", { class: "error-text" }, textNode(message), noted), more];
}

/** Make the nodes of the first content blocks, and one that says how many more there are and saves all. */
export function contentNodes(blocks) {
  let shown = 0;
  for (let characters = 0; shown < blocks.length && shown < MOST_BLOCKS && characters < MOST_IN_BLOCKS; shown += 1) {
    characters += lengthOf(blocks[shown]);
  }
  const nodes = blocks.slice(0, shown).map(contentNode);
  if (shown === blocks.length) return nodes;
  const note = `${count(blocks.length - shown, "more block")}.`;
  return [...nodes, el("p", { class: "muted small" }, note, " ", saveButton(() => jsonText(blocks), "json"))];
}

function lengthOf(block) {
  const text = block?.text ?? block?.resource?.text;
  return typeof text === "string" ? text.length : 0;
}

/** Make the node of one content block. */
export function contentNode(block) {
  return safely((each) => (BLOCKS.get(each?.type) ?? valueNode)(each), block);
}

const BLOCKS = new Map([
  ["text", (block) => (typeof block.text === "string" ? textBlock(block.text) : valueNode(block))],
  ["image", ({ data, mimeType }) => picture(data, mimeType)],
  ["audio", ({ data, mimeType }) => sound(data, mimeType)],
  ["resource_link", (link) => linked(link)],
  ["resource", ({ resource }) => embedded(resource)],
]);

function textBlock(text) {
  const value = asJson(text);
  return value === undefined ? proseNode(text) : valueNode(value);
}

function linked({ uri, name, title, description }) {
  return el("p", {}, address(uri, title ?? name ?? uri), description ? ` – ${description}` : null);
}

function embedded({ uri = "", mimeType = "", text, blob }) {
  const caption = el("p", { class: "caption muted small" }, address(uri, uri));
  if (typeof text === "string") return el("div", {}, caption, typedText(text, mimeType));
  return el(
    "div",
    {},
    caption,
    PICTURES.test(mimeType) ? picture(blob, mimeType) : download(blob, mimeType, uri),
  );
}

function typedText(text, mimeType) {
  if (/^text\/markdown\b/.test(mimeType) && text.length <= MOST_CHARACTERS) return foldable(markdown(text));
  const value = /[/+]json\b/.test(mimeType) ? asJson(text) : undefined;
  return value === undefined ? textNode(text) : valueNode(value);
}

function sound(data, mimeType) {
  if (!SOUNDS.test(mimeType ?? "")) return download(data, mimeType, "Sound");
  return el("audio", { controls: true, src: `data:${mimeType};base64,${data}`, "aria-label": "Sound from the tool" });
}

function address(uri, label) {
  const safe = safeAddress(uri);
  return safe === null ? el("code", {}, label) : link(safe, label);
}

function picture(data, mimeType) {
  if (!PICTURES.test(mimeType ?? "")) return download(data, mimeType, "Picture");
  return el("img", {
    class: "picture",
    src: `data:${mimeType};base64,${data}`,
    alt: "Picture from the tool",
  });
}

function download(data, mimeType, name) {
  const type = /^[\w.+-]+\/[\w.+-]+$/.test(mimeType ?? "") ? mimeType : "application/octet-stream";
  return el(
    "p",
    {},
    el(
      "a",
      { href: `data:${type};base64,${data}`, download: name.split("/").at(-1) || "file" },
      `Save: ${name}`,
    ),
    el("span", { class: "muted" }, ` ${type}`),
  );
}

/** Make the node of a text, folded if it is long. */
export function textNode(text) {
  const [shown, rest] = beginning(text, "txt", () => text);
  return foldable(el("div", {}, el("pre", { class: "text", dir: "auto" }, unturned(shown)), rest));
}

/** Make the node of a text that may be Markdown. */
export function proseNode(text) {
  const isMarkdown = text.length <= MOST_CHARACTERS && MARKDOWN.test(text);
  return isMarkdown ? foldable(markdown(unturned(text))) : textNode(text);
}

/** Return what is shown of a text, and the node that says so and saves `whole()`; null if that is all. */
function beginning(text, ending, whole) {
  if (text.length <= MOST_CHARACTERS) return [text, null];
  const note = `The first ${count(MOST_CHARACTERS, "character")}.`;
  const shown = text.slice(0, MOST_CHARACTERS);
  return [shown, el("p", { class: "muted small" }, note, " ", saveButton(whole, ending))];
}

/** Make the button that saves the text that `whole` returns. */
function saveButton(whole, ending) {
  const save = button("Save all of it", { picture: "export", quiet: true });
  save.addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([whole()], { type: TYPES.get(ending) }));
    el("a", { href: url, download: `result.${ending}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  });
  return save;
}

const TYPES = new Map([
  ["json", "application/json"],
  ["txt", "text/plain"],
]);

/** Make the node of any JSON value: a table where it has rows, else a list of its members, else JSON. */
export function valueNode(value) {
  const room = { left: MOST_ENTRIES };
  if (isTable(value)) return rowsNode(value, room);
  if (isRecord(value) && Object.keys(value).length > 0) return recordNode(value, 0, room);
  if (typeof value === "string") return textNode(value);
  return jsonNode(value);
}

/** Make the node of a value as it is, as JSON. */
export function jsonNode(value) {
  const text = jsonText(value, { most: MOST_CHARACTERS + 1 });
  const [shown, rest] = beginning(text, "json", () => jsonText(value));
  const code = codeBlock(unturned(shown), "json");
  return foldable(rest === null ? code : el("div", {}, code, rest));
}

/** Return a text with the characters that turn the direction of what follows as their escapes. */
function unturned(text) {
  return text.replaceAll(TURNING, (each) => `\\u${each.charCodeAt(0).toString(16)}`);
}

/** `room.left`: of how many members and cells there is room in the whole value. */
function recordNode(record, depth, room) {
  const list = el("dl", { class: "record" });
  const members = Object.entries(record);
  room.left -= Math.min(members.length, MOST_MEMBERS);
  for (const [name, value] of members.slice(0, MOST_MEMBERS)) {
    append(list, [el("dt", {}, name), el("dd", {}, memberNode(value, depth, room))]);
  }
  if (members.length > MOST_MEMBERS)
    append(list, [el("dt", {}, "…"), el("dd", {}, `${count(members.length - MOST_MEMBERS, "more member")}.`)]);
  return depth === 0 ? foldable(list) : list;
}

function memberNode(value, depth, room) {
  if (isScalar(value)) return typeof value === "string" && value.length > MOST_CHARACTERS ? textNode(value) : scalar(value);
  if (Array.isArray(value) && value.every(isScalar) && value.length > 0) return scalars(value);
  if (room.left > 0 && isTable(value)) return rowsNode(value, room);
  if (room.left > 0 && isRecord(value) && depth < DEEPEST && Object.keys(value).length > 0)
    return recordNode(value, depth + 1, room);
  return el("code", {}, cut(jsonText(value, { most: 4000, indent: 0 }), 2000));
}

function scalars(values) {
  const rest = values.length - MOST_MEMBERS;
  const shown = values
    .slice(0, MOST_MEMBERS)
    .map((each) => cut(scalar(each), 500))
    .join(", ");
  return rest > 0 ? `${shown} and ${count(rest, "more value")}` : shown;
}

function rowsNode(rows, room) {
  const shown = rows.slice(0, MOST_ROWS);
  const columns = columnsOf(rows).map((name) => {
    const isNumeric = rows.every((row) => ["number", "undefined"].includes(typeof (numberOf(own(row, name)) ?? undefined)));
    return { name, side: isNumeric ? "right" : "left" };
  });
  room.left -= shown.length * columns.length;
  const table = tableNode(
    columns.map(({ name, side }) => el("th", { scope: "col", class: side }, name)),
    shown.map((row) => columns.map(({ name, side }) => el("td", { class: side }, cell(own(row, name))))),
    `Table of ${count(rows.length, "row")}`,
  );
  const rest = rows.length - MOST_ROWS;
  const note = rest > 0 ? el("p", { class: "muted small" }, `${count(rest, "more row")}.`) : null;
  return foldable(note === null ? table : el("div", {}, table, note));
}

/** Return a member of a record; what every object inherits is none. */
function own(record, name) {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}

function cell(value) {
  return value === undefined ? "" : cut(scalar(value), 2000);
}

function scalar(value) {
  if (value === null) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return unturned(textOf(value));
}

/** Return the names of the members of all rows; one more than a table may have is enough. */
function columnsOf(rows) {
  const names = new Set();
  for (const row of rows) {
    for (const name of Object.keys(row)) names.add(name);
    if (names.size > MOST_COLUMNS) break;
  }
  return [...names];
}

function isScalar(value) {
  return value === null || typeof value !== "object" || isExact(value);
}

function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !isExact(value);
}

function isTable(value) {
  if (!Array.isArray(value) || value.length === 0 || !value.every(isRecord)) return false;
  const width = columnsOf(value).length;
  return width > 0 && width <= MOST_COLUMNS && value.every((row) => Object.values(row).every(isScalar));
}

/** A value that is no object is wrapped as {result: ...} by servers. */
function unwrapped(structured) {
  const names = isRecord(structured) ? Object.keys(structured) : [];
  return names.length === 1 && names[0] === "result" ? structured.result : structured;
}

function asJson(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

/** Return the function that tells whether a text says the same as the structured part. */
function repetitionOf(structured) {
  const inner = unwrapped(structured);
  let same = null;
  return (text) => {
    // Comparing megabytes would hold the page; a server that sends them twice means the same by both.
    if (text?.length > MOST_COMPARED) return /^\s*[[{"]/.test(text);
    if (isScalar(inner) && text === textOf(inner)) return true;
    try {
      const value = canonical(parseJson(text));
      same ??= sayings(structured, inner);
      return same.has(value);
    } catch {
      return false;
    }
  };
}

function sayings(...values) {
  try {
    return new Set(values.map(canonical));
  } catch {
    return new Set(); // too deep to be compared
  }
}

function canonical(value) {
  return JSON.stringify(value, (_, member) =>
    isRecord(member)
      ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
      : comparable(member),
  );
}

/** 1.0 and 1 say the same; two long integers do not if a digit differs. */
function comparable(value) {
  return isExact(value) && /[.eE]/.test(value.rawJSON) ? numberOf(value) : value;
}

/** Put a node into a box that shows its beginning if it is high. */
export function foldable(node) {
  const box = el("div", { class: "folded" }, node);
  const toggle = button("Show all", { quiet: true, class: "unfold", "aria-expanded": "false", hidden: true });
  toggle.addEventListener("click", () => {
    const isFolded = box.classList.toggle("folded");
    toggle.setAttribute("aria-expanded", String(!isFolded));
    toggle.lastElementChild.textContent = isFolded ? "Show all" : "Show less";
  });
  const measured = new ResizeObserver(() => {
    if (box.clientHeight === 0) return;
    measured.disconnect();
    const isHigh = box.scrollHeight > FOLDED_FROM;
    box.classList.toggle("folded", isHigh);
    toggle.hidden = !isHigh;
  });
  measured.observe(box);
  return el("div", {}, box, toggle);
}
