/** Light, dark, or as the system says. */

import { el, icon } from "./dom.js";

const KEY = "foundation-rt.theme";
const THEMES = ["system", "light", "dark"];
const THEME_ICONS = { system: "system", light: "sun", dark: "moon" };

/** Return the theme that was chosen. */
export function theme() {
  try {
    const chosen = localStorage.getItem(KEY);
    return THEMES.includes(chosen) ? chosen : "system";
  } catch {
    return "system";
  }
}

/** Choose a theme and show it. */
export function setTheme(chosen) {
  document.documentElement.dataset.theme = chosen;
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // It holds for this visit.
  }
}

/** Make the choice of a theme. */
export function themeSwitch() {
  return el(
    "div",
    { class: "themes", role: "radiogroup", "aria-label": "Colours" },
    ...THEMES.map(themeChoice),
  );
}

function themeChoice(name) {
  const input = el("input", {
    type: "radio",
    name: "theme",
    value: name,
    checked: theme() === name,
    on: { change: () => setTheme(name) },
  });
  const label = { system: "As the system", light: "Light", dark: "Dark" }[name];
  return el(
    "label",
    { title: label },
    input,
    icon(THEME_ICONS[name]),
    el("span", { class: "hidden" }, label),
  );
}
