/**
 * One open chat: its connection, its state, and what this page has said that the host has not confirmed.
 *
 * What a person says is kept until the host shows it: a message with its id, a decision, an answer, a stop. After each
 * reconnection it is sent again (HPAGE-07).
 */

import { EMPTY, isOpen, receive } from "./chat_state.js";
import { Connection } from "./connection.js";

export class Chat {
  #decisions = new Map();
  #answers = new Map();
  #stopping = null;
  #isFresh = true;

  /**
   * `sessionId`: of a chat that is continued, null for a new one; `isUsed`: something was said in it. `outbox`: messages
   * of an earlier visit, {id, text, refusal}. `onChange(chat, frame)` is called after each change; `frame` is null if
   * none caused it.
   */
  constructor({ sessionId = null, isUsed = false, outbox = [], isRefused, onChange }) {
    this.state = { ...EMPTY, sessionId, isUsed };
    this.outbox = outbox;
    this.error = null;
    this.maintenance = null;
    this.isReady = false;
    this.onChange = onChange;
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

  /** Say something; it is kept until the host has it. */
  say(text) {
    const message = { id: crypto.randomUUID?.() ?? randomId(), text, refusal: null };
    this.outbox = [...this.outbox, message];
    this.#send("message", { text, id: message.id });
    this.#changed();
  }

  /** Send a message again that was refused. */
  sayAgain(id) {
    this.outbox = this.outbox.map((each) => (each.id === id ? { ...each, refusal: null } : each));
    const message = this.outbox.find((each) => each.id === id);
    if (message) this.#send("message", { text: message.text, id });
    this.#changed();
  }

  /** Take back a message that the host does not have; returns its text. */
  takeBack(id) {
    const message = this.outbox.find((each) => each.id === id);
    this.outbox = this.outbox.filter((each) => each.id !== id);
    this.#changed();
    return message?.text ?? "";
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
      this.maintenance = message ?? null;
      return;
    }
    if (state !== "connected" && state !== "reconnected") return;
    this.maintenance = null;
    this.isReady = true;
    // A new session begins with its first event; one that is continued for the first time with its history.
    if (before.sessionId !== this.state.sessionId) this.#isFresh = false;
    this.#sendAgain();
  }

  #sendAgain() {
    for (const { id, text, refusal } of this.outbox) {
      if (refusal === null) this.#send("message", { text, id });
    }
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
    this.outbox = this.outbox.map((each) =>
      each === refused ? { ...each, refusal: message ?? code } : each,
    );
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
