/**
 * The list of chats: the person's, as the host has it, in every browser; where the host knows nobody, this browser's
 * (HPAGE-22). What the host has is kept in the browser too, so that the list is there at the next load at once.
 */

import { request } from "./page_token.js";

const LIST = "api/sessions";
const READ_AFTER_MS = 250;

export class ChatList {
  #pages = 1;
  #next = null;
  #found = null;
  #words = "";
  #isOfHost = false;
  #reads = 0;
  #searches = 0;
  #timers = { read: 0, search: 0 };

  /** `chats`: what the browser keeps; `onChange()` is called when another list is to be shown. */
  constructor(chats, onChange) {
    Object.assign(this, { chats, onChange });
  }

  /** Return what is shown, {chats: [{id, title, at, isPinned}], hasMore, words}. */
  get shown() {
    const chats = this.#found?.chats ?? this.chats.list();
    return { chats, hasMore: (this.#found ?? { next: this.#next }).next !== null, words: this.#words };
  }

  title(id) {
    return [...this.chats.list(), ...(this.#found?.chats ?? [])].find((chat) => chat.id === id)?.title ?? null;
  }

  /** Read the list, and what a search finds, in a moment. */
  readSoon() {
    clearTimeout(this.#timers.read);
    this.#timers.read = setTimeout(() => this.read(), READ_AFTER_MS);
  }

  async read() {
    this.#reads += 1;
    const read = this.#reads;
    const chats = [];
    let next = "";
    for (let page = 0; page < this.#pages && next !== null; page += 1) {
      const answer = await listed({ after: next });
      if (answer === null || read !== this.#reads) return;
      this.#isOfHost = answer.chats !== null;
      if (!this.#isOfHost) return;
      chats.push(...answer.chats);
      next = answer.next;
    }
    this.#next = next;
    this.chats.keepList(chats);
    this.onChange();
    if (this.#words !== "") this.#find("");
  }

  /** Show what a search finds; "": the list. */
  search(words) {
    this.#words = words.trim();
    this.#searches += 1;
    clearTimeout(this.#timers.search);
    if (this.#words === "") this.#found = null;
    else if (this.#isOfHost) this.#timers.search = setTimeout(() => this.#find(""), READ_AFTER_MS);
    else this.#found = { chats: inTitles(this.chats.list(), this.#words), next: null };
    this.onChange();
  }

  /** Show further chats. */
  more() {
    if (this.#found !== null) return this.#find(this.#found.next);
    this.#pages += 1;
    return this.read();
  }

  async #find(after) {
    this.#searches += 1;
    const search = this.#searches;
    const answer = await listed({ query: this.#words, after });
    if (answer === null || answer.chats === null || search !== this.#searches) return;
    const before = after === "" ? [] : (this.#found?.chats ?? []);
    this.#found = { chats: [...before, ...answer.chats], next: answer.next };
    this.onChange();
  }

  /** Rename or pin a chat; resolves with whether that was done. `change`: {title, isPinned}. */
  async change(id, change) {
    if (this.#isOfHost) {
      const headers = { "Content-Type": "application/json" };
      const options = { method: "PATCH", headers, body: JSON.stringify(change) };
      const response = await request(`${LIST}/${encodeURIComponent(id)}`, options);
      if (!response?.ok) return false;
    }
    this.chats.change(id, change);
    this.search(this.#words);
    this.readSoon();
    return true;
  }
}

async function listed(query) {
  const response = await request(`${LIST}?${new URLSearchParams(query)}`);
  try {
    return response?.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

function inTitles(chats, words) {
  const terms = folded(words).split(/\s+/);
  return chats.filter(({ title }) => terms.every((term) => folded(title).includes(term)));
}

function folded(text) {
  return text.normalize("NFC").toLowerCase();
}
