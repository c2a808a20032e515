/** The app of a tool, in the card of a call (DEV-94): what it asks for goes to the server of the tool, and is shown. */

import { Refusal } from "/shared/app_bridge.js";
import { approvalOf } from "/shared/approval.js";

const MIME_TYPE = "text/html;profile=mcp-app";
const DECISIONS = ["once", "deny"];

/** Return the URI of a tool's app; null if it has none. */
export function appOf(tool) {
  const uri = tool._meta?.ui?.resourceUri ?? tool._meta?.["ui/resourceUri"]; // as drafts had it
  return typeof uri === "string" && uri.startsWith("ui://") ? uri : null;
}

/** Tell whether an app may call a tool. */
function isForApps(tool) {
  const visibility = tool._meta?.ui?.visibility;
  return !Array.isArray(visibility) || visibility.includes("app");
}

/**
 * Return the app of a tool, as `AppView` takes it. `page` has the client and the tools, `server` is the id of the program,
 * `onLog(params)` shows a record.
 */
export function toolApp(page, tool, { server, given, onLog }) {
  const { client } = page;
  const refused = new Set();

  async function open() {
    const { contents } = await asked(client.request("resources/read", { uri: appOf(tool) }));
    const [found, ...others] = Array.isArray(contents) ? contents : [];
    const type = String(found?.mimeType).replaceAll(" ", "").toLowerCase();
    if (type !== MIME_TYPE || others.length > 0) throw new Refusal(`It is not one resource of the type ${MIME_TYPE}.`);
    const html = typeof found.text === "string" ? found.text : decoded(found.blob);
    return { html, ui: found._meta?.ui ?? {}, tool, arguments: given };
  }

  async function callTool(name, values, ask) {
    const wanted = toolNamed(page, server, name);
    if (wanted === undefined) throw new Refusal("The server of this app has no such tool.");
    if (!isForApps(wanted)) throw new Refusal("This tool is not for apps.");
    if (refused.has(name)) throw new Refusal("The user refused this tool.");
    if (wanted.annotations?.readOnlyHint !== true) {
      const { annotations = null, description = null } = wanted;
      const about = { kindOfApproval: "tool", server, app: tool.name, arguments: values, annotations, description };
      const approval = { ...about, decisions: DECISIONS, expiresAt: null, decision: null };
      const label = `The app of ${tool.name} asks to run ${name}`;
      const decision = await ask(label, (done) => approvalOf({ tool: name, approval }, null, done));
      if (decision === "deny") refused.add(name);
      if (decision === "deny") throw new Refusal("The user refused this call.");
    }
    return asked(client.request("tools/call", { name: wanted.name, arguments: values }));
  }

  const note = (logger, data) => onLog({ level: "info", logger, data });
  return {
    name: tool.name,
    server,
    open,
    callTool,
    readResource: (uri) => asked(client.request("resources/read", { uri })),
    onLog,
    onMessage: (text) => {
      note("ui/message", text);
      return true;
    },
    onContext: (text) => note("ui/update-model-context", text),
  };
}

/** Return the id of the program of a tool: with several programs, names begin with it. */
export function serverOf(page, { name }) {
  const { servers = [], prefix } = page.feed.state ?? {};
  const own = prefix ? servers.find(({ id }) => name.startsWith(`${id}__`)) : servers[0];
  return own?.id ?? "";
}

/** Return the tool that an app means, of the program that the app is of. */
function toolNamed(page, server, name) {
  const prefix = page.feed.state?.prefix ? `${server}__` : "";
  return page.toolsOf().find((tool) => tool.name === prefix + name);
}

/** Return what a request comes to; its error is the app's to know. */
async function asked({ promise }) {
  try {
    return await promise;
  } catch (error) {
    throw new Refusal(error.message);
  }
}

function decoded(blob) {
  try {
    const bytes = Uint8Array.from(atob(blob), (character) => character.charCodeAt(0));
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Refusal("It is neither text nor UTF-8 in base64.");
  }
}
