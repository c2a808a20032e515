/** What stands where there is nothing yet. */

import { el, icon } from "/shared/dom.js";

/** Make the node: a picture, a sentence, and what one can do about it. */
export function placeholder(picture, text, advice) {
  return el(
    "div",
    { class: "placeholder muted" },
    icon(picture),
    el("p", {}, text),
    advice ? el("p", { class: "small" }, advice) : null,
  );
}
