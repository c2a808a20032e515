/** The chat as it is read: one node per item, changed only if its item changed. */

import { CallCard, QuestionCard } from "./cards.js";
import { isOpen } from "./chat_state.js";
import { button, el, fill, icon } from "./dom.js";
import { MarkdownView } from "./markdown.js";

const NEAR_END = 80;

export class Transcript {
  #views = new Map();
  #unsentKey = "";
  #follows = true;

  constructor(chat, { onTakeBack }) {
    this.chat = chat;
    this.onTakeBack = onTakeBack;
    this.list = el("div", { class: "items", role: "log", "aria-live": "off", "aria-label": "Messages" });
    this.unsent = el("div", { class: "items" });
    this.activity = el(
      "p",
      { class: "activity muted", hidden: true },
      el("span", { class: "spinner", "aria-hidden": "true" }),
      "Working…",
    );
    this.jump = button("Latest", {
      picture: "down",
      class: "jump",
      hidden: true,
      on: { click: () => this.toEnd() },
    });
    const column = el("div", { class: "column" }, this.list, this.unsent, this.activity);
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
  }

  update() {
    const { state } = this.chat;
    this.#showItems(state.items);
    this.#showUnsent();
    const last = state.items.at(-1);
    const isWriting = last?.kind === "text" && !last.isDone;
    const isShown = state.items.some(
      (item) => isOpen(item) || (item.kind === "call" && item.phase === "processing"),
    );
    this.activity.hidden = state.turn === null || isWriting || isShown;
    this.#keepUp();
  }

  /** Give the focus to the card of an open decision. */
  focusOn(item) {
    const view = this.#views.get(keyOf(item));
    view?.node.scrollIntoView({ block: "nearest" });
    view?.focus?.();
  }

  toEnd() {
    this.#follows = true;
    this.#scroll();
  }

  #showItems(items) {
    const kept = new Set();
    let previous = null;
    for (const item of items) {
      const key = keyOf(item);
      kept.add(key);
      let view = this.#views.get(key);
      if (view === undefined) {
        view = makeView(this.chat, item);
        this.#views.set(key, view);
      } else {
        view.update(item);
      }
      const expected = previous === null ? this.list.firstChild : previous.nextSibling;
      if (expected !== view.node) this.list.insertBefore(view.node, expected);
      previous = view.node;
    }
    for (const [key, view] of this.#views) {
      if (kept.has(key)) continue;
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
    fill(this.unsent, ...unsent.map((message) => this.#unsentNode(message, message.refusal ?? note)));
  }

  #unsentNode({ id, text, refusal }, note) {
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
      el("div", { class: "bubble" }, text),
      el("div", { class: "unsent-note small" }, el("span", {}, note), ...actions),
    );
  }

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.node;
    this.#follows = scrollHeight - scrollTop - clientHeight < NEAR_END;
    this.jump.hidden = this.#follows;
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

function makeView(chat, item) {
  if (item.kind === "call") return new CallCard(chat, item);
  if (item.kind === "question") return new QuestionCard(chat, item);
  if (item.kind === "text") return textView(item);
  return { node: OTHERS[item.kind](item), update: () => {} };
}

function textView(item) {
  const view = new MarkdownView();
  const node = el(
    "div",
    { class: "message assistant" },
    el("span", { class: "hidden" }, "Assistant:"),
    view.node,
  );
  const update = ({ text, isDone }) => {
    view.update(text);
    node.dataset.growing = String(!isDone);
  };
  update(item);
  return { node, update };
}

const ENDINGS = {
  stopped: "Stopped.",
  failed: "The turn failed.",
  interrupted: "The turn was interrupted.",
};

const OTHERS = {
  user: ({ text }) =>
    el(
      "div",
      { class: "message user" },
      el("span", { class: "hidden" }, "You:"),
      el("div", { class: "bubble" }, text),
    ),
  ending: ({ state, message }) =>
    el(
      "p",
      { class: "ending", data: { state } },
      icon(state === "stopped" ? "stop" : "unknown"),
      message ?? ENDINGS[state] ?? state,
    ),
  notice: ({ text }) => el("p", { class: "ending", data: { state: "notice" } }, icon("unknown"), text),
};
