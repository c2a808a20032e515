/** One request of the page as it goes: progress, questions, log records, result, wire (DEV-66). */

import { button, el, fill, icon } from "/shared/dom.js";
import { withNumbers } from "/shared/exact_numbers.js";
import { duration, precise } from "/shared/format.js";
import { safely } from "/shared/results.js";
import { messageRecord, recordNode } from "./log_list.js";
import { endOf, outcomeOfError, outcomeOfResult, outcomeTabs } from "./outcome.js";
import { visible } from "./shown_text.js";
import { exchanges, WireRow } from "./wire_row.js";

const MOST_RECORDS = 300;
const MOST_WIRE = 100;
// The card says itself that the call has ended, and how long it took.
const SAID_ALREADY = new Set(["tool call completed", "request completed"]);
const ICONS = { done: "check", failed: "cross", unknown: "unknown", cancelled: "stop" };

export class RunCard {
  #messages = [];
  #shownRecords = "";

  /** `resultNodes(result)` makes what people read; `app` is the view of the tool's app, or null. */
  constructor({ client, feed, method, params, title, resultNodes, app = null }) {
    Object.assign(this, { client, feed, method, params, title, resultNodes, app });
    this.state = "running";
    this.startedAt = performance.now();
    this.stateIcon = el("span", { class: "card-state" }, el("span", { class: "spinner" }));
    this.note = el("span", { class: "card-note muted" });
    this.cancelButton = button("Cancel call", { picture: "stop", quiet: true, on: { click: () => this.cancel() } });
    this.progress = el("div", { class: "card-progress", hidden: true });
    this.questions = el("div", { class: "card-questions" });
    this.outcome = el("div", { class: "card-outcome" });
    this.records = el("ol", { class: "record-list", tabindex: 0, "aria-label": "Log records of this call" });
    this.recordsBox = el(
      "div",
      { class: "run-log", hidden: true },
      el("h3", { class: "small muted" }, "Log"),
      this.records,
    );
    const head = el(
      "div",
      { class: "card-head" },
      this.stateIcon,
      el("span", { class: "card-name" }, el("strong", {}, visible(title)), argumentsNode(this.params.arguments)),
      this.note,
      this.cancelButton,
    );
    this.node = el(
      "article",
      { class: "card run", data: { state: "running" }, "aria-label": `Call of ${visible(title, 80)}` },
      head,
      this.progress,
      this.questions,
      app?.node,
      el("div", { class: "run-body" }, this.outcome, this.recordsBox),
    );
  }

  /** Make the request; resolves when it has ended. */
  async start() {
    const request = this.client.request(this.method, this.params, {
      onProgress: (progress) => this.#progressed(progress),
      onMessage: (params) => this.message(params),
    });
    Object.assign(this, { id: request.id, cancel: () => request.cancel() });
    const ticking = setInterval(() => this.#tick(), 200);
    try {
      this.#ended(await request.promise, null);
    } catch (error) {
      this.#ended(null, error);
    } finally {
      clearInterval(ticking);
    }
  }

  /** Take the card away. */
  close() {
    this.app?.hide();
    this.node.remove();
  }

  /** Show a log message of the protocol. */
  message(params) {
    this.#messages.push(messageRecord(params ?? {}, Date.now()));
    if (this.#messages.length > MOST_RECORDS) this.#messages.shift();
    this.update();
  }

  /** Show a question of the server; it gets the focus unless somebody is writing elsewhere. */
  ask(card) {
    this.questions.append(card.node);
  }

  /** Show what the front knows of the call. */
  update() {
    const call = this.feed.callOf(this.id);
    if (this.state !== "running" && call?.durationMs !== undefined) this.note.textContent = precise(call.durationMs);
    const own = call ? this.feed.logs.filter((record) => record.call === call.call && !SAID_ALREADY.has(record.message)) : [];
    const all = [...own, ...this.#messages].sort((a, b) => a.at - b.at).slice(-MOST_RECORDS);
    const key = `${all.length} ${all.at(-1)?.at}`;
    if (key !== this.#shownRecords) {
      this.#shownRecords = key;
      this.recordsBox.hidden = all.length === 0;
      this.recordsBox.firstElementChild.textContent = `Log (${all.length})`;
      const since = call?.at ?? all[0]?.at;
      fill(this.records, all.map((record) => safely(() => recordNode(record, { since }), record)));
      this.node.classList.toggle("with-log", all.length > 0);
    }
    if (this.tabs && this.tabs.chosen === "wire") this.#renewWire();
  }

  #tick() {
    this.note.textContent = duration(performance.now() - this.startedAt);
  }

  #progressed(given) {
    const { progress, total, message } = withNumbers({ ...given });
    if (this.state !== "running") return;
    const isKnown = typeof total === "number" && total > 0;
    const bar = el("progress", {
      max: isKnown ? total : null,
      value: isKnown ? Math.min(progress, total) : null,
      "aria-label": `Progress of ${visible(this.title, 80)}`,
    });
    const numbers = isKnown ? `${Math.round((100 * progress) / total)} %` : String(progress);
    this.progress.hidden = false;
    fill(
      this.progress,
      bar,
      el("p", { class: "small muted progress-line" }, el("span", {}, visible(message ?? "")), el("span", {}, numbers)),
    );
  }

  #ended(result, error) {
    const state = error !== null ? endOf(error) : result?.isError ? "failed" : "done";
    this.state = state;
    this.app?.update(error === null ? { result } : { cancelled: error.message });
    this.node.dataset.state = state;
    fill(this.stateIcon, icon(ICONS[state]), el("span", { class: "hidden" }, state));
    this.#tick();
    this.cancelButton.remove();
    this.progress.hidden = true;
    const outcome = error === null ? outcomeOfResult(result, this.resultNodes) : outcomeOfError(error);
    this.tabs = outcomeTabs(this.title, outcome, [{ id: "wire", label: "Wire", make: () => this.#wireNode() }]);
    fill(this.outcome, this.tabs.node);
    this.update();
  }

  #ownWire() {
    const call = this.feed.callOf(this.id)?.call;
    return this.feed.wire.filter((entry) => entry.id === this.id || (call && entry.call === call)).slice(-MOST_WIRE);
  }

  #wireNode() {
    const own = this.#ownWire();
    this.shownWire = own.length;
    if (own.length === 0) return el("p", { class: "muted small" }, "Its messages are no longer kept.");
    return el("ol", { class: "wire-list" }, exchanges(own).map((entry) => new WireRow(entry).node));
  }

  #renewWire() {
    if (this.#ownWire().length > this.shownWire) this.tabs.renew("wire");
  }
}

/** Make the node of the arguments of a call, cut; null if there are none. */
export function argumentsNode(given) {
  if (given === undefined || Object.keys(given).length === 0) return null;
  return el("span", { class: "muted small mono args" }, visible(JSON.stringify(given), 120));
}

/** Keep the latest runs of one place, newest first. */
export class RunList {
  constructor(label, most = 20) {
    this.most = most;
    this.cards = [];
    this.node = el("div", { class: "runs", role: "group", "aria-label": label });
  }

  add(card) {
    this.cards.unshift(card);
    this.node.prepend(card.node);
    while (this.cards.length > this.most) this.cards.pop().close();
    return card.start();
  }

  update() {
    for (const card of this.cards) card.update();
  }

  find(id) {
    return this.cards.find((card) => card.id === id) ?? null;
  }
}
