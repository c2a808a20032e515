/** A field of text for which the server completes values. */

import { el, fill } from "/shared/dom.js";
import { visible } from "./shown_text.js";

const DELAY_MS = 150;
let fieldCount = 0;

export class CompletingField {
  #timer = 0;
  #asked = 0;
  #at = -1;

  /** `complete(value)` returns {values, total, hasMore}; null: the server completes nothing. */
  constructor({ name, title, description, isRequired, complete }) {
    fieldCount += 1;
    const id = `completing-${fieldCount}`;
    Object.assign(this, { name, isRequired, complete });
    this.input = el("input", {
      type: "text",
      id,
      autocomplete: "off",
      role: complete ? "combobox" : null,
      "aria-expanded": complete ? "false" : null,
      "aria-controls": complete ? `${id}-values` : null,
      "aria-autocomplete": complete ? "list" : null,
      "aria-describedby": [description && `${id}-help`, `${id}-problem`].filter(Boolean).join(" "),
    });
    this.values = el("ul", { class: "completions", id: `${id}-values`, role: "listbox", "aria-label": `Values of ${visible(name, 60)}`, hidden: true });
    this.problem = el("p", { class: "problem", id: `${id}-problem` });
    this.node = el(
      "div",
      { class: "field" },
      el("label", { for: id }, visible(title ?? name), el("span", { class: "muted" }, isRequired ? " (required)" : " (optional)")),
      description ? el("p", { class: "muted small", id: `${id}-help` }, description) : null,
      el("div", { class: "completing" }, this.input, this.values),
      this.problem,
    );
    if (!complete) return;
    this.input.addEventListener("input", () => this.#askSoon());
    this.input.addEventListener("focus", () => this.#askSoon());
    this.input.addEventListener("blur", () => this.#show([]));
    this.input.addEventListener("keydown", (event) => this.#pressed(event));
  }

  get value() {
    return this.input.value;
  }

  /** Return whether it can be sent, and say so if not. */
  check() {
    const isMissing = this.isRequired && this.value === "";
    this.problem.textContent = isMissing ? "Fill this in." : "";
    this.input.setAttribute("aria-invalid", String(isMissing));
    return !isMissing;
  }

  #askSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), DELAY_MS);
  }

  async #ask() {
    const number = ++this.#asked;
    const found = await this.complete(this.value).catch(() => null);
    if (number !== this.#asked || document.activeElement !== this.input) return;
    const values = (found?.values ?? []).filter((value) => value !== this.value);
    this.#show(values.slice(0, 100), found?.hasMore);
  }

  #show(values, hasMore) {
    this.#at = -1;
    fill(
      this.values,
      values.map((value, at) =>
        el("li", { role: "option", id: `${this.values.id}-${at}`, "aria-selected": "false", on: { pointerdown: (event) => this.#chosen(event, value) } }, visible(value, 200)),
      ),
    );
    this.options = values;
    this.values.hidden = values.length === 0;
    this.input.setAttribute("aria-expanded", String(values.length > 0));
    this.input.removeAttribute("aria-activedescendant");
    this.values.dataset.more = hasMore ? "true" : "false";
  }

  #chosen(event, value) {
    event.preventDefault();
    this.input.value = value;
    this.#show([]);
  }

  #pressed(event) {
    const isOpen = !this.values.hidden;
    if (event.key === "Escape" && isOpen) {
      event.preventDefault();
      event.stopPropagation();
      this.#show([]);
    } else if (isOpen && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      const many = this.options.length;
      this.#at = (this.#at + (event.key === "ArrowDown" ? 1 : -1) + many) % many;
      [...this.values.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === this.#at)));
      this.values.children[this.#at].scrollIntoView({ block: "nearest" });
      this.input.setAttribute("aria-activedescendant", this.values.children[this.#at].id);
    } else if (isOpen && event.key === "Enter" && this.#at >= 0) {
      event.preventDefault();
      this.input.value = this.options[this.#at];
      this.#show([]);
    }
  }
}
