/** Cards in a chat: a call with its approval, a question of a server (HPAGE-11 to HPAGE-17). */

import { AppView } from "./app_view.js";
import { approvalOf, visibleText } from "./approval.js";
import { chatApp } from "./chat_app.js";
import { button, el, fill, icon } from "./dom.js";
import { withNumbers } from "./exact_numbers.js";
import { subjectOf } from "./chat_state.js";
import { count, duration, jsonText, visible } from "./format.js";
import { codeBlock, link, safeAddress } from "./markdown.js";
import { errorNodes, errorWords, jsonNode, resultNodes } from "./results.js";
import { SchemaForm } from "./schema_form.js";

const STATES = new Map([
  ["running", { label: "Running", picture: null }],
  ["waiting", { label: "Waits for you", picture: "hand" }],
  ["asking", { label: "Waits for your answer", picture: "question" }],
  ["done", { label: "Done", picture: "check" }],
  ["failed", { label: "Failed", picture: "cross" }],
  ["refused", { label: "Not run", picture: "hand" }],
  ["stopped", { label: "Stopped", picture: "stop" }],
  ["ended", { label: "Ended with its turn", picture: "stop" }],
  ["unknown", { label: "Outcome unknown", picture: "unknown" }],
]);

/** Return which of the states of a card a call is in. Pure. */
export function stateOf(call) {
  if (call.phase === "complete" && isRefusal(call)) return "refused";
  if (call.phase === "complete" && call.error?.code === "STOPPED") return "stopped";
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

  /** `composer` takes what an app says. */
  constructor(chat, call, composer) {
    this.chat = chat;
    this.composer = composer;
    this.app = null;
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
    if (call.app !== null) this.#showApp(call, before);
  }

  /** Give the focus to the approval. */
  focus() {
    this.approval.querySelector("[role=group]")?.focus();
  }

  close() {
    this.app?.hide();
  }

  /** Show the app of a call that runs, or has a result: not before people have allowed it. */
  #showApp(call, before) {
    const isRunning = call.phase === "processing" && !call.awaiting && call.message !== null && !isRefusal(call);
    if (this.app === null && (isRunning || call.result !== null)) {
      this.app = new AppView(chatApp(this.chat, call, this.composer));
      this.outcome.before(this.app.node);
    }
    const result = call.result !== null && !call.isCut ? call.result : null;
    const isLost = call.phase !== "processing" && call.result === null;
    const cancelled = isLost ? (call.error?.message ?? "The call has ended.") : null;
    this.app?.update({ arguments: call.arguments, result, cancelled });
    if (call.isCut && !before?.isCut) this.app?.readOutcome();
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
  const note = !isTimed ? state.label : `${state.label} ${state.picture === "stop" ? "after" : "in"} ${duration(call.durationMs)}`;
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
  if (["ended", "stopped", "refused"].includes(stateOf(call))) return []; // its head and its decision say it
  if (call.error !== null) {
    return errorNodes(call.error);
  }
  if (call.result === null) return [];
  if (subjectOf(call).isSkill) return skillNodes(call);
  if (!call.isError && call.app !== null)
    return [el("details", {}, el("summary", { class: "muted small" }, "Result"), resultNodes(call.result))];
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
      el("span", { class: "card-name" }, el("strong", {}, `Question of ${question.server}`)),
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
