/** How other clients connect: the entries of their files; the roots that this page has; the shortcuts. */

import { button, el } from "/shared/dom.js";
import { codeBlock } from "/shared/markdown.js";

const SHORTCUTS = [
  { keys: ["Ctrl", "Enter"], does: "Run, read, get or send what is shown" },
  { keys: ["Shift", "Enter"], does: "Begin a new line in a text" },
  { keys: ["Alt", "1", "…", "0"], does: "Go to a view" },
  { keys: ["Alt", "Q"], does: "Go to the question that waits for you" },
  { keys: ["Alt", "F"], does: "Go to the filter" },
  { keys: ["Alt", "/"], does: "This list" },
];

function dialogOf(title, id, ...body) {
  const dialog = el("dialog", { class: "drawer", "aria-labelledby": id });
  const close = button("Close", { picture: "close", quiet: true, onlyIcon: true, on: { click: () => dialog.close() } });
  dialog.append(
    el("div", { class: "drawer-head" }, el("h2", { id }, title), close),
    el("div", { class: "drawer-body", tabindex: 0, role: "group", "aria-label": title }, ...body),
  );
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}

/** Make the dialog of the shortcuts. */
export function shortcutsDialog() {
  const rows = SHORTCUTS.map(({ keys, does }) =>
    el("div", {}, el("dt", {}, ...keys.map((key) => (key === "…" ? "…" : el("kbd", {}, key)))), el("dd", {}, does)),
  );
  return dialogOf("Shortcuts", "shortcuts-title", el("dl", { class: "shortcuts" }, ...rows));
}

/** Make the nodes that say how a client starts the program itself. */
function withoutDev(serve, asFile) {
  const target = serve.args.slice(serve.args.indexOf("serve") + 1).map(quoted).join(" ");
  return [
    el("h3", {}, "Without dev"),
    el("p", { class: "small" }, "The client starts the program itself. This command writes the entry, after showing the difference; instead of claude-desktop: claude-code, cursor, vscode or codex."),
    codeBlock(`foundation-rt install claude-desktop ${target}`, "", "Command"),
    codeBlock(asFile(serve), "", "Entry, over stdio"),
  ];
}

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Make the dialog that says how to connect; `onRoots` gets the URIs of roots when they change. */
export function connectDialog({ entry, serve, url, name }, roots, onRoots) {
  const asFile = (own) => JSON.stringify({ mcpServers: { [name]: own } }, null, 2);
  const area = el("textarea", { rows: 3, class: "mono", id: "roots", spellcheck: "false", placeholder: "file:///home/me/project" });
  area.value = roots.join("\n");
  area.addEventListener("change", () => onRoots(area.value.split("\n").map((line) => line.trim()).filter(Boolean)));
  return dialogOf(
    "Connect",
    "connect-title",
    el("h3", {}, "While dev runs"),
    el("p", { class: "small" }, "A client with this entry keeps its session when the program restarts, and its calls appear here. The endpoint is ", el("code", {}, url), "."),
    codeBlock(asFile(entry), "", "Entry, over HTTP"),
    ...(serve ? withoutDev(serve, asFile) : []),
    el("p", { class: "small muted" }, "VS Code calls the object ", el("code", {}, "servers"), " instead of ", el("code", {}, "mcpServers"), "."),
    el("h3", {}, "This page as a client"),
    el("div", { class: "field" }, el("label", { for: "roots" }, "Roots that this page tells servers"), el("p", { class: "muted small" }, "One file: URI a line."), area),
  );
}
