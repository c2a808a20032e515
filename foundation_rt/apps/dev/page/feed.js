/**
 * What the front says of all its clients and programs: state, calls, log records, the wire (DEV-62). Bounded.
 *
 * `onChange(kinds)` is called once a frame at most, with the kinds of events that have come.
 */

import { parseJson, withNumbers } from "/shared/exact_numbers.js";
import { request } from "/shared/page_token.js";
import { EventParser } from "./event_stream.js";

const MOST = { wire: 2000, logs: 2000, calls: 1000, restarts: 100 };
const MOST_WIRE_BYTES = 16 * 1024 * 1024;
const AGAIN_MS = 1500;

export class Feed {
  #stop = new AbortController();
  #seen = null;
  #open = new Map();
  #changed = new Set();
  #isScheduled = false;
  #wireBytes = 0;
  #retry = 0;
  #take = {
    state: (state) => (this.state = state),
    wire: (entry) => this.#addWire(entry),
    call: (event) => this.#addCall(event),
    log: (record) => this.addLog(record),
    restart: (event) => this.#addRestart(event),
  };

  constructor({ onChange, onStatus }) {
    Object.assign(this, { onChange, onStatus });
    this.state = null;
    this.#clear();
  }

  /** Read the events, those that were missed first; goes on trying. */
  async open() {
    clearTimeout(this.#retry);
    this.#stop.abort();
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    const seen = this.#seen === null ? {} : { "Last-Event-ID": this.#seen };
    const response = await request("/dev/events", { headers: seen, signal, cache: "no-store" });
    if (response?.ok) await this.#read(response);
    if (signal.aborted) return;
    const isRefused = response?.status === 401;
    this.onStatus(isRefused ? "refused" : "lost");
    if (!isRefused) this.#retry = setTimeout(() => this.open(), AGAIN_MS);
  }

  /** Forget messages of the wire; the front keeps them. */
  clearWire() {
    this.wire = [];
    this.#open.clear();
    this.#wireBytes = 0;
    this.#note("wire");
  }

  /** Return the call of the page's own request. */
  callOf(requestId) {
    return requestId === undefined ? null : (this.calls.findLast(({ id }) => id === requestId) ?? null);
  }

  #clear() {
    this.wire = [];
    this.logs = [];
    this.calls = [];
    this.restarts = [];
    this.#wireBytes = 0;
    this.byCall = new Map();
    this.#open.clear();
  }

  async #read(response) {
    this.onStatus("open");
    const parser = new EventParser();
    try {
      for await (const text of response.body.pipeThrough(new TextDecoderStream()))
        for (const event of parser.push(text)) this.#received(event);
    } catch {
      // The connection is lost.
    }
  }

  #received({ type, data, id }) {
    this.#seen = id ?? this.#seen;
    if (type === "reset") {
      this.#clear();
      for (const kind of ["wire", "call", "log", "restart"]) this.#note(kind);
    }
    const value = Object.hasOwn(this.#take, type) ? parsed(data, type) : null;
    if (value === null) return;
    this.#take[type](value);
    this.#note(type);
  }

  #addWire(entry) {
    this.#pair(entry);
    this.wire.push(entry);
    this.#wireBytes += Math.min(entry.bytes, 16_384);
    while (this.wire.length > MOST.wire || this.#wireBytes > MOST_WIRE_BYTES)
      this.#wireBytes -= Math.min(this.#shiftWire().bytes, 16_384);
  }

  /** A response belongs to the request that went the other way: `request` and `response` lead from one to the other. */
  #pair(entry) {
    const { kind, leg, session, client, server, direction, id } = entry;
    if (id === null || id === undefined || (kind !== "request" && kind !== "response")) return;
    const asked = kind === "request" ? direction : direction === "in" ? "out" : "in";
    const key = JSON.stringify([leg, session, session ? null : client, server, asked, id]);
    if (kind === "request") {
      this.#open.set(key, entry);
      if (this.#open.size > MOST.wire) this.#open.delete(this.#open.keys().next().value);
      return;
    }
    const request = this.#open.get(key);
    if (request === undefined) return;
    this.#open.delete(key);
    request.response = entry;
    entry.request = request;
  }

  #shiftWire() {
    const gone = this.wire.shift();
    if (gone.response) gone.response.request = undefined;
    return gone;
  }

  #addCall(event) {
    const known = this.byCall.get(event.call);
    if (known) {
      Object.assign(known, event, { at: known.at });
      return;
    }
    this.byCall.set(event.call, event);
    this.calls.push(event);
    if (this.calls.length > MOST.calls) this.byCall.delete(this.calls.shift().call);
  }

  /** Keep a record, which may be a log message of the protocol that belongs to no call. */
  addLog(record) {
    this.logs.push(record);
    if (this.logs.length > MOST.logs) this.logs.shift();
  }

  #addRestart(event) {
    this.restarts.push(event);
    if (this.restarts.length > MOST.restarts) this.restarts.shift();
  }

  #note(kind) {
    this.#changed.add(kind);
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const tell = () => {
      this.#isScheduled = false;
      const kinds = this.#changed;
      this.#changed = new Set();
      this.onChange(kinds);
    };
    if (document.visibilityState === "visible") requestAnimationFrame(tell);
    else setTimeout(tell, 250);
  }
}

/** Times and sizes are reckoned with: all numbers of a state are the front's, of other events those at the top. */
function parsed(data, type) {
  try {
    return type === "state" ? JSON.parse(data) : withNumbers(parseJson(data));
  } catch {
    return null;
  }
}
