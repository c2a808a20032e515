/** The page, put together: one chat at a time, the list of chats, the servers, the keyboard. */

import { namesOf } from "./attachments.js";
import { Banner } from "./banner.js";
import { Chat } from "./chat.js";
import { openDecisions } from "./chat_state.js";
import { ChatList } from "./chat_list.js";
import { Chats } from "./chats.js";
import { Composer } from "./composer.js";
import { changedChat, confirmed, shortcutsDialog } from "./dialogs.js";
import { button, el, fill } from "./dom.js";
import { request } from "./page_token.js";
import { Rendering } from "./rendering.js";
import { safely } from "./results.js";
import { described, ServersPanel, summary } from "./servers_panel.js";
import { Sidebar } from "./sidebar.js";
import { Announcer } from "./speech.js";
import { setTheme, theme } from "./theme.js";
import { Transcript } from "./transcript.js";
import { welcomeNode } from "./welcome.js";

const NAME = "foundation-rt";
const HIDDEN_FRAME_MS = 250;

class App {
  #isScheduled = false;
  #asked = new Set();
  #wasReady = false;
  #statusTimer = 0;

  constructor() {
    this.chats = new Chats(localStorage);
    this.list = new ChatList(this.chats, () => this.render());
    this.rendering = new Rendering(localStorage, "foundation-rt.rendering");
    this.status = null;
    this.servers = [];
    this.announcer = new Announcer(document.getElementById("polite"), document.getElementById("assertive"));
    this.panel = new ServersPanel({ onLogin: () => this.#readStatusSoon() });
    this.shortcuts = shortcutsDialog();
    this.sidebar = new Sidebar(document.getElementById("sidebar"), {
      onNew: () => this.open(null),
      onOpen: (id) => this.open(id),
      onChange: (chat) => this.#changeChat(chat),
      onDelete: (id) => this.delete(id),
      onSearch: (words) => this.list.search(words),
      onMore: () => this.list.more(),
      onShortcuts: () => this.shortcuts.showModal(),
    });
    this.composer = new Composer({
      onSay: (message) => this.#sayWritten(message),
      onCancel: () => this.#endEdit(),
      onModel: (name) => this.chats.keepModel(name),
      onStop: () => this.chat.stop(),
      onDraft: (text) => this.chats.keepDraft(this.sessionId, text),
    });
    this.banner = new Banner({ onRetry: () => this.chat.open(), onDismiss: () => this.chat.dismissError() });
    this.head = this.#makeHead();
    this.stage = el("div", { class: "stage" });
    fill(document.getElementById("main"), this.head, this.banner.node, this.stage, this.composer.node);
    document.body.append(this.panel.node, this.shortcuts);
    addEventListener("keydown", (event) => this.#pressed(event));
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.list.readSoon());
    addEventListener("storage", ({ key }) => key !== this.rendering.key && this.render());
    document.getElementById("shade").addEventListener("click", () => this.#showSidebar(false));
  }

  /** Open a chat; null: a new one. */
  open(id) {
    this.#showSidebar(false);
    if (this.chat) {
      this.chat.close();
      this.transcript.close();
    }
    const outbox = id === null ? [] : this.chats.outbox(id);
    const isUsed = id !== null && this.list.title(id) !== null;
    this.chat = new Chat({
      sessionId: id,
      isUsed,
      outbox,
      isRefused: () => this.#isRefused(),
      onChange: (chat, frame) => chat === this.chat && this.#changed(frame),
      onOlder: (state) => this.announcer.begin(state),
    });
    this.sessionId = id;
    this.keptOutbox = outbox;
    this.chats.current = id;
    this.banner.reset();
    this.#asked.clear();
    this.announcer.begin(this.chat.state);
    this.transcript = new Transcript(this.chat, {
      composer: this.composer,
      onTakeBack: (message) => this.#takeBack(message),
      onEdit: (item) => {
        this.#edit(item.text, this.chat.before(item.id));
        this.composer.attachments.keep(item);
      },
      onAgain: (item) => this.#again(item),
    });
    this.edited = null;
    this.composer.note.hidden = true;
    this.composer.attachments.clear();
    fill(this.stage, this.transcript.node, this.transcript.jump);
    this.composer.text = this.chats.draft(id);
    this.chat.open();
    this.composer.focus();
    this.render();
  }

  /** Open the chat of the last visit; one that did not finish showing is offered. */
  begin() {
    const { current } = this.chats;
    const isUnfinished = current !== null && current === this.rendering.unfinished;
    this.open(isUnfinished ? null : current);
    if (!isUnfinished) return;
    const text = `“${this.list.title(current) ?? "The last chat"}” did not finish showing, and is not opened by itself.`;
    this.banner.offer(text, "Open it", () => this.open(current));
  }

  say(message) {
    this.chat.say(message);
    this.transcript.toEnd();
  }

  /** Say what was written, in the place of the message that is edited if there is one. */
  #sayWritten(message) {
    if (!this.edited) return this.say(message);
    this.say({ ...message, after: this.edited.after });
    return this.#endEdit();
  }

  /** Say a message of the user once more, on a branch of its own. */
  #again(item) {
    const { id, text } = item;
    const model = this.composer.model.value || undefined;
    const kept = namesOf(item).length > 0 ? { attachmentsOf: id } : {};
    this.say({ text, ...kept, model, after: this.chat.before(id) });
  }

  /** Write a message that goes on from an earlier one. */
  #edit(text, after) {
    const { text: written, attachments } = this.composer;
    const draft = this.edited?.draft ?? { text: written, attachments: attachments.said.attachments ?? [] };
    this.edited = { after, draft };
    attachments.clear();
    this.composer.note.hidden = false;
    this.#write(text);
  }

