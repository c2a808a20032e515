/** Cards in a chat: a call with its approval, a question of a server (HPAGE-11 to HPAGE-17). */

import { button, el, fill, icon } from "./dom.js";
import { textOf, withNumbers } from "./exact_numbers.js";
import { subjectOf } from "./chat_state.js";
import { count, duration, jsonText, splitName, timeOfDay, visible } from "./format.js";
import { codeBlock, link, safeAddress } from "./markdown.js";
import { errorWords, jsonNode, resultNodes, textNode, valueNode } from "./results.js";
import { SchemaForm } from "./schema_form.js";

export const DECISIONS = [
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

const STATES = new Map([
  ["running", { label: "Running", picture: null }],
  ["waiting", { label: "Waits for you", picture: "hand" }],
  ["asking", { label: "Waits for your answer", picture: "question" }],
  ["done", { label: "Done", picture: "check" }],
  ["failed", { label: "Failed", picture: "cross" }],
  ["refused", { label: "Not run", picture: "hand" }],
  ["ended", { label: "Ended with its turn", picture: "stop" }],
  ["unknown", { label: "Outcome unknown", picture: "unknown" }],
]);

/** Return which of the states of a card a call is in. Pure. */
export function stateOf(call) {
  if (call.phase === "complete" && isRefusal(call)) return "refused";
  if (call.phase === "complete") return call.isError ? "failed" : "done";
  if (call.phase !== "processing") return call.phase;
  if (call.awaiting === "answer") return "asking";
  return call.awaiting ? "waiting" : "running";
}

function isRefusal({ approval }) {
  return ["deny", "expired", "stopped"].includes(approval?.decision);
}

export class CallCard {
  #call = null;
  #pending = null;

  constructor(chat, call) {
    this.chat = chat;
    this.head = el("div", { class: "card-head" });
    this.progress = el("div", { class: "card-progress" });
    this.approval = el("div", {});
    this.details = el("div", {});
    this.outcome = el("div", { class: "card-outcome" });
    const { server, tool, isSkill } = subjectOf(call);
    this.node = el(
      "article",
      { class: "card call", "aria-label": `${isSkill ? "Skill" : "Call of"} ${tool}, server ${server}` },
      this.head,
      this.progress,
      this.details,
      this.approval,
      this.outcome,
    );
    this.update(call);
  }

  update(call) {
    const before = this.#call;
    const pending = this.chat.decisionOf(call.id);
    if (call === before && pending === this.#pending) return;
    this.#call = call;
    this.node.dataset.state = stateOf(call);
    fill(this.head, ...headOf(call));
    fill(this.progress, ...progressOf(call));
    if (before === null || before.arguments !== call.arguments || before.approval !== call.approval) {
      fill(this.details, argumentsOf(call));
    }
    if (before === null || before.approval !== call.approval || pending !== this.#pending) {
      this.#showApproval(call, pending);
    }
    if (before?.result !== call.result || before?.error !== call.error || before?.phase !== call.phase) {
      fill(this.outcome, outcomeOf(call));
    }
    this.#pending = pending;
  }

  /** Give the focus to the approval. */
  focus() {
    this.approval.querySelector("[role=group]")?.focus();
  }

  #showApproval(call, pending) {
    const hadFocus = this.approval.contains(document.activeElement);
    fill(
      this.approval,
      approvalOf(call, pending, (decision) => this.chat.approve(call.id, decision)),
    );
    if (hadFocus) (this.approval.querySelector("[role=group]") ?? document.getElementById("say"))?.focus();
  }
}

function headOf(call) {
  const { server, tool, isSkill } = subjectOf(call);
  const state = STATES.get(stateOf(call));
  const isTimed = call.durationMs !== null && call.phase === "complete" && !isRefusal(call);
  const note = !isTimed ? state.label : `${state.label} in ${duration(call.durationMs)}`;
  const picture = state.picture
    ? icon(state.picture)
    : el("span", { class: "spinner", "aria-hidden": "true" });
  return [
    el("span", { class: "card-state" }, picture),
    el(
      "span",
      { class: "card-name" },
      el("strong", {}, tool),
      server ? el("span", { class: "muted" }, isSkill ? `skill of ${server}` : server) : null,
    ),
    el("span", { class: "card-note muted" }, note),
  ];
}

function progressOf({ phase, progress, message, tool }) {
  if (phase !== "processing" || !progress) return [];
  const { progress: done, total, message: own } = withNumbers({ ...progress });
  const bar = el("progress", {
    "aria-label": `Progress of ${tool}`,
    max: total || null,
    value: total ? done : null,
  });
  const figure = total ? `${Math.round((100 * done) / total)} %` : String(done);
  return [bar, el("span", { class: "muted small" }, [own ?? message, figure].filter(Boolean).join(" · "))];
}

function argumentsOf({ arguments: values, approval }) {
  const isShownBelow = approval !== null && approval.decision === null;
  if (values === null || isShownBelow) return null;
  const names = Object.keys(values);
  if (names.length === 0) return null;
  return el(
    "details",
    { class: "arguments" },
    el("summary", {}, "Arguments ", el("span", { class: "muted preview" }, preview(values))),
    jsonNode(values),
  );
}

function preview(values) {
  const text = Object.entries(values)
    .map(([name, value]) => `${name}: ${jsonText(value, { most: 200, indent: 0 })}`)
    .join(", ");
  return text.length > 200 ? `${text.slice(0, 199)}…` : text;
}

function outcomeOf(call) {
  if (call.phase === "unknown") {
    const text =
      call.error?.message ?? "The host ended before this call did. It may have run; it is not run again.";
    return [el("p", { class: "muted" }, text)];
  }
  if (call.phase === "ended") return [];
  if (call.error !== null) {
    return errorNodes(call.error);
  }
  if (call.result === null) return [];
  if (subjectOf(call).isSkill) return skillNodes(call);
  if (!call.isError) return resultNodes(call.result);
  const words = errorWords(call.result);
  if (words === null) return [el("div", { class: "error-text" }, resultNodes(call.result))];
  return errorNodes(words);
}

/** Make the nodes of what the model has read of a skill, which nobody may take for words of the host. */
function skillNodes({ arguments: values, result }) {
  const text = String(result.content?.[0]?.text ?? "");
  const title = `The model has read ${visible(String(values?.path ?? "SKILL.md"))}, ${count(text.length, "character")}`;
  return [el("details", { class: "arguments" }, el("summary", {}, title), codeBlock(visibleText(text)))];
}

/** Write a text of lines so that all of it is seen, with its tabs (HPAGE-38). */
function visibleText(text) {
  return text.replaceAll("\r\n", "\n").split("\t").map(visible).join("\t");
}

function errorNodes({ message = "The call failed.", code, details }) {
  const noted = code === undefined ? null : el("span", { class: "muted small" }, textOf(code));
  const more = details === undefined ? null : valueNode(details);
  return [el("div", { class: "error-text" }, textNode(message), noted), more];
}

/** Make the node of what is sent exactly: nothing of it is unseen, or runs off to the side (HPAGE-38, HPAGE-39). */
function argumentsBlock(values) {
  return wholeBlock(visible(JSON.stringify(values, null, 2)), "Exact arguments");
}

function skillBlock({ path, text }, server) {
  return wholeBlock(visibleText(text), `${visible(path)}, in the words of ${server}`);
}

function wholeBlock(text, title) {
  const size = text.length > SHORT ? `, ${count(text.length, "character")}: scroll to read all` : "";
  return codeBlock(text, "", `${title}${size}`);
}

function approvalOf({ tool, approval }, pending, decide) {
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
    if (!chosen || pending !== null || event.ctrlKey || event.altKey || event.metaKey) return;
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
          ? `Refused if nobody decides until ${expires}.`
          : null,
    ),
  );
}

