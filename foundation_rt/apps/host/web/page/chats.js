/** What this browser keeps of chats: their list, and messages that are not sent, in its storage. */

import { cut } from "./format.js";

const LIST = "foundation-rt.chats";
const CURRENT = "foundation-rt.chat";
const OUTBOX = "foundation-rt.outbox.";
const DRAFTS = "foundation-rt.drafts";
const MODEL = "foundation-rt.model";
const MOST_CHATS = 200;
const MOST_DRAFTS = 20;

export class Chats {
  constructor(storage) {
    this.storage = storage;
  }

  /** Return the chats, those that are pinned first, then the latest first: {id, title, at, isPinned}. */
  list() {
    const found = this.#read(LIST, []);
    const chats = Array.isArray(found) ? found.filter((chat) => typeof chat?.id === "string") : [];
    return chats.sort((one, other) => Boolean(other.isPinned) - Boolean(one.isPinned));
  }

  /** Keep the list as the host has it. */
  keepList(chats) {
    this.#write(LIST, chats);
  }

  /** Change a chat: {title, isPinned}. */
  change(id, change) {
    this.#write(
      LIST,
      this.list().map((chat) => (chat.id === id ? { ...chat, ...change } : chat)),
    );
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
    const before = this.list();
    const known = before.find((chat) => chat.id === id) ?? { id, title: cut(text.trim().split("\n")[0], 60) };
    const all = [{ ...known, at: Date.now() }, ...before.filter((chat) => chat.id !== id)];
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

  /** Return what was written in a chat and not sent; null: in a chat that has no id yet. */
  draft(id) {
    return this.#drafts().find((draft) => draft.id === id)?.text ?? "";
  }

  keepDraft(id, text) {
    const others = this.#drafts().filter((draft) => draft.id !== id);
    const all = text === "" ? others : [{ id, text }, ...others];
    this.#write(DRAFTS, all.length === 0 ? null : all.slice(0, MOST_DRAFTS));
  }

  /** Return the model that was chosen; null: that of the host. */
  get model() {
    return this.#read(MODEL, null);
  }

  keepModel(name) {
    this.#write(MODEL, name || null);
  }

  #drafts() {
    const found = this.#read(DRAFTS, []);
    return Array.isArray(found) ? found.filter((draft) => typeof draft?.text === "string") : [];
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
