/** Tasks: calls that outlive their request. Each as a card with its state, its questions and its outcome (DEV-71). */

import { button, el, fill, icon } from "/shared/dom.js";
import { numberOf } from "/shared/exact_numbers.js";
import { resultNodes } from "/shared/results.js";
import { outcomeOfError, outcomeOfResult, outcomeTabs } from "./outcome.js";
import { placeholder } from "./placeholder.js";
import { isQuestion, questionCard } from "./questions.js";
import { CancelledError, LostError, RpcError } from "./rpc_errors.js";
import { argumentsNode } from "./run_card.js";
import { preciseTime, visible } from "./shown_text.js";

const KEPT = "foundation-rt.dev.tasks";
const MOST_KEPT = 50;
const DEFAULT_POLL_MS = 1000;
const SHORTEST_POLL_MS = 250;
const AGAIN_MS = 3000;

const WORDS = new Map([
  ["starting", "starting"],
  ["working", "working"],
  ["input_required", "asks you"],
  ["completed", "completed"],
  ["failed", "failed"],
  ["cancelled", "cancelled"],
  ["plain", "was a plain call"],
  ["unknown", "unknown to the server"],
]);
const ENDS = new Map([
  ["completed", "done"],
  ["failed", "failed"],
  ["cancelled", "cancelled"],
  ["plain", "done"],
  ["unknown", "unknown"],
]);
const ICONS = { done: "check", failed: "cross", cancelled: "stop", unknown: "unknown" };

export class TasksView {
  id = "tasks";
  title = "Tasks";
  picture = "tasks";

  constructor(page) {
    this.page = page;
    this.list = el("div", { class: "cards" });
    this.none = placeholder(this.picture, "No tasks yet.", "“Run as task” beside a tool starts one. It goes on while you do something else.");
    this.node = el("div", { class: "page" }, this.none, this.list);
    this.cards = [];
    this.stored = storedTasks();
    this.#show();
  }

  get count() {
    return this.cards.filter(({ isOpen }) => isOpen).length || null;
  }

  async reload() {
    for (const task of this.stored.splice(0)) this.cards.push(new TaskCard(this, task));
    this.#show();
    for (const card of this.cards) card.follow();
  }

  open() {}

  update() {}

  /** Call a tool so that it may become a task. */
  start(tool, given) {
    const card = new TaskCard(this, { tool, given });
    this.cards.unshift(card);
    while (this.cards.length > MOST_KEPT) this.cards.pop().stop();
    this.#show();
    card.begin();
  }

  /** Keep the tasks for the next load of the page. */
  keep() {
    const kept = this.cards.filter(({ taskId }) => taskId).map(({ tool, given, taskId }) => ({ tool: { name: tool.name, title: tool.title }, given, taskId }));
    try {
      sessionStorage.setItem(KEPT, JSON.stringify(kept));
    } catch {
      // They are known until the page is loaded again.
    }
  }

  #show() {
    this.none.hidden = this.cards.length > 0;
    fill(this.list, this.cards.map(({ node }) => node));
  }
}

function storedTasks() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(kept) ? kept.slice(0, MOST_KEPT) : [];
  } catch {
    return [];
  }
}

class TaskCard {
  #timer = 0;
  #abort = new AbortController();
  #asked = new Map();

