/**
 * Markdown as DOM nodes, also while it grows (HPAGE-08 to HPAGE-10). Knows nothing of chats.
 *
 * `parse(text)` is pure and returns blocks; `MarkdownView` shows them and, when the text grows, parses from the start of
 * its last block only. Headings, paragraphs, lists, quotes, fenced code, tables and rules; inline: code, emphasis,
 * strong, strikethrough, links, bare addresses. HTML is text. Pictures are links: a page of words fetches nothing.
 * Every step goes forward, and depths are bounded, so hostile text costs time in proportion to its length.
 */

import { button, el } from "./dom.js";

const DEEPEST = 8;
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})([ \t].*)?$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const BULLET = /^( {0,3})([-*+])(?:[ \t]+|$)/;
const NUMBER = /^( {0,3})(\d{1,9})[.)](?:[ \t]+|$)/;
const QUOTE = /^ {0,3}> ?/;
const DELIMITER = /^:?-+:?$/;

/** Return the blocks of a text; each has `type` and `start`, its first character. */
export function parse(text, depth = 0) {
  const lines = text.split("\n");
  const starts = [];
  let at = 0;
  for (const line of lines) {
    starts.push(at);
    at += line.length + 1;
  }
  const reader = { lines: lines.map((line) => line.replace(/\r$/, "")), at: 0, depth };
  const blocks = [];
  while (reader.at < lines.length) {
    const start = starts[reader.at];
    const block = nextBlock(reader);
    if (block !== null) blocks.push({ start, ...block });
  }
  return blocks;
}

function nextBlock(reader) {
  const line = reader.lines[reader.at];
  if (line.trim() === "") {
    reader.at += 1;
    return null;
  }
  if (FENCE.test(line)) return code(reader);
  if (HEADING.test(line)) return heading(reader);
  if (RULE.test(line)) {
    reader.at += 1;
    return { type: "rule" };
  }
  if (reader.depth < DEEPEST) {
    if (QUOTE.test(line)) return quote(reader);
    if (itemStart(line)) return list(reader);
  }
  return isTable(reader) ? table(reader) : paragraph(reader);
}

function code(reader) {
  const [, fence, info] = FENCE.exec(reader.lines[reader.at]);
  const end = new RegExp(`^ {0,3}${fence[0]}{${fence.length},}[ \\t]*$`);
  const from = ++reader.at;
  while (reader.at < reader.lines.length && !end.test(reader.lines[reader.at])) reader.at += 1;
  const text = reader.lines.slice(from, reader.at).join("\n");
  reader.at += 1;
  return { type: "code", language: info.trim().split(/\s+/)[0], text };
}

function heading(reader) {
  const [, marks, text = ""] = HEADING.exec(reader.lines[reader.at++]);
  return {
    type: "heading",
    level: marks.length,
    text: text
      .trim()
      .replace(/(?:^|[ \t])#+$/, "")
      .trimEnd(),
  };
}

function quote(reader) {
  const inner = [];
  while (reader.at < reader.lines.length && QUOTE.test(reader.lines[reader.at])) {
    inner.push(reader.lines[reader.at++].replace(QUOTE, ""));
  }
  return { type: "quote", blocks: parse(inner.join("\n"), reader.depth + 1) };
}

function itemStart(line) {
  const found = BULLET.exec(line) ?? NUMBER.exec(line);
  if (found === null || RULE.test(line)) return null;
  const isOrdered = /\d/.test(found[2]);
  return { isOrdered, number: isOrdered ? Number(found[2]) : 0, width: found[0].length };
}

function list(reader) {
  const first = itemStart(reader.lines[reader.at]);
  const items = [];
  for (;;) {
    const start = reader.at < reader.lines.length ? itemStart(reader.lines[reader.at]) : null;
    if (start === null || start.isOrdered !== first.isOrdered) break;
    items.push(parse(itemLines(reader, start.width).join("\n"), reader.depth + 1));
  }
  return { type: "list", isOrdered: first.isOrdered, first: first.number, items };
}

/** Read the lines of an item, without its marker and its indentation. */
function itemLines(reader, width) {
  const lines = [reader.lines[reader.at++].slice(width)];
  let blank = 0;
  while (reader.at < reader.lines.length) {
    const line = reader.lines[reader.at];
    const indent = line.length - line.trimStart().length;
    if (line.trim() === "") {
      blank += 1;
      reader.at += 1;
      continue;
    }
    const isInside = indent >= Math.min(width, 2);
    const isLazy = blank === 0 && !itemStart(line) && !startsBlock(line);
    if (!isInside && !isLazy) break;
    for (; blank > 0; blank -= 1) lines.push("");
    lines.push(isInside ? line.slice(Math.min(indent, width)) : line);
    reader.at += 1;
  }
  return lines;
}

function startsBlock(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line);
}

