/**
 * Markdown as DOM nodes, also while it grows (HPAGE-08 to HPAGE-10). Knows nothing of chats.
 *
 * `parse` is pure and returns the blocks of a text; `MarkdownView` shows them and, when the text grows, parses from the start of
 * its last block only. Headings, paragraphs, lists, quotes, fenced code, tables and rules; inline: code, emphasis,
 * strong, strikethrough, links, bare addresses. HTML is text. Pictures are links: a page of words fetches nothing.
 * Every step goes forward, and depths and nodes are bounded: hostile text costs time in proportion to its length, and
 * what it has beyond some thousands of elements is shown as it is written (HPAGE-33).
 */

import { append, button, el } from "./dom.js";

const DEEPEST = 8;
// Characters of a cell that stays in one line: a date and time is one.
const BRIEF = 24;
// Elements of a text, as far as they can be foreseen: a browser lays them out in some tenths of a second.
const MOST_ELEMENTS = 10_000;
const ELEMENTS_OF_CODE = 10;
const ELEMENTS_OF_ADDRESS = 3;
const MARKS = /[*_~`[<]| {2}\n|\\\n/g;
const ADDRESSES = /:\/\/|mailto:/g;
const FENCE = /^ {0,3}(`{3,}|~{3,}(?!~))([^`]*)$/;
const CLOSING = /^ {0,3}(`{3,}|~{3,})[ \t]*$/;
const HEADING = /^ {0,3}(#{1,6})([ \t].*)?$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const BULLET = /^( {0,3})([-*+])(?:[ \t]+|$)/;
const NUMBER = /^( {0,3})(\d{1,9})[.)](?:[ \t]+|$)/;
const QUOTE = /^ {0,3}> ?/;
const DELIMITER = /^:?-+:?$/;

/**
 * Return the blocks of a text; each has `type`, `start`, its first character, and `left`, how many elements there was
 * room for before it. `room.left`: of how many there is room now.
 */
function parse(text, depth, room) {
  const lines = text.split("\n");
  const starts = [];
  let at = 0;
  for (const line of lines) {
    starts.push(at);
    at += line.length + 1;
  }
  const reader = { lines: lines.map((line) => line.replace(/\r$/, "")), at: 0, depth, room };
  const blocks = [];
  while (reader.at < lines.length) {
    const before = { start: starts[reader.at], left: room.left };
    const block = nextBlock(reader);
    if (block !== null) blocks.push({ ...before, ...block });
  }
  return blocks;
}

function nextBlock(reader) {
  const line = reader.lines[reader.at];
  if (line.trim() === "") {
    reader.at += 1;
    return null;
  }
  if (reader.room.left <= 0) return rest(reader);
  reader.room.left -= 1;
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

/** All that follows, for which there is no room but as text. */
function rest(reader) {
  const text = reader.lines.slice(reader.at).join("\n");
  reader.at = reader.lines.length;
  return { type: "rest", text, isWhole: reader.depth === 0 };
}

/** Return a text of words, and whether there is room for it as text alone. */
function words(reader, text) {
  const elements = matches(text, MARKS) + ELEMENTS_OF_ADDRESS * matches(text, ADDRESSES);
  const isPlain = elements > 0 && elements > reader.room.left;
  if (!isPlain) reader.room.left -= elements;
  return { text, isPlain };
}

function matches(text, pattern) {
  return text.match(pattern)?.length ?? 0;
}

function code(reader) {
  reader.room.left -= ELEMENTS_OF_CODE;
  const [, fence, info] = FENCE.exec(reader.lines[reader.at]);
  const isEnd = (line) => {
    const found = CLOSING.exec(line);
    return found !== null && found[1][0] === fence[0] && found[1].length >= fence.length;
  };
  const from = ++reader.at;
  while (reader.at < reader.lines.length && !isEnd(reader.lines[reader.at])) reader.at += 1;
  const text = reader.lines.slice(from, reader.at).join("\n");
  reader.at += 1;
  return { type: "code", language: info.trim().split(/\s+/)[0], text };
}

function heading(reader) {
  const [, marks, text = ""] = HEADING.exec(reader.lines[reader.at++]);
  const written = text.trim().replace(/(?:^|[ \t])#+$/, "");
  return { type: "heading", level: marks.length, ...words(reader, written.trimEnd()) };
}

function quote(reader) {
  const inner = [];
  while (reader.at < reader.lines.length && QUOTE.test(reader.lines[reader.at])) {
    inner.push(reader.lines[reader.at++].replace(QUOTE, ""));
  }
  return { type: "quote", blocks: parse(inner.join("\n"), reader.depth + 1, reader.room) };
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
  while (reader.at < reader.lines.length && reader.room.left > 0) {
    const start = itemStart(reader.lines[reader.at]);
    if (start === null || start.isOrdered !== first.isOrdered) break;
    reader.room.left -= 1;
    items.push(parse(itemLines(reader, start.width).join("\n"), reader.depth + 1, reader.room));
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
  const isRoom = sides.length <= reader.room.left;
  return isRoom && sides.every((side) => DELIMITER.test(side)) && cells(head).length === sides.length;
}

function table(reader) {
  const row = (line) => {
    // A browser lays out the cells that a row lacks, too.
    reader.room.left -= aligned.length;
    const found = cells(line).slice(0, aligned.length);
    return found.map((cell) => words(reader, cell));
  };
  const aligned = cells(reader.lines[reader.at + 1]).map((mark) => {
    if (mark.endsWith(":")) return mark.startsWith(":") ? "center" : "right";
    return "left";
  });
  const head = row(reader.lines[reader.at]);
  reader.at += 2;
  const rows = [];
  while (reader.at < reader.lines.length && reader.room.left > 0) {
    const line = reader.lines[reader.at];
    if (line.trim() === "" || !line.includes("|") || startsBlock(line)) break;
    rows.push(row(line));
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
  const text = lines.map((line) => line.trimStart()).join("\n");
  return { type: "paragraph", ...words(reader, text.trimEnd()) };
}

function isInterrupting(line) {
  const start = itemStart(line);
  return start !== null && line.trim().length > 2 && (!start.isOrdered || start.number === 1);
}

// Inline ------------------------------------------------------------------------------------------

const ORDINARY = /[^\\\n`*_~[\]!<hm]+/y;
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

/** Return the nodes and texts of words. */
function inline({ text, isPlain }) {
  return isPlain ? [text] : nest(tokens(text));
}

/** Make a link that tells the other page nothing of this one. */
export function link(address, children) {
  return el("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, children);
}

/** Split into {type: text | node | open, ...}; `open` is a run of markers that may begin or end emphasis. */
function tokens(text) {
  const found = [];
  const brackets = [];
  const closing = closingRuns(text);
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
    ORDINARY.lastIndex = at;
    const ordinary = ORDINARY.exec(text)?.[0] ?? "";
    plain += ordinary;
    at += ordinary.length;
    const character = text[at] ?? "";
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
      const end = closing(run, at + run);
      if (end === undefined) {
        plain += text.slice(at, at + run);
        at += run;
      } else {
        take({ type: "node", node: codeSpan(text.slice(at + run, end)) }, end + run - at);
      }
    } else if (character === "*" || character === "_" || character === "~") {
      const run = runLength(text, at);
      // Each marker may become a level: a run of very many is text.
      if (run > DEEPEST) take({ type: "text", text: character.repeat(run) }, run);
      else take({ type: "run", character, length: run, ...flanks(text, at, run) }, run);
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
        const node = address === null ? el("span", {}, label) : link(address, label);
        take({ type: "node", node }, 1 + target.length);
        brackets.length = 0; // links do not hold links
      }
    } else {
      const found = brackets.length === 0 ? addressAt(text, at) : null;
      const href = found && safeAddress(found.address);
      if (href) {
        take({ type: "node", node: link(href, found.address) }, found.length);
      } else {
        // What looks like an address and is none is not looked at again.
        const length = found?.length ?? 1;
        plain += text.slice(at, at + length);
        at += length;
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

/** Return the function that returns where the next run of so many backticks begins, from a place that only grows. */
function closingRuns(text) {
  const places = new Map();
  for (const { 0: run, index } of text.matchAll(/`+/g)) {
    if (!places.has(run.length)) places.set(run.length, []);
    places.get(run.length).push(index);
  }
  for (const each of places.values()) each.reverse();
  return (length, from) => {
    const left = places.get(length) ?? [];
    while (left.at(-1) < from) left.pop();
    return left.at(-1);
  };
}

function codeSpan(text) {
  const inner = text.replaceAll("\n", " ");
  const isPadded = /^ .* $/.test(inner) && inner.trim() !== "";
  return el("code", {}, isPadded ? inner.slice(1, -1) : inner);
}

const SPACE = /\s/;
const PUNCTUATION = /[\p{P}\p{S}]/u;
// Letters and punctuation of Chinese, Japanese and Korean, which are written without spaces.
const CJK =
  /[\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}\p{scx=Hangul}\p{scx=Bopomofo}\u3000-\u303f\uff00-\uffef]/u;

/** Tell whether a run may open or close emphasis: CommonMark's rules, in which CJK needs no space (HPAGE-45). */
function flanks(text, at, length) {
  const before = charBefore(text, at);
  const after = String.fromCodePoint(text.codePointAt(at + length) ?? 32);
  const isMark = (character) => PUNCTUATION.test(character) && !CJK.test(character);
  const isEdge = (character) => SPACE.test(character) || PUNCTUATION.test(character) || CJK.test(character);
  const isLeft = !SPACE.test(after) && (!isMark(after) || isEdge(before));
  const isRight = !SPACE.test(before) && (!isMark(before) || isEdge(after));
  const isUnderscore = text[at] === "_";
  const isWord = (character) => !SPACE.test(character) && !PUNCTUATION.test(character);
  return {
    canOpen: isLeft && !(isUnderscore && isWord(before)),
    canClose: isRight && !(isUnderscore && isWord(after)),
  };
}

function charBefore(text, at) {
  const isPair = /[\ud800-\udbff][\udc00-\udfff]/.test(text.slice(Math.max(0, at - 2), at));
  return at === 0 ? " " : text.slice(at - (isPair ? 2 : 1), at);
}

function linkTarget(text, at) {
  TARGET.lastIndex = at;
  const found = TARGET.exec(text);
  return found === null ? null : { address: found[1] ?? found[2], length: found[0].length };
}

/** Return what looks like an address at a place, {address, length}; null if nothing does. */
function addressAt(text, at) {
  if (text[at] === "<") {
    ANGLED.lastIndex = at;
    const found = ANGLED.exec(text);
    return found && { address: found[1], length: found[0].length };
  }
  if ((text[at] !== "h" && text[at] !== "m") || /[\p{L}\p{N}]/u.test(text[at - 1] ?? " ")) return null;
  ADDRESS.lastIndex = at;
  const found = ADDRESS.exec(text);
  if (found === null) return null;
  let address = trimmed(found[0], ".,;:!?*_~]");
  if (address.endsWith(")") && !address.includes("(")) address = trimmed(address, ")");
  return { address, length: address.length };
}

/** Return a text without the characters of a set at its end. */
function trimmed(text, characters) {
  let end = text.length;
  while (end > 0 && characters.includes(text[end - 1])) end -= 1;
  return text.slice(0, end);
}

const WRAPPERS = { "*": ["em", "strong"], _: ["em", "strong"], "~": ["del", "del"] };

/** Put what stands between two runs of one marker into its element. */
function nest(found) {
  const root = { children: [] };
  const open = []; // {character, length, children: the nodes that stood before it}
  let children = root.children;
  for (const token of found) {
    if (token.type !== "run") {
      add(children, [token.type === "node" ? token.node : token.text]);
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
      const wrapped = el(WRAPPERS[token.character][width - 1], {}, children);
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
      add(children, [token.character.repeat(left)]);
    }
  }
  for (const each of open.reverse()) children = unopened(each, children);
  return children;
}

function fits(opener, character, left) {
  return character !== "~" || (opener.length >= 2 && left >= 2);
}

function unopened({ character, length, before }, children) {
  return add(add(before, [character.repeat(length)]), children);
}

/** Add texts and nodes; texts that follow each other become one. */
function add(children, more) {
  for (const each of more) {
    if (typeof each === "string" && typeof children.at(-1) === "string") children.push(children.pop() + each);
    else children.push(each);
  }
  return children;
}

// Nodes -------------------------------------------------------------------------------------------

/** Make the node of a block; `outline.level` is that of the heading before it: levels must not leave one out. */
function node(block, outline) {
  return NODES[block.type](block, outline);
}

const NODES = {
  heading({ level, ...said }, outline) {
    // A text stands below the title of its page.
    outline.level = Math.min(level + 1, outline.level + 1, 6);
    return el(`h${outline.level}`, { class: `level-${level}` }, inline(said));
  },
  paragraph: (said) => el("p", {}, inline(said)),
  rest: ({ text, isWhole }) =>
    el(
      "div",
      {},
      isWhole ? el("p", { class: "muted small" }, "The rest has too much in it. As it is written:") : null,
      el("pre", { class: "text" }, text),
    ),
  rule: () => el("hr"),
  quote: ({ blocks }, outline) => el("blockquote", {}, nodes(blocks, outline)),
  code: ({ language, text }) => codeBlock(text, language),
  list: ({ isOrdered, first, items }, outline) =>
    el(
      isOrdered ? "ol" : "ul",
      { start: isOrdered && first !== 1 ? first : null },
      items.map((blocks) => el("li", {}, item(blocks, outline))),
    ),
  table: ({ head, aligned, rows }) =>
    tableNode(
      head.map((cell, at) => el("th", { scope: "col", class: aligned[at] }, inline(cell))),
      // A row that lacks cells stays short: filled up, 20 kB would be millions of them.
      rows.map((row) => row.map((cell, at) => el("td", { class: aligned[at] }, inline(cell)))),
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
  return [...inline(first), ...nodes(rest, outline)];
}

/** Mark a cell: a number, a date or a name stays in one line, and a text gets room for some words. */
function sized(cell) {
  cell.classList.add(cell.textContent.length <= BRIEF ? "brief" : "wordy");
  return cell;
}

/** Make a table of cells, in a box that scrolls and that the keyboard reaches. */
export function tableNode(head, rows, label = "Table") {
  return el(
    "div",
    { class: "scrolls", tabindex: 0, role: "group", "aria-label": label },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, head)),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map(sized)))),
    ),
  );
}

