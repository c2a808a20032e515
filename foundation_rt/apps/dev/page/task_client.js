/**
 * Calls that may become tasks: requests of revision 2026-07-28, without a session (DEV-71). Knows nothing of the page.
 *
 * `ask(requests, signal)` returns the responses to what a server asks, by key.
 */

import { isExact, jsonOf, parseJson, textOf } from "/shared/exact_numbers.js";
import { EventParser } from "./event_stream.js";
import { asError, checked, LostError, RpcError } from "./rpc_errors.js";

const REVISION = "2026-07-28";
const PREFIX = "io.modelcontextprotocol/";
const TASKS = `${PREFIX}tasks`;
const MOST_ROUNDS = 20;
const NAMES = { "tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId" };

export class TaskClient {
  #next = 1;

  /** `session`: the client whose address, token, name and capabilities it has. */
  constructor(session) {
    this.session = session;
  }

  /** Call a tool; what it asks before it is a task is answered by `ask`. Returns a result, or the handle of a task. */
  async call(tool, given, { ask, signal }) {
    const params = { name: tool.name, arguments: given };
    const headers = parameterHeaders(tool.inputSchema ?? {}, given);
    let round = {};
    for (let rounds = 0; rounds <= MOST_ROUNDS; rounds += 1) {
      const result = await this.#request("tools/call", { ...params, ...round }, headers, signal);
      if (result?.resultType !== "input_required") return result;
      const { inputRequests = {}, requestState } = result;
      round = { inputResponses: await ask(inputRequests, signal), requestState };
    }
    throw new LostError(`The tool has asked more than ${MOST_ROUNDS} times.`);
  }

  /** Return the present state of a task. */
  async get(taskId) {
    return await this.#request("tasks/get", { taskId });
  }

  /** Answer what a task asks. */
  async update(taskId, inputResponses) {
    await this.#request("tasks/update", { taskId, inputResponses });
  }

  async cancel(taskId) {
    await this.#request("tasks/cancel", { taskId });
  }

  async #request(method, params, headers = {}, signal = undefined) {
    const { url, token, info, capabilities, prefix } = this.session;
    const { roots: _, ...answered } = capabilities;
    const meta = {
      [`${PREFIX}protocolVersion`]: REVISION,
      [`${PREFIX}clientInfo`]: info,
      [`${PREFIX}clientCapabilities`]: { ...answered, extensions: { [TASKS]: {} } },
    };
    const id = `${prefix}-task-${this.#next++}`;
    try {
      const response = await checked(
        await fetch(url, {
          method: "POST",
          headers: {
            "Content-Type": "application/json",
            Accept: "application/json, text/event-stream",
            Authorization: `Bearer ${token}`,
            "MCP-Protocol-Version": REVISION,
            "Mcp-Method": method,
            "Mcp-Name": headerValue(params[NAMES[method]]),
            ...headers,
          },
          body: JSON.stringify({ jsonrpc: "2.0", id, method, params: { ...params, _meta: meta } }),
          signal,
        }),
      );
      const { result, error } = await answerOf(response, id);
      if (error) throw new RpcError(error);
      return result;
    } catch (error) {
      throw asError(error);
    }
  }
}

/** Read the answer to a request, from JSON or from a stream of events. */
async function answerOf(response, id) {
  const type = response.headers.get("content-type") ?? "";
  if (!type.startsWith("text/event-stream")) return await jsonOf(response);
  const parser = new EventParser();
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    for (const { data } of parser.push(text)) {
      const message = data === "" ? null : parseJson(data);
      if (message?.id === id) return message;
    }
  }
  throw new LostError("The server ended the stream without a response.");
}

/** Return the headers that repeat arguments, as the schema wants them (`x-mcp-header`). */
function parameterHeaders(schema, given) {
  const headers = {};
  for (const [name, member] of Object.entries(schema.properties ?? {})) {
    const value = Object.hasOwn(given ?? {}, name) ? given[name] : undefined;
    if (value === undefined || value === null) continue;
    const header = member?.["x-mcp-header"];
    if (typeof header === "string") headers[`Mcp-Param-${header}`] = headerValue(textOf(value));
    else if (typeof value === "object" && !isExact(value)) Object.assign(headers, parameterHeaders(member ?? {}, value));
  }
  return headers;
}

/** Write a text as the value of a header: base64 of UTF-8 where it is no plain ASCII. */
function headerValue(text) {
  const isPlain = /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !/^=\?base64\?.*\?=$/.test(text);
  if (isPlain) return text;
  const bytes = new TextEncoder().encode(text);
  return `=?base64?${btoa([...bytes].map((byte) => String.fromCharCode(byte)).join(""))}?=`;
}