function isTable(reader) {
  const [head, marks = ""] = [reader.lines[reader.at], reader.lines[reader.at + 1]];
  if (!head.includes("|") || !marks.includes("-")) return false;
  const sides = cells(marks);
  return sides.every((side) => DELIMITER.test(side)) && cells(head).length === sides.length;
}

function table(reader) {
  const head = cells(reader.lines[reader.at]);
  const aligned = cells(reader.lines[reader.at + 1]).map((mark) => {
    if (mark.endsWith(":")) return mark.startsWith(":") ? "center" : "right";
    return "left";
  });
  reader.at += 2;
  const rows = [];
  while (reader.at < reader.lines.length) {
    const line = reader.lines[reader.at];
    if (line.trim() === "" || !line.includes("|") || startsBlock(line)) break;
    const found = cells(line);
    rows.push(head.map((_, column) => found[column] ?? ""));
    reader.at += 1;
  }
  return { type: "table", head, aligned, rows };
}

function cells(line) {
  const inner = line
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function paragraph(reader) {
  const lines = [reader.lines[reader.at++]];
  while (reader.at < reader.lines.length) {
    const line = reader.lines[reader.at];
    if (line.trim() === "" || startsBlock(line)) break;
    if (reader.depth < DEEPEST && isInterrupting(line)) break;
    if (isTable(reader)) break;
    lines.push(line);
    reader.at += 1;
  }
  return {
    type: "paragraph",
    text: lines
      .map((line) => line.trimStart())
      .join("\n")
      .trimEnd(),
  };
}

function isInterrupting(line) {
  const start = itemStart(line);
  return start !== null && line.trim().length > 2 && (!start.isOrdered || start.number === 1);
}

// Inline ------------------------------------------------------------------------------------------

const ESCAPABLE = /[!-/:-@[-`{-~]/;
const ADDRESS = /(?:https?:\/\/|mailto:)[^\s<>"'`]{1,2000}/y;
const ANGLED = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y;
const TARGET =
  /\(\s{0,9}(?:<([^<>\n]{0,2000})>|([^\s()<>]{0,2000}(?:\([^\s()<>]{0,200}\)[^\s()<>]{0,200})?))(?:\s{1,9}"[^"\n]{0,500}")?\s{0,9}\)/y;

/** Return the address if it may be a link: http, https or mailto; else null. */
export function safeAddress(address) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
}

/** Return the nodes of a line of text. */
export function inline(text) {
  return nest(tokens(text));
}

/** Make a link that tells the other page nothing of this one. */
export function link(address, ...children) {
  return el("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

/** Split into {type: text | node | open, ...}; `open` is a run of markers that may begin or end emphasis. */
function tokens(text) {
  const found = [];
  const brackets = [];
  const unclosed = new Set();
  let plain = "";
  let at = 0;
  const flush = () => {
    if (plain !== "") found.push({ type: "text", text: plain });
    plain = "";
  };
  const take = (token, length) => {
    flush();
    found.push(token);
    at += length;
  };
  while (at < text.length) {
    const character = text[at];
    if (character === "\\" && ESCAPABLE.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
    } else if (character === "\\" && text[at + 1] === "\n") {
      take({ type: "node", node: el("br") }, 2);
    } else if (character === "\n") {
      const isHard = plain.endsWith("  ");
      plain = plain.trimEnd();
      take(isHard ? { type: "node", node: el("br") } : { type: "text", text: "\n" }, 1);
    } else if (character === "`") {
      const run = runLength(text, at);
      const end = unclosed.has(run) ? -1 : closingRun(text, at + run, run);
      if (end < 0) {
        unclosed.add(run);
        plain += text.slice(at, at + run);
        at += run;
      } else {
        take({ type: "node", node: codeSpan(text.slice(at + run, end)) }, end + run - at);
      }
    } else if (character === "*" || character === "_" || character === "~") {
      const run = runLength(text, at);
      take({ type: "run", character, length: run, ...flanks(text, at, run) }, run);
    } else if (character === "[" || (character === "!" && text[at + 1] === "[")) {
      const length = character === "[" ? 1 : 2;
      flush();
      brackets.push(found.length);
      take({ type: "text", text: text.slice(at, at + length) }, length);
    } else if (character === "]" && brackets.length > 0) {
      flush();
      const target = linkTarget(text, at + 1);
      const open = brackets.pop();
      if (target === null) {
        take({ type: "text", text: "]" }, 1);
      } else {
        const inside = nest(found.splice(open).slice(1));
        const address = safeAddress(target.address);
        const label = inside.length > 0 ? inside : [target.address];
        const node = address === null ? el("span", {}, ...label) : link(address, ...label);
        take({ type: "node", node }, 1 + target.length);
        brackets.length = 0; // links do not hold links
      }
    } else {
      const address = brackets.length === 0 ? addressAt(text, at) : null;
      if (address === null) {
        plain += character;
        at += 1;
      } else {
        take({ type: "node", node: link(safeAddress(address.address), address.address) }, address.length);
      }
    }
  }
  flush();
  return found;
}

function runLength(text, at) {
  let end = at + 1;
  while (text[end] === text[at]) end += 1;
  return end - at;
}

function closingRun(text, from, length) {
  for (let at = text.indexOf("`", from); at >= 0; at = text.indexOf("`", at)) {
    const run = runLength(text, at);
    if (run === length) return at;
    at += run;
  }
  return -1;
}

function codeSpan(text) {
  const inner = text.replaceAll("\n", " ");
  const isPadded = /^ .* $/.test(inner) && inner.trim() !== "";
  return el("code", {}, isPadded ? inner.slice(1, -1) : inner);
}

function flanks(text, at, length) {
  const before = text[at - 1] ?? " ";
  const after = text[at + length] ?? " ";
  const isWord = (character) => /[\p{L}\p{N}]/u.test(character);
  const isSpace = (character) => /\s/.test(character);
  const isLeft = !isSpace(after) && (isWord(after) || !isWord(before));
  const isRight = !isSpace(before) && (isWord(before) || !isWord(after));
  const isUnderscore = text[at] === "_";
  return {
    canOpen: isLeft && !(isUnderscore && isWord(before)),
    canClose: isRight && !(isUnderscore && isWord(after)),
  };
}

function linkTarget(text, at) {
  TARGET.lastIndex = at;
  const found = TARGET.exec(text);
  return found === null ? null : { address: found[1] ?? found[2], length: found[0].length };
}

function addressAt(text, at) {
  if (text[at] === "<") {
    ANGLED.lastIndex = at;
    const found = ANGLED.exec(text);
    return found && safeAddress(found[1]) ? { address: found[1], length: found[0].length } : null;
  }
  if ((text[at] !== "h" && text[at] !== "m") || /[\p{L}\p{N}]/u.test(text[at - 1] ?? " ")) return null;
  ADDRESS.lastIndex = at;
  const found = ADDRESS.exec(text);
  if (found === null) return null;
  let address = found[0].replace(/[.,;:!?*_~\]]+$/, "");
  if (address.endsWith(")") && !address.includes("(")) address = address.replace(/\)+[.,;:!?]*$/, "");
  return safeAddress(address) ? { address, length: address.length } : null;
}

const WRAPPERS = { "*": ["em", "strong"], _: ["em", "strong"], "~": ["del", "del"] };

/** Put what stands between two runs of one marker into its element. */
function nest(found) {
  const root = { children: [] };
  const open = []; // {character, length, children: the nodes that stood before it}
  let children = root.children;
  for (const token of found) {
    if (token.type !== "run") {
      children.push(token.type === "node" ? token.node : token.text);
      continue;
    }
    let left = token.length;
    while (token.canClose && left > 0) {
      const at = open.findLastIndex(
        (each) => each.character === token.character && fits(each, token.character, left),
      );
      if (at < 0) break;
      for (const each of open.splice(at + 1).reverse()) children = unopened(each, children);
      const opener = open[at];
      const width = token.character === "~" ? 2 : Math.min(2, left, opener.length);
      const wrapped = el(WRAPPERS[token.character][width - 1], {}, ...children);
      opener.length -= width;
      left -= width;
      if (opener.length === 0) {
        open.pop();
        children = opener.before;
        children.push(wrapped);
      } else {
        children = [wrapped];
      }
    }
    if (left === 0) continue;
    if (token.canOpen && open.length < DEEPEST) {
      open.push({ character: token.character, length: left, before: children });
      children = [];
    } else {
      children.push(token.character.repeat(left));
    }
  }
  for (const each of open.reverse()) children = unopened(each, children);
  return children;
}

function fits(opener, character, left) {
  return character !== "~" || (opener.length >= 2 && left >= 2);
}

function unopened({ character, length, before }, children) {
  before.push(character.repeat(length), ...children);
  return before;
}

// Nodes -------------------------------------------------------------------------------------------

/** Make the node of a block; `outline.level` is that of the heading before it: levels must not leave one out. */
function node(block, outline) {
  return NODES[block.type](block, outline);
}

const NODES = {
  heading({ level, text }, outline) {
    // A text stands below the title of its page.
    outline.level = Math.min(level + 1, outline.level + 1, 6);
    return el(`h${outline.level}`, { class: `level-${level}` }, ...inline(text));
  },
  paragraph: ({ text }) => el("p", {}, ...inline(text)),
  rule: () => el("hr"),
  quote: ({ blocks }, outline) => el("blockquote", {}, ...nodes(blocks, outline)),
  code: ({ language, text }) => codeBlock(text, language),
  list: ({ isOrdered, first, items }, outline) =>
    el(
      isOrdered ? "ol" : "ul",
      { start: isOrdered && first !== 1 ? first : null },
      ...items.map((blocks) => el("li", {}, ...item(blocks, outline))),
    ),
  table: ({ head, aligned, rows }) =>
    tableNode(
      head.map((cell, at) => el("th", { scope: "col", class: aligned[at] }, ...inline(cell))),
      rows.map((row) => row.map((cell, at) => el("td", { class: aligned[at] }, ...inline(cell)))),
    ),
};

function nodes(blocks, outline) {
  return blocks.map((block) => node(block, outline));
}

/** A single paragraph of an item stands in it without a box of its own. */
function item(blocks, outline) {
  const [first, ...rest] = blocks;
  if (first?.type !== "paragraph" || rest.some(({ type }) => type === "paragraph"))
    return nodes(blocks, outline);
  return [...inline(first.text), ...nodes(rest, outline)];
}

/** Make a table of cells, in a box that scrolls and that the keyboard reaches. */
export function tableNode(head, rows, label = "Table") {
  return el(
    "div",
    { class: "scrolls", tabindex: 0, role: "group", "aria-label": label },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ...head)),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row))),
    ),
  );
}

