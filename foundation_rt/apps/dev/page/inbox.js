/** The questions of servers that wait for an answer: where they are shown, and when they get the focus (DEV-67). */

import { button, el } from "/shared/dom.js";
import { count } from "/shared/format.js";

export class Inbox {
  #asked = [];
  #bar = null;

  /** `onChange()`: the number of questions is another one; `onDone(place)`: the focus was on a question that is gone. */
  constructor({ onChange, onDone }) {
    Object.assign(this, { onChange, onDone });
    this.node = el("div", { class: "inbox" });
  }

  get count() {
    return this.#asked.length;
  }

  /** Show the card of a question at `place`, or here if that is null; returns its answer. */
  async put(card, place) {
    if (place) place.ask(card);
    else this.node.append(card.node);
    this.#asked.push(card);
    this.show();
    this.#bringFocus(card);
    try {
      return await card.answered;
    } finally {
      this.#asked = this.#asked.filter((each) => each !== card);
      if (!place) card.node.remove();
      this.show();
      if (document.activeElement === document.body) this.onDone(place);
    }
  }

  /** Go to the first question; one whose call is in another view is shown here. */
  goToFirst() {
    const card = this.#asked[0];
    if (card === undefined) return;
    if (!card.node.isConnected) {
      this.node.append(card.node);
      this.show();
    }
    card.focus();
  }

  /** Say how many questions wait, if one of them is not seen in this view. */
  show() {
    this.#bar?.remove();
    this.onChange();
    const many = this.#asked.length;
    if (this.#asked.every(({ node }) => node.isConnected)) return;
    const answer = button("Answer", { quiet: true, on: { click: () => this.goToFirst() } });
    this.#bar = el("div", { class: "banner" }, `${count(many, "question")} ${many === 1 ? "waits" : "wait"} for an answer.`, answer);
    this.node.prepend(this.#bar);
  }

  /** A question gets the focus, unless somebody is writing. */
  #bringFocus(card) {
    const active = document.activeElement;
    const isWriting = active?.matches("input, textarea, select") && !active.closest(".call-form");
    if (card.node.isConnected && !isWriting && !document.querySelector("dialog[open]")) card.focus();
    document.getElementById("assertive").textContent = "The server asks you something.";
  }
}
