/** Results of tools as people read them: texts, pictures, tables, JSON. Knows nothing of chats. */

import { button, el } from "./dom.js";
import { count, cut } from "./format.js";
import { codeBlock, link, markdown, safeAddress, tableNode } from "./markdown.js";

// Higher boxes, in px, show their beginning: more than app.css leaves of one, so that folding is worth it.
const FOLDED_FROM = 380;
const MOST_ROWS = 200;
const MOST_COLUMNS = 12;
const MOST_MEMBERS = 200;
// Longer texts show their beginning, and are saved whole; a browser takes seconds to lay out megabytes.
const MOST_CHARACTERS = 100_000;
const MOST_COMPARED = 500_000;
const DEEPEST = 6;
const SOUNDS = /^audio\/[\w.+-]+$/;
const MARKDOWN = /^#{1,6} \S|^```|^\s*[-*] \S|^\d+\. \S|\*\*\S|\[[^\]\n]{1,200}\]\(https?:|^\|.*\|$/m;
// They would show what follows them in another order than it has.
const TURNING = /[\u202a-\u202e\u2066-\u2069]/g;
const PICTURES = /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)$/;

/** Make the nodes of a result of `tools/call`: {content, structuredContent, isError}. */
export function resultNodes(result) {
  if (result === null || typeof result !== "object" || Array.isArray(result)) return [valueNode(result)];
  const blocks = Array.isArray(result.content) ? result.content : [];
  const structured = result.structuredContent;
  if (structured === undefined || structured === null) {
    return blocks.length > 0 ? blocks.map(contentNode) : [el("p", { class: "muted" }, "No content.")];
  }
  // A server repeats the structured part as text for clients that do not know it.
  const others = blocks.filter((block) => !(block.type === "text" && says(block.text, structured)));
  return [...others.map(contentNode), valueNode(unwrapped(structured))];
}

/** Make the node of one content block. */
export function contentNode(block) {
  const make = BLOCKS[block?.type];
  return make ? make(block) : valueNode(block);
}

const BLOCKS = {
  text: ({ text }) => {
    const value = asJson(text);
    return value === undefined ? proseNode(text) : valueNode(value);
  },
  image: ({ data, mimeType }) => picture(data, mimeType),
  audio: ({ data, mimeType }) => sound(data, mimeType),
  resource_link: ({ uri, name, title, description }) =>
    el("p", {}, address(uri, title ?? name ?? uri), description ? ` – ${description}` : null),
  resource: ({ resource }) => embedded(resource ?? {}),
};

function embedded({ uri = "", mimeType = "", text, blob }) {
  const caption = el("p", { class: "muted small" }, address(uri, uri));
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
  const [shown, rest] = beginning(text, "text/plain");
  return foldable(el("div", {}, el("pre", { class: "text" }, unturned(shown)), rest));
}

/** Make the node of a text that may be Markdown. */
export function proseNode(text) {
  const isMarkdown = text.length <= MOST_CHARACTERS && MARKDOWN.test(text);
  return isMarkdown ? foldable(markdown(unturned(text))) : textNode(text);
}

/** Return what is shown of a text, and the node that says so and saves the whole; null if that is all. */
function beginning(text, type) {
  if (text.length <= MOST_CHARACTERS) return [text, null];
  const save = button("Save all of it", { picture: "export", quiet: true });
  save.addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([text], { type }));
    el("a", { href: url, download: type.endsWith("json") ? "result.json" : "result.txt" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  });
  const note = `The first ${MOST_CHARACTERS.toLocaleString("en")} of ${count(text.length, "character")}.`;
  const shown = text.slice(0, MOST_CHARACTERS);
  return [shown, el("p", { class: "muted small" }, note, " ", save)];
}

/** Make the node of any JSON value: a table where it has rows, else a list of its members, else JSON. */
export function valueNode(value) {
  if (isTable(value)) return rowsNode(value);
  if (isRecord(value) && Object.keys(value).length > 0) return recordNode(value, 0);
  if (typeof value === "string") return textNode(value);
  return jsonNode(value);
}

