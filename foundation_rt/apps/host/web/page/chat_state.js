/**
 * The state of a chat as a value, and how a frame of the server changes it. Pure: no DOM, clock or network.
 *
 * `receive(state, frame)` returns the next state. Numbered frames count once and in order: one that was there is
 * ignored, one that comes too early sets `hasGap`, and the caller asks for what follows `seq`. So frames that were
 * cut off and replayed anywhere lead to the same state (HPAGE-02).
 *
 * Where the host has older messages than have come, `previous` is the id of the newest of them that a person wrote, and
 * `oldest` that of the first message that has come; else both are null.
 * `waiting` has the messages that wait for their turn at the host, {id, text}; `isUsed` says that something was said in
 * the session on an earlier visit. Items, in the order they are read:
 *   user     {id, text, after: see branches.js, files: [{name, bytes}], pictures: [{name, mimeType, data}]}
 *   text     {id, turnId, text, isDone}
 *   thought  {id, turnId, text, isDone}
 *   call     {id, turnId, tool, app: the URI of its app or null, arguments, phase, message, progress, awaiting, result,
 *             isCut: not all of the result has come, error, isError, durationMs,
 *             approval: {kindOfApproval: tool | sampling | skill, server, tool, arguments, annotations, description,
 *                        skill: {name, uri, path, digest, text, further} | null, decisions, expiresAt, decision} | null}
 *            phase: processing, complete, ended (with its turn), unknown (no outcome was stored)
 *   question {id, server, tool, kindOfQuestion: form | url, message, schema, url, action}
 *   ending   {id, state: stopped | failed | interrupted, message, code, mayRetry}
 *   notice   {id, text}
 */

import { splitName } from "./format.js";

const READ_SKILL = "read_skill"; // the host's own tool: those of servers have a colon

export const NO_USAGE = Object.freeze({
  promptTokens: 0,
  completionTokens: 0,
  totalTokens: 0,
  isEstimated: false,
});

export const EMPTY = Object.freeze({
  sessionId: null,
  isUsed: false,
  seq: 0,
  hasGap: false,
  previous: null,
  oldest: null,
  items: Object.freeze([]),
  waiting: Object.freeze([]),
  turn: null,
  usage: NO_USAGE,
  servers: null,
});

export const LOST_CHAT =
  "The host does not know this chat any more: it was restarted without a store, or the chat was idle for too long. " +
  "What you write now begins a new one.";

/** Return the state after a frame. */
export function receive(state, frame) {
  const { type, seq, turnId = null } = frame;
  const payload = frame.payload ?? {};
  if (seq === undefined || seq === null) return OF_CONNECTION.get(type)?.(state, payload) ?? state;
  if (seq <= state.seq) return state;
  if (seq !== state.seq + 1) return { ...state, hasGap: true };
  const next = { ...state, seq, hasGap: false };
  return OF_SESSION.get(type)?.(next, payload, turnId) ?? next;
}

/** Return the state with a page of older messages before its items (CHAT-37). */
export function withOlder(state, page) {
  const { items } = page.messages.reduce((before, message) => addMessage(before, message, false, null), EMPTY);
  return { ...state, ...olderThan(page), items: [...items, ...state.items] };
}

function olderThan({ messages = [], previous = null }) {
  return { previous, oldest: previous === null ? null : (messages[0]?.id ?? null) };
}

/** Return the calls that wait for an approval and the questions that wait for an answer, in order. */
export function openDecisions(state) {
  return state.items.filter(isOpen);
}

/** Return what a call is of: {server, tool, isSkill}; of a skill its own name. */
export function subjectOf({ tool, arguments: values }) {
  if (tool !== READ_SKILL) return { ...splitName(tool), isSkill: false };
  return { ...splitName(String(values?.skill ?? READ_SKILL)), isSkill: true };
}

/** Tell whether an item waits for a person. */
export function isOpen(item) {
  if (item.kind === "call") return item.approval !== null && item.approval.decision === null;
  return item.kind === "question" && item.action === null;
}

const OF_CONNECTION = new Map(Object.entries({
  connection(state, { sessionId, state: name }) {
    if (!sessionId) return state;
    const here = { ...state, hasGap: false, sessionId };
    const isSame = state.sessionId === null || sessionId === state.sessionId || name === "reconnected";
    return isSame ? here : lost(here); // the host may know the same chat by another id (CHAT-01)
  },
  history: (state, payload) => fromHistory(state, payload),
  servers: (state, { servers }) => ({ ...state, servers: servers ?? null }),
}));