/** Make a box of code with a button that copies it. */
export function codeBlock(text, language = "", title = language) {
  const copy = button("Copy", { picture: "copy", quiet: true, class: "copy", "aria-label": "Copy code" });
  copy.addEventListener("click", async () => {
    const label = copy.lastElementChild;
    try {
      await navigator.clipboard.writeText(text);
      label.textContent = "Copied";
    } catch {
      label.textContent = "Not allowed";
    }
    setTimeout(() => (label.textContent = "Copy"), 2000);
  });
  return el(
    "div",
    { class: "code" },
    el("div", { class: "code-head" }, el("span", {}, title), copy),
    el(
      "pre",
      { tabindex: 0, role: "group", "aria-label": title ? `Code: ${title}` : "Code" },
      el("code", {}, text),
    ),
  );
}

/** Shows a text that grows: nodes of blocks that are complete stay as they are. */
export class MarkdownView {
  #text = "";
  #starts = [];

  constructor(attributes = {}) {
    this.node = el("div", { ...attributes, class: ["markdown", attributes.class].filter(Boolean).join(" ") });
  }

  update(text) {
    if (text === this.#text) return;
    const kept = text.startsWith(this.#text) ? this.#complete() : 0;
    const from = this.#starts[kept] ?? 0;
    const blocks = parse(text.slice(from));
    while (this.node.childNodes.length > kept) this.node.lastChild.remove();
    const heading = [...this.node.querySelectorAll("h2, h3, h4, h5, h6")].at(-1);
    this.node.append(...nodes(blocks, { level: heading ? Number(heading.localName[1]) : 1 }));
    this.#starts = [...this.#starts.slice(0, kept), ...blocks.map(({ start }) => from + start)];
    this.#text = text;
  }

  /** Return how many blocks stay as they are whatever follows. */
  #complete() {
    const lastLine = this.#text.lastIndexOf("\n") + 1;
    // A block that begins in the last line may turn out to go on with the one before it.
    const mayChange = this.#starts.at(-1) >= lastLine ? 2 : 1;
    return Math.max(0, this.#starts.length - mayChange);
  }
}

/** Make the nodes of a whole text. */
export function markdown(text) {
  const view = new MarkdownView();
  view.update(text);
  return view.node;
}
