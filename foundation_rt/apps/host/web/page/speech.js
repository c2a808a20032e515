/** What screen readers hear: sentences as they are complete, and at once what waits for a decision (HPAGE-20). */

import { openDecisions } from "./chat_state.js";
import { subjectOf } from "./chat_state.js";
import { wordsOf } from "./markdown.js";

const MOST_LINES = 12;
// Marks that come in pairs: a sentence is not cut between two of them, unless it is very long.
const PAIRS = [/^ {0,3}(?:```|~~~)/gm, /`/g, /\*\*/g, /~~/g];
const LONG = 2_000;

/** Cuts texts that grow into sentences. Pure but for what it remembers. */
export class SentenceReader {
  #read = new Map();
  #searched = new Map();

  /** Return the sentences of a text that are new and complete; with `isDone`, the rest too. */
  next(id, text, isDone) {
    const from = this.#read.get(id) ?? 0;
    const end = isDone ? text.length : endOfSentences(text, from, this.#searched.get(id) ?? 0);
    this.#searched.set(id, text.length - 1);
    const said = text.slice(from, end);
    if (!isDone && !isWhole(said)) return "";
    this.#read.set(id, Math.max(from, end));
    return said.trim() === "" ? "" : wordsOf(said);
  }

  /** Take a text as read. */
  skip(id, text) {
    this.#read.set(id, text.length);
  }
}

function isWhole(text) {
  return text.length > LONG || PAIRS.every((pair) => (text.match(pair)?.length ?? 0) % 2 === 0);
}

/** Return where the last sentence that is complete ends; none ends before `searched`. */
function endOfSentences(text, from, searched) {
  for (let at = text.length - 1; at > Math.max(from, searched); at -= 1) {
    if (/\s/.test(text[at]) && (/[.!?:;]/.test(text[at - 1]) || text[at] === "\n")) return at + 1;
  }
  return from;
}

export class Announcer {
  #reader = new SentenceReader();
  #heard = new Map();

  constructor(polite, assertive) {
    this.polite = polite;
    this.assertive = assertive;
  }

  /** Begin a chat: what is there already is not read out. */
  begin(state) {
    this.#reader = new SentenceReader();
    this.#heard = new Map();
    this.polite.replaceChildren();
    this.assertive.replaceChildren();
    for (const item of state.items) this.#skip(item);
  }

  /** Say what a change of the state brings. */
  update(state) {
    for (const item of state.items) {
      if (this.#heard.get(item.id) === item) continue;
      const before = this.#heard.get(item.id);
      this.#heard.set(item.id, item);
      if (item.kind === "text") this.say(this.#reader.next(item.id, item.text, item.isDone));
      else this.say(sentenceOf(item, before));
    }
    const waiting = openDecisions(state)[0] ?? null;
    this.#warn(waiting === null ? "" : requestOf(waiting));
  }

  /** Say a sentence when nothing else is being said. */
  say(sentence) {
    if (!sentence) return;
    const line = document.createElement("p");
    line.textContent = sentence;
    this.polite.append(line);
    while (this.polite.childElementCount > MOST_LINES) this.polite.firstChild.remove();
  }

  #warn(sentence) {
    if (this.assertive.textContent !== sentence) this.assertive.textContent = sentence;
  }

  #skip(item) {
    this.#heard.set(item.id, item);
    if (item.kind === "text") this.#reader.skip(item.id, item.text);
  }
}

function sentenceOf(item, before) {
  if (item.kind === "ending") return item.message ?? `The turn was ${item.state}.`;
  if (item.kind === "notice") return item.text;
  if (item.kind !== "call") return "";
  const { tool } = subjectOf(item);
  if (item.phase === "complete" && before?.phase !== "complete")
    return `${tool} ${item.isError ? "failed" : "is done"}.`;
  return before === undefined && !item.awaiting ? `${tool} runs.` : "";
}

function requestOf(item) {
  const { server, tool, isSkill } = item.kind === "call" ? subjectOf(item) : item;
  if (item.kind === "question") return `${server} asks: ${item.message} Alt A goes there.`;
  if (item.approval?.kindOfApproval === "sampling") return `${server} asks the model. Alt A goes there.`;
  if (isSkill) return `Approval needed: skill ${tool}, server ${server}. Alt A goes there.`;
  return `Approval needed: ${tool}, server ${server}. Alt A goes there.`;
}
