/**
 * What the front says of all its clients and programs: state, calls, log records, the wire (DEV-62). Bounded.
 *
 * `onChange(kinds)` is called once a frame at most, with the kinds of events that have come.
 */

const MOST = { wire: 2000, logs: 2000, calls: 1000, restarts: 100 };
const MOST_WIRE_BYTES = 16 * 1024 * 1024;
const AGAIN_MS = 1500;

export class Feed {
  #source = null;
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

  open() {
    clearTimeout(this.#retry);
    this.#source?.close();
    // A new stream begins with the whole history.
    this.#clear();
    const source = new EventSource("/dev/events");
    this.#source = source;
    source.addEventListener("open", () => this.onStatus("open"));
    source.addEventListener("error", () => this.#failed(source));
    source.addEventListener("reset", () => {
      this.#clear();
      for (const kind of ["wire", "call", "log", "restart"]) this.#note(kind);
    });
    for (const kind of Object.keys(this.#take)) {
      source.addEventListener(kind, ({ data }) => {
        const value = parsed(data);
        if (value === null) return;
        this.#take[kind](value);
        this.#note(kind);
      });
    }
  }

  /** Forget messages of the wire; the front keeps them. */
  clearWire() {
    this.wire = [];
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
  }

  #failed(source) {
    this.onStatus("lost");
    // The browser opens the stream again by itself, unless the front has refused it.
    if (source.readyState !== EventSource.CLOSED || source !== this.#source) return;
    this.#retry = setTimeout(() => this.open(), AGAIN_MS);
  }

  #addWire(entry) {
    this.wire.push(entry);
    this.#wireBytes += Math.min(entry.bytes, 16_384);
    while (this.wire.length > MOST.wire || this.#wireBytes > MOST_WIRE_BYTES)
      this.#wireBytes -= Math.min(this.wire.shift().bytes, 16_384);
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

function parsed(data) {
  try {
    return JSON.parse(data);
  } catch {
    return null;
  }
}
