/** The field in which a message is written, with Send and Stop. */

import { Attachments } from "./attachments.js";
import { Completer } from "./completer.js";
import { button, el, fill } from "./dom.js";

export const MOST_CHARACTERS = 32_768;
const NEAR_LIMIT = 30_000;

export class Composer {
  constructor({ onSay, onStop, onDraft, onCancel, onModel }) {
    this.onSay = onSay;
    this.onDraft = onDraft;
    this.field = el("textarea", {
      id: "say",
      rows: 1,
      dir: "auto",
      placeholder: "Write a message",
      "aria-label": "Message",
      "aria-describedby": "say-help",
      on: {
        keydown: (event) => this.#pressed(event),
        input: () => {
          this.#changed();
          this.onDraft(this.text);
        },
      },
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
    this.attachments = new Attachments({ onChange: () => this.#changed() });
    this.model = el("select", { class: "model small", "aria-label": "Model", hidden: true });
    this.model.addEventListener("change", () => onModel(this.model.value));
    this.help = el(
      "p",
      { id: "say-help", class: "say-help muted small" },
      "Enter sends, Shift+Enter begins a new line.",
    );
    this.usage = el("p", { class: "usage muted small" });
    const completer = new Completer(this, { onProblem: (text) => (this.attachments.problem.textContent = text) });
    this.note = el(
      "div",
      { class: "say-note small", hidden: true },
      el("span", {}, "What you send takes the place of an earlier message. The old branch stays."),
      button("Cancel", { quiet: true, on: { click: onCancel } }),
    );
    this.node = el(
      "div",
      { class: "composer" },
      this.note,
      this.attachments.node,
      completer.list,
      el("div", { class: "say-box" }, this.attachments.button, this.field, this.stop, this.send),
      el("div", { class: "say-foot" }, this.model, this.help, this.usage),
    );
    this.node.addEventListener("paste", (event) => {
      // What has words too is pasted as these: a table of a spreadsheet has a picture of itself.
      if (!event.clipboardData.types.includes("text/plain")) this.#take(event, event.clipboardData);
    });
    addEventListener("dragover", (event) => event.dataTransfer.types.includes("Files") && event.preventDefault());
    addEventListener("drop", (event) => this.#take(event, event.dataTransfer));
  }

  /** Offer models; the one of the configuration is first. */
  offerModels(names, own, chosen) {
    const all = [own, ...names.filter((name) => name !== own)];
    fill(this.model, all.map((name) => el("option", { value: name === own ? "" : name }, name)));
    this.model.value = names.includes(chosen) && chosen !== own ? chosen : "";
    this.model.hidden = all.length < 2;
  }

  /** Take the files of a paste or a drop. */
  #take(event, { files }) {
    if (files.length === 0) return;
    event.preventDefault();
    this.attachments.add(files);
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

  /** Take a message that an app proposes, for the person to send; returns whether there is room for it. */
  propose(text) {
    if (this.text.trim() !== "" || text.length > MOST_CHARACTERS) return false;
    this.replace(0, this.text.length, text);
    return true;
  }

  /** Put a text in the place of a part of the message. */
  replace(from, to, text) {
    this.field.setRangeText(text, from, to, "end");
    this.#changed();
    this.onDraft(this.text);
  }

  /** Put a text where the caret is. */
  insert(text) {
    this.replace(this.field.selectionStart, this.field.selectionEnd, text);
  }

  focus() {
    this.field.focus();
    this.field.setSelectionRange(this.text.length, this.text.length);
  }

  #pressed(event) {
    // With 229 an input method has taken the key: Safari ends the composition before it says so.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    if (!event.repeat) this.#say(); // held, it was meant for what had the focus before
  }

  #say() {
    const text = this.text.trim();
    if (text === "" || this.#length() > MOST_CHARACTERS) return;
    const message = { text, ...this.attachments.said };
    if (this.model.value !== "") message.model = this.model.value;
    this.attachments.clear();
    this.text = "";
    this.onDraft("");
    this.onSay(message);
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
