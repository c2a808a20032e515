/**
 * A client of MCP over Streamable HTTP, revision 2025-11-25 (DEV-61). Knows nothing of the page.
 *
 * A request that is made while there is no session is sent when there is one.
 *
 * `onRequest(message, {origin, signal})` answers a request of the server: it returns its result or throws a `RpcError`;
 * `origin` is the id of the request whose stream it came on. `onNotification(message, origin)` gets what belongs to no
 * request. `onStatus({state, reason})` says what the connection is: connecting | ready | lost.
 */

import { jsonOf, parseJson } from "/shared/exact_numbers.js";
import { EventParser } from "./event_stream.js";
import { asError, CancelledError, checked, LostError, RpcError, SessionError } from "./rpc_errors.js";

export const REVISION = "2025-11-25";
const FIRST_DELAY_MS = 300;
const LONGEST_DELAY_MS = 5000;
const MOST_RESUMPTIONS = 20;

export class McpClient {
  #session = null;
  #next = 1;
  #open = new Map();
  #asked = new Map();
  #attempts = 0;
  #streams = new AbortController();
  #retry = 0;
  #isReady = false;

  constructor({ url, token, info, capabilities, onRequest, onNotification, onStatus, onReady }) {
    Object.assign(this, { url, token, info, capabilities, onRequest, onNotification, onStatus, onReady });
    // Ids say whose they are among all clients of the server.
    this.prefix = [...crypto.getRandomValues(new Uint8Array(4))]
      .map((byte) => byte.toString(16).padStart(2, "0"))
      .join("");
    this.server = null;
  }