let codeModel = null;

/** Make a box of code with a button that copies it. */
export function codeBlock(text, language = "", title = language) {
  // A copy takes a fifth of the time that making it takes; a text may have thousands.
  codeModel ??= el(
    "div",
    { class: "code", dir: "ltr" },
    el(
      "div",
      { class: "code-head" },
      el("span", {}),
      button("Copy", { picture: "copy", quiet: true, class: "copy", "aria-label": "Copy code" }),
    ),
    el("pre", { tabindex: 0, role: "group" }, el("code", {})),
  );
  const node = codeModel.cloneNode(true);
  const [head, pre] = node.children;
  const [name, copy] = head.children;
  name.textContent = title;
  pre.setAttribute("aria-label", title ? `Code: ${title}` : "Code");
  if (language) pre.dataset.language = language;
  pre.firstChild.textContent = text;
  copy.addEventListener("click", () => copyText(text, copy.lastElementChild));
  return node;
}

/** Copy a text; the label of the button says whether it is. */
export async function copyText(text, label) {
  try {
    await navigator.clipboard.writeText(text);
    label.textContent = "Copied";
  } catch {
    label.textContent = "Not allowed";
  }
  setTimeout(() => (label.textContent = "Copy"), 2000);
}

const BEGINNING = { start: 0, left: MOST_ELEMENTS };