const OF_SESSION = new Map(Object.entries({
  user: addUser,
  text: addText,
  status: changeCall,
  approval: changeApproval,
  question: changeQuestion,
  turn: changeTurn,
}));

function put(state, item) {
  const at = find(state, item.kind, item.id);
  const items = at < 0 ? [...state.items, item] : state.items.with(at, item);
  return { ...state, items };
}

function find(state, kind, id) {
  return state.items.findLastIndex((item) => item.kind === kind && item.id === id);
}

function get(state, kind, id) {
  return state.items[find(state, kind, id)];
}

function addUser(state, { messageId, ...shown }) {
  const waiting = state.waiting.filter(({ id }) => id !== messageId);
  return put({ ...state, waiting }, userItem(messageId, shown));
}

/** Return the item of a message of the user. */
function userItem(id, { text, after, files, pictures }) {
  return { kind: "user", id, text: text ?? "", after, files: files ?? [], pictures: pictures ?? [] };
}

function addText(state, { content, messageId, done, thought }, turnId) {
  const kind = thought ? "thought" : "text";
  const before = get(state, kind, messageId);
  if (before === undefined && !content) return state;
  const text = (before?.text ?? "") + (content ?? "");
  return put(state, { kind, id: messageId, turnId, text, isDone: Boolean(done) });
}

function newCall(id, turnId, tool) {
  return {
    kind: "call",
    id,
    turnId,
    tool,
    app: null,
    arguments: null,
    phase: "processing",
    message: null,
    progress: null,
    awaiting: null,
    result: null,
    isCut: false,
    error: null,
    isError: false,
    durationMs: null,
    approval: null,
  };
}

function changeCall(state, payload, turnId) {
  const before = get(state, "call", payload.callId) ?? newCall(payload.callId, turnId, payload.tool);
  const isComplete = payload.state === "complete";
  const data = payload.data ?? {};
  return put(state, {
    ...before,
    phase: isComplete ? phaseOf(data.error) : "processing",
    app: payload.app ?? before.app,
    arguments: data.arguments ?? before.arguments,
    message: payload.message ?? before.message,
    progress: payload.progress ?? before.progress,
    awaiting: isComplete ? null : (payload.awaiting ?? null),
    result: data.result ?? before.result,
    isCut: data.isCut ?? before.isCut,
    error: data.error ?? before.error,
    isError: isComplete && Boolean(payload.isError ?? data.error ?? data.result?.isError),
    durationMs: payload.durationMs ?? before.durationMs,
  });
}

function phaseOf(error) {
  return error?.code === "OUTCOME_UNKNOWN" ? "unknown" : "complete";
}

function changeApproval(state, payload, turnId) {
  const before = get(state, "call", payload.callId);
  if (payload.decision) {
    if (before === undefined || before.approval === null) return state;
    return put(state, decided(before, payload.decision));
  }
  const call = before ?? newCall(payload.callId, turnId, qualified(payload));
  const { kind, server, tool, decisions = [], annotations = null, description = null, skill = null, expiresAt = null } = payload;
  const about = { kindOfApproval: kind, server, tool, arguments: payload.arguments ?? {}, annotations, description, skill };
  return put(state, {
    ...call,
    awaiting: "approval",
    approval: { ...about, decisions, expiresAt, decision: null },
  });
}

function decided(call, decision) {
  // A request of a server has no call of its own: with the decision its card is complete.
  const isRequest = call.approval.kindOfApproval === "sampling";
  const phase = isRequest && call.phase === "processing" ? "complete" : call.phase;
  return { ...call, phase, awaiting: null, approval: { ...call.approval, decision } };
}

/** Return an approval that history tells of by its decision alone. */
function pastApproval(call, decision) {
  const server = subjectOf(call).server || null;
  const about = { kindOfApproval: "tool", server, tool: call.tool, arguments: call.arguments ?? {} };
  return { ...about, annotations: null, description: null, skill: null, decisions: [], expiresAt: null, decision };
}

function qualified({ server, tool }) {
  return server && tool !== READ_SKILL && !tool.startsWith(`${server}:`) ? `${server}:${tool}` : tool;
}

function changeQuestion(state, payload, turnId) {
  const before = get(state, "question", payload.questionId);
  if (payload.action) return before === undefined ? state : put(state, { ...before, action: payload.action });
  const { server, tool = null, message, schema = null, url = null } = payload;
  const question = { server, tool, message, schema, url, kindOfQuestion: payload.kind, action: null };
  return put(state, { kind: "question", id: payload.questionId, turnId, ...question });
}

