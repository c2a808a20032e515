/**
 * The state of a chat as a value, and how a frame of the server changes it. Pure: no DOM, clock or network.
 *
 * `receive(state, frame)` returns the next state. Numbered frames count once and in order: one that was there is
 * ignored, one that comes too early sets `hasGap`, and the caller asks for what follows `seq`. So frames that were
 * cut off and replayed anywhere lead to the same state (HPAGE-02).
 *
 * `waiting` has the messages that wait for their turn at the host, {id, text}; `isUsed` says that something was said in
 * the session on an earlier visit. Items, in the order they are read:
 *   user     {id, text}
 *   text     {id, turnId, text, isDone}
 *   call     {id, turnId, tool, arguments, phase, message, progress, awaiting, result, error, isError, durationMs,
 *             approval: {server, tool, arguments, annotations, description, expiresAt, decision} | null}
 *            phase: processing, complete, ended (with its turn), unknown (no outcome was stored)
 *   question {id, server, tool, kindOfQuestion: form | url, message, schema, url, action}
 *   ending   {id, state: stopped | failed | interrupted, message, code}
 *   notice   {id, text}
 */

export const NO_USAGE = Object.freeze({
  promptTokens: 0,
  completionTokens: 0,
  totalTokens: 0,
  isEstimated: false,
});

export const EMPTY = Object.freeze({
  sessionId: null,
  isUsed: false,
  greeting: null,
  seq: 0,
  hasGap: false,
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
  if (seq === undefined || seq === null) return OF_CONNECTION[type]?.(state, payload) ?? state;
  if (seq <= state.seq) return state;
  if (seq !== state.seq + 1) return { ...state, hasGap: true };
  const next = { ...state, seq, hasGap: false };
  return OF_SESSION[type]?.(next, payload, turnId) ?? next;
}

/** Return the calls that wait for an approval and the questions that wait for an answer, in order. */
export function openDecisions(state) {
  return state.items.filter(isOpen);
}

/** Tell whether an item waits for a person. */
export function isOpen(item) {
  if (item.kind === "call") return item.approval !== null && item.approval.decision === null;
  return item.kind === "question" && item.action === null;
}

const OF_CONNECTION = {
  connection(state, { sessionId, message, state: name }) {
    if (!sessionId) return state;
    const here = { ...state, hasGap: false, sessionId };
    if (state.sessionId === null)
      return { ...here, greeting: name === "connected" ? (message ?? null) : null };
    return sessionId === state.sessionId ? here : lost(here);
  },
  history: (state, payload) => fromHistory(state, payload),
  servers: (state, { servers }) => ({ ...state, servers: servers ?? null }),
};

const OF_SESSION = {
  user: addUser,
  text: addText,
  status: changeCall,
  approval: changeApproval,
  question: changeQuestion,
  turn: changeTurn,
};

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

function addUser(state, { text, messageId }) {
  const waiting = state.waiting.filter(({ id }) => id !== messageId);
  return put({ ...state, waiting }, { kind: "user", id: messageId, text });
}

function addText(state, { content, messageId, done }, turnId) {
  const before = get(state, "text", messageId);
  if (before === undefined && !content) return state;
  const text = (before?.text ?? "") + (content ?? "");
  return put(state, { kind: "text", id: messageId, turnId, text, isDone: Boolean(done) });
}

function newCall(id, turnId, tool) {
  return {
    kind: "call",
    id,
    turnId,
    tool,
    arguments: null,
    phase: "processing",
    message: null,
    progress: null,
    awaiting: null,
    result: null,
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
    arguments: data.arguments ?? before.arguments,
    message: payload.message ?? before.message,
    progress: payload.progress ?? before.progress,
    awaiting: isComplete ? null : (payload.awaiting ?? null),
    result: data.result ?? before.result,
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
  const { server, tool, annotations = null, description = null, expiresAt = null } = payload;
  const approval = { server, tool, arguments: payload.arguments ?? {}, annotations, description, expiresAt };
  return put(state, { ...call, awaiting: "approval", approval: { ...approval, decision: null } });
}

function decided(call, decision) {
  // A request of a server has no call of its own: with the decision its card is complete.
  const isRequest = call.arguments === null;
  const phase = isRequest && call.phase === "processing" ? "complete" : call.phase;
  return { ...call, phase, awaiting: null, approval: { ...call.approval, decision } };
}

/** Return an approval that history tells of by its decision alone. */
function pastApproval(call, decision) {
  const server = call.tool?.split(":", 1)[0] ?? null;
  const about = { server, tool: call.tool, arguments: call.arguments ?? {} };
  return { ...about, annotations: null, description: null, expiresAt: null, decision };
}

function qualified({ server, tool }) {
  return server && !tool.startsWith(`${server}:`) ? `${server}:${tool}` : tool;
}

function changeQuestion(state, payload, turnId) {
  const before = get(state, "question", payload.questionId);
  if (payload.action) return before === undefined ? state : put(state, { ...before, action: payload.action });
  const { server, tool = null, message, schema = null, url = null } = payload;
  const question = { server, tool, message, schema, url, kindOfQuestion: payload.kind, action: null };
  return put(state, { kind: "question", id: payload.questionId, turnId, ...question });
}

function changeTurn(state, payload, turnId) {
  if (payload.state === "started") return { ...state, turn: { turnId, state: "started" } };
  const ended = {
    ...endItems(state, (item) => item.turnId === turnId),
    usage: sum(state.usage, payload.usage),
  };
  const isRunning = state.turn !== null && state.turn.turnId !== turnId;
  return withEnding({ ...ended, turn: isRunning ? state.turn : null }, turnId, payload);
}

function withEnding(state, turnId, { state: name, message = null, code = null }) {
  if (name === "finished") return state;
  return put(state, { kind: "ending", id: turnId, state: name, message, code });
}

/** Close what is still open of a turn that is over. */
function endItems(state, isMeant) {
  const items = state.items.map((item) => (isMeant(item) ? ended(item) : item));
  return { ...state, items };
}

function ended(item) {
  if (item.kind === "text" && !item.isDone) return { ...item, isDone: true };
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
  const start = { ...EMPTY, sessionId: state.sessionId, servers: state.servers, seq: payload.seq ?? 0, turn };
  const messages = payload.messages ?? [];
  const waiting = (payload.waiting ?? []).map(({ messageId, text }) => ({ id: messageId, text }));
  let next = { ...start, greeting: state.greeting, usage: sum(NO_USAGE, payload.usage), waiting };
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
  const added = OF_ROLE[message.role]?.(state, message, turnId, mayGrow, metadata) ?? state;
  return metadata.ending ? withEnding(added, turnId ?? message.id, metadata.ending) : added;
}

const OF_ROLE = {
  user: (state, { id, content }) => put(state, { kind: "user", id, text: content ?? "" }),
  assistant(state, message, turnId, mayGrow) {
    if (!message.toolName) {
      if (!message.content && !mayGrow) return state;
      return put(state, {
        kind: "text",
        id: message.id,
        turnId,
        text: message.content ?? "",
        isDone: !mayGrow,
      });
    }
    const call = newCall(message.callId, turnId, message.toolName);
    return put(state, { ...call, arguments: message.data?.arguments ?? {}, phase: "unknown" });
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
};
