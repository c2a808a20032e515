/**
 * An app of a server, in a frame (spec/apps-host.md).
 *
 * The frame has an origin of its own that no other document has: nothing of the page can be reached from it, and what it
 * may load is in the policy of its document. All that it can ask is in `#requests`.
 */

import { AppBridge, Refusal } from "./app_bridge.js";
import { button, el, fill } from "./dom.js";
import { cut, visible } from "./format.js";
import { link } from "./markdown.js";
import { theme } from "./theme.js";

const READY = "app-frame-ready";
const MOST_HTML = 16 * 1024 * 1024;
const MOST_CONTEXT = 32_768;
const MOST_ASKED = 8;
const MOST_ORIGINS = 32;
const LOWEST = 40;
const HIGHEST = 800;
const TEARDOWN_MS = 300;
// A click that was meant for an app decides nothing that has come under it: people have to rest first.
const GUARD_MS = 700;
const FIT_MS = 250;
// Frames that run at once on a page; beyond, that which began first is put away.
const MOST_RUNNING = 6;
const running = new Set();

const DARK = matchMedia("(prefers-color-scheme: dark)");
const ORIGINS = [
  ["connect", "connectDomains"],
  ["resource", "resourceDomains"],
  ["frame", "frameDomains"],
  ["base", "baseUriDomains"],
];

export class AppView {
  #bridge = null;
  #call = { arguments: null, result: null, cancelled: null };
  #told = new Set();
  #asks = [];
  #listeners = new AbortController();

