/** The chat as it is read: one node per item, changed only if its item changed. */

import { attachedNode } from "./attachments.js";
import { CallCard, QuestionCard } from "./cards.js";
import { isOpen } from "./chat_state.js";
import { colourIn } from "./colours.js";
import { button, el, fill, icon } from "./dom.js";
import { copyText, MarkdownView } from "./markdown.js";
import { safely } from "./results.js";

const NEAR_END = 80;
const NEAR_BEGINNING = 600;

export class Transcript {
  #views = new Map();
  #unsentKey = "";
  #follows = true;
  #isReading = false;

  constructor(chat, { composer, onTakeBack, onEdit, onAgain }) {
    Object.assign(this, { chat, composer, onTakeBack, onEdit, onAgain });
    this.list = el("div", { class: "items", role: "log", "aria-live": "off", "aria-label": "Messages" });
    this.unsent = el("div", { class: "items" });
    this.doing = el("span", {});
    this.activity = el(
      "p",
      { class: "activity muted", hidden: true },
      el("span", { class: "spinner", "aria-hidden": "true" }),
      this.doing,
    );
    this.jump = button("Latest", {
      picture: "down",
      class: "jump",
      hidden: true,
      on: { click: () => this.toEnd() },
    });
    this.older = button("Earlier messages", { quiet: true, class: "older", on: { click: () => this.#showOlder() } });
    const column = el("div", { class: "column" }, this.older, this.list, this.unsent, this.activity);
    const scroller = {
      class: "transcript",
      tabindex: 0,
      role: "region",
      "aria-label": "Chat",
      on: { scroll: () => this.#scrolled() },
    };
    this.node = el("div", scroller, column);
    this.resized = new ResizeObserver(() => this.#keepUp());
    this.resized.observe(column);
  }

  close() {
    this.resized.disconnect();
    for (const view of this.#views.values()) view.close();
  }

  update() {
    const { state } = this.chat;
    const first = this.list.firstElementChild;
    const before = first?.getBoundingClientRect().top;
    this.#showItems(this.chat.branch);
    this.older.hidden = state.oldest === null;
    // What comes above moves nothing of what is read.
    if (first !== this.list.firstElementChild && first?.isConnected)
      this.node.scrollTop += first.getBoundingClientRect().top - before;
    this.#showUnsent();
    const last = state.items.at(-1);
    const isWriting = last?.isDone === false;
    const isShown = state.items.some(
      (item) => isOpen(item) || (item.kind === "call" && item.phase === "processing"),
    );
    this.activity.hidden = state.turn === null || isWriting || isShown;
    this.doing.textContent = state.turn?.message ?? "Working…";
    this.#keepUp();
    if (this.node.scrollHeight <= this.node.clientHeight) this.#showOlder();
  }

  /** Give the focus to the card of an open decision. */
  focusOn(item) {
    const view = this.#views.get(keyOf(item));
    view?.node.scrollIntoView({ block: "nearest" });
    view?.focus();
  }

  /** Show another branch, and keep the focus on its switch. */
  showBranch(id, sibling) {
    this.chat.show(id, sibling);
    this.update();
    const pager = this.#views.get(`user:${sibling}`)?.node.querySelector(".pager");
    pager?.querySelector("button:not(:disabled)")?.focus();
  }

  toEnd() {
    this.#follows = true;
    this.#scroll();
  }

  #showItems({ items, forks }) {
    const kept = new Set();
    const question = items.findLastIndex(({ kind }) => kind === "user");
    const answer = this.chat.state.turn === null ? items.slice(question).findLast(({ kind }) => kind === "text") : null;
    const last = items.at(-1);
    const retried = this.chat.state.turn === null && last?.mayRetry ? last : answer;
    let previous = null;
    for (const item of items) {
      const place = {
        ids: forks.get(item.id) ?? null,
        onAgain: item === retried && question >= 0 ? () => this.onAgain(items[question]) : null,
      };
      const key = keyOf(item);
      kept.add(key);
      let view = this.#views.get(key);
      if (view === undefined) {
        view = new ItemView(this, item, place);
        this.#views.set(key, view);
      } else {
        view.update(item, place);
      }
      const expected = previous === null ? this.list.firstChild : previous.nextSibling;
      if (expected !== view.node) this.list.insertBefore(view.node, expected);
      previous = view.node;
    }
    for (const [key, view] of this.#views) {
      if (kept.has(key)) continue;
      view.close();
      view.node.remove();
      this.#views.delete(key);
    }
  }

  #showUnsent() {
    const { unsent } = this.chat;
    const note = waitingNote(this.chat);
    const key = JSON.stringify([unsent, note]);
    if (key === this.#unsentKey) return;
    this.#unsentKey = key;
    fill(this.unsent, unsent.map((message) => this.#unsentNode(message, message.refusal ?? note)));
  }

  #unsentNode(message, note) {
    const { id, text, refusal } = message;
    const actions =
      refusal === null
        ? []
        : [
            button("Send again", { quiet: true, on: { click: () => this.chat.sayAgain(id) } }),
            button("Edit", { quiet: true, on: { click: () => this.onTakeBack(id) } }),
          ];
    return el(
      "div",
      { class: "message user unsent", data: { refused: String(refusal !== null) } },
      el("div", { class: "bubble", dir: "auto" }, text),
      attachedNode(message),
      el("div", { class: "unsent-note small" }, el("span", {}, note), ...actions),
    );
  }

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.node;
    this.#follows = scrollHeight - scrollTop - clientHeight < NEAR_END;
    this.jump.hidden = this.#follows;
    if (scrollTop < NEAR_BEGINNING) this.#showOlder();
  }

  async #showOlder() {
    if (this.#isReading || this.chat.state.oldest === null) return;
    this.#isReading = true;
    await this.chat.readOlder();
    this.#isReading = false;
  }

  /** Stay at the end, unless somebody reads above or works in a card. */
  #keepUp() {
    if (this.#follows && !this.list.contains(document.activeElement)) this.#scroll();
  }

  #scroll() {
    this.node.scrollTop = this.node.scrollHeight;
    this.jump.hidden = true;
  }
}

function waitingNote({ isReady, state }) {
  if (!isReady) return "Is sent when the connection is back";
  return state.turn === null ? "Sending…" : "Waits for its turn";
}

function keyOf(item) {
  return `${item.kind}:${item.id}`;
}

/** The view of one item, which fails alone: the item is plain text then, until it changes (HPAGE-34). */
class ItemView {
  #view = null;
  #failed = null;

  constructor(transcript, item, place) {
    this.transcript = transcript;
    this.update(item, place);
  }

  update(item, place) {
    if (item === this.#failed) return;
    this.#failed = item;
    const node = safely(() => {
      const view = this.#view ?? makeView(this.transcript, item);
      this.#view = null; // one that fails half-way is not used again
      view.update(item, place);
      this.#view = view;
      this.#failed = null;
      return view.node;
    }, item.text ?? item);
    if (node !== this.node) this.node?.replaceWith(node);
    this.node = node;
  }

  focus() {
    this.#view?.focus?.();
  }

  close() {
    this.#view?.close?.();
  }
}

function makeView(transcript, item) {
  if (item.kind === "call") return new CallCard(transcript.chat, item, transcript.composer);
  if (item.kind === "question") return new QuestionCard(transcript.chat, item);
  if (item.kind === "text") return textView(item);
  if (item.kind === "user") return userView(transcript, item);
  if (item.kind === "ending") return endingView(item);
  if (item.kind === "thought") return thoughtView();
  return { node: OTHERS.get(item.kind)(item), update: () => {} };
}

function textView(item) {
  const view = new MarkdownView();
  let text = item.text;
  const copy = button("Copy", {
    picture: "copy",
    quiet: true,
    "aria-label": "Copy the answer",
    on: { click: () => copyText(text, copy.lastElementChild) },
  });
  let onAgain = null;
  const again = button("Answer again", { picture: "again", quiet: true, on: { click: () => onAgain() } });
  const actions = el("div", { class: "actions" }, copy, again);
  const node = el(
    "div",
    { class: "message assistant" },
    el("span", { class: "hidden" }, "Assistant:"),
    view.node,
    actions,
  );
  const update = (next, place) => {
    text = next.text;
    onAgain = place.onAgain;
    again.hidden = onAgain === null;
    view.update(text);
    node.dataset.growing = String(!next.isDone);
    actions.hidden = !next.isDone;
    if (next.isDone) colourIn(view.node);
  };
  return { node, update };
}

/** A message of the user: it can be edited, and the branches that begin with it be gone through. */
function userView(transcript, item) {
  const edit = button("Edit", {
    picture: "edit",
    quiet: true,
    "aria-label": "Edit this message",
    on: { click: () => transcript.onEdit(item) },
  });
  const pager = el("span", { class: "pager", role: "group", "aria-label": "Branches" });
  const node = el(
    "div",
    { class: "message user" },
    el("span", { class: "hidden" }, "You:"),
    el("div", { class: "bubble", dir: "auto" }, item.text),
    attachedNode(item),
    el("div", { class: "actions" }, pager, edit),
  );
  let shown = null;
  const update = (_, { ids }) => {
    const key = ids?.join() ?? "";
    if (key === shown) return;
    shown = key;
    fill(pager, ids && pagerOf(transcript, item.id, ids));
    node.dataset.forks = String(ids !== null);
  };
  return { node, update };
}

function pagerOf(transcript, id, ids) {
  const at = ids.indexOf(id);
  const step = (label, picture, to) =>
    button(label, {
      picture,
      quiet: true,
      onlyIcon: true,
      disabled: ids[to] === undefined,
      on: { click: () => transcript.showBranch(id, ids[to]) },
    });
  const figure = el("span", {}, `${at + 1} of ${ids.length}`);
  return [step("Branch before", "left", at - 1), figure, step("Next branch", "right", at + 1)];
}

/** The view of what the model thought: folded, as it was written, and not read out (HPAGE-70). */
function thoughtView() {
  const title = el("summary", {});
  const body = el("div", { class: "thought-text", dir: "auto" });
  const update = ({ text, isDone }) => {
    title.textContent = isDone ? "Thought" : "Thinking…";
    body.textContent = text;
  };
  return { node: el("details", { class: "thought" }, title, body), update };
}

const ENDINGS = new Map([
  ["stopped", "Stopped."],
  ["failed", "The turn failed."],
  ["interrupted", "The turn was interrupted."],
]);

/** The end of a turn, with Retry where that may help (HPAGE-60). */
function endingView({ state, message }) {
  let onAgain = null;
  const retry = button("Retry", { picture: "again", on: { click: () => onAgain() } });
  const node = el(
    "div",
    { class: "ending", data: { state } },
    icon(state === "stopped" ? "stop" : "unknown"),
    el("span", {}, message ?? ENDINGS.get(state) ?? state),
  );
  const update = (_, place) => {
    onAgain = place.onAgain;
    if (onAgain === null) retry.remove();
    else if (retry.parentNode === null) node.append(retry); // once: moved, it would lose the focus
  };
  return { node, update };
}

const OTHERS = new Map([
  [
    "notice",
    ({ text }) => el("p", { class: "ending", data: { state: "notice" } }, icon("unknown"), text),
  ],
]);