function changeTurn(state, payload, turnId) {
  if (payload.state === "started") return { ...state, turn: { turnId, ...payload } };
  const ended = {
    ...endItems(state, (item) => item.turnId === turnId),
    usage: sum(state.usage, payload.usage),
  };
  const isRunning = state.turn !== null && state.turn.turnId !== turnId;
  return withEnding({ ...ended, turn: isRunning ? state.turn : null }, turnId, payload);
}

function withEnding(state, turnId, { state: name, message = null, code = null, retry = true }) {
  if (name === "finished") return state;
  const mayRetry = retry && name !== "stopped";
  return put(state, { kind: "ending", id: turnId, state: name, message, code, mayRetry });
}

/** Close what is still open of a turn that is over. */
function endItems(state, isMeant) {
  const items = state.items.map((item) => (isMeant(item) ? ended(item) : item));
  return { ...state, items };
}

function ended(item) {
  if (item.isDone === false) return { ...item, isDone: true };
  if (item.kind === "question" && item.action === null) return { ...item, action: "expired" };
  if (item.kind !== "call") return item;
  const call = isOpen(item) ? decided(item, "stopped") : item;
  return call.phase === "processing" ? { ...call, phase: "ended", awaiting: null } : call;
}

function sum(usage, added) {
  if (!added) return usage;
  const promptTokens = usage.promptTokens + (added.promptTokens ?? 0);
  const completionTokens = usage.completionTokens + (added.completionTokens ?? 0);
  const isEstimated = usage.isEstimated || Boolean(added.isEstimated);
  return { promptTokens, completionTokens, totalTokens: promptTokens + completionTokens, isEstimated };
}

function lost(state) {
  const closed = endItems(state, () => true);
  const notice = { kind: "notice", id: `lost-${state.sessionId}`, text: LOST_CHAT };
  const isUsed = closed.isUsed || closed.items.length > 0;
  const items = isUsed ? [...closed.items, notice] : closed.items;
  return { ...closed, items, seq: 0, turn: null, waiting: [] };
}

function fromHistory(state, payload) {
  const turn = payload.turn && payload.turn.state === "started" ? payload.turn : null;
  const turnId = turn === null ? null : turn.turnId;
  const start = { ...EMPTY, sessionId: state.sessionId, servers: state.servers, seq: payload.seq ?? 0, turn, ...olderThan(payload) };
  const messages = payload.messages ?? [];
  const waiting = (payload.waiting ?? []).map(({ messageId, ...shown }) => userItem(messageId, shown));
  let next = { ...start, usage: sum(NO_USAGE, payload.usage), waiting };
  messages.forEach((message, at) => {
    next = addMessage(next, message, turn !== null && at === messages.length - 1, turnId);
  });
  for (const call of payload.calls ?? []) next = changeCall(next, call, turnId);
  for (const approval of payload.approvals ?? []) next = changeApproval(next, approval, turnId);
  for (const question of payload.questions ?? []) next = changeQuestion(next, question, turnId);
  return next;
}

function addMessage(state, message, mayGrow, runningTurn) {
  const metadata = message.metadata ?? {};
  const turnId = metadata.turn ?? (mayGrow ? runningTurn : null);
  const added = OF_ROLE.get(message.role)?.(state, message, turnId, mayGrow, metadata) ?? state;
  return metadata.ending ? withEnding(added, turnId ?? message.id, metadata.ending) : added;
}

const OF_ROLE = new Map(Object.entries({
  user: (state, { id, content }, turnId, mayGrow, metadata) =>
    put(state, userItem(id, { ...metadata, text: metadata.words ?? content })),
  assistant(state, message, turnId, mayGrow, metadata) {
    if (!message.toolName) {
      if (!message.content && !mayGrow) return state;
      return put(state, {
        kind: metadata.thought ? "thought" : "text",
        id: message.id,
        turnId,
        text: message.content ?? "",
        isDone: !mayGrow,
      });
    }
    const call = newCall(message.callId, turnId, message.toolName);
    const app = metadata.app ?? null;
    return put(state, { ...call, app, arguments: message.data?.arguments ?? {}, phase: "unknown" });
  },
  tool(state, message, turnId, mayGrow, metadata) {
    const before = get(state, "call", message.callId) ?? newCall(message.callId, turnId, message.toolName);
    const { result = null, error = null } = message.data ?? {};
    const isError = Boolean(metadata.isError ?? error ?? result?.isError);
    return put(state, {
      ...before,
      approval: metadata.decision ? pastApproval(before, metadata.decision) : before.approval,
      phase: phaseOf(error),
      result,
      error,
      isError,
      durationMs: metadata.durationMs ?? null,
    });
  },
}));
