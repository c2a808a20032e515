/**
 * What the servers offer, in the message field (HPAGE-55): prompts by `/` at its beginning, resources by `@` anywhere.
 *
 * A prompt's text and files come into the message, where they can be read and changed before they are sent.
 */

import { button, el, fill } from "./dom.js";
import { jsonOf } from "./exact_numbers.js";
import { cut } from "./format.js";
import { request } from "./page_token.js";

const MOST_SHOWN = 8;
const KEPT_MS = 30_000;
const PAUSE_MS = 200;
const TYPED = /(?:^(\/)|(?:^|\s)(@))(\S*)$/;

export class Completer {
  #offers = null;
  #readAt = 0;
  #shown = [];
  #at = 0;
  #typed = null;

  /** `composer`: has the field and the attachments; `onProblem(text)`: says why something was not had. */
  constructor(composer, { onProblem }) {
    Object.assign(this, { composer, onProblem });
    this.list = el("ul", { id: "offers", class: "offers", role: "listbox", "aria-label": "Offers", hidden: true });
    const { field } = composer;
    field.setAttribute("aria-autocomplete", "list");
    field.setAttribute("aria-controls", "offers");
    field.addEventListener("input", () => this.#look());
    field.addEventListener("blur", () => this.#close());
    // Before the composer's own listener: Enter chooses while there is something to choose.
    field.addEventListener("keydown", (event) => this.#pressed(event), { capture: true });
  }

  async #look() {
    const { field } = this.composer;
    const before = field.value.slice(0, field.selectionStart);
    const found = TYPED.exec(before);
    this.#typed = found && { kind: found[1] ? "prompts" : "resources", words: found[3], end: before.length };
    if (this.#typed === null) return this.#close();
    const typed = this.#typed;
    const offers = await this.#read();
    if (typed === this.#typed) this.#show(typed, offers);
  }

  /** Return what the servers offer, asked for at most every 30 s. */
  #read() {
    if (Date.now() - this.#readAt >= KEPT_MS) {
      this.#readAt = Date.now();
      this.#offers = request("api/offers").then((response) => (response?.ok ? jsonOf(response) : null));
    }
    return this.#offers.catch(() => null);
  }

  #show({ kind, words }, offers) {
    const all = Array.isArray(offers?.[kind]) ? offers[kind] : [];
    const wanted = words.toLowerCase();
    const texts = (each) => [each.name, each.title, each.uri, `${each.server}:${each.name}`];
    const isMeant = (each) => texts(each).some((text) => String(text ?? "").toLowerCase().includes(wanted));
    this.#shown = all.filter(isMeant).slice(0, MOST_SHOWN);
    this.#at = 0;
    fill(this.list, this.#shown.map((offer, at) => this.#row(kind, offer, at)));
    this.list.setAttribute("aria-label", kind === "prompts" ? "Prompts" : "Resources");
    this.list.hidden = this.#shown.length === 0;
    this.#mark();
  }

  #row(kind, { server, name, title, uri, description }, at) {
    const label = title ?? name ?? uri;
    const detail = kind === "prompts" ? `/${name} · ${server}` : `${uri} · ${server}`;
    // The field keeps the focus.
    const on = { pointerdown: (event) => event.preventDefault(), click: () => this.#choose(at) };
    return el(
      "li",
      { id: `offer-${at}`, role: "option", on },
      el("strong", {}, cut(String(label), 80)),
      el("span", { class: "muted small" }, cut(detail, 120)),
      description ? el("span", { class: "muted small" }, cut(String(description), 120)) : null,
    );
  }

  #mark() {
    for (const [at, row] of [...this.list.children].entries()) row.setAttribute("aria-selected", String(at === this.#at));
    const { field } = this.composer;
    if (this.list.hidden) field.removeAttribute("aria-activedescendant");
    else field.setAttribute("aria-activedescendant", `offer-${this.#at}`);
    this.list.children[this.#at]?.scrollIntoView({ block: "nearest" });
  }

  #close() {
    this.#shown = [];
    this.list.hidden = true;
    this.#mark();
  }

  #pressed(event) {
    if (this.list.hidden || event.isComposing || event.keyCode === 229 || event.altKey) return;
    const count = this.#shown.length;
    const action = {
      ArrowDown: () => (this.#at = (this.#at + 1) % count),
      ArrowUp: () => (this.#at = (this.#at + count - 1) % count),
      Enter: () => this.#choose(this.#at),
      Tab: () => this.#choose(this.#at),
      Escape: () => this.#close(),
    }[event.key];
    if (!action || event.shiftKey) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    action();
    this.#mark();
  }

  async #choose(at) {
    const offer = this.#shown[at];
    const { kind, words, end } = this.#typed;
    this.#close();
    if (kind === "resources") {
      this.composer.replace(end - words.length - 1, end, "");
      return this.#take("api/resource", { server: offer.server, uri: offer.uri });
    }
    const values = await argumentsOf(offer);
    if (values === null) return this.composer.focus();
    this.composer.replace(0, end, "");
    return this.#take("api/prompt", { server: offer.server, name: offer.name, arguments: values });
  }

  /** Ask for a prompt or a resource, and put what it is into the message. */
  async #take(path, asked) {
    const { composer } = this;
    const response = await request(path, { method: "POST", body: JSON.stringify(asked) });
    const found = response && (await jsonOf(response).catch(() => null));
    if (!response?.ok || !found) {
      this.onProblem(found?.error?.message ?? "The host did not answer.");
      return composer.focus();
    }
    if (found.text) composer.insert(String(found.text));
    await composer.attachments.addData(found.attachments);
    return composer.focus();
  }
}

/** Ask for the arguments of a prompt; resolves with them, or with null if the person gives up. */
function argumentsOf({ server, name, title, description, arguments: args = [] }) {
  if (args.length === 0) return Promise.resolve({});
  return new Promise((resolve) => {
    const dialog = el("dialog", { class: "dialog", "aria-labelledby": "prompt-title" });
    const fields = args.map((argument, at) => new ArgumentField(argument, at));
    const values = () => Object.fromEntries(fields.filter((each) => each.value !== "").map((each) => [each.name, each.value]));
    for (const field of fields) field.completeWith((value) => complete(server, name, field.name, value, values()));
    const form = el(
      "form",
      { class: "fields", on: { submit: (event) => finish(event) } },
      fields.map((field) => field.node),
      el(
        "div",
        { class: "buttons" },
        button("Cancel", { on: { click: () => dialog.close() } }),
        el("button", { type: "submit", class: "button primary" }, "Use this prompt"),
      ),
    );
    let result = null;
    const finish = (event) => {
      event.preventDefault();
      result = values();
      dialog.close();
    };
    dialog.append(
      el("h2", { id: "prompt-title" }, title ?? name),
      description ? el("p", { class: "muted" }, description) : "",
      form,
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

class ArgumentField {
  #timer = 0;

  constructor({ name, title, description, required }, at) {
    this.name = String(name);
    const id = `argument-${at}`;
    this.options = el("datalist", { id: `${id}-options` });
    const help = description ? el("p", { class: "muted small", id: `${id}-help` }, String(description)) : null;
    this.input = el("input", {
      id,
      type: "text",
      dir: "auto",
      required: required === true,
      list: `${id}-options`,
      autocomplete: "off",
      "aria-describedby": help && `${id}-help`,
    });
    const presence = el("span", { class: "muted" }, required === true ? " (required)" : " (optional)");
    const label = el("label", { for: id }, String(title ?? name), presence);
    this.node = el("div", { class: "field" }, label, help, this.input, this.options);
  }

  get value() {
    return this.input.value;
  }

  /** Offer what `values(text)` resolves with, a moment after each change. */
  completeWith(values) {
    const look = async () => {
      const { value } = this;
      const found = await values(value);
      if (value === this.value) fill(this.options, found.map((each) => el("option", { value: each })));
    };
    const soon = () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(look, PAUSE_MS);
    };
    this.input.addEventListener("input", soon);
    this.input.addEventListener("focus", soon, { once: true });
  }
}

async function complete(server, name, argument, value, values) {
  const body = JSON.stringify({ server, name, argument, value, arguments: values });
  const response = await request("api/completion", { method: "POST", body });
  const found = response?.ok ? await jsonOf(response).catch(() => null) : null;
  return Array.isArray(found?.values) ? found.values.map(String) : [];
}
