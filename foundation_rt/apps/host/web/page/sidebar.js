/** The list of chats, and what is about the page as a whole. */

import { button, el, fill, icon } from "./dom.js";
import { themeSwitch } from "./theme.js";

export class Sidebar {
  constructor(node, { onNew, onOpen, onChange, onDelete, onSearch, onMore, onShortcuts }) {
    Object.assign(this, { onOpen, onChange, onDelete });
    this.list = el("ul", { class: "chats" });
    this.more = button("More chats", { quiet: true, class: "more", hidden: true, on: { click: onMore } });
    this.search = el("input", {
      type: "search",
      class: "search",
      placeholder: "Search chats",
      "aria-label": "Search chats",
      maxlength: 200,
      on: { input: () => onSearch(this.search.value) },
    });
    const mark = el("img", { src: "icon.svg", alt: "", width: 24, height: 24 });
    fill(
      node,
      el("div", { class: "brand" }, mark, el("span", {}, "foundation-rt")),
      button("New chat", {
        picture: "add",
        class: "new",
        "aria-keyshortcuts": "Alt+N",
        on: { click: onNew },
      }),
      el("h2", { class: "small muted" }, "Chats"),
      this.search,
      this.list,
      this.more,
      el(
        "div",
        { class: "sidebar-foot" },
        themeSwitch(),
        button("Shortcuts", {
          picture: "help",
          quiet: true,
          onlyIcon: true,
          "aria-keyshortcuts": "Alt+/",
          on: { click: onShortcuts },
        }),
      ),
    );
  }

  update({ chats, hasMore, words }, current) {
    const key = JSON.stringify([current, words, chats.map(({ id, title, isPinned }) => [id, title, isPinned])]);
    this.more.hidden = !hasMore;
    if (key === this.key) return;
    this.key = key;
    const focused = this.list.contains(document.activeElement) ? document.activeElement : null;
    fill(this.list, chats.map((chat) => this.#row(chat, chat.id === current)));
    this.search.hidden = chats.length === 0 && words === "";
    const empty = words === "" ? "Your chats appear here." : "Nothing was found.";
    if (chats.length === 0) fill(this.list, el("li", { class: "muted small empty" }, empty));
    if (focused)
      [...this.list.querySelectorAll("button")]
        .find(({ dataset }) => dataset.chat === focused.dataset.chat && dataset.does === focused.dataset.does)
        ?.focus();
  }

  #row(chat, isCurrent) {
    const { id, isPinned } = chat;
    const title = chat.title || "Chat";
    const open = el(
      "button",
      {
        type: "button",
        class: "chat-title",
        title,
        "aria-current": isCurrent ? "true" : null,
        data: { chat: id },
        on: { click: () => this.onOpen(id) },
      },
      isPinned ? [icon("pin"), el("span", { class: "hidden" }, "Pinned: ")] : [],
      el("bdi", {}, title),
    );
    const action = (label, picture, click) =>
      button(`${label} ${title}`, { picture, quiet: true, onlyIcon: true, data: { chat: id, does: label }, on: { click } });
    return el(
      "li",
      {},
      open,
      el(
        "div",
        { class: "chat-actions" },
        action("Rename or pin", "edit", () => this.onChange({ ...chat, title })),
        action("Delete", "trash", () => this.onDelete(id)),
      ),
    );
  }
}
