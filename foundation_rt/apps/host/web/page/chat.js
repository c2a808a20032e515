/**
 * One open chat: its connection, its state, and what this page has said that the host has not confirmed.
 *
 * What a person says is kept until the host shows it: a message with its id, a decision, an answer, a stop. After each
 * reconnection it is sent again (HPAGE-07).
 */

import { branchOf, messageBefore } from "./branches.js";
import { EMPTY, isOpen, receive, withOlder } from "./chat_state.js";
import { Connection } from "./connection.js";
import { jsonOf } from "./exact_numbers.js";
import { request } from "./page_token.js";

export class Chat {
  #decisions = new Map();
  #answers = new Map();
  #stopping = null;
  #chosen = new Map();
  #isFresh = true;

  /**
   * `sessionId`: of a chat that is continued, null for a new one; `isUsed`: something was said in it. `outbox`: messages
   * of an earlier visit, {id, text, refusal}. `onChange(chat, frame)` is called after each change; `frame` is null if
   * none caused it. `onOlder(state)` is called when older messages have come.
   */
  constructor({ sessionId = null, isUsed = false, outbox = [], isRefused, onChange, onOlder }) {
    this.state = { ...EMPTY, sessionId, isUsed };
    this.outbox = outbox;
    this.error = null;
    this.maintenance = null;
    this.isReady = false;
    this.onChange = onChange;
    this.onOlder = onOlder;
    this.connection = new Connection({
      address: () => this.#address(),
      isRefused,
      onFrame: (frame) => this.#received(frame),
      onStatus: () => this.#statusChanged(),
    });
  }

  get status() {
    return this.connection.status;
  }

  get isWaitingForHistory() {
    return this.#isFresh && this.state.sessionId !== null;
  }

  open() {
    this.connection.open();
  }

  close() {
    this.connection.close();
  }

  /** Return what was said and has no turn yet: by this page, and as far as the host has told by others. */
  get unsent() {
    const own = new Set(this.outbox.map(({ id }) => id));
    const others = this.state.waiting.filter(({ id }) => !own.has(id));
    return [...others.map((message) => ({ ...message, refusal: null })), ...this.outbox];
  }

  /** Get a page of older messages. */
  async readOlder() {
    const { oldest, sessionId } = this.state;
    const path = `api/sessions/${encodeURIComponent(sessionId)}/messages?before=${encodeURIComponent(oldest)}`;
    const response = await request(path);
    const page = response?.ok ? await jsonOf(response).catch(() => null) : null;
    // A history that has come since begins elsewhere.
    if (page === null || this.state.oldest !== oldest) return;
    this.state = withOlder(this.state, page);
    this.onOlder(this.state);
    this.#changed();
  }

  /** Return the branch that is shown; see `branchOf`. */
  get branch() {
    const { items, previous } = this.state;
    if (this.branchIn?.items !== items || this.branchIn.chosen !== this.#chosen)
      this.branchIn = { items, chosen: this.#chosen, found: branchOf(items, this.#chosen, previous) };
    return this.branchIn.found;
  }

  /** Return the id of the message that one goes on from; null: it is the first. */
  before(id) {
    return messageBefore(this.branch.items, id, this.state.previous);
  }

  /** Show the branch of a message of the user. */
  show(id, sibling) {
    this.#choose(this.before(id), sibling);
    this.#changed();
  }

  #choose(after, id) {
    this.#chosen = new Map(this.#chosen).set(after, id);
  }

  /**
   * Say something; it is kept until the host has it. `message`: {text, after, model, attachments, attachmentsOf}; without `after` it goes on from what is
   * shown, or from what waits.
   */
  say(message) {
    const id = crypto.randomUUID?.() ?? randomId();
    const said = { ...message, id, refusal: null };
    const isNewest = this.branch.last === (this.state.items.findLast(isUser)?.id ?? null);
    const waits = this.unsent.some(({ refusal }) => refusal === null);
    if (said.after === undefined && !isNewest && !waits) said.after = this.branch.last;
    if (said.after !== undefined) this.#choose(said.after, id);
    this.outbox = [...this.outbox, said];
    this.#sendMessage(said);
    this.#changed();
  }

  #sendMessage({ refusal, ...message }) {
    this.#send("message", message);
  }

  /** Send a message again that was refused. */
  sayAgain(id) {
    this.outbox = this.outbox.map((each) => (each.id === id ? { ...each, refusal: null } : each));
    const message = this.outbox.find((each) => each.id === id);
    if (message) this.#sendMessage(message);
    this.#changed();
  }

  /** Take back a message that the host does not have; returns it. */
  takeBack(id) {
    const message = this.outbox.find((each) => each.id === id);
    this.outbox = this.outbox.filter((each) => each.id !== id);
    this.#changed();
    return message ?? null;
  }

  /** Stop the running turn. */
  stop() {
    if (this.state.turn === null) return;
    this.#stopping = this.state.turn.turnId;
    this.#send("stop", {});
    this.#changed();
  }

