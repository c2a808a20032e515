/**
 * Remembers in the browser's storage what is being shown, until it has been: what did not finish, since it held or ended
 * the page, is then not shown by itself at the next load (HPAGE-37, DEV-83).
 */

// Another page that shows the same takes less, as a rule.
const LONG_MS = 1000;

export class Rendering {
  constructor(storage, key) {
    Object.assign(this, { storage, key });
  }

  /** What a page has begun to show and not finished; null if there is none. */
  get unfinished() {
    try {
      const { what, at } = JSON.parse(this.storage.getItem(this.key));
      return Date.now() - at > LONG_MS ? what : null;
    } catch {
      return null;
    }
  }

  /** Show something at a node, with its layout; if `show` throws or never returns, it stays unfinished. */
  show(what, node, show) {
    this.#write(JSON.stringify({ what, at: Date.now() }));
    show();
    node.getBoundingClientRect();
    this.#write(null);
  }

  #write(text) {
    try {
      if (text === null) this.storage.removeItem(this.key);
      else this.storage.setItem(this.key, text);
    } catch {
      // Storage is full or forbidden: nothing is remembered.
    }
  }
}
