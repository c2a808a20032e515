/** The page of `foundation-rt dev`, put together: views, the client, what the front says, the keyboard. */

import { button, el, fill, icon, withCode } from "/shared/dom.js";
import { jsonOf } from "/shared/exact_numbers.js";
import { count } from "/shared/format.js";
import { keepingFocus, Logins } from "/shared/login.js";
import { printedAddress, request } from "/shared/page_token.js";
import { Rendering } from "/shared/rendering.js";
import { setTheme, theme, themeSwitch } from "/shared/theme.js";
import { ActivityView } from "./activity_view.js";
import { AgentsView } from "./agents_view.js";
import { connectDialog, shortcutsDialog } from "./connect_dialog.js";
import { Feed } from "./feed.js";
import { Inbox } from "./inbox.js";
import { messageRecord } from "./log_list.js";
import { McpClient } from "./mcp_client.js";
import { PromptsView } from "./prompts_view.js";
import { isQuestion, questionCard } from "./questions.js";
import { ResourcesView } from "./resources_view.js";
import { RpcError } from "./rpc_errors.js";
import { failureNode, ServersView, summaryOf } from "./servers_view.js";
import { PAGE_NAME, visible } from "./shown_text.js";
import { SkillsView } from "./skills_view.js";
import { TaskClient } from "./task_client.js";
import { TasksView } from "./tasks_view.js";
import { TimingsView } from "./timings_view.js";
import { ToolsView } from "./tools_view.js";
import { WireView } from "./wire_view.js";

const ROOTS_KEY = "foundation-rt.dev.roots";
const RENDERING_KEY = "foundation-rt.dev.rendering";
const RELOAD_MS = 100;
const AGAIN_MS = 1500;
const FAILED = new Set(["failed", "needs login"]);
const LISTS = {
  tools: "notifications/tools/list_changed",
  prompts: "notifications/prompts/list_changed",
  resources: "notifications/resources/list_changed",
  skills: "notifications/resources/list_changed",
};

class DevPage {
  #reloads = new Map();
  #isRefused = false;
  #hasChosen = false;
  #routed = "";
  #link = "open";
  #session = "connecting";