  constructor(view, { tool, given, taskId = null }) {
    Object.assign(this, { view, tool, given, taskId, status: "starting" });
    const name = visible(tool.title ?? tool.name, 120);
    this.stateIcon = el("span", { class: "card-state" });
    this.note = el("span", { class: "card-note muted" });
    this.cancelButton = button("Cancel", { picture: "stop", quiet: true, on: { click: () => this.#cancel() } });
    this.said = el("p", { class: "small muted task-said", "aria-live": "polite" });
    this.questions = el("div", { class: "card-questions" });
    this.outcome = el("div", { class: "card-outcome" });
    this.node = el(
      "article",
      { class: "card run", "aria-label": `Task of ${name}` },
      el("div", { class: "card-head" }, this.stateIcon, el("span", { class: "card-name" }, el("strong", {}, name), argumentsNode(given)), this.note, this.cancelButton),
      this.said,
      this.questions,
      this.outcome,
    );
    this.#enter("starting");
  }

  get isOpen() {
    return !ENDS.has(this.status);
  }

  /** Make the call. */
  async begin() {
    try {
      const ask = (requests, signal) => this.#answers(requests, signal);
      const result = await this.view.page.taskClient.call(this.tool, this.given, { ask, signal: this.#abort.signal });
      if (result?.resultType === "task") this.#took(result);
      else this.#ended("plain", outcomeOfResult(result, resultNodes));
    } catch (error) {
      if (!this.#abort.signal.aborted) this.#ended("failed", outcomeOfError(error));
    }
  }

  /** Ask for the state of the task, now and then again until it has ended. */
  async follow() {
    clearTimeout(this.#timer);
    if (this.taskId === null || !this.isOpen) return;
    try {
      this.#took(await this.view.page.taskClient.get(this.taskId));
    } catch (error) {
      if (error instanceof RpcError) this.#ended("unknown", outcomeOfError(error));
      else this.#timer = setTimeout(() => this.follow(), AGAIN_MS);
    }
  }

  /** Forget the task; it goes on at the server. */
  stop() {
    clearTimeout(this.#timer);
    this.#abort.abort();
  }

  #took(task) {
    if (this.taskId === null) {
      this.taskId = String(task.taskId);
      this.view.keep();
    }
    const { status, statusMessage, createdAt, result, error, inputRequests, pollIntervalMs } = task;
    this.said.textContent = visible(statusMessage ?? "", 400);
    this.note.title = createdAt ? `Since ${preciseTime(createdAt)}` : "";
    if (status === "completed") this.#ended(result?.isError ? "failed" : "completed", outcomeOfResult(result, resultNodes));
    else if (status === "failed") this.#ended("failed", outcomeOfError(new RpcError(error ?? {})));
    else if (status === "cancelled") this.#ended("cancelled", outcomeOfError(new CancelledError("The task was cancelled.")));
    else {
      this.#enter(WORDS.has(status) ? status : "working");
      this.#askOpen(inputRequests ?? {});
      this.#timer = setTimeout(() => this.follow(), Math.max(SHORTEST_POLL_MS, numberOf(pollIntervalMs) ?? DEFAULT_POLL_MS));
    }
  }

  #enter(status) {
    this.status = status;
    this.node.dataset.state = ENDS.get(status) ?? "running";
    const end = ENDS.get(status);
    const isShown = this.shownStatus === status;
    this.shownStatus = status;
    if (isShown) return;
    fill(this.stateIcon, end ? icon(ICONS[end]) : el("span", { class: "spinner" }));
    this.note.textContent = WORDS.get(status);
    this.view.page.showCounts();
  }

  #ended(status, outcome) {
    this.#enter(status);
    this.cancelButton.remove();
    for (const abort of this.#asked.values()) abort.abort();
    fill(this.outcome, outcomeTabs(this.tool.name, outcome).node);
    this.view.page.say(`The task of ${this.tool.name} ${WORDS.get(status)}.`);
  }

  async #cancel() {
    this.#abort.abort();
    if (this.taskId === null) {
      this.#ended("cancelled", outcomeOfError(new CancelledError("The call was cancelled.")));
      return;
    }
    await this.view.page.taskClient.cancel(this.taskId).catch(() => null);
    await this.follow();
  }

  /** Show the questions that are new, and give up those that the task has no longer. */
  #askOpen(requests) {
    for (const [key, abort] of this.#asked) if (!Object.hasOwn(requests, key)) abort.abort();
    for (const [key, request] of Object.entries(requests)) {
      if (this.#asked.has(key)) continue;
      const abort = new AbortController();
      this.#asked.set(key, abort);
      this.#answer(request, abort.signal)
        .then((response) => this.view.page.taskClient.update(this.taskId, { [key]: response }))
        .then(() => this.follow())
        .catch((error) => {
          if (!(error instanceof LostError)) return;
          this.#asked.delete(key); // it is asked again
        });
    }
  }

  /** Answer what is asked before the call is a task; a refusal ends it. */
  async #answers(requests, signal) {
    const answers = Object.entries(requests).map(async ([key, request]) => [key, await this.#answer(request, signal)]);
    return Object.fromEntries(await Promise.all(answers));
  }

  async #answer(request, signal) {
    if (!isQuestion(request?.method)) throw new RpcError({ code: -32601, message: "Method not found" });
    const card = questionCard(request, { signal });
    return await this.view.page.inbox.put(card, this);
  }

  /** Show a question of the server. */
  ask(card) {
    this.questions.append(card.node);
  }
}
