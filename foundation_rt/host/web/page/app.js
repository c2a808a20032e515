/** The page, put together: one chat at a time, the list of chats, the servers, the keyboard. */

import { Banner } from "./banner.js";
import { Chat } from "./chat.js";
import { openDecisions } from "./chat_state.js";
import { Chats } from "./chats.js";
import { Composer } from "./composer.js";
import { confirmed, shortcutsDialog } from "./dialogs.js";
import { button, el, fill } from "./dom.js";
import { described, ServersPanel, summary } from "./servers_panel.js";
import { Sidebar } from "./sidebar.js";
import { Announcer } from "./speech.js";
import { setTheme, theme } from "./theme.js";
import { Transcript } from "./transcript.js";
import { welcomeNode } from "./welcome.js";

const NAME = "foundation-rt";
const HIDDEN_FRAME_MS = 250;

class App {
  #drafts = new Map();
  #isScheduled = false;
  #asked = new Set();
  #wasReady = false;
  #statusTimer = 0;

  constructor() {
    this.chats = new Chats(localStorage);
    this.status = null;
    this.servers = [];
    this.announcer = new Announcer(document.getElementById("polite"), document.getElementById("assertive"));
    this.panel = new ServersPanel();
    this.shortcuts = shortcutsDialog();
    this.sidebar = new Sidebar(document.getElementById("sidebar"), {
      onNew: () => this.open(null),
      onOpen: (id) => this.open(id),
      onDelete: (id) => this.delete(id),
      onShortcuts: () => this.shortcuts.showModal(),
    });
    this.composer = new Composer({ onSay: (text) => this.say(text), onStop: () => this.chat.stop() });
    this.banner = new Banner({ onRetry: () => this.chat.open(), onDismiss: () => this.chat.dismissError() });
    this.head = this.#makeHead();
    this.stage = el("div", { class: "stage" });
    fill(document.getElementById("main"), this.head, this.banner.node, this.stage, this.composer.node);
    document.body.append(this.panel.node, this.shortcuts);
    addEventListener("keydown", (event) => this.#pressed(event));
    addEventListener("storage", () => this.render());
    document.getElementById("shade").addEventListener("click", () => this.#showSidebar(false));
  }

  /** Open a chat; null: a new one. */
  open(id) {
    this.#showSidebar(false);
    if (this.chat) {
      this.#drafts.set(this.chat.state.sessionId, this.composer.text);
      this.chat.close();
      this.transcript.close();
    }
    const outbox = id === null ? [] : this.chats.outbox(id);
    const isUsed = id !== null && this.chats.title(id) !== null;
    this.chat = new Chat({
      sessionId: id,
      isUsed,
      outbox,
      isRefused: () => this.#isRefused(),
      onChange: (chat, frame) => chat === this.chat && this.#changed(frame),
    });
    this.sessionId = id;
    this.keptOutbox = outbox;
    this.chats.current = id;
    this.banner.reset();
    this.#asked.clear();
    this.announcer.begin(this.chat.state);
    this.transcript = new Transcript(this.chat, { onTakeBack: (message) => this.#takeBack(message) });
    fill(this.stage, this.transcript.node, this.transcript.jump);
    this.composer.text = this.#drafts.get(id) ?? "";
    this.chat.open();
    this.composer.focus();
    this.render();
  }

  say(text) {
    this.chat.say(text);
    this.transcript.toEnd();
  }

  async delete(id) {
    const loss = { detail: "It is deleted here and at the host, for good.", yes: "Delete" };
    const title = this.chats.title(id);
    if (!(await confirmed(`Delete “${title}”?`, loss))) return;
    // The host may end the connection, and begin a new session, before it answers.
    const isOpen = id === this.sessionId;
    this.chats.remove(id);
    const response = await request(`api/sessions/${encodeURIComponent(id)}`, { method: "DELETE" });
    if (response === null || (!response.ok && response.status !== 404)) {
      this.chats.touch(id, title);
      if (isOpen) this.chats.current = id;
      this.#complain("The chat was not deleted: the host did not answer as it should. Please try again.");
      return;
    }
    if (isOpen) this.open(null);
    else this.render();
  }

  async export(format) {
    const path = `api/sessions/${encodeURIComponent(this.sessionId)}/export?format=${format}`;
    const saved = await body(await request(path), "blob");
    if (saved === null) {
      this.#complain("The chat was not exported: the host did not answer as it should. Please try again.");
      return;
    }
    const url = URL.createObjectURL(saved);
    const name = (this.chats.title(this.sessionId) ?? "chat")
      .replaceAll(/[^\p{L}\p{N}]+/gu, "-")
      .slice(0, 60);
    el("a", { href: url, download: `${name}.${format}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  async readStatus() {
    const status = await body(await request("api/status"), "json");
    if (status === null) return;
    this.status = status;
    this.#setServers(this.status.servers);
    this.render();
  }

  /** Show the state with the next frame of the screen; a page that is not seen has none. */
  render() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const show = () => {
      this.#isScheduled = false;
      this.#show();
    };
    if (document.visibilityState === "visible") requestAnimationFrame(show);
    else setTimeout(show, HIDDEN_FRAME_MS);
  }

  #makeHead() {
    this.menu = button("Chats", {
      picture: "chats",
      quiet: true,
      onlyIcon: true,
      class: "menu-button",
      "aria-expanded": "false",
      "aria-controls": "sidebar",
      on: { click: () => this.#showSidebar(true) },
    });
    this.title = el("h1", {});
    this.dot = el("span", { class: "dot" });
    this.serversButton = button("Servers", {
      quiet: true,
      class: "servers-button",
      "aria-keyshortcuts": "Alt+S",
      on: { click: () => this.panel.node.showModal() },
    });
    this.serversButton.prepend(this.dot);
    this.exportMenu = el(
      "details",
      { class: "menu" },
      el(
        "summary",
        { class: "button quiet", "aria-label": "Export this chat" },
        ...button("Export", { picture: "export" }).childNodes,
      ),
      el("div", { class: "menu-items" }, ...["md", "json"].map((format) => this.#exportButton(format))),
    );
    this.exportMenu.addEventListener("focusout", (event) => {
      if (!this.exportMenu.contains(event.relatedTarget)) this.exportMenu.open = false;
    });
    return el("header", { class: "head" }, this.menu, this.title, this.exportMenu, this.serversButton);
  }

  #exportButton(format) {
    const click = () => {
      this.exportMenu.open = false;
      this.export(format);
    };
    return button({ md: "Markdown", json: "JSON" }[format], { quiet: true, on: { click } });
  }

  #changed(frame) {
    const { state, outbox } = this.chat;
    if (state.sessionId !== this.sessionId) this.#renamed(state.sessionId);
    if (state.sessionId !== null) {
      this.#keep(state, outbox, frame);
    }
    if (frame?.type === "history") this.announcer.begin(state);
    else if (frame !== null) this.announcer.update(state);
    if (frame?.type === "servers") this.#setServers(frame.payload.servers);
    if (frame?.type === "servers" || (this.chat.isReady && !this.#wasReady)) this.#readStatusSoon();
    this.#wasReady = this.chat.isReady;
    this.#showTitle();
    this.render();
  }

  /** Note in the browser's list what was said, and what the host does not have yet. */
  #keep(state, outbox, frame) {
    const isSaid = frame?.type === "user" || (outbox.length > 0 && outbox !== this.keptOutbox);
    const said = state.items.find(({ kind }) => kind === "user")?.text ?? outbox[0]?.text;
    const isFound = frame?.type === "history" && this.chats.title(state.sessionId) === null;
    if (said && (isSaid || isFound)) this.chats.touch(state.sessionId, said);
    if (outbox !== this.keptOutbox) this.chats.keepOutbox(state.sessionId, outbox);
    this.keptOutbox = outbox;
  }

  /** A new chat has got its id, or the host began a new session for one that it does not know. */
  #renamed(id) {
    if (this.sessionId !== null) this.chats.rename(this.sessionId, id);
    this.keptOutbox = null;
    this.sessionId = id;
    this.chats.current = id;
  }

  #setServers(servers) {
    const before = new Map(this.servers.map((server) => [server.id, server]));
    // Events tell states; what the tools are comes with the status.
    this.servers = described(servers).map((server) => ({
      ...server,
      tools: server.tools ?? before.get(server.id)?.tools ?? null,
    }));
  }

  #readStatusSoon() {
    clearTimeout(this.#statusTimer);
    this.#statusTimer = setTimeout(() => this.readStatus(), 200);
  }

  #show() {
    const { chat } = this;
    this.transcript.update();
    this.composer.update(chat);
    this.banner.update(chat);
    this.sidebar.update(this.chats.list(), this.sessionId);
    this.panel.update(this.servers, this.status);
    this.#showHead();
    this.#showWelcome();
    this.#showDecisions();
  }

  #showHead() {
    const { text, label, state } = summary(this.servers);
    this.title.textContent = this.chats.title(this.sessionId) ?? "New chat";
    this.serversButton.lastElementChild.textContent = this.servers.length === 0 ? "Servers" : text;
    this.serversButton.title = label;
    this.serversButton.setAttribute("aria-label", this.servers.length === 0 ? "Servers" : label);
    this.dot.dataset.state = { good: "ready", busy: "starting", bad: "lost" }[state];
    this.exportMenu.hidden = this.chat.state.items.length === 0;
  }

  #showWelcome() {
    const { state, unsent, isWaitingForHistory } = this.chat;
    const isEmpty = state.items.length === 0 && unsent.length === 0 && !isWaitingForHistory;
    this.stage.dataset.empty = String(isEmpty);
    const key = JSON.stringify([
      isEmpty,
      state.greeting,
      this.status?.hint,
      this.servers.map(({ id, state: name, tools }) => [id, name, tools?.length]),
    ]);
    if (key === this.welcomeKey && this.welcome?.isConnected === isEmpty) return;
    this.welcomeKey = key;
    this.welcome?.remove();
    if (!isEmpty) return;
    const onChoose = (text) => {
      this.composer.text = text;
      this.composer.focus();
    };
    this.welcome = welcomeNode({
      greeting: state.greeting,
      hint: this.status?.hint,
      servers: this.servers,
      onChoose,
    });
    this.stage.prepend(this.welcome);
  }

  /** Bring the focus to a new decision, unless somebody is writing or reading elsewhere. */
  #showDecisions() {
    const fresh = openDecisions(this.chat.state).find((item) => !this.#asked.has(item.id));
    if (fresh === undefined) return;
    this.#asked.add(fresh.id);
    const { activeElement } = document;
    const isIdle =
      activeElement === document.body || (activeElement === this.composer.field && this.composer.text === "");
    if (isIdle) this.transcript.focusOn(fresh);
  }

  #showTitle() {
    const { sessionId, state } = { sessionId: this.sessionId, state: this.chat.state };
    const waiting = openDecisions(state).length;
    const title = this.chats.title(sessionId) ?? "New chat";
    document.title = `${waiting > 0 ? `(${waiting}) ` : ""}${title} · ${NAME}`;
  }

  #takeBack(id) {
    const text = this.chat.takeBack(id);
    this.composer.text = [text, this.composer.text].filter(Boolean).join("\n");
    this.composer.focus();
  }

  #complain(message) {
    this.chat.error = { code: "page", message };
    this.render();
  }

  async #isRefused() {
    const response = await request("api/status");
    return response?.status === 401 || response?.status === 403;
  }

  #showSidebar(isShown) {
    const app = document.getElementById("app");
    if (isShown === app.classList.contains("with-sidebar")) return;
    app.classList.toggle("with-sidebar", isShown);
    document.getElementById("shade").hidden = !isShown;
    document.getElementById("main").inert = isShown;
    this.menu.setAttribute("aria-expanded", String(isShown));
    if (isShown) document.querySelector("#sidebar button").focus();
    else this.menu.focus();
  }

  #pressed(event) {
    if (event.key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog[open]"))
      this.#escaped();
    if (!event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
    const action = {
      KeyA: () => this.#goToDecision(),
      KeyM: () => this.composer.focus(),
      KeyN: () => this.open(null),
      KeyS: () => this.panel.node.showModal(),
      Slash: () => this.shortcuts.showModal(),
      ArrowUp: () => this.#step(-1),
      ArrowDown: () => this.#step(1),
    }[event.code];
    if (!action) return;
    event.preventDefault();
    action();
  }

  #escaped() {
    if (document.getElementById("app").classList.contains("with-sidebar")) this.#showSidebar(false);
    else if (this.exportMenu.open) this.#closeMenu();
    else this.chat.stop();
  }

  #closeMenu() {
    this.exportMenu.open = false;
    this.exportMenu.firstElementChild.focus();
  }

  #goToDecision() {
    const item = openDecisions(this.chat.state)[0];
    if (item) this.transcript.focusOn(item);
  }

  #step(by) {
    const all = this.chats.list();
    const at = all.findIndex(({ id }) => id === this.sessionId);
    const next = all[at < 0 ? 0 : at + by];
    if (next && next.id !== this.sessionId) this.open(next.id);
  }
}

async function request(path, options = {}) {
  try {
    return await fetch(new URL(path, document.baseURI), options);
  } catch {
    return null;
  }
}

/** Return the body of a response, as json or blob; null where there is none, or the connection was lost in it. */
async function body(response, form) {
  try {
    return response?.ok ? await response[form]() : null;
  } catch {
    return null;
  }
}

setTheme(theme());
const app = new App();
app.open(app.chats.current);
app.readStatus();