  get isStopping() {
    return this.#stopping !== null && this.state.turn?.turnId === this.#stopping;
  }

  /** Decide an approval: once, session, always or deny. */
  approve(callId, decision) {
    this.#decisions.set(callId, decision);
    this.#send("approval", { callId, decision });
    this.#changed();
  }

  /** Return what was decided and not yet confirmed. */
  decisionOf(callId) {
    return this.#decisions.get(callId) ?? null;
  }

  /** Answer a question: accept with content, decline or cancel. */
  answer(questionId, action, content = undefined) {
    const answer = content === undefined ? { questionId, action } : { questionId, action, content };
    this.#answers.set(questionId, answer);
    this.#send("answer", answer);
    this.#changed();
  }

  /** Return what was answered and not yet confirmed. */
  answerOf(questionId) {
    return this.#answers.get(questionId)?.action ?? null;
  }

  dismissError() {
    this.error = null;
    this.#changed();
  }

  #address() {
    const url = new URL("ws", document.baseURI);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    if (this.state.sessionId !== null) {
      url.searchParams.set("session", this.state.sessionId);
      if (!this.#isFresh) url.searchParams.set("after", this.state.seq);
    }
    return url.href;
  }

  #send(type, payload) {
    if (this.isReady) this.connection.send(type, payload);
  }

  #statusChanged() {
    if (this.status.state !== "open") this.isReady = false;
    if (this.status.state === "waiting" && this.maintenance === STOPPING) this.maintenance = ENDED;
    this.#changed();
  }

  #received(frame) {
    const before = this.state;
    this.state = receive(before, frame);
    if (this.state.hasGap) return this.connection.reopen();
    if (frame.type === "connection") this.#connected(frame.payload, before);
    if (frame.type === "history") this.#isFresh = false;
    if (frame.type === "error") this.#refused(frame.payload);
    this.#forgetConfirmed();
    return this.#changed(frame);
  }

  #connected({ state, message }, before) {
    if (state === "reconnecting") {
      this.maintenance = isOfThisMachine() ? STOPPING : (message ?? null);
      return;
    }
    if (state !== "connected" && state !== "reconnected") return;
    this.maintenance = null;
    this.isReady = true;
    // A new session begins with its first event; one that is continued for the first time with its history.
    if (state === "connected" && before.sessionId !== this.state.sessionId) this.#isFresh = false;
    this.#sendAgain();
  }

  #sendAgain() {
    for (const message of this.outbox) if (message.refusal === null) this.#sendMessage(message);
    for (const [callId, decision] of this.#decisions) this.#send("approval", { callId, decision });
    for (const answer of this.#answers.values()) this.#send("answer", answer);
    if (this.isStopping) this.#send("stop", {});
  }

  #refused({ code, message, id }) {
    if (code === "unknown_session") return;
    const waiting = this.outbox.filter((each) => each.refusal === null);
    const refused =
      waiting.find((each) => each.id === id) ?? (OF_MESSAGES.has(code) ? waiting.at(-1) : undefined);
    if (refused === undefined) {
      this.error = { code, message };
      return;
    }
    const reason = (code === "MAINTENANCE" && this.maintenance) || (message ?? code);
    this.outbox = this.outbox.map((each) => (each === refused ? { ...each, refusal: reason } : each));
  }

  #forgetConfirmed() {
    if (this.outbox.length > 0) {
      const shown = new Set(this.state.items.filter((item) => item.kind === "user").map((item) => item.id));
      const rest = this.outbox.filter((each) => !shown.has(each.id));
      if (rest.length < this.outbox.length) this.outbox = rest;
    }
    for (const [map, kind] of [
      [this.#decisions, "call"],
      [this.#answers, "question"],
    ]) {
      for (const id of map.keys()) {
        const item = this.state.items.find((each) => each.kind === kind && each.id === id);
        if (!this.#isFresh && (item === undefined || !isOpen(item))) map.delete(id);
      }
    }
  }

  #changed(frame = null) {
    this.onChange(this, frame);
  }
}

const isUser = ({ kind }) => kind === "user";

const STOPPING = "The host is ending. What runs may finish; nothing new begins.";
const ENDED =
  "The host has ended. Start it again with `foundation-rt host`; this page then goes on by itself.";

/** A host of this machine ends when somebody ends it; elsewhere that is maintenance, which it has announced. */
function isOfThisMachine() {
  return ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
}

const OF_MESSAGES = new Set([
  "RATE_LIMITED",
  "MAINTENANCE",
  "TOO_MANY_TURNS",
  "too_many_turns",
  "CHAT_FULL",
  "invalid_message",
]);

// A page that is served without TLS to another machine has no `randomUUID`.
function randomId() {
  return [...crypto.getRandomValues(new Uint8Array(16))]
    .map((byte) => byte.toString(16).padStart(2, "0"))
    .join("");
}
