/** A list with a filter, and the chosen entry beside it; on a narrow page one after the other. */

import { el, fill, icon, withCode } from "/shared/dom.js";
import { safely } from "/shared/results.js";
import { placeholder } from "./placeholder.js";
import { visible } from "./shown_text.js";

const MOST_SHOWN = 500;
const MOST_KEPT = 40;

export class MasterDetail {
  #details = new Map();
  #key = "";

  #isListed = false;

  /** `detailOf(item)` makes {node, update, item}; `base` is the hash before the key of an entry; `advice`: how to add one. */
  constructor({ noun, picture, base, detailOf, empty, advice }) {
    Object.assign(this, { noun, picture, base, detailOf, empty, advice });
    this.items = [];
    this.chosen = null;
    this.filter = el("input", { type: "search", placeholder: `Filter ${noun}`, "aria-label": `Filter ${noun}`, hidden: true });
    this.filter.addEventListener("input", () => this.#showList());
    this.list = el("ul", { class: "entries" });
    this.note = el("p", { class: "muted small entries-note", "aria-live": "polite" });
    this.back = el("a", { class: "back button quiet", href: base }, icon("down"), el("span", {}, `All ${noun}`));
    this.detail = el("div", { class: "detail-body" });
    this.node = el(
      "div",
      { class: "split" },
      el("div", { class: "master" }, this.filter, this.note, this.list),
      el("section", { class: "detail", "aria-label": "Details" }, this.back, this.detail),
    );
  }

  /** `items`: {key, title, sub, data}. */
  setItems(items) {
    this.items = items;
    this.#isListed = true;
    this.node.classList.toggle("is-empty", items.length === 0);
    for (const [key, detail] of this.#details) {
      const item = items.find((each) => each.key === key);
      // A tool that has changed gets a new form; one that is gone stays, to be read.
      if (item && JSON.stringify(item.data) !== detail.stamp) this.#renew(key, item, detail);
    }
    this.#showList();
    if (this.chosen !== null) this.choose(this.chosen);
  }

  /** Show an entry; null: none. */
  choose(key) {
    const isOther = key !== this.chosen;
    this.chosen = key;
    this.node.classList.toggle("is-chosen", key !== null);
    const item = this.items.find((each) => each.key === key);
    const detail = key === null ? null : (this.#details.get(key) ?? (item ? { node: safely(() => this.#make(key, item).node, item.data) } : null));
    const gone = key !== null && !item ? el("p", { class: "note" }, `“${visible(key)}” is not among the ${this.noun} now.`) : null;
    const nodes = key === null ? [this.#placeholder()] : [gone, detail?.node ?? null];
    const wanted = nodes.filter(Boolean);
    const isSame = wanted.length === this.detail.childNodes.length && wanted.every((node, at) => node === this.detail.childNodes[at]);
    if (!isSame) fill(this.detail, ...wanted);
    this.#showList();
    if (isOther) this.list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  update() {
    for (const detail of this.#details.values()) detail.update();
  }

  details() {
    return [...this.#details.values()];
  }

  /** Nothing is said of a list that has not come. */
  #placeholder() {
    if (!this.#isListed) return null;
    return this.items.length > 0 ? placeholder(this.picture, `Choose one of the ${this.noun}.`) : placeholder(this.picture, this.empty, this.advice);
  }

  #make(key, item) {
    const detail = this.detailOf(item);
    detail.stamp = JSON.stringify(item.data);
    this.#details.set(key, detail);
    if (this.#details.size > MOST_KEPT) this.#details.delete(this.#details.keys().next().value);
    return detail;
  }

  #renew(key, item, detail) {
    try {
      detail.renew?.(item);
      detail.stamp = JSON.stringify(item.data);
    } catch {
      this.#details.delete(key); // it is made anew when it is shown
    }
  }

  #showList() {
    const wanted = this.filter.value.trim().toLowerCase();
    const fits = ({ title, sub }) => `${title} ${sub ?? ""}`.toLowerCase().includes(wanted);
    const found = wanted === "" ? this.items : this.items.filter(fits);
    const key = JSON.stringify([this.chosen, found.slice(0, MOST_SHOWN).map(({ key: own, title, sub, mark }) => [own, title, sub, mark])]);
    this.filter.hidden = this.items.length < 6;
    const rest = found.length - MOST_SHOWN;
    this.note.textContent =
      rest > 0 ? `${rest} more: write a filter.` : found.length === 0 && this.items.length > 0 ? "Nothing fits." : "";
    this.note.hidden = this.note.textContent === "";
    if (key === this.#key) return;
    this.#key = key;
    const focused = this.list.contains(document.activeElement) ? document.activeElement.hash : null;
    fill(this.list, found.slice(0, MOST_SHOWN).map((item) => safely(() => this.#row(item), item.title)));
    if (focused !== null) [...this.list.querySelectorAll("a")].find(({ hash }) => hash === focused)?.focus();
  }

  #row({ key, title, sub, mark }) {
    return el(
      "li",
      {},
      el(
        "a",
        { href: `${this.base}/${encodeURIComponent(key)}`, "aria-current": key === this.chosen ? "true" : null },
        el("span", { class: "entry-title" }, el("span", {}, visible(title, 120)), mark ? el("span", { class: "chip" }, mark) : null),
        sub ? el("span", { class: "muted small entry-sub" }, visible(sub, 160)) : null,
      ),
    );
  }
}

/** A view of one list of the server; each subclass has `reload()`, and `detailOf(data)` as `MasterDetail` takes it. */
export class ListView {
  constructor(page, { id, title, picture, advice }) {
    Object.assign(this, { page, id, title, picture });
    const detailOf = ({ data }) => this.detailOf(data);
    this.split = new MasterDetail({ noun: id, picture, base: `#/${id}`, detailOf, empty: `The server has no ${id}.`, advice: withCode(advice) });
    this.node = this.split.node;
  }

  /** Return a list of the server; an empty one if the server has not declared it. */
  async listed(method, member = this.id) {
    const { client } = this.page;
    return client.server?.capabilities?.[this.id] === undefined ? [] : client.list(method, member);
  }

  /** Show entries, as `MasterDetail` takes them. */
  show(items) {
    this.count = items.length;
    this.split.setItems(items);
  }

  open(key) {
    this.split.choose(key ?? null);
  }

  update() {
    this.split.update();
  }

  runs() {
    return this.split.details().map((detail) => detail.runs);
  }
}