  constructor() {
    this.feed = new Feed({ onChange: (kinds) => this.#changed(kinds), onStatus: (status) => this.#linked(status) });
    this.logins = new Logins("/dev/login", () => this.#changed(new Set(["state"])));
    this.roots = storedRoots();
    this.places = new Map();
    this.rendering = new Rendering(sessionStorage, RENDERING_KEY);
    this.unfinished = this.rendering.unfinished;
    this.inbox = new Inbox({ onChange: () => this.#showTitle(), onDone: (place) => this.#focusAfter(place) });
    this.views = [ToolsView, ResourcesView, PromptsView, SkillsView, TasksView, ActivityView, WireView, TimingsView, ServersView, AgentsView].map((View) => new View(this));
    this.tasks = this.#viewOf("tasks");
    this.shortcuts = shortcutsDialog();
    this.#makeSidebar();
    this.#makeMain();
    document.body.append(this.shortcuts);
    if (this.unfinished === location.hash) history.replaceState(null, "", "#/");
    else this.unfinished = null;
    addEventListener("hashchange", () => this.#route(true));
    addEventListener("keydown", (event) => this.#pressed(event));
    document.getElementById("shade").addEventListener("click", () => this.#showSidebar(false));
    this.#route(false);
  }

  /** Get the token, and open the session and the feed; goes on trying. */
  async start() {
    const response = await request("/dev/connect");
    if (response?.status === 401 || response?.status === 403) {
      this.#isRefused = true;
      this.#showBanner();
      return;
    }
    const connection = response?.ok ? await jsonOf(response).catch(() => null) : null;
    if (connection === null) {
      this.#linked("lost");
      setTimeout(() => this.start(), AGAIN_MS);
      return;
    }
    this.connection = connection;
    this.client = new McpClient({
      url: new URL(connection.url).pathname,
      token: connection.token,
      info: { name: PAGE_NAME, title: "Page of foundation-rt dev", version: "1" },
      capabilities: {
        elicitation: { form: {}, url: {} },
        sampling: { tools: {} },
        roots: { listChanged: true },
        extensions: { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } },
      },
      onRequest: (message, about) => this.#answer(message, about),
      onNotification: (message) => this.#notified(message),
      onStatus: (status) => this.#sessionIs(status),
      onReady: () => this.#reloadAll(),
    });
    this.taskClient = new TaskClient(this.client);
    this.feed.open();
    this.client.connect();
  }

  /** Return what a front's path answers, as JSON; null if it does not. */
  async get(path) {
    const response = await request(path);
    return response?.ok ? await jsonOf(response).catch(() => null) : null;
  }

  /** Return the function that completes an argument; it returns null where the server completes nothing. */
  completer(ref, name, values) {
    return async (value) => {
      // The front announces what any program may have; this is what those that run do have.
      if (!this.feed.state?.servers?.some((server) => server.hasCompletions)) return null;
      const others = Object.fromEntries(Object.entries(values()).filter(([key]) => key !== name));
      const context = Object.keys(others).length > 0 ? { context: { arguments: others } } : {};
      const params = { ref, argument: { name, value }, ...context };
      return (await this.client.request("completion/complete", params).promise).completion;
    };
  }

  /** Return the tools, as they are listed. */
  toolsOf() {
    return this.#viewOf("tools").split.items.map(({ data }) => data);
  }

  /** Say something to screen readers. */
  say(text) {
    document.getElementById("polite").textContent = text;
  }

  // -- the session

  #sessionIs({ state, status }) {
    this.#session = state;
    if (state === "lost" && status === 401) this.#isRefused = true;
    this.#showBanner();
  }

  #reloadAll() {
    this.#isRefused = false;
    for (const view of this.views) this.#reload(view);
    this.#showState();
  }

  #reload(view) {
    clearTimeout(this.#reloads.get(view));
    this.#reloads.set(
      view,
      setTimeout(async () => {
        try {
          await view.reload();
        } catch (error) {
          this.say(`The ${view.title.toLowerCase()} could not be listed: ${error.message}`);
        }
        this.showCounts();
        this.#chooseFirst();
        this.#open(this.view, this.key);
      }, RELOAD_MS),
    );
  }

  #notified({ method, params }) {
    for (const [id, wanted] of Object.entries(LISTS)) {
      if (method !== wanted) continue;
      this.#reload(this.#viewOf(id));
      this.say(`The ${id} have changed.`);
    }
    if (method === "notifications/resources/updated") this.#viewOf("resources").changed(params?.uri);
    if (method === "notifications/message") {
      this.feed.addLog({ ...messageRecord(params ?? {}, Date.now()), call: null });
      this.#changed(new Set(["log"]));
    }
  }

  async #answer(message, { origin, signal }) {
    if (message.method === "ping") return {};
    if (message.method === "roots/list") return { roots: this.roots.map((uri) => ({ uri })) };
    if (!isQuestion(message.method)) throw new RpcError({ code: -32601, message: "Method not found" });
    return await this.inbox.put(questionCard(message, { signal }), origin === null ? null : this.#runOf(origin));
  }

  /** The focus goes from a question that is answered to the call that goes on. */
  #focusAfter(place) {
    const stop = place?.cancelButton;
    (stop?.isConnected ? stop : this.title).focus();
  }

  #runOf(origin) {
    for (const view of this.views) {
      const found = view.runs?.().map((runs) => runs.find(origin)).find(Boolean);
      if (found) return found;
    }
    return null;
  }

  // -- what is seen

  #makeSidebar() {
    this.target = el("p", { class: "target small muted" });
    this.links = this.views.map((view, at) =>
      el(
        "a",
        { href: `#/${view.id}`, class: "view-link", "aria-keyshortcuts": `Alt+${(at + 1) % 10}`, data: { view: view.id } },
        icon(view.picture),
        el("span", { class: "view-name" }, view.title),
        el("span", { class: "view-count muted small" }),
      ),
    );
    const help = button("Shortcuts", { picture: "help", quiet: true, onlyIcon: true, "aria-keyshortcuts": "Alt+/", on: { click: () => this.shortcuts.showModal() } });
    fill(
      document.getElementById("sidebar"),
      el("div", { class: "brand" }, el("img", { src: "/shared/icon.svg", alt: "", width: 24, height: 24 }), el("span", {}, "foundation-rt dev")),
      this.target,
      el("ul", { class: "views" }, ...this.links.map((link) => el("li", {}, link))),
      el("div", { class: "sidebar-foot" }, themeSwitch(), help),
    );
  }