  /**
   * `app`: {name, server, open, callTool, readResource, onMessage, onContext, onLog}. `open()` resolves with {html, ui,
   * tool, arguments, outcome}; `callTool(name, arguments, ask)` and `readResource(uri)` with a result; `ask(label, make)`
   * shows the node of `make(done)` until it calls `done(value)`, and resolves with that. `onMessage(text)` returns
   * whether it has taken a message for the chat, `onContext(text)` gets what the model should know, "" for nothing.
   */
  constructor(app) {
    this.app = app;
    this.title = `App of ${shown(app.name)}, server ${shown(app.server)}`;
    this.body = el("div", { class: "ui-app-body" });
    this.alert = el("span", { class: "hidden", role: "alert" });
    this.asks = el("div", { class: "ui-app-asks" });
    this.toggle = button("Hide", { quiet: true, class: "small", on: { click: () => this.#toggle() } });
    const foot = el("div", { class: "ui-app-foot muted small" }, el("span", {}, this.title), this.toggle);
    this.node = el("section", { class: "ui-app", "aria-label": this.title }, this.alert, this.asks, this.body, foot);
    this.#hide("");
    const seen = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      seen.disconnect();
      this.show();
    });
    seen.observe(this.node);
  }

  /** Take what is known of the call: {arguments, result, cancelled: the reason}. */
  update(call) {
    this.#call = { ...this.#call, ...call };
    if (this.#bridge !== null) this.#tell();
  }

  /** Read the app and show it. */
  async show() {
    if (this.#bridge !== null || this.isOpening) return;
    this.isOpening = true;
    this.toggle.lastElementChild.textContent = "Hide";
    fill(this.body, el("p", { class: "muted small" }, el("span", { class: "spinner" }), " The app is read."));
    try {
      const opened = await this.app.open();
      if (!this.isOpening) return;
      const { html, arguments: given = null, outcome = null } = opened;
      if (html.length > MOST_HTML) throw new Refusal(`Its HTML has more than ${MOST_HTML} characters.`);
      this.#call.arguments ??= given;
      if (outcome?.result) this.#call.result = outcome.result;
      this.#start(opened);
    } catch (error) {
      if (this.isOpening) this.#hide(`The app is not shown. ${error instanceof Refusal ? error.message : "It cannot be read."}`);
    } finally {
      this.isOpening = false;
    }
  }

  /** Read the result of the call, of which only a part has come. */
  async readOutcome() {
    const opened = await this.app.open().catch(() => null);
    if (opened?.outcome?.result) this.update({ result: opened.outcome.result });
  }

  /** End the app, and show that it can be shown again. */
  async hide(reason = "") {
    const bridge = this.#bridge;
    const listeners = this.#listeners;
    this.isOpening = false;
    this.#bridge = null;
    running.delete(this);
    for (const { reject } of this.#asks.splice(0)) reject(new Refusal("The app was closed."));
    fill(this.asks);
    await bridge?.leave(new Promise((resolve) => setTimeout(resolve, TEARDOWN_MS)));
    listeners.abort();
    if (this.#bridge === null && !this.isOpening) this.#hide(reason);
  }

  #toggle() {
    if (this.#bridge === null) this.show();
    else this.hide();
  }

  #hide(reason) {
    this.body.style.minHeight = `${this.body.offsetHeight}px`;
    this.#fit(null);
    fill(this.body, reason && el("p", { class: "muted small", role: "status" }, shown(reason, 1000)));
    this.toggle.lastElementChild.textContent = "Show the app";
  }

  #start({ html, ui, tool }) {
    for (const first of running) if (running.size >= MOST_RUNNING) first.hide("Other apps run.");
    running.add(this);
    this.#told.clear();
    this.#listeners = new AbortController();
    this.tool = tool;
    this.frame = el("iframe", {
      title: this.title,
      sandbox: "allow-scripts allow-forms",
      referrerpolicy: "no-referrer",
      src: addressOf(ui?.csp),
      class: ui?.prefersBorder === true ? "with-border" : "",
    });
    const bridge = this.#makeBridge();
    this.#bridge = bridge;
    this.#listen(bridge, html);
    fill(this.body, this.frame);
    this.#tell();
  }

  #makeBridge() {
    const frame = this.frame;
    return new AppBridge({
      send: (message) => frame.contentWindow?.postMessage(message, "*"),
      info: { name: "foundation-rt", version: "1" },
      capabilities: this.#capabilities(),
      context: () => this.#context(),
      requests: this.#requests(),
      notifications: new Map([
        ["ui/notifications/size-changed", (params) => this.#resize(params)],
        ["ui/notifications/request-teardown", () => this.hide()],
        ["notifications/message", (params) => this.app.onLog?.(params)],
      ]),
      onEnd: (reason) => this.hide(`The app was ended. ${reason}`),
    });
  }

  #listen(bridge, html) {
    const { signal } = this.#listeners;
    const frame = this.frame;
    let isGiven = false;
    const begin = () => {
      if (isGiven) return void this.hide("The app has left its document.");
      isGiven = true;
      frame.contentWindow.postMessage({ html }, "*");
    };
    const read = (event) => {
      const { data } = event; // this takes the time that its size needs
      if (data === READY) begin();
      return data === READY ? null : data;
    };
    const take = (event) => {
      if (event.source !== null && event.source === frame.contentWindow) bridge.receive(() => read(event));
    };
    addEventListener("message", take, { signal });
    const changed = () => bridge.notify("ui/notifications/host-context-changed", this.#look());
    DARK.addEventListener("change", changed, { signal });
    const themed = new MutationObserver(changed);
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    let width = 0;
    const sized = new ResizeObserver(() => {
      if (frame.clientWidth === width) return;
      if (width > 0) changed();
      width = frame.clientWidth;
    });
    sized.observe(frame);
    signal.addEventListener("abort", () => [themed, sized].forEach((each) => each.disconnect()));
  }

  #tell() {
    const { arguments: given, result, cancelled } = this.#call;
    this.#once("tool-input", given !== null, { arguments: plain(given) });
    if (given === null) return;
    this.#once("tool-result", result !== null, plain(result));
    this.#once("tool-cancelled", result === null && cancelled !== null, { reason: cancelled });
  }

  #once(name, isThere, params) {
    if (!isThere || this.#told.has(name)) return;
    this.#told.add(name);
    this.#bridge.notify(`ui/notifications/${name}`, params);
  }

  #capabilities() {
    const { onMessage, onContext, onLog } = this.app;
    return {
      openLinks: {},
      serverTools: {},
      serverResources: {},
      ...(onLog && { logging: {} }),
      ...(onMessage && { message: { text: {} } }),
      ...(onContext && { updateModelContext: { text: {}, structuredContent: {} } }),
      sandbox: { permissions: {} },
    };
  }

  #look() {
    const chosen = theme();
    const isDark = chosen === "system" ? DARK.matches : chosen === "dark";
    return {
      theme: isDark ? "dark" : "light",
      containerDimensions: { width: this.frame.clientWidth, maxHeight: HIGHEST },
    };
  }

