/** Colours the code of answers (HPAGE-54): the host says how long each piece is, and of which kind. Plain without. */

import { el, fill } from "./dom.js";
import { jsonOf } from "./exact_numbers.js";
import { request } from "./page_token.js";

const MOST_CHARACTERS = 32 * 1024;
const MOST_KEPT = 100;
const KINDS = new Set(["comment", "keyword", "string", "number", "name", "deleted"]);
const kept = new Map();
let last = Promise.resolve();

// What nobody sees yet is not asked for: a chat may have hundreds of blocks.
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    colour(target);
  }
});

/** Colour the blocks of code in a node, once they are seen. */
export function colourIn(node) {
  for (const code of node.querySelectorAll("pre[data-language] > code")) {
    if (code.dataset.asked || code.textContent.length > MOST_CHARACTERS) continue;
    code.dataset.asked = "true";
    seen.observe(code);
  }
}

// One after the other: the host takes few at once.
function colour(code) {
  last = last.then(() => colourOne(code)).catch(() => {});
}

async function colourOne(code) {
  const text = code.textContent;
  const { language } = code.parentElement.dataset;
  const spans = await spansOf(language, text);
  if (spans === undefined) delete code.dataset.asked; // it is asked for again when the answer is shown again
  if (code.textContent === text && fits(spans, text)) fill(code, pieces(spans, text));
}

async function spansOf(language, code) {
  const key = JSON.stringify([language, code]);
  if (!kept.has(key)) {
    const response = await request("api/colours", { method: "POST", body: JSON.stringify({ language, code }) });
    const found = response?.ok ? await jsonOf(response).catch(() => null) : null;
    if (found === null) return undefined;
    kept.set(key, found.spans ?? null);
    if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
  }
  return kept.get(key);
}

/** Tell whether spans are the pieces of a text. */
function fits(spans, text) {
  if (!Array.isArray(spans)) return false;
  const lengths = spans.map((span) => span?.[0]);
  return lengths.every((each) => Number.isInteger(each) && each > 0) && lengths.reduce((a, b) => a + b, 0) === text.length;
}

function pieces(spans, text) {
  let at = 0;
  return spans.map(([length, kind]) => {
    const piece = text.slice(at, (at += length));
    return KINDS.has(kind) ? el("span", { class: `code-${kind}` }, piece) : piece;
  });
}
