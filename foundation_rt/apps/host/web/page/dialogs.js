/** The list of shortcuts, and a question before something is lost. */

import { button, el } from "./dom.js";

const MOST_TITLE = 200;

export const SHORTCUTS = [
  { keys: ["Enter"], does: "Send the message" },
  { keys: ["Shift", "Enter"], does: "Begin a new line" },
  { keys: ["/"], does: "At the beginning of a message: the prompts of the servers" },
  { keys: ["@"], does: "In a message: the resources of the servers" },
  { keys: ["Esc"], does: "Stop the turn" },
  { keys: ["Alt", "A"], does: "Go to what waits for you: an approval or a question" },
  { keys: ["1", "…", "5"], does: "In an approval: allow once, in this chat, always; deny; trust the server" },
  { keys: ["Alt", "M"], does: "Go to the message field" },
  { keys: ["Alt", "N"], does: "New chat" },
  { keys: ["Alt", "↑ ↓"], does: "Previous or next chat" },
  { keys: ["Alt", "S"], does: "Servers" },
  { keys: ["Alt", "/"], does: "This list" },
];

/** Make the dialog that lists the shortcuts. */
export function shortcutsDialog() {
  const rows = SHORTCUTS.map(({ keys, does }) =>
    el(
      "div",
      {},
      el("dt", {}, ...keys.map((key) => (key === "…" ? "…" : el("kbd", {}, key)))),
      el("dd", {}, does),
    ),
  );
  const dialog = el("dialog", { class: "dialog", "aria-labelledby": "shortcuts-title" });
  const close = button("Close", {
    picture: "close",
    quiet: true,
    onlyIcon: true,
    on: { click: () => dialog.close() },
  });
  const head = el("div", { class: "drawer-head" }, el("h2", { id: "shortcuts-title" }, "Shortcuts"), close);
  dialog.append(head, el("dl", { class: "shortcuts" }, ...rows));
  return dialog;
}

/** Ask for the title of a chat and whether it is pinned; resolves with both, or null. */
export function changedChat({ title, isPinned }) {
  return new Promise((resolve) => {
    const name = el("input", { type: "text", value: title, maxlength: MOST_TITLE, required: true });
    const pin = el("input", { type: "checkbox", checked: Boolean(isPinned) });
    const form = el(
      "form",
      { method: "dialog", class: "chat-form" },
      el("h2", { id: "chat-form-title" }, "Rename or pin"),
      el("label", {}, el("span", {}, "Title"), name),
      el("label", { class: "check" }, pin, "Pin to the top of the list"),
      el(
        "div",
        { class: "buttons" },
        button("Cancel", { on: { click: () => dialog.close() } }),
        button("Save", { type: "submit", value: "save", class: "primary" }),
      ),
    );
    const dialog = el("dialog", { class: "dialog", "aria-labelledby": "chat-form-title" }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      const isMeant = dialog.returnValue === "save" && name.value.trim() !== "";
      resolve(isMeant ? { title: name.value.trim(), isPinned: pin.checked } : null);
    });
    document.body.append(dialog);
    dialog.showModal();
    name.select();
  });
}

/** Ask before something is lost; resolves with whether to go on. */
export function confirmed(question, { detail, yes }) {
  return new Promise((resolve) => {
    const dialog = el("dialog", { class: "dialog", "aria-labelledby": "confirm-title" });
    const go = button(yes, { class: "deny", on: { click: () => dialog.close("yes") } });
    const no = button("Keep it", { on: { click: () => dialog.close() } });
    dialog.append(
      el("h2", { id: "confirm-title" }, question),
      el("p", { class: "muted" }, detail),
      el("div", { class: "buttons" }, no, go),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