/** Shows a text that grows: nodes of blocks that are complete stay as they are. */
export class MarkdownView {
  #text = "";
  #blocks = []; // their {start, left}

  constructor(attributes = {}) {
    this.node = el("div", { ...attributes, class: ["markdown", attributes.class].filter(Boolean).join(" ") });
  }

  update(text) {
    if (text === this.#text) return;
    const kept = text.startsWith(this.#text) ? this.#complete() : 0;
    const { start: from, left } = kept > 0 ? this.#blocks[kept] : BEGINNING;
    const blocks = parse(text.slice(from), 0, { left });
    while (this.node.childNodes.length > kept) this.node.lastChild.remove();
    const heading = [...this.node.querySelectorAll("h2, h3, h4, h5, h6")].at(-1);
    const made = nodes(blocks, { level: heading ? Number(heading.localName[1]) : 1 });
    for (const each of made) each.dir ||= "auto";
    append(this.node, made);
    const places = blocks.map((block) => ({ start: from + block.start, left: block.left }));
    this.#blocks = [...this.#blocks.slice(0, kept), ...places];
    this.#text = text;
  }

  /** Return how many blocks stay as they are whatever follows. */
  #complete() {
    const lastLine = this.#text.lastIndexOf("\n") + 1;
    // A block that begins in the last line may turn out to go on with the one before it.
    const mayChange = this.#blocks.at(-1)?.start >= lastLine ? 2 : 1;
    return Math.max(0, this.#blocks.length - mayChange);
  }
}

/** Make the nodes of a whole text. */
export function markdown(text) {
  const view = new MarkdownView();
  view.update(text);
  return view.node;
}

/** Return the words of a text as a person reads them, without the marks that are markup (HPAGE-20). */
export function wordsOf(text) {
  const shown = markdown(text);
  for (const each of shown.querySelectorAll(".code-head")) each.remove();
  for (const each of shown.querySelectorAll("p, h2, h3, h4, h5, h6, li, th, td, pre, br, hr")) each.after(" ");
  return shown.textContent.replace(/\s+/g, " ").trim();
}
