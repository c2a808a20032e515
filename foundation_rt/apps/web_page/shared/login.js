/** The login at a server that waits for a person: a button, the page to open, and what came of it (HPAGE-80). */

import { button, el } from "./dom.js";
import { link, safeAddress } from "./markdown.js";
import { request } from "./page_token.js";

const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

export class Logins {
  #own = new Map(); // by server: what this tab has done, and not the host

  /** `path` takes requests for logins; `onChange` is called when nodes show something else. */
  constructor(path, onChange) {
    Object.assign(this, { path, onChange });
  }

  /** Return a text that changes with the node of a server. */
  key({ id, login, state }) {
    const { isAsked, problem, isDone } = this.#of(id);
    return JSON.stringify([login ?? null, state, isAsked, problem, isDone]);
  }

  /** Make the node of a server; null where nothing is to be said of a login. */
  node({ id, login }) {
    const own = this.#of(id);
    if (!login) {
      own.isDone ||= own.isWaiting;
      own.isWaiting = false;
      return own.isDone ? el("p", { class: "small", role: "status" }, "Logged in.") : null;
    }
    own.isDone = false;
    if (login.page) {
      own.isWaiting = true;
      return this.#pageNode(id, login.page, own);
    }
    own.isWaiting = false;
    const problem = login.problem ?? own.problem;
    const begin = button(own.isAsked ? "Asking for the page" : "Log in", {
      class: "primary",
      "aria-label": own.isAsked ? null : `Log in to ${id}`,
      "aria-disabled": String(own.isAsked),
      data: { keep: `login ${id}` },
      on: { click: () => own.isAsked || this.#ask(id) },
    });
    return el(
      "div",
      { class: "login" },
      problem ? el("p", { class: "error-text small", role: "alert" }, problem) : null,
      el("div", { class: "buttons" }, begin),
    );
  }

  #pageNode(id, page, own) {
    const address = safeAddress(page);
    const { protocol, hostname, host, origin, pathname } = new URL(address ?? "about:blank");
    const isSafe = protocol === "https:" || (protocol === "http:" && LOOPBACK.has(hostname));
    if (!isSafe) return el("p", { class: "error-text small", role: "alert" }, "The address of its login cannot be opened.");
    const open = link(address, `Open ${host}`);
    open.className = "button primary";
    open.dataset.keep = `login ${id}`;
    return el(
      "div",
      { class: "login" },
      el("p", { class: "address" }, el("strong", {}, host), el("span", { class: "muted small" }, `${origin}${pathname}`)),
      el("p", { class: "muted small" }, "Log in there. It opens in a new tab, and this page says when it is done."),
      el("div", { class: "buttons" }, open),
      this.#pasteNode(id, own),
    );
  }

  /** Where the host is on another machine, the browser ends at an address that leads nowhere. */
  #pasteNode(id, own) {
    const field = el("input", {
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      data: { keep: `login-address ${id}` },
      on: { input: () => (own.typed = field.value) },
    });
    field.value = own.typed;
    const submit = (event) => {
      event.preventDefault();
      if (field.value.trim() !== "") this.#ask(id, field.value.trim());
    };
    // The event toggle comes later, when another node may have taken the place of this one.
    const toggle = () => (own.isPasting = !node.open);
    const node = el(
      "details",
      { open: own.isPasting },
      el("summary", { class: "small", on: { click: toggle } }, "The browser ended at a page that it cannot show"),
      el(
        "form",
        { class: "field", novalidate: true, on: { submit } },
        el("label", {}, "The address of that page", field),
        el("div", { class: "buttons" }, el("button", { type: "submit", class: "button" }, "Send")),
      ),
    );
    return node;
  }

  async #ask(id, address) {
    const own = this.#of(id);
    Object.assign(own, { isAsked: true, isPasting: false, problem: null, typed: "" });
    this.onChange();
    const body = JSON.stringify(address === undefined ? { server: id } : { server: id, address });
    const response = await request(this.path, { method: "POST", headers: { "Content-Type": "application/json" }, body });
    own.isAsked = false;
    if (!response?.ok) own.problem = "No login was begun: please try again.";
    this.onChange();
  }

  #of(id) {
    const known = this.#own.get(id);
    if (known) return known;
    const made = { isAsked: false, isWaiting: false, isDone: false, isPasting: false, problem: null, typed: "" };
    this.#own.set(id, made);
    return made;
  }
}

/** Replace what a node holds; what has the focus in it, by its `data-keep`, has it again. */
export function keepingFocus(node, show) {
  const focused = node.contains(document.activeElement) ? document.activeElement.dataset.keep : undefined;
  show();
  if (focused === undefined) return;
  [...node.querySelectorAll("[data-keep]")].find((each) => each.dataset.keep === focused)?.focus();
}