  #endEdit() {
    const { draft } = this.edited;
    this.edited = null;
    this.composer.note.hidden = true;
    this.composer.attachments.clear();
    this.composer.attachments.restore(draft.attachments);
    this.#write(draft.text);
  }

  async delete(id) {
    const loss = { detail: "It is deleted here and at the host, for good.", yes: "Delete" };
    const title = this.list.title(id);
    if (!(await confirmed(`Delete “${title}”?`, loss))) return;
    // The host may end the connection, and begin a new session, before it answers.
    const isOpen = id === this.sessionId;
    this.chats.remove(id);
    const response = await request(`api/sessions/${encodeURIComponent(id)}`, { method: "DELETE" });
    if (response === null || (!response.ok && response.status !== 404)) {
      this.chats.touch(id, title);
      this.list.readSoon();
      if (isOpen) this.chats.current = id;
      this.#complain("The chat was not deleted: the host did not answer as it should. Please try again.");
      return;
    }
    this.list.readSoon();
    this.chats.keepDraft(id, "");
    if (isOpen) this.open(null);
    else this.render();
  }

  /** Rename or pin a chat. */
  async #changeChat(chat) {
    const change = await changedChat(chat);
    if (change !== null && !(await this.list.change(chat.id, change)))
      this.#complain("The chat was not changed: the host did not answer as it should. Please try again.");
  }

  async export(format) {
    const path = `api/sessions/${encodeURIComponent(this.sessionId)}/export?format=${format}`;
    const saved = await body(await request(path), "blob");
    if (saved === null) {
      this.#complain("The chat was not exported: the host did not answer as it should. Please try again.");
      return;
    }
    const url = URL.createObjectURL(saved);
    const name = (this.list.title(this.sessionId) ?? "chat")
      .replaceAll(/[^\p{L}\p{N}]+/gu, "-")
      .slice(0, 60);
    el("a", { href: url, download: `${name}.${format}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  async readStatus() {
    const status = await body(await request("api/status"), "json");
    if (status === null) return;
    this.status = status;
    this.composer.attachments.takesPictures = status.takesPictures === true;
    this.#offerModels(status.model);
    this.#setServers(this.status.servers);
    this.render();
  }

  /** Offer the models of the provider, once they are listed. */
  async #offerModels(own) {
    if (!own || this.hasModels) return;
    this.hasModels = true;
    const listed = await body(await request("api/models"), "json");
    this.hasModels = Array.isArray(listed?.models) && listed.models.length > 0;
    if (this.hasModels) this.composer.offerModels(listed.models, own, this.chats.model);
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
    this.render();
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
  }

  /** Note in the browser's list what was said, and what the host does not have yet. */
  #keep(state, outbox, frame) {
    const isSaid = frame?.type === "user" || (outbox.length > 0 && outbox !== this.keptOutbox);
    const said = state.items.find(({ kind }) => kind === "user")?.text ?? outbox[0]?.text;
    const isFound = frame?.type === "history" && this.list.title(state.sessionId) === null;
    if (said && (isSaid || isFound)) this.chats.touch(state.sessionId, said);
    if (frame?.type === "user") this.list.readSoon();
    if (outbox !== this.keptOutbox) this.chats.keepOutbox(state.sessionId, outbox);
    this.keptOutbox = outbox;
  }

  /** A new chat has got its id, or the host began a new session for one that it does not know. */
  #renamed(id) {
    if (this.sessionId !== null) this.chats.rename(this.sessionId, id);
    this.keptOutbox = null;
    this.chats.keepDraft(this.sessionId, "");
    this.chats.keepDraft(id, this.composer.text);
    this.sessionId = id;
    this.chats.current = id;
  }

  #setServers(servers) {
    const before = new Map(this.servers.map((server) => [server.id, server]));
    // Events tell states; what the tools and skills are comes with the status.
    this.servers = described(servers).map((server) => ({
      ...server,
      tools: server.tools ?? before.get(server.id)?.tools ?? null,
      skills: server.skills ?? before.get(server.id)?.skills ?? null,
    }));
  }

  #readStatusSoon() {
    clearTimeout(this.#statusTimer);
    this.#statusTimer = setTimeout(() => this.readStatus(), 200);
  }

  #show() {
    const { chat } = this;
    this.#showChat();
    this.composer.update(chat);
    this.banner.update(chat);
    this.sidebar.update(this.list.shown, this.sessionId);
    this.panel.update(this.servers, this.status);
    this.#showHead();
    this.#showWelcome();
    this.#showDecisions();
  }

  #showChat() {
    const { sessionId } = this.chat.state;
    const { items } = this.chat.branch;
    const show = () => this.transcript.update();
    if (items === this.shownItems || sessionId === null) show();
    else this.rendering.show(sessionId, this.transcript.node, show);
    this.shownItems = items;
  }

  #showHead() {
    const { text, label, state } = summary(this.servers);
    this.title.textContent = this.list.title(this.sessionId) ?? "New chat";
    this.serversButton.lastElementChild.textContent = this.servers.length === 0 ? "Servers" : text;
    this.serversButton.title = label;
    this.serversButton.setAttribute("aria-label", this.servers.length === 0 ? "Servers" : label);
    this.dot.dataset.state = this.servers.length === 0 ? "disabled" : { good: "ready", busy: "starting", bad: "lost" }[state];
    this.exportMenu.hidden = this.chat.state.items.length === 0;
  }

  #showWelcome() {
    const { state, unsent, isWaitingForHistory } = this.chat;
    const isEmpty = state.items.length === 0 && unsent.length === 0 && !isWaitingForHistory;
    this.stage.dataset.empty = String(isEmpty);
    if (!isEmpty) {
      this.welcome?.remove();
      this.welcome = null;
      return;
    }
    const { hint, provider, model } = this.status ?? {};
    const key = JSON.stringify([hint, provider, model, this.servers]);
    if (key === this.welcomeKey && this.welcome?.isConnected) return;
    this.welcomeKey = key;
    this.welcome?.remove();
    const onChoose = (text) => this.#write(text);
    const show = () => welcomeNode({ status: this.status, servers: this.servers, onChoose });
    this.welcome = safely(show, hint ?? "");
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
    const title = this.list.title(sessionId) ?? "New chat";
    document.title = `${waiting > 0 ? `(${waiting}) ` : ""}${title} · ${NAME}`;
  }

  #takeBack(id) {
    const { text, after, attachments, attachmentsOf } = this.chat.takeBack(id);
    if (after !== undefined) this.#edit(text, after);
    else this.#write([text, this.composer.text].filter(Boolean).join("\n"));
    this.composer.attachments.restore(
      attachments ?? [],
      this.chat.state.items.find((item) => item.kind === "user" && item.id === attachmentsOf),
    );
  }

  /** Put a text into the message field. */
  #write(text) {
    this.composer.text = text;
    this.chats.keepDraft(this.sessionId, text);
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
    else if (this.edited) this.#endEdit();
    else this.chat.stop();
  }

  #closeMenu() {
    this.exportMenu.open = false;
    this.exportMenu.firstElementChild.focus();
  }

  #goToDecision() {
    const item = openDecisions(this.chat.state)[0];
    if (item) this.transcript.focusOn(item);
    else this.stage.querySelector(".ui-app-asks [role=group]")?.focus();
  }

  #step(by) {
    const all = this.list.shown.chats;
    const at = all.findIndex(({ id }) => id === this.sessionId);
    const next = all[at < 0 ? 0 : at + by];
    if (next && next.id !== this.sessionId) this.open(next.id);
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
app.begin();
app.readStatus();
app.list.read();
