/**
 * A WebSocket that is opened again when it is lost, with back-off and jitter (HPAGE-04 to HPAGE-06).
 *
 * It knows frames, not chats: `address()` returns the URL of the next attempt, `onFrame(frame)` gets each JSON frame,
 * `onStatus(status)` each change: {state: connecting | open | waiting | refused | closed, delayMs, wasOpen}.
 */

import { parseJson } from "./exact_numbers.js";
import { subprotocols } from "./page_token.js";

export const PING_EVERY_MS = 30_000;
export const SILENCE_MS = 65_000;
const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 30_000;

/** Return the delay before an attempt, in ms: from half the back-off to the whole of it. Pure. */
export function delayBefore(attempt, draw) {
  const whole = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** Math.min(attempt - 1, 10));
  return whole * (0.5 + 0.5 * draw);
}

export class Connection {
  #socket = null;
  #timers = { retry: 0, ping: 0, silence: 0 };
  #attempts = 0;
  #wasOpen = false;
  #isClosed = false;

  constructor({ address, isRefused, onFrame, onStatus }) {
    Object.assign(this, { address, isRefused, onFrame, onStatus });
    this.status = { state: "closed", delayMs: 0, wasOpen: false };
    this.wake = () => document.visibilityState === "visible" && this.#wake();
    addEventListener("online", this.wake);
    document.addEventListener("visibilitychange", this.wake);
  }

  /** Open it now. */
  open() {
    this.#drop();
    this.#isClosed = false;
    this.#report("connecting");
    const socket = new WebSocket(this.address(), subprotocols());
    this.#socket = socket;
    socket.addEventListener("open", () => socket === this.#socket && this.#opened());
    socket.addEventListener("message", (event) => socket === this.#socket && this.#received(event.data));
    socket.addEventListener("close", () => socket === this.#socket && this.#lost());
  }

  /** Send a frame; returns whether the connection is open. */
  send(type, payload = {}) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify({ type, payload }));
    return true;
  }

  /** Open it again, after a short delay: something that was sent has not come. */
  reopen() {
    this.#lost();
  }

  /** End it for good. */
  close() {
    this.#isClosed = true;
    this.#drop();
    removeEventListener("online", this.wake);
    document.removeEventListener("visibilitychange", this.wake);
    this.#report("closed");
  }

  #report(state, delayMs = 0) {
    this.status = { state, delayMs, wasOpen: this.#wasOpen };
    this.onStatus(this.status);
  }

  #drop() {
    for (const timer of Object.values(this.#timers)) clearTimeout(timer);
    const socket = this.#socket;
    this.#socket = null;
    // A browser logs an error where a socket is closed before it is open.
    if (socket?.readyState === WebSocket.CONNECTING) socket.addEventListener("open", () => socket.close());
    else socket?.close();
  }

  #opened() {
    this.#wasOpen = true;
    this.#watch();
    this.#ping();
    this.#report("open");
  }

  #received(data) {
    this.#watch();
    const frame = parse(data);
    if (frame === null) return;
    // Only a host that has taken the session shows that attempts need no longer delay.
    if (["connected", "reconnected"].includes(frame.payload?.state)) this.#attempts = 0;
    this.onFrame(frame);
  }

  #watch() {
    clearTimeout(this.#timers.silence);
    this.#timers.silence = setTimeout(() => this.#lost(), SILENCE_MS);
  }

  #ping() {
    clearTimeout(this.#timers.ping);
    this.#timers.ping = setTimeout(() => {
      this.send("ping");
      this.#ping();
    }, PING_EVERY_MS);
  }

  async #lost() {
    const wasRefused = this.#socket?.readyState !== WebSocket.OPEN && this.status.state === "connecting";
    this.#drop();
    this.#attempts += 1;
    const delayMs = delayBefore(this.#attempts, Math.random());
    this.#timers.retry = setTimeout(() => this.open(), delayMs);
    this.#report("waiting", delayMs);
    // A WebSocket does not say why it was refused; a request does.
    if (wasRefused && (await this.isRefused()) && this.status.state === "waiting") {
      this.#drop();
      this.#report("refused");
    }
  }

  #wake() {
    if (this.#isClosed) return;
    if (this.status.state === "waiting") this.open();
    else this.send("ping");
  }
}

function parse(data) {
  try {
    const frame = parseJson(data);
    return typeof frame === "object" && frame !== null && typeof frame.type === "string" ? frame : null;
  } catch {
    return null;
  }
}