/** Make the node of a value as it is, as JSON. */
export function jsonNode(value) {
  const [shown, rest] = beginning(JSON.stringify(value, null, 2) ?? "null", "application/json");
  const code = codeBlock(unturned(shown), "json");
  return foldable(rest === null ? code : el("div", {}, code, rest));
}

/** Return a text with the characters that turn the direction of what follows as their escapes. */
function unturned(text) {
  return text.replaceAll(TURNING, (each) => `\\u${each.charCodeAt(0).toString(16)}`);
}

function recordNode(record, depth) {
  const list = el("dl", { class: "record" });
  const members = Object.entries(record);
  for (const [name, value] of members.slice(0, MOST_MEMBERS)) {
    list.append(el("dt", {}, name), el("dd", {}, memberNode(value, depth)));
  }
  if (members.length > MOST_MEMBERS)
    list.append(el("dt", {}, "…"), el("dd", {}, `${count(members.length - MOST_MEMBERS, "more member")}.`));
  return depth === 0 ? foldable(list) : list;
}

function memberNode(value, depth) {
  if (isTable(value)) return rowsNode(value);
  if (isRecord(value) && depth < DEEPEST && Object.keys(value).length > 0)
    return recordNode(value, depth + 1);
  if (Array.isArray(value) && value.every(isScalar) && value.length > 0) return scalars(value);
  if (typeof value === "string" && value.length > MOST_CHARACTERS) return textNode(value);
  return isScalar(value) ? scalar(value) : el("code", {}, cut(JSON.stringify(value).slice(0, 4000), 2000));
}

function scalars(values) {
  const rest = values.length - MOST_MEMBERS;
  const shown = values
    .slice(0, MOST_MEMBERS)
    .map((each) => cut(scalar(each).slice(0, 1000), 500))
    .join(", ");
  return rest > 0 ? `${shown} and ${count(rest, "more value")}` : shown;
}

function rowsNode(rows) {
  const names = columns(rows);
  const isNumeric = (name) => rows.every((row) => ["number", "undefined"].includes(typeof (row[name] ?? undefined)));
  const side = Object.fromEntries(names.map((name) => [name, isNumeric(name) ? "right" : "left"]));
  const table = tableNode(
    names.map((name) => el("th", { scope: "col", class: side[name] }, name)),
    rows
      .slice(0, MOST_ROWS)
      .map((row) => names.map((name) => el("td", { class: side[name] }, cell(row[name])))),
    `Table of ${count(rows.length, "row")}`,
  );
  const rest = rows.length - MOST_ROWS;
  const shown =
    rest > 0 ? el("div", {}, table, el("p", { class: "muted small" }, `${count(rest, "more row")}.`)) : table;
  return foldable(shown);
}

function cell(value) {
  if (value === undefined) return "";
  return isScalar(value) ? cut(scalar(value).slice(0, 4000), 2000) : cut(JSON.stringify(value).slice(0, 400), 200);
}

function scalar(value) {
  if (value === null) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return unturned(String(value));
}

function columns(rows) {
  const names = new Set();
  for (const row of rows) Object.keys(row).forEach((name) => names.add(name));
  return [...names];
}

function isScalar(value) {
  return value === null || typeof value !== "object";
}

function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isTable(value) {
  if (!Array.isArray(value) || value.length === 0 || !value.every(isRecord)) return false;
  const width = columns(value).length;
  return width > 0 && width <= MOST_COLUMNS && value.every((row) => Object.values(row).every(isScalar));
}

/** A value that is no object is wrapped as {result: ...} by servers. */
function unwrapped(structured) {
  return isRecord(structured) && Object.keys(structured).join() === "result" ? structured.result : structured;
}

function asJson(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function says(text, structured) {
  // Comparing megabytes would hold the page; a server that sends them twice means the same by both.
  if (text?.length > MOST_COMPARED) return /^\s*[[{"]/.test(text);
  const inner = unwrapped(structured);
  if (text === String(inner)) return true;
  try {
    const value = canonical(JSON.parse(text));
    return value === canonical(structured) || value === canonical(inner);
  } catch {
    return false;
  }
}

function canonical(value) {
  return JSON.stringify(value, (_, member) =>
    isRecord(member)
      ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
      : member,
  );
}

/** Put a node into a box that shows its beginning if it is high. */
function foldable(node) {
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
