/** Reads server-sent events from pieces of text. Pure. */

export class EventParser {
  #pieces = [];
  #data = [];
  #type = "";
  #id = null;

  /** The delay before a stream is opened again, in ms, if the server has said one. */
  retryMs = null;

  /** Take a piece of the stream; returns the events that it completes, as {type, data, id}. */
  push(text) {
    const events = [];
    let from = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", from)) {
      this.#pieces.push(text.slice(from, end));
      const line = this.#pieces.join("").replace(/\r$/, "");
      this.#pieces = [];
      from = end + 1;
      const event = this.#line(line);
      if (event !== null) events.push(event);
    }
    if (from < text.length) this.#pieces.push(text.slice(from));
    return events;
  }

  #line(line) {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#type = value;
    else if (name === "id" && !value.includes("\0")) this.#id = value;
    else if (name === "retry" && /^\d+$/.test(value)) this.retryMs = Number(value);
    return null;
  }

  #dispatch() {
    const event = { type: this.#type || "message", data: this.#data.join("\n"), id: this.#id };
    const isEmpty = this.#data.length === 0;
    this.#data = [];
    this.#type = "";
    // An event without data still names a place in the stream.
    return isEmpty && event.id === null ? null : event;
  }
}
