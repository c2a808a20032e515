/**
 * The messages between a page and an app in a frame: JSON-RPC of the extension `io.modelcontextprotocol/ui`, revision
 * 2026-01-26 (HAPP-30 to HAPP-35). Knows no DOM.
 *
 * `send(message)` posts to the frame. `requests` maps methods to functions of the params, which return a result or throw
 * `Refusal`; `notifications` maps methods to functions of the params. `context()` returns the host's context, and
 * `onEnd(reason)` is called when the app breaks the rules: nothing of it is read any more.
 */

export const REVISION = "2026-01-26";

const MOST_DEEP = 64;
// Characters and values of one message: what no app needs is not looked at.
const MOST_WEIGHT = 2_000_000;
// Messages at once, and each second: an animation that tells its size has 60.
const MOST_AT_ONCE = 400;
const MOST_EACH_SECOND = 100;
// And what they weigh together: time goes with values more than with messages.
const WEIGHT_AT_ONCE = 4_000_000;
const WEIGHT_EACH_SECOND = 200_000;
const MOST_OPEN = 8;
const LONGEST_METHOD = 128;

const METHOD_NOT_FOUND = -32601;
const FAILED = -32000;

/** A request of an app that has no result; the message says why. */
export class Refusal extends Error {}

/** Return the weight of a JSON value, in characters and values; Infinity if it is none, or beyond the bounds. */
export function weightOf(value, depth = 0, room = MOST_WEIGHT) {
  if (value === null || value === undefined || typeof value === "boolean" || typeof value === "number") return 1;
  if (typeof value === "string") return value.length + 1 > room ? Infinity : value.length + 1;
  const isList = Array.isArray(value);
  if (typeof value !== "object" || depth >= MOST_DEEP || (!isList && !isPlain(value))) return Infinity;
  let weight = 1;
  for (const name in value) {
    weight += (isList ? 0 : name.length) + weightOf(value[name], depth + 1, room - weight);
    if (weight > room) return Infinity;
  }
  return weight;
}

function isPlain(value) {
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

export class AppBridge {
  #isOver = false;
  #isReady = false;
  #isLeaving = false;
  #open = 0;
  #room = MOST_AT_ONCE;
  #weight = WEIGHT_AT_ONCE;
  #at = 0;
  #waiting = [];
  #asked = new Map();
  #next = 1;

  constructor({ send, info, capabilities, context, requests, notifications = new Map(), onEnd, now = () => performance.now() }) {
    Object.assign(this, { send, info, capabilities, context, requests, notifications, onEnd, now });
    this.#at = now();
  }

  /** Notify the app; what comes before it is ready waits. */
  notify(method, params) {
    if (this.#isOver) return;
    if (this.#isReady) this.#post({ method, params });
    else this.#waiting.push({ method, params });
  }

  /** Ask the app for something; resolves when it has answered, or with what `timeout` resolves. */
  ask(method, params, timeout) {
    if (!this.#isReady || this.#isOver) return Promise.resolve();
    const id = `page-${this.#next++}`;
    const answer = new Promise((resolve) => this.#asked.set(id, resolve));
    this.#post({ id, method, params });
    return Promise.race([answer, timeout]);
  }

  /** Say that the app is put away, and read nothing after its answer; what it asks for until then is refused. */
  async leave(timeout) {
    this.#isLeaving = true;
    await this.ask("ui/resource-teardown", {}, timeout);
    this.#isOver = true;
  }

  /** Take what `read()` returns, a message of the frame; after the end it is not read, which takes time too. */
  receive(read) {
    if (this.#isOver) return;
    this.#refill();
    const message = (this.#room -= 1) < 0 ? null : read();
    const weight = weightOf(message);
    if (this.#room < 0) this.#end("It sent too many messages.");
    else if (weight === Infinity) this.#end("It sent a message that is too large, or no JSON.");
    else if ((this.#weight -= weight) < 0) this.#end("It sent too much at once.");
    else if (message?.jsonrpc === "2.0") this.#take(message);
  }

  #refill() {
    const now = this.now();
    const seconds = (now - this.#at) / 1000;
    this.#room = Math.min(MOST_AT_ONCE, this.#room + seconds * MOST_EACH_SECOND);
    this.#weight = Math.min(WEIGHT_AT_ONCE, this.#weight + seconds * WEIGHT_EACH_SECOND);
    this.#at = now;
  }

  #end(reason) {
    this.#isOver = true;
    this.onEnd(reason);
  }

  #take({ id, method, params }) {
    const hasId = typeof id === "string" || typeof id === "number";
    if (typeof method === "string" && method.length <= LONGEST_METHOD) {
      const given = typeof params === "object" && params !== null && isPlain(params) ? params : {};
      if (hasId) this.#answer(id, method, given);
      else this.#notified(method, given);
    } else if (hasId) {
      this.#asked.get(id)?.();
      this.#asked.delete(id);
    }
  }

  #notified(method, params) {
    if (this.#isLeaving) return;
    if (method !== "ui/notifications/initialized") this.notifications.get(method)?.(params);
    else if (!this.#isReady) {
      this.#isReady = true;
      for (const each of this.#waiting.splice(0)) this.#post(each);
    }
  }

  async #answer(id, method, params) {
    if (this.#open >= MOST_OPEN) {
      this.#post({ id, error: { code: FAILED, message: `At most ${MOST_OPEN} requests at once.` } });
      return;
    }
    this.#open += 1;
    try {
      const result = await this.#resultOf(method, params);
      this.#post({ id, result });
    } catch (error) {
      const isKnown = error instanceof Refusal;
      this.#post({ id, error: { code: error.code ?? FAILED, message: isKnown ? error.message : "The page failed." } });
      if (!isKnown) throw error;
    } finally {
      this.#open -= 1;
    }
  }

  #resultOf(method, params) {
    if (this.#isLeaving) throw new Refusal("The app was closed.");
    if (method === "ui/initialize")
      return { protocolVersion: REVISION, hostInfo: this.info, hostCapabilities: this.capabilities, hostContext: this.context() };
    if (method === "ping") return {};
    const own = this.requests.get(method);
    if (own === undefined) throw Object.assign(new Refusal("There is no such method."), { code: METHOD_NOT_FOUND });
    return own(params);
  }

  #post(message) {
    if (!this.#isOver) this.send({ jsonrpc: "2.0", ...message });
  }
}
