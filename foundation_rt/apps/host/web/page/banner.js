/** The state of the connection, where it is not simply there (HPAGE-21). */

import { button, el, fill, withCode } from "./dom.js";
import { printedAddress } from "./page_token.js";

const SHOWN_MS = 3000;

export class Banner {
  #wasLost = false;
  #timer = 0;
  #key = "";
  #offer = null;

  constructor({ onRetry, onDismiss }) {
    this.onRetry = onRetry;
    this.onDismiss = onDismiss;
    this.text = el("span", { role: "status" });
    this.actions = el("span", {});
    this.node = el("div", { class: "banner", hidden: true }, this.text, this.actions);
  }

  /** Say something until another chat is opened, with a button; `label` is its text. */
  offer(text, label, onTake) {
    this.#offer = { text, label, onTake };
  }

  update(chat) {
    const [tone, text, action] = this.#message(chat);
    const key = `${tone}|${text}`;
    if (key === this.#key) return;
    this.#key = key;
    clearTimeout(this.#timer);
    this.node.hidden = text === "";
    this.node.dataset.tone = tone;
    fill(this.text, withCode(text));
    fill(this.actions, action);
    if (tone === "good") this.#timer = setTimeout(() => this.reset(), SHOWN_MS);
  }

  #message(chat) {
    const { state, wasOpen } = chat.status;
    if (state === "refused")
      return [
        "bad",
        `The host does not let this tab in. Open the address that \`foundation-rt host\` printed: ${printedAddress()}`,
        this.#retry(),
      ];
    if (chat.maintenance !== null) return ["busy", chat.maintenance, null];
    if (state === "waiting" || (state === "connecting" && this.#wasLost)) {
      this.#wasLost = true;
      const text = wasOpen
        ? "The connection is lost. It is tried again; what you write is kept."
        : "The host does not answer. It is tried again.";
      return ["busy", text, this.#retry()];
    }
    if (!chat.isReady) return ["start", "Connecting…", null];
    if (chat.error !== null)
      return [
        "bad",
        chat.error.message ?? chat.error.code,
        button("Dismiss", { quiet: true, on: { click: this.onDismiss } }),
      ];
    if (this.#offer !== null) {
      const { text, label, onTake } = this.#offer;
      return ["bad", text, button(label, { quiet: true, on: { click: onTake } })];
    }
    if (!this.#wasLost) return ["", "", null];
    return ["good", "Connected again.", null];
  }

  /** Forget that the connection was lost. */
  reset() {
    this.#wasLost = false;
    this.#offer = null;
    this.#key = "";
    clearTimeout(this.#timer);
    this.node.hidden = true;
  }

  #retry() {
    return button("Try now", { quiet: true, on: { click: this.onRetry } });
  }
}
