/** The wire as it went: each message between clients, front and programs; filtered, opened, copied (DEV-72). */

import { button, el, fill } from "/shared/dom.js";
import { count } from "/shared/format.js";
import { visible } from "./shown_text.js";
import { exchanges, WireRow, wireTitle } from "./wire_row.js";

const MOST_SHOWN = 300;
const DELAY_MS = 200;

export class WireView {
  id = "wire";
  title = "Wire";
  picture = "wire";
  #timer = 0;
  #rows = new Map();

  constructor(page) {
    this.page = page;
    const options = (all) => all.map(([value, label]) => el("option", { value }, label));
    this.words = el("input", { type: "search", placeholder: "Filter by method, name, id, text", "aria-label": "Filter messages" });
    this.leg = el("select", { "aria-label": "Side" }, ...options([["", "Both sides"], ["client", "Clients"], ["server", "Programs"]]));
    this.kind = el("select", { "aria-label": "Kind" }, ...options([["", "All kinds"], ["request", "Requests"], ["response", "Responses"], ["notification", "Notifications"], ["error", "Errors"]]));
    this.pause = button("Pause", { "aria-pressed": "false", on: { click: () => this.#pause() } });
    const copy = button("Copy", { picture: "copy", on: { click: () => this.#copy(copy) } });
    const clear = button("Clear", { picture: "trash", on: { click: () => this.page.feed.clearWire() } });
    for (const control of [this.words, this.leg, this.kind]) control.addEventListener("input", () => this.#show());
    this.note = el("p", { class: "muted small" });
    this.list = el("ol", { class: "wire-list" });
    this.node = el(
      "div",
      { class: "page" },
      el("div", { class: "filters" }, this.words, this.leg, this.kind, el("div", { class: "buttons" }, this.pause, copy, clear)),
      this.note,
      this.list,
    );
  }

  async reload() {}

  open() {
    this.#show();
  }

  update(kinds) {
    if (!kinds.has("wire") || !this.node.isConnected || this.isPaused || this.#timer) return;
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      if (!this.isPaused) this.#show();
    }, DELAY_MS);
  }

  #found() {
    const wanted = this.words.value.trim().toLowerCase();
    const kind = this.kind.value;
    return exchanges(this.page.feed.wire).filter(
      (entry) =>
        (this.leg.value === "" || entry.leg === this.leg.value) &&
        (kind === "" || isOf(kind, entry) || (entry.response && isOf(kind, entry.response))) &&
        (wanted === "" || searchable(entry).includes(wanted) || (entry.response && searchable(entry.response).includes(wanted))),
    );
  }

  #show() {
    const found = this.#found();
    const shown = found.slice(-MOST_SHOWN).reverse();
    const rows = new Map(shown.map((entry) => [entry, this.#rows.get(entry) ?? new WireRow(entry)]));
    this.#rows = rows;
    for (const row of rows.values()) row.update();
    const all = exchanges(this.page.feed.wire).length;
    const rest = found.length - shown.length;
    this.note.textContent = `${count(found.length, "exchange")}${found.length < all ? ` of ${all}` : ""}, newest first${rest > 0 ? `; ${rest} older are not shown` : ""}${this.isPaused ? "; paused" : ""}.`;
    const wanted = [...rows.values()].map(({ node }) => node);
    const kept = new Set(wanted);
    // Rows that stay are not moved: one that is open, or has the focus, keeps it.
    for (const row of [...this.list.children]) if (!kept.has(row)) row.remove();
    wanted.forEach((row, at) => {
      if (this.list.children[at] !== row) this.list.insertBefore(row, this.list.children[at] ?? null);
    });
  }

  #pause() {
    this.isPaused = !this.isPaused;
    this.pause.setAttribute("aria-pressed", String(this.isPaused));
    this.#show();
  }

  async #copy(copy) {
    const lines = this.#found().flatMap((entry) => [entry, entry.response ?? []].flat()).map((entry) => JSON.stringify({ at: new Date(entry.at).toISOString(), leg: entry.leg, direction: entry.direction, message: entry.message ?? entry.text }));
    const label = copy.lastElementChild;
    try {
      await navigator.clipboard.writeText(lines.join("\n"));
      label.textContent = "Copied";
    } catch {
      label.textContent = "Not allowed";
    }
    setTimeout(() => (label.textContent = "Copy"), 2000);
  }
}

function isOf(kind, { kind: own, message }) {
  return kind === "error" ? message?.error !== undefined : own === kind;
}

function searchable(entry) {
  entry.searched ??= `${wireTitle(entry)} ${entry.id ?? ""} ${entry.client ?? ""} ${entry.server ?? ""} ${entry.text ?? visible(JSON.stringify(entry.message) ?? "", 4000)}`.toLowerCase();
  return entry.searched;
}
