/** Tabs: arrow keys move between them, the panel of the chosen one is shown. */

import { el, fill } from "/shared/dom.js";

let tabsCount = 0;

export class Tabs {
  #entries = new Map();
  #chosen = null;

  /** `entries`: {id, label, make: returns the panel's node when it is first shown}. */
  constructor(label, entries, { onChoose = () => {} } = {}) {
    tabsCount += 1;
    this.onChoose = onChoose;
    this.list = el("div", { class: "tabs", role: "tablist", "aria-label": label });
    this.panels = el("div", { class: "panels" });
    this.node = el("div", { class: "tabbed" }, this.list, this.panels);
    for (const entry of entries) this.#add(entry, `tabs-${tabsCount}-${entry.id}`);
    this.choose(entries[0].id, false);
    this.list.addEventListener("keydown", (event) => this.#pressed(event));
  }

  get chosen() {
    return this.#chosen;
  }

  /** Show a panel. */
  choose(id, hasFocus = true) {
    this.#chosen = id;
    for (const [own, { tab, panel, make }] of this.#entries) {
      const isChosen = own === id;
      tab.setAttribute("aria-selected", String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
      panel.hidden = !isChosen;
      if (isChosen && panel.childNodes.length === 0) fill(panel, make());
      if (isChosen && hasFocus) tab.focus();
    }
    this.onChoose(id);
  }

  /** Change the text of a tab. */
  label(id, text) {
    const { tab } = this.#entries.get(id);
    if (tab.textContent !== text) tab.textContent = text;
  }

  /** Make a panel anew, now or when it is shown. */
  renew(id) {
    const { panel, make } = this.#entries.get(id);
    panel.replaceChildren();
    if (id === this.#chosen) fill(panel, make());
  }

  #add({ id, label, make }, prefix) {
    const tab = el(
      "button",
      {
        type: "button",
        role: "tab",
        id: prefix,
        class: "tab",
        "aria-controls": `${prefix}-panel`,
        on: { click: () => this.choose(id) },
      },
      label,
    );
    const panel = el("div", { role: "tabpanel", id: `${prefix}-panel`, "aria-labelledby": prefix, class: "panel" });
    this.#entries.set(id, { tab, panel, make });
    this.list.append(tab);
    this.panels.append(panel);
  }

  #pressed(event) {
    const ids = [...this.#entries.keys()];
    const at = ids.indexOf(this.#chosen);
    const steps = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: ids.length - 1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.choose(ids[(steps[event.key] + ids.length) % ids.length]);
  }
}
