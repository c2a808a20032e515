/** Approvals: what is asked, with exactly what would be sent, and what can be decided (HPAGE-13, HPAGE-38, HPAGE-39). */

import { button, el } from "./dom.js";
import { count, splitName, timeOfDay, visible } from "./format.js";
import { codeBlock } from "./markdown.js";

const DECISIONS = [
  { decision: "once", label: "Allow once", key: "1" },
  { decision: "session", label: "Allow in this chat", key: "2" },
  { decision: "always", label: "Always allow", key: "3" },
  { decision: "deny", label: "Deny", key: "4" },
  { decision: "trust", key: "5" },
];

// Characters of arguments that are seen at a glance.
const SHORT = 1000;

const DECIDED = new Map([
  ["once", "Allowed once"],
  ["session", "Allowed in this chat"],
  ["always", "Always allowed"],
  ["trust", "Allowed, and its server is trusted"],
  ["deny", "Denied"],
  ["expired", "Nobody decided in time"],
  ["stopped", "Stopped before a decision"],
]);

/** Write a text of lines so that all of it is seen, with its tabs (HPAGE-38). */
export function visibleText(text) {
  return text.replaceAll("\r\n", "\n").split("\t").map(visible).join("\t");
}

/** Make the node of what is sent exactly: nothing of it is unseen, or runs off to the side (HPAGE-38, HPAGE-39). */
function argumentsBlock(values) {
  return wholeBlock(visible(JSON.stringify(values, null, 2)), "Exact arguments");
}

function skillBlock({ path, text, further = [] }, server) {
  const all = further.length > 0 ? `${text}\nFurther files:\n${further.join("\n")}` : text;
  return wholeBlock(visibleText(all), `${visible(path)}, in the words of ${server}`);
}

function wholeBlock(text, title) {
  const size = text.length > SHORT ? `, ${count(text.length, "character")}: scroll to read all` : "";
  return codeBlock(text, "", `${title}${size}`);
}

/** Make the node of an approval; `pending` is what was decided and not yet confirmed. */
export function approvalOf({ tool, approval }, pending, decide) {
  if (approval === null) return null;
  if (approval.decision !== null) {
    return el("p", { class: "decided muted small" }, DECIDED.get(approval.decision) ?? approval.decision);
  }
  const { server, skill } = approval;
  const question = questionOf(approval, tool);
  const expires = timeOfDay(approval.expiresAt);
  const offered = DECISIONS.filter(({ decision }) => approval.decisions.includes(decision));
  const buttons = offered.map(({ decision, label, key }) =>
    button(label ?? `Trust what ${server} says`, {
      class: decision === "once" ? "primary" : decision === "deny" ? "deny" : "",
      "aria-keyshortcuts": key,
      disabled: pending !== null,
      on: { click: () => decide(decision) },
    }),
  );
  const trusting = approval.decisions.includes("trust") ? buttons.pop() : null;
  const keys = (event) => {
    const chosen = offered.find(({ key }) => key === event.key);
    if (!chosen || pending !== null || event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    decide(chosen.decision);
  };
  return el(
    "div",
    { class: "approval", role: "group", tabindex: -1, "aria-label": question, on: { keydown: keys } },
    el("p", { class: "approval-question" }, question),
    approval.description ? el("p", { class: "muted" }, approval.description) : null,
    skill ? el("p", { class: "muted small address" }, visible(skill.uri)) : el("p", { class: "hints" }, ...hintsOf(approval.annotations)),
    skill ? skillBlock(skill, server) : argumentsBlock(approval.arguments),
    el("div", { class: "buttons" }, ...buttons),
    trusting && trustOf(server, trusting),
    el(
      "p",
      { class: "muted small" },
      pending !== null
        ? "Sending your decision…"
        : expires
          ? `Refused if nobody decides by ${expires}.`
          : null,
    ),
  );
}

function questionOf({ kindOfApproval, server, skill, app }, tool) {
  if (kindOfApproval === "sampling") return `${server} asks the model. Allow it?`;
  if (skill) return `Let the model read this of the skill ${skill.name}, which ${server} offers?`;
  const asker = app ? `The app of ${visible(app)} asks. ` : "";
  return `${asker}Run ${visible(splitName(tool).tool)} with exactly this?`;
}

function trustOf(server, trusting) {
  const effect = `From then on, what ${server} says only reads runs without asking.`;
  return el("div", { class: "trust" }, trusting, el("span", { class: "muted small" }, effect));
}

const CHANGES = new Map([
  [true, "says: may delete or overwrite"],
  [false, "says: only adds"],
]);

function hintsOf(annotations) {
  const { readOnlyHint, destructiveHint, idempotentHint, openWorldHint } = annotations ?? {};
  return [
    readOnlyHint ? el("span", { class: "chip" }, "says: reads only") : null,
    readOnlyHint ? null : el("span", { class: "chip warning" }, CHANGES.get(destructiveHint) ?? "does not say what it changes"),
    idempotentHint ? el("span", { class: "chip" }, "says: same effect if repeated") : null,
    openWorldHint === false ? el("span", { class: "chip" }, "says: stays inside its server") : null,
  ];
}
