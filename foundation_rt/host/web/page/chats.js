/** The chats of this browser: their ids, titles and unsent messages, in its storage. */

import { cut } from "./format.js";

const LIST = "foundation-rt.chats";
const CURRENT = "foundation-rt.chat";
const OUTBOX = "foundation-rt.outbox.";
const MOST_CHATS = 200;

export class Chats {
  constructor(storage) {
    this.storage = storage;
  }

  /** Return the chats, the latest first: {id, title, at}. */
  list() {
    const found = this.#read(LIST, []);
    return Array.isArray(found) ? found.filter((chat) => typeof chat?.id === "string") : [];
  }

  get current() {
    return this.#read(CURRENT, null);
  }

  set current(id) {
    this.#write(CURRENT, id);
  }

  title(id) {
    return this.list().find((chat) => chat.id === id)?.title ?? null;
  }

  /** Note that something was said in a chat; its first words are its title. */
  touch(id, text) {
    const others = this.list().filter((chat) => chat.id !== id);
    const title = this.title(id) ?? cut(text.trim().split("\n")[0], 60);
    const all = [{ id, title, at: Date.now() }, ...others];
    for (const chat of all.slice(MOST_CHATS)) this.#write(OUTBOX + chat.id, null);
    this.#write(LIST, all.slice(0, MOST_CHATS));
  }

  /** A chat goes on under a new id. */
  rename(id, newId) {
    this.#write(
      LIST,
      this.list().map((chat) => (chat.id === id ? { ...chat, id: newId } : chat)),
    );
    this.#write(OUTBOX + id, null);
  }

  remove(id) {
    this.#write(
      LIST,
      this.list().filter((chat) => chat.id !== id),
    );
    this.#write(OUTBOX + id, null);
    if (this.current === id) this.current = null;
  }

  outbox(id) {
    const found = this.#read(OUTBOX + id, []);
    return Array.isArray(found) ? found : [];
  }

  keepOutbox(id, messages) {
    this.#write(OUTBOX + id, messages.length === 0 ? null : messages);
  }

  #read(key, otherwise) {
    try {
      return JSON.parse(this.storage.getItem(key)) ?? otherwise;
    } catch {
      return otherwise;
    }
  }

  #write(key, value) {
    try {
      if (value === null) this.storage.removeItem(key);
      else this.storage.setItem(key, JSON.stringify(value));
    } catch {
      // Storage is full or forbidden: the chats of this visit still work.
    }
  }
}
