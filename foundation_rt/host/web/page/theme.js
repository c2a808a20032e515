/** Light, dark, or as the system says. */

const KEY = "foundation-rt.theme";
export const THEMES = ["system", "light", "dark"];

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