  /** Shake hands; goes on trying until it has. */
  async connect() {
    clearTimeout(this.#retry);
    this.#drop(new LostError("The connection was opened again."));
    const { signal } = this.#streams;
    this.onStatus({ state: "connecting" });
    try {
      const params = { protocolVersion: REVISION, capabilities: this.capabilities, clientInfo: this.info };
      this.server = await this.request("initialize", params).promise;
      await this.#post({ method: "notifications/initialized" });
    } catch (error) {
      if (!signal.aborted) this.#lost(error);
      return;
    }
    if (signal.aborted) return; // a later connection has taken its place
    this.#attempts = 0;
    this.#isReady = true;
    for (const [id, open] of this.#open) if (!open.isSent) this.#send(id, open);
    this.#listen(signal);
    this.onStatus({ state: "ready" });
    this.onReady(this.server);
  }

  /** Make a request; returns {id, promise, cancel}. `onProgress` and `onMessage` get notifications of it. */
  request(method, params = {}, { onProgress, onMessage } = {}) {
    const id = `${this.prefix}-${this.#next++}`;
    const abort = new AbortController();
    const meta = onProgress ? { _meta: { ...params._meta, progressToken: id } } : {};
    const message = { id, method, params: { ...params, ...meta } };
    const open = { message, onProgress, onMessage, abort, isSent: false };
    const promise = new Promise((resolve, reject) => Object.assign(open, { resolve, reject }));
    this.#open.set(id, open);
    if (this.#isReady || method === "initialize") this.#send(id, open);
    const cancel = (reason = "Cancelled on the page") => {
      if (!this.#open.has(id)) return;
      if (open.isSent) this.#post({ method: "notifications/cancelled", params: { requestId: id, reason } }).catch(() => {});
      this.#settle(id, (each) => each.reject(new CancelledError("Cancelled here.")));
      abort.abort();
    };
    return { id, promise, cancel };
  }

  /** Send a notification. */
  async notify(method, params = {}) {
    await this.#post({ method, params });
  }

  /** Return the whole of a list, page by page. */
  async list(method, member) {
    const found = [];
    let cursor;
    do {
      const page = await this.request(method, cursor === undefined ? {} : { cursor }).promise;
      for (const each of page[member] ?? []) if (each !== null && typeof each === "object") found.push(each);
      cursor = page.nextCursor;
    } while (cursor !== undefined && cursor !== null && found.length < 10_000);
    return found;
  }

  async #send(id, open) {
    const { message, abort: { signal } } = open;
    open.isSent = true;
    try {
      const response = await this.#posted(open, signal);
      if (response === null) return;
      if (message.method === "initialize") this.#session = response.headers.get("mcp-session-id");
      const type = response.headers.get("content-type") ?? "";
      if (type.startsWith("text/event-stream")) await this.#readToEnd(response, id, signal);
      else this.#received(await jsonOf(response), id);
      if (this.#open.has(id)) throw new LostError("The server ended the stream without a response.");
    } catch (error) {
      if (signal.aborted) return;
      this.#settle(id, (each) => each.reject(asError(error)));
      // Nothing answers at all, or the session is gone.
      if (error instanceof SessionError || error instanceof TypeError) this.#lost(error);
    }
  }

  /** Post a request; returns null if the session is gone, with which it is sent again, once: nothing has run. */
  async #posted(open, signal) {
    try {
      return await this.#post(open.message, signal);
    } catch (error) {
      const isKept = error instanceof SessionError && open.message.method !== "initialize" && !open.wasRefused && !signal.aborted;
      if (!isKept) throw error;
      Object.assign(open, { isSent: false, wasRefused: true });
      this.#lost(error);
      return null;
    }
  }

  /** Read a stream until the response has come; one that breaks is resumed after its last event. */
  async #readToEnd(response, id, signal) {
    let place = await this.#read(response, id, signal);
    for (let attempt = 0; this.#open.has(id) && place.id && attempt < MOST_RESUMPTIONS; attempt += 1) {
      await pause(place.retryMs ?? FIRST_DELAY_MS * (attempt + 1));
      signal.throwIfAborted();
      const resumed = await this.#get(place.id, signal);
      const next = await this.#read(resumed, id, signal);
      place = { id: next.id ?? place.id, retryMs: next.retryMs ?? place.retryMs };
    }
  }

  /** Return {id, retryMs}: the last event of a stream that has ended or broken, and when to resume it. */
  async #read(response, origin, signal) {
    const parser = new EventParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let last = null;
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        for (const event of parser.push(value)) {
          last = event.id ?? last;
          if (event.data !== "") this.#received(parseJson(event.data), origin);
        }
      }
    } catch (error) {
      if (signal.aborted || last === null || error instanceof SyntaxError) throw error;
    }
    return { id: last, retryMs: parser.retryMs };
  }

  /** Keep the stream of the session open: what belongs to no request comes on it. */
  async #listen(signal) {
    let last = null;
    for (let attempt = 0; !signal.aborted; attempt += 1) {
      try {
        const response = await this.#get(last, signal);
        attempt = 0;
        const place = await this.#read(response, null, signal);
        last = place.id ?? last;
      } catch (error) {
        if (signal.aborted || error.status === 405) return;
        if (error instanceof SessionError || attempt > 2) {
          this.#lost(error);
          return;
        }
      }
      await pause(FIRST_DELAY_MS * 2 ** Math.min(attempt, 4));
    }
  }

  #received(message, origin) {
    if (Array.isArray(message)) {
      for (const each of message) this.#received(each, origin);
    } else if (typeof message?.method !== "string") {
      this.#answered(message);
    } else if (message.id !== undefined) {
      this.#ask(message, origin);
    } else if (message.method === "notifications/progress") {
      this.#open.get(message.params?.progressToken)?.onProgress?.(message.params);
    } else if (message.method === "notifications/cancelled") {
      this.#asked.get(message.params?.requestId)?.abort();
    } else if (message.method === "notifications/message" && this.#open.get(origin)?.onMessage) {
      this.#open.get(origin).onMessage(message.params);
    } else {
      this.onNotification(message, origin);
    }
  }

  #answered(message) {
    this.#settle(message?.id, (each) =>
      message.error ? each.reject(new RpcError(message.error)) : each.resolve(message.result),
    );
  }

  #settle(id, how) {
    const open = this.#open.get(id);
    this.#open.delete(id);
    if (open) how(open);
  }

  async #ask(message, origin) {
    const abort = new AbortController();
    this.#asked.set(message.id, abort);
    let answer;
    try {
      answer = { result: await this.onRequest(message, { origin, signal: abort.signal }) };
    } catch (error) {
      const code = error instanceof RpcError ? error.code : -32603;
      answer = { error: { code, message: error.message } };
    }
    this.#asked.delete(message.id);
    if (!abort.signal.aborted) this.#post({ id: message.id, ...answer }).catch(() => {});
  }

  async #post(message, signal) {
    return checked(
      await fetch(this.url, {
        method: "POST",
        headers: this.#headers({
          "Content-Type": "application/json",
          Accept: "application/json, text/event-stream",
        }),
        body: JSON.stringify({ jsonrpc: "2.0", ...message }),
        signal,
      }),
    );
  }

  async #get(after, signal) {
    const headers = this.#headers({
      Accept: "text/event-stream",
      ...(after === null ? {} : { "Last-Event-ID": after }),
    });
    return checked(await fetch(this.url, { headers, signal }));
  }

  #headers(own) {
    const isKnown = this.#session !== null;
    return {
      ...own,
      Authorization: `Bearer ${this.token}`,
      ...(isKnown ? { "Mcp-Session-Id": this.#session, "MCP-Protocol-Version": REVISION } : {}),
    };
  }

  #drop(error) {
    this.#streams.abort();
    this.#streams = new AbortController();
    this.#session = null;
    this.#isReady = false;
    for (const [id, { abort, isSent }] of [...this.#open]) {
      if (!isSent) continue;
      this.#settle(id, (each) => each.reject(error));
      abort.abort();
    }
    for (const abort of this.#asked.values()) abort.abort();
    this.#asked.clear();
  }

  #lost(error) {
    clearTimeout(this.#retry);
    this.#drop(new LostError("The connection to the server is lost."));
    this.onStatus({ state: "lost", reason: error.message, status: error.status });
    if (error.status === 401) return; // the token is wrong, and stays so
    const delay = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** this.#attempts);
    this.#attempts += 1;
    this.#retry = setTimeout(() => this.connect(), delay);
  }
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