function questionOf({ kindOfApproval, server, skill }, tool) {
  if (kindOfApproval === "sampling") return `${server} asks the model. Allow it?`;
  if (skill) return `Let the model read this of the skill ${skill.name}, which ${server} offers?`;
  return `Run ${visible(splitName(tool).tool)} with exactly this?`;
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

const ANSWERED = new Map([
  ["accept", "You answered."],
  ["decline", "You declined."],
  ["cancel", "You cancelled."],
  ["expired", "It ended without an answer."],
]);

export class QuestionCard {
  #question = null;
  #pending = null;

  constructor(chat, question) {
    this.chat = chat;
    this.body = el("div", {});
    this.form = null;
    const heading = el(
      "div",
      { class: "card-head" },
      el("span", { class: "card-state" }, icon("question")),
      el("span", { class: "card-name" }, el("strong", {}, `${question.server} asks`)),
    );
    const label = `Question of ${question.server}`;
    this.node = el("article", { class: "card question", "aria-label": label }, heading, this.body);
    this.update(question);
  }

  update(question) {
    const pending = this.chat.answerOf(question.id);
    if (question === this.#question && pending === this.#pending) return;
    const hadFocus = this.node.contains(document.activeElement);
    // The form stays while its answer is on its way: it may be refused.
    if (this.#question === null || question.action !== this.#question.action) this.#show(question);
    this.#question = question;
    this.#pending = pending;
    const isAnswered = question.action === "accept";
    this.node.dataset.state = question.action === null ? "waiting" : isAnswered ? "done" : "ended";
    for (const each of this.body.querySelectorAll(".buttons button")) each.disabled = pending !== null;
    if (hadFocus && !this.node.contains(document.activeElement)) document.getElementById("say")?.focus();
  }

  focus() {
    if (!this.form?.focus()) this.body.querySelector("button, a")?.focus();
  }

  #show(question) {
    const message = el("p", { class: "question-message" }, question.message);
    this.form = null;
    if (question.action !== null) {
      fill(
        this.body,
        message,
        el("p", { class: "muted small" }, ANSWERED.get(question.action) ?? question.action),
      );
    } else {
      fill(
        this.body,
        message,
        question.kindOfQuestion === "url" ? this.#page(question) : this.#form(question),
      );
    }
  }

  #form(question) {
    this.form = new SchemaForm(question.schema);
    const submit = (event) => {
      event.preventDefault();
      const { value, problems } = this.form.read();
      status.textContent = problems.length === 0 ? "" : `${count(problems.length, "field")} to mend.`;
      if (problems.length === 0) this.chat.answer(question.id, "accept", value);
    };
    const status = el("p", { class: "problem", role: "status" });
    const send = el("button", { type: "submit", class: "button primary" }, "Send");
    const buttons = el("div", { class: "buttons" }, send, ...this.#refusals(question));
    return el("form", { novalidate: true, on: { submit } }, this.form.node, status, buttons);
  }

  #page(question) {
    const address = safeAddress(question.url);
    const isWeb = address !== null && !address.startsWith("mailto:");
    if (!isWeb)
      return el(
        "div",
        { class: "buttons" },
        el("p", {}, "Its address cannot be opened."),
        ...this.#refusals(question),
      );
    const open = link(address, `Open ${new URL(address).host}`);
    open.className = "button primary";
    // To accept is to open it: what happens there is between the person and that page.
    open.addEventListener("click", () => this.chat.answer(question.id, "accept"));
    return el(
      "div",
      {},
      el(
        "p",
        { class: "address" },
        el("strong", {}, new URL(address).host),
        el("span", { class: "muted small" }, address),
      ),
      el(
        "p",
        { class: "muted small" },
        "It opens in a new tab. Give it nothing that you would not give this server.",
      ),
      el("div", { class: "buttons" }, open, ...this.#refusals(question)),
    );
  }

  #refusals(question) {
    return [
      button("Decline", { on: { click: () => this.chat.answer(question.id, "decline") } }),
      button("Cancel", { quiet: true, on: { click: () => this.chat.answer(question.id, "cancel") } }),
    ];
  }
}