  #makeMain() {
    this.menu = button("Views", { picture: "chats", quiet: true, onlyIcon: true, class: "menu-button", "aria-expanded": "false", "aria-controls": "sidebar", on: { click: () => this.#showSidebar(true) } });
    this.title = el("h1", { tabindex: -1 });
    this.dot = el("span", { class: "dot", data: { state: "starting" } });
    this.stateText = el("span", {}, "Connecting");
    this.stateLink = el("a", { class: "button quiet state", href: "#/servers" }, this.dot, this.stateText);
    const connect = button("Connect", { picture: "link", quiet: true, on: { click: () => this.#connect() } });
    this.banner = el("div", { class: "banner-box", "aria-live": "polite" });
    this.stage = el("div", { class: "stage", id: "stage", tabindex: -1 });
    fill(
      document.getElementById("main"),
      el("header", { class: "head" }, this.menu, this.title, this.stateLink, connect),
      this.banner,
      this.inbox.node,
      this.stage,
    );
  }

  #connect() {
    if (this.connection === undefined) return;
    this.dialog?.remove();
    const name = this.feed.state?.servers?.[0]?.name ?? "dev";
    this.dialog = connectDialog({ ...this.connection, name }, this.roots, (roots) => this.#setRoots(roots));
    document.body.append(this.dialog);
    this.dialog.showModal();
  }

  #setRoots(roots) {
    this.roots = roots;
    sessionStorage.setItem(ROOTS_KEY, JSON.stringify(roots));
    this.client.notify("notifications/roots/list_changed").catch(() => {});
  }

  #changed(kinds) {
    if (kinds.has("state")) this.#showState();
    for (const view of this.views) view.update(kinds);
    if (kinds.has("call")) this.showCounts();
  }

  #linked(status) {
    this.#link = status;
    this.#isRefused ||= status === "refused";
    if (status === "open" && this.#session === "lost") this.client?.connect();
    this.#showBanner();
  }

  #showState() {
    const { state } = this.feed;
    if (state === null) return;
    const { text, tone } = summaryOf(state);
    this.dot.dataset.state = tone;
    this.stateText.textContent = text;
    this.target.textContent = visible(shortened(state.target), 80);
    this.target.title = visible(state.target);
    this.#showTitle();
    this.#showBanner();
    const many = (state.servers ?? []).length;
    this.#viewOf("servers").count = many > 1 ? many : null;
    this.showCounts();
  }

  #showBanner() {
    const failed = (this.feed.state?.servers ?? []).filter(({ state, error }) => FAILED.has(state) && error);
    const logins = failed.map((server) => this.logins.key(server));
    // Of what it shows alone: a click on a node that is replaced meanwhile is lost.
    const shown = failed.map(({ id, state, error }) => [id, state, error]);
    const key = JSON.stringify([this.#isRefused, this.#link, this.#session === "lost", this.unfinished, shown, logins]);
    if (key === this.bannerKey) return;
    this.bannerKey = key;
    if (this.#isRefused) this.stateText.textContent = "No access";
    keepingFocus(this.banner, () => fill(this.banner, ...this.#bannerNodes(failed)));
  }

  #bannerNodes(failed) {
    const bar = (tone, text) => el("div", { class: "banner", data: { tone } }, el("span", {}, withCode(text)));
    if (this.#isRefused) return [bar("bad", `The front does not let this tab in. Open the address that \`foundation-rt dev\` printed: ${printedAddress()}`)];
    if (this.#link === "lost") return [bar("warn", "The front does not answer. It is tried again.")];
    if (this.#session === "lost") return [bar("warn", "The session is lost. A new one is opened.")];
    if (this.unfinished !== null) return [unfinishedBar(this.unfinished)];
    if ((this.feed.state?.servers ?? []).length > 1) return failed.length > 0 ? [failuresBar(failed)] : [];
    return failed.map((server) => failureBox(server, this.logins));
  }

  #showTitle() {
    const many = this.inbox.count;
    const target = this.feed.state?.target;
    document.title = `${many > 0 ? `(${many}) ` : ""}${this.view.title}${target ? ` · ${visible(shortened(target), 60)}` : ""} · foundation-rt dev`;
  }

  /** Show how many entries each view has. */
  showCounts() {
    this.views.forEach((view, at) => {
      const shown = this.links[at].querySelector(".view-count");
      const text = typeof view.count === "number" ? String(view.count) : "";
      if (shown.textContent !== text) shown.textContent = text;
    });
  }

  #viewOf(id) {
    return this.views.find((view) => view.id === id);
  }

  // -- where one is

  /** A view that is left is come back to where it was; its link in itself leads to its list. */
  #showPlace(view, key) {
    for (const link of this.links) {
      const isCurrent = link.dataset.view === view.id;
      if (isCurrent) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      if (isCurrent) this.places.set(view.id, key === null ? "" : `/${encodeURIComponent(key)}`);
      link.href = `#/${link.dataset.view}${isCurrent ? "" : (this.places.get(link.dataset.view) ?? "")}`;
    }
  }

  #route(isMove) {
    if (isMove) this.unfinished = null;
    this.#showBanner();
    this.#routed = location.hash;
    const [, id = "", ...rest] = this.#routed.split("/");
    const view = this.#viewOf(id) ?? this.views[0];
    this.key = rest.length > 0 ? decoded(rest.join("/")) : null;
    const isOther = view !== this.view;
    this.#showSidebar(false);
    this.#open(view, this.key);
    if (isMove && (isOther || this.key !== null)) this.#focusStage(isOther && this.key === null);
  }

  #open(view, key) {
    this.view = view;
    this.rendering.show(location.hash, this.stage, () => this.#showView(view, key));
    this.title.textContent = view.title;
    this.#showPlace(view, key);
    this.inbox.show();
  }

  /** At the start the first entry is chosen, where it is shown beside the list. */
  #chooseFirst() {
    const first = this.view.split?.items[0];
    if (this.#hasChosen || first === undefined || this.unfinished !== null) return;
    this.#hasChosen = true;
    // The address may have changed already, and its event not have come.
    const isOnItsWay = location.hash !== this.#routed;
    if (this.key !== null || isOnItsWay || getComputedStyle(this.view.split.back).display !== "none") return;
    this.key = first.key;
    history.replaceState(null, "", `${this.view.split.base}/${encodeURIComponent(first.key)}`);
  }

  #showView(view, key) {
    if (this.stage.firstChild !== view.node) fill(this.stage, view.node);
    if (this.client?.server || !view.split) view.open(key);
  }

  #focusStage(isView) {
    const inside = (selector) => this.stage.querySelector(`.detail-body ${selector}`);
    const field = inside(":is(input, textarea, select):not([type=file], [readonly])");
    (isView ? this.title : (field ?? inside(".button.primary") ?? this.title)).focus();
  }

  #showSidebar(isShown) {
    const app = document.getElementById("app");
    if (isShown === app.classList.contains("with-sidebar")) return;
    app.classList.toggle("with-sidebar", isShown);
    document.getElementById("shade").hidden = !isShown;
    document.getElementById("main").inert = isShown;
    this.menu.setAttribute("aria-expanded", String(isShown));
    if (isShown) this.links[0].focus();
    else this.menu.focus();
  }

  /** Do what the form that has the focus is for, or what is shown. */
  #submit(event) {
    const form = event.target.closest("form");
    const primary = this.stage.querySelector(".detail-body .button.primary");
    if (document.querySelector("dialog[open]") || (form ?? primary) === null) return;
    event.preventDefault();
    if (form === null) primary.click();
    else form.requestSubmit();
  }

