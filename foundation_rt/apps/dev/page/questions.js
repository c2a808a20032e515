/** Requests of the server that a person answers: elicitation by a form or an address, sampling by hand (DEV-67). */

import { button, el, icon } from "/shared/dom.js";
import { markdown, safeAddress } from "/shared/markdown.js";
import { contentNodes, jsonNode } from "/shared/results.js";
import { SchemaForm } from "/shared/schema_form.js";
import { RpcError } from "./rpc_errors.js";
import { visibleLines } from "./shown_text.js";

const REFUSED = { code: -1, message: "The user rejected the request." };

const MAKERS = new Map([
  [
    "elicitation/create",
    (params, answer) => (params.mode === "url" ? addressBody(params, answer) : formBody(params, answer)),
  ],
  ["sampling/createMessage", samplingBody],
]);
const TITLES = new Map([
  ["elicitation/create", "The server asks"],
  ["sampling/createMessage", "The server asks a model"],
]);

/** Return whether a person answers requests of this method. */
export function isQuestion(method) {
  return MAKERS.has(method);
}

/** Return {node, answered, focus}: the card of a request, and the promise of its result. */
export function questionCard({ method, params = {} }, { signal }) {
  let settle;
  const answered = new Promise((resolve, reject) => (settle = { resolve, reject }));
  const node = el("section", { class: "card question", data: { state: "waiting" }, "aria-label": TITLES.get(method) });
  const finish = (words, how) => {
    if (node.dataset.state === "done") return;
    node.dataset.state = "done";
    node.replaceChildren(
      el("p", { class: "decided muted small" }, icon("check"), ` ${TITLES.get(method)}: ${words}`),
    );
    how();
  };
  const answer = {
    give: (result, words) => finish(words, () => settle.resolve(result)),
    refuse: (words) => finish(words, () => settle.reject(new RpcError(REFUSED))),
  };
  const { body, focus } = MAKERS.get(method)(params, answer);
  const head = el(
    "div",
    { class: "card-head" },
    el("span", { class: "card-state" }, icon("question")),
    el("span", { class: "card-name" }, el("strong", {}, TITLES.get(method))),
  );
  node.append(head, body);
  signal.addEventListener("abort", () =>
    finish("no longer needed", () => settle.reject(new RpcError({ code: -32800, message: "Cancelled." }))),
  );
  return { node, answered, focus };
}

function messageNode(text) {
  return el("p", { class: "question-message" }, visibleLines(text));
}

function formBody({ message, requestedSchema }, answer) {
  const form = new SchemaForm(requestedSchema ?? {}, undefined, { hasHints: true });
  const send = el("button", { type: "submit", class: "button primary" }, "Send");
  const decline = button("Decline", { on: { click: () => answer.give({ action: "decline" }, "declined") } });
  const cancel = button("Cancel", {
    quiet: true,
    on: { click: () => answer.give({ action: "cancel" }, "cancelled") },
  });
  const node = el("form", { novalidate: true }, form.node, el("div", { class: "buttons" }, send, decline, cancel));
  node.addEventListener("submit", (event) => {
    event.preventDefault();
    const { value, problems } = form.read();
    if (problems.length === 0) answer.give({ action: "accept", content: value }, "answered");
  });
  return { body: el("div", {}, messageNode(message), node), focus: () => form.focus() || send.focus() };
}

function addressBody({ message, url }, answer) {
  const safe = safeAddress(url);
  const host = safe ? new URL(safe).host : null;
  const open = safe
    ? el(
        "a",
        { class: "button primary", href: safe, target: "_blank", rel: "noopener noreferrer" },
        `Open ${host || url}`,
      )
    : el("p", { class: "error-text" }, "This is no address of http, https or mailto; it is not opened.");
  if (safe) open.addEventListener("click", () => setTimeout(() => answer.give({ action: "accept" }, "opened")));
  const decline = button("Decline", { on: { click: () => answer.give({ action: "decline" }, "declined") } });
  const cancel = button("Cancel", {
    quiet: true,
    on: { click: () => answer.give({ action: "cancel" }, "cancelled") },
  });
  return {
    body: el(
      "div",
      {},
      messageNode(message),
      el("p", { class: "address" }, el("strong", {}, host ?? "No usable address"), el("span", { class: "small mono" }, String(url))),
      el("div", { class: "buttons" }, open, decline, cancel),
    ),
    focus: () => (safe ? open : decline).focus(),
  };
}

/** The messages, what the server wants of the model, and an answer written by hand. */
function samplingBody(params, answer) {
  const { messages = [], systemPrompt, tools, ...wishes } = params;
  delete wishes._meta;
  const schema = {
    type: "object",
    required: ["text"],
    properties: {
      text: { type: "string", title: "Answer of the model", maxLength: 1_000_000 },
      model: { type: "string", title: "Model", default: "by-hand" },
      stopReason: {
        type: "string",
        title: "Stop reason",
        enum: ["endTurn", "maxTokens", "stopSequence", ...(tools ? ["toolUse"] : [])],
        default: "endTurn",
      },
      content: {
        title: "Content as JSON",
        description: "Instead of the text: a content block, or a list of them.",
      },
    },
  };
  const form = new SchemaForm(schema);
  const send = el("button", { type: "submit", class: "button primary" }, "Answer");
  const refuse = button("Refuse", { on: { click: () => answer.refuse("refused") } });
  const node = el("form", { novalidate: true }, form.node, el("div", { class: "buttons" }, send, refuse));
  node.addEventListener("submit", (event) => {
    event.preventDefault();
    const written = form.peek();
    const { value, problems } = written.content === undefined ? form.read() : { value: written, problems: [] };
    if (problems.length > 0) return;
    const content = value.content ?? { type: "text", text: value.text };
    const { model = "by-hand", stopReason = "endTurn" } = value;
    answer.give({ role: "assistant", content, model, stopReason }, "answered by hand");
  });
  return {
    body: el(
      "div",
      {},
      systemPrompt ? el("div", { class: "said", data: { role: "system" } }, roleNode("system"), markdown(visibleLines(systemPrompt))) : null,
      messageNodes(messages),
      Object.keys(wishes).length > 0 ? folded("What it wants of the model", wishes) : null,
      tools ? folded(`Tools that the model may call: ${tools.length}`, tools) : null,
      node,
    ),
    focus: () => form.focus(),
  };
}

function folded(title, value) {
  return el("details", {}, el("summary", { class: "small" }, title), jsonNode(value));
}

function roleNode(role) {
  return el("p", { class: "role muted small" }, role);
}

/** Make the nodes of messages, as prompts and sampling have them. */
export function messageNodes(messages) {
  return el(
    "div",
    { class: "messages" },
    messages.slice(0, 200).map(({ role, content }) =>
      el(
        "div",
        { class: "said", data: { role: role === "user" ? "user" : "assistant" } },
        roleNode(String(role)),
        contentNodes([content].flat()),
      ),
    ),
  );
}

