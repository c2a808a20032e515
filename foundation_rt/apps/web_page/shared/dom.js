/** Makes DOM nodes. Text is always a text node: nothing here or elsewhere reads HTML. */

import { isExact, textOf } from "./exact_numbers.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element.
 *
 * `attributes`: `on` maps events to listeners, `data` names to data attributes; true sets an
 * attribute without a value, false, null and undefined leave it out. Children are nodes, strings or lists of
 * them, which may be of any length; null and false are left out.
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (name === "data") {
      for (const [key, each] of Object.entries(value)) node.dataset[key] = each;
    } else if (value === true) {
      node.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value);
    }
  }
  return append(node, children);
}

/** Return the nodes of a text of ours, in which what stands between backticks is code. */
export function withCode(text) {
  return text.split("`").map((part, at) => (at % 2 === 1 ? el("code", {}, part) : part));
}

/** Replace the children of a node. */
export function fill(node, ...children) {
  node.replaceChildren();
  return append(node, children);
}

/** Append children, and those of lists among them, one by one: a call takes some 60,000 arguments. */
export function append(node, children) {
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) node.append(isExact(child) ? textOf(child) : child);
  }
  return node;
}

const ICONS = {
  activity: "M1.5 8h3l2-5 3 10 2-5h3",
  add: "M8 3v10M3 8h10",
  again: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  agents: "M8 2.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5M3 13.5c.4-2.6 2.3-4 5-4s4.6 1.4 5 4",
  chart: "M2.5 2.5v11h11M5 10.5l2.5-3 2 2 3.5-4.5",
  chats: "M2.5 4h11M2.5 8h11M2.5 12h7",
  check: "M3.5 8.5l3 3 6-7",
  clip: "M12.5 7.5l-4.8 4.8a2.6 2.6 0 0 1-3.7-3.7L9.2 3.4a1.7 1.7 0 0 1 2.4 2.4L6.6 10.8",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  cross: "M4.5 4.5l7 7M11.5 4.5l-7 7",
  down: "M8 3v10M4 9l4 4 4-4",
  edit: "M10.5 3l2.5 2.5-7 7-3 .5.5-3z",
  export: "M8 2.5v7M5 7l3 3 3-3M3 13.5h10",
  file: "M4 1.5h5l3 3v10H4zM9 1.5v3h3",
  hand: "M8 2.5l5 2v3.5c0 3-2.2 5-5 6-2.8-1-5-3-5-6V4.5z",
  help: "M6 6.2a2 2 0 1 1 2.8 1.9c-.6.3-.8.6-.8 1.4M8 11.8v.2",
  left: "M10 3.5L5.5 8l4.5 4.5",
  link: "M6.5 9.5l3-3M7 4.5l1.5-1.5a2.8 2.8 0 0 1 4 4L11 8.5M9 11.5L7.5 13a2.8 2.8 0 0 1-4-4L5 7.5",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  pin: "M5.5 2.5h5M6.5 2.5v4L4.5 9h7l-2-2.5v-4M8 9v5",
  play: "M5 3l8 5-8 5z",
  question: "M2.5 3h11v8h-6l-3 2.5V11h-2z",
  right: "M6 3.5L10.5 8 6 12.5",
  send: "M8 13V3M4 7l4-4 4 4",
  servers: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.1M5 11h.1",
  skills: "M8 4.5C6.5 3.3 4.5 3 2.5 3v9.5c2 0 4 .3 5.5 1.5 1.5-1.2 3.5-1.5 5.5-1.5V3c-2 0-4 .3-5.5 1.5zM8 4.5V14",
  stop: "M4.5 4.5h7v7h-7z",
  sun: "M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6M8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M3.4 12.6l.7-.7M11.9 4.1l.7-.7",
  system: "M2.5 3h11v7.5h-11zM6 13.5h4M8 10.5v3",
  tasks: "M2.5 4l1 1 2-2M2.5 11l1 1 2-2M8 4.5h5.5M8 11.5h5.5",
  tools: "M9.5 2.7a3.5 3.5 0 0 0-3 4.8L2.5 11.5l2 2 4-4a3.5 3.5 0 0 0 4.8-3l-2 1-2-.5-.5-2z",
  trash: "M3 4.5h10M6 4.5v-2h4v2M4.5 4.5l.5 9h6l.5-9",
  unknown: "M8 4v5M8 11.5v.5",
  wire: "M2 5.5h10M9.5 3L12 5.5 9.5 8M14 10.5H4M6.5 8L4 10.5 6.5 13",
};

/** Make an icon; it says nothing to screen readers. */
export function icon(name) {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", "0 0 16 16");
  picture.setAttribute("aria-hidden", "true");
  picture.setAttribute("class", "icon");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  picture.append(path);
  return picture;
}

/** Make a button; `label` is its text, or its name if only the icon is seen. */
export function button(label, { picture, quiet = false, onlyIcon = false, ...attributes } = {}) {
  return el(
    "button",
    {
      type: "button",
      ...attributes,
      class: ["button", quiet && "quiet", onlyIcon && "only-icon", attributes.class]
        .filter(Boolean)
        .join(" "),
      "aria-label": onlyIcon ? label : attributes["aria-label"],
      title: onlyIcon ? label : attributes.title,
    },
    picture && icon(picture),
    onlyIcon ? null : el("span", {}, label),
  );
}