  #pressed(event) {
    if (event.key === "Escape" && document.getElementById("app").classList.contains("with-sidebar")) this.#showSidebar(false);
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) return this.#submit(event);
    if (!event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
    const digit = /^Digit([0-9])$/.exec(event.code)?.[1];
    const link = this.links[(digit === "0" ? 10 : digit) - 1];
    const action = digit
      ? link && (() => (location.hash = link.hash))
      : { KeyQ: () => this.inbox.goToFirst(), KeyF: () => this.stage.querySelector("input[type=search]")?.focus(), Slash: () => this.shortcuts.showModal() }[event.code];
    if (!action) return;
    event.preventDefault();
    action();
  }
}

function unfinishedBar(hash) {
  const open = el("a", { class: "button quiet", href: hash }, "Open it");
  return el("div", { class: "banner", data: { tone: "bad" } }, `“${visible(decoded(hash), 80)}” did not finish showing, and is not opened by itself.`, open);
}

/** Make the box of the only program, which cannot run until a file changes, or somebody logs in. */
function failureBox(server, logins) {
  const needsLogin = server.state === "needs login";
  const title = `${visible(server.id, 60)} ${needsLogin ? "needs a login" : "failed"}`;
  const again = needsLogin ? logins.node(server) : el("p", { class: "small muted" }, "It is started again as soon as a file changes.");
  return el("div", { class: "failed", role: "alert" }, el("h2", {}, title), failureNode(server.error), again);
}

/** Make the line that names the servers that have failed beside others; the view of servers says why. */
function failuresBar(failed) {
  const names = failed.slice(0, 5).map(({ id }) => visible(id, 40)).join(", ");
  const more = failed.length > 5 ? ` and ${failed.length - 5} more` : "";
  return el("div", { class: "banner", role: "alert", data: { tone: "bad" } }, `${count(failed.length, "server")} cannot be used: ${names}${more}.`, el("a", { class: "button quiet", href: "#/servers" }, "See why"));
}

/** Return the end of a long path: the file and its folder. */
function shortened(target) {
  const parts = String(target).split("/");
  return parts.length > 3 && !target.includes("://") ? `…/${parts.slice(-2).join("/")}` : String(target);
}

function storedRoots() {
  try {
    const roots = JSON.parse(sessionStorage.getItem(ROOTS_KEY) ?? "[]");
    return Array.isArray(roots) ? roots.filter((root) => typeof root === "string") : [];
  } catch {
    return [];
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

setTheme(theme());
new DevPage().start();
