/** The chats of this browser, and what is about the page as a whole. */

import { button, el, fill } from "./dom.js";
import { themeSwitch } from "./theme.js";

export class Sidebar {
  constructor(node, { onNew, onOpen, onDelete, onShortcuts }) {
    this.onOpen = onOpen;
    this.onDelete = onDelete;
    this.list = el("ul", { class: "chats" });
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
      this.list,
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

  update(chats, current) {
    const key = JSON.stringify([current, chats.map(({ id, title }) => [id, title])]);
    if (key === this.key) return;
    this.key = key;
    const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.chat : null;
    fill(this.list, ...chats.map((chat) => this.#row(chat, chat.id === current)));
    if (chats.length === 0)
      fill(this.list, el("li", { class: "muted small empty" }, "Chats of this browser appear here."));
    if (focused)
      [...this.list.querySelectorAll("button")].find((each) => each.dataset.chat === focused)?.focus();
  }

  #row({ id, title }, isCurrent) {
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
      title,
    );
    const remove = button(`Delete ${title}`, {
      picture: "trash",
      quiet: true,
      onlyIcon: true,
      class: "chat-delete",
      on: { click: () => this.onDelete(id) },
    });
    return el("li", {}, open, remove);
  }
}