  #context() {
    return {
      ...(typeof this.tool?.name === "string" && { toolInfo: { tool: plain(this.tool) } }),
      ...this.#look(),
      displayMode: "inline",
      availableDisplayModes: ["inline"],
      locale: navigator.language,
      timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
      userAgent: "foundation-rt",
      platform: "web",
      deviceCapabilities: { touch: navigator.maxTouchPoints > 0, hover: matchMedia("(hover: hover)").matches },
    };
  }

  #requests() {
    const { app, frame } = this;
    const ask = (label, make) => {
      if (this.#bridge === null || this.frame !== frame) throw new Refusal("The app was closed.");
      return this.#ask(label, make);
    };
    return new Map([
      ["tools/call", ({ name, arguments: given }) => app.callTool(textOf(name, "name"), recordOf(given), ask).then(plain)],
      ["resources/read", ({ uri }) => app.readResource(textOf(uri, "uri")).then(plain)],
      ["ui/open-link", ({ url }) => this.#openLink(url, ask)],
      ["ui/request-display-mode", () => ({ mode: "inline" })],
      ...(app.onMessage ? [["ui/message", (params) => this.#say(params)]] : []),
      ...(app.onContext ? [["ui/update-model-context", (params) => this.#inform(params)]] : []),
    ]);
  }

  #resize({ height }) {
    if (typeof height !== "number" || !(height >= 0)) return;
    this.height = Math.min(HIGHEST, Math.max(LOWEST, Math.ceil(height)));
    this.#fit(this.frame);
  }

  /** Let the body have the height of what is in it, a frame that is given; nothing moves while people are asked. */
  #fit(frame) {
    clearTimeout(this.fitting);
    if (document.querySelector(".approval, .ui-app-ask") === null) {
      this.body.style.minHeight = "";
      if (frame) frame.style.height = `${this.height}px`;
    } else if (this.node.isConnected) this.fitting = setTimeout(() => this.#fit(frame), FIT_MS);
  }

  /** Show one question after the other; each resolves with what a person has decided. */
  #ask(label, make) {
    if (this.#asks.length >= MOST_ASKED) return Promise.reject(new Refusal("Too much waits for the user."));
    return new Promise((resolve, reject) => {
      const ask = { label, resolve, reject };
      const done = (value) => {
        this.#asks.splice(this.#asks.indexOf(ask), 1);
        resolve(value);
        this.#showAsk();
      };
      ask.make = () => make(done);
      this.#asks.push(ask);
      if (this.#asks.length === 1) this.#showAsk();
    });
  }

  #showAsk() {
    const [first] = this.#asks;
    const hadFocus = this.asks.contains(document.activeElement);
    const node = first?.make();
    fill(this.asks, node);
    this.alert.textContent = first?.label ?? "";
    const field = document.getElementById("say");
    if (hadFocus) field?.focus();
    if (node !== undefined) guard(node, hadFocus && field === null);
  }

  async #openLink(url, ask) {
    const address = webAddress(url);
    if (address === null) throw new Refusal("Only https addresses can be opened.");
    const { host } = new URL(address);
    const label = `The app asks to open ${shown(host, 200)}`;
    const isOpened = await ask(label, (done) => {
      const open = link(address, `Open ${shown(host)}`);
      open.className = "button";
      open.addEventListener("click", () => done(true));
      return el(
        "div",
        { class: "ui-app-ask", role: "group", tabindex: -1, "aria-label": label },
        el("p", {}, label, "."),
        el("p", { class: "muted small address" }, shown(address, 2000)),
        el("div", { class: "buttons" }, open, button("Do not open", { on: { click: () => done(false) } })),
      );
    });
    if (!isOpened) throw new Refusal("The user did not open it.");
    return {};
  }

  #say({ role, content }) {
    const text = wordsOf(content).trim();
    if (role !== "user" || text === "") throw new Refusal("Expected a message of the user with text.");
    if (!this.app.onMessage(text)) throw new Refusal("The message field does not take it: it has a text, or this is too long.");
    return {};
  }

  #inform({ content, structuredContent }) {
    const structured = structuredContent === undefined ? "" : JSON.stringify(structuredContent, null, 2);
    const text = [wordsOf(content ?? []), structured].filter(Boolean).join("\n\n");
    if (text.length > MOST_CONTEXT) throw new Refusal(`A context has at most ${MOST_CONTEXT} characters.`);
    this.app.onContext(text);
    return {};
  }
}

/** Let a node take clicks and keys when there was none for a while. */
function guard(node, wantsFocus) {
  const ended = new AbortController();
  let waiting;
  const end = () => {
    ended.abort();
    node.inert = false;
    if (wantsFocus) node.focus();
  };
  const wait = () => {
    clearTimeout(waiting);
    waiting = setTimeout(end, GUARD_MS);
  };
  node.inert = true;
  for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, wait, { signal: ended.signal, capture: true });
  wait();
}

function shown(text, most = 80) {
  return cut(visible(String(text)), most);
}

/** Return the address of the frame's document, with the origins that an app asks for. */
function addressOf(csp) {
  const query = new URLSearchParams();
  for (const [name, member] of ORIGINS) {
    const asked = Array.isArray(csp?.[member]) ? csp[member].slice(0, MOST_ORIGINS) : [];
    for (const each of asked) if (typeof each === "string" && each.length <= 300) query.append(name, each);
  }
  return new URL(`app-frame?${query}`, document.baseURI).href;
}

/** Return a value with JavaScript's numbers, as an app knows them. */
function plain(value) {
  return value === null || value === undefined ? value : JSON.parse(JSON.stringify(value));
}

function textOf(value, name) {
  if (typeof value !== "string" || value === "") throw new Refusal(`${name}: expected a text.`);
  return value;
}

function recordOf(value = {}) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Refusal("arguments: expected an object.");
  return value;
}

function wordsOf(content) {
  const blocks = Array.isArray(content) ? content : [content];
  if (!blocks.every((block) => block?.type === "text" && typeof block.text === "string"))
    throw new Refusal("Expected content of the type text.");
  return blocks.map(({ text }) => text).join("\n\n");
}

function webAddress(url) {
  try {
    const { href, protocol, username, password } = new URL(cut(String(url), 2000));
    return protocol === "https:" && username === "" && password === "" ? href : null;
  } catch {
    return null;
  }
}
