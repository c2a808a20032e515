/** The app of a call of a chat: what it asks for goes to the host, and to people first where that is due (HAPP-20). */

import { Refusal } from "./app_bridge.js";
import { approvalOf } from "./approval.js";
import { jsonOf } from "./exact_numbers.js";
import { splitName } from "./format.js";
import { request } from "./page_token.js";

/** Return the app of a call, as `AppView` takes it. */
export function chatApp(chat, call, composer) {
  const { server, tool } = splitName(call.tool);
  const refused = new Set();
  const path = () => `api/sessions/${encodeURIComponent(chat.state.sessionId)}/app`;
  const post = (body) =>
    answered(request(path(), { method: "POST", body: JSON.stringify({ call: call.id, ...body }) }));

  /** Call a tool; what needs an approval is sent again with the decision of a person. */
  async function callTool(name, given, ask) {
    const body = { tool: name, arguments: given };
    let answer = await post(body);
    while (answer.approval !== undefined) {
      const { meaning, kind: kindOfApproval, ...about } = answer.approval;
      if (refused.has(name)) throw new Refusal("The user refused this tool.");
      const approval = { ...about, kindOfApproval, app: tool, expiresAt: null, decision: null };
      const label = `The app of ${tool} asks to run ${name}`;
      const decision = await ask(label, (done) => approvalOf({ tool: name, approval }, null, done));
      if (decision === "deny") refused.add(name);
      answer = await post({ ...body, decision, meaning });
    }
    return answer.result;
  }

  return {
    name: tool,
    server,
    open: () => answered(request(`${path()}?call=${encodeURIComponent(call.id)}`)),
    callTool,
    readResource: (uri) => post({ uri }),
    onMessage: (text) => composer.propose(text),
    onContext: (text) => composer.attachments.setText(`context of ${tool}.txt`.slice(-200), text),
  };
}

async function answered(asked) {
  const response = await asked;
  if (response === null) throw new Refusal("The host does not answer.");
  const body = await jsonOf(response).catch(() => null);
  if (response.ok && body !== null && body.error === undefined) return body;
  throw new Refusal(body?.error?.message ?? `The host answered ${response.status}.`);
}
