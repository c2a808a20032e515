/** The field in which a message is written, with Send and Stop. */

import { button, el } from "./dom.js";

export const MOST_CHARACTERS = 32_768;
const NEAR_LIMIT = 30_000;

export class Composer {
  constructor({ onSay, onStop }) {
    this.onSay = onSay;
    this.field = el("textarea", {
      id: "say",
      rows: 1,
      placeholder: "Write a message",
      "aria-label": "Message",
      "aria-describedby": "say-help",
      on: { keydown: (event) => this.#pressed(event), input: () => this.#changed() },
    });
    this.stop = button("Stop", {
      picture: "stop",
      class: "stop",
      hidden: true,
      "aria-keyshortcuts": "Escape",
      on: { click: onStop },
    });
    this.send = button("Send", {
      picture: "send",
      onlyIcon: true,
      class: "primary send",
      disabled: true,
      on: { click: () => this.#say() },
    });
    this.help = el(
      "p",
      { id: "say-help", class: "say-help muted small" },
      "Enter sends, Shift+Enter begins a new line.",
    );
    this.usage = el("p", { class: "usage muted small" });
    this.node = el(
      "div",
      { class: "composer" },
      el("div", { class: "say-box" }, this.field, this.stop, this.send),
      el("div", { class: "say-foot" }, this.help, this.usage),
    );
  }

  update({ state, isStopping }) {
    const isRunning = state.turn !== null;
    const hadFocus = document.activeElement === this.stop;
    this.stop.hidden = !isRunning;
    this.stop.disabled = isStopping;
    this.stop.lastElementChild.textContent = isStopping ? "Stopping…" : "Stop";
    if (hadFocus && (!isRunning || isStopping)) this.focus();
    const { promptTokens, completionTokens, totalTokens, isEstimated } = state.usage;
    this.usage.textContent =
      totalTokens > 0 ? `${isEstimated ? "about " : ""}${totalTokens.toLocaleString("en")} tokens` : "";
    const [read, written] = [promptTokens, completionTokens].map((number) => number.toLocaleString("en"));
    this.usage.title = `${read} read, ${written} written by the model`;
  }

  get text() {
    return this.field.value;
  }

  set text(text) {
    this.field.value = text;
    this.#changed();
  }

  focus() {
    this.field.focus();
    this.field.setSelectionRange(this.text.length, this.text.length);
  }

  #pressed(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.#say();
  }

  #say() {
    const text = this.text.trim();
    if (text === "" || this.#length() > MOST_CHARACTERS) return;
    this.text = "";
    this.onSay(text);
    this.focus();
  }

  #length() {
    return [...this.text.trim()].length;
  }

  #changed() {
    const length = this.text.length < NEAR_LIMIT ? this.text.length : this.#length();
    const isTooLong = length > MOST_CHARACTERS;
    this.send.disabled = this.text.trim() === "" || isTooLong;
    this.field.setAttribute("aria-invalid", String(isTooLong));
    const figure = `${length.toLocaleString("en")} of ${MOST_CHARACTERS.toLocaleString("en")} characters.`;
    this.help.textContent = length < NEAR_LIMIT ? "Enter sends, Shift+Enter begins a new line." : figure;
  }
}
