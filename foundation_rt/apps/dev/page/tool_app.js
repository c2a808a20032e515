/** The app of a tool, in the card of a call (DEV-94): what it asks for goes to the server of the tool, and is shown. */

import { Refusal } from "/shared/app_bridge.js";
import { approvalOf } from "/shared/approval.js";

const SCHEME = "ui://";
const MIME_TYPE = "text/html;profile=mcp-app";
const DECISIONS = ["once", "deny"];

/** Return the URI of a tool's app; null if it has none. */
export function appOf(tool) {
  const uri = tool._meta?.ui?.resourceUri ?? tool._meta?.["ui/resourceUri"]; // as drafts had it
  return typeof uri === "string" && uri.startsWith(SCHEME) ? uri : null;
}

/** Tell whether an app may call a tool. */
function isForApps(tool) {
  const visibility = tool._meta?.ui?.visibility;
  return !Array.isArray(visibility) || visibility.includes("app");
}

/**
 * Return the app of a tool, as `AppView` takes it. `page` has the client and the tools, `onLog(params)` shows a record.
 * It knows the names and URIs of its own program alone.
 */
export async function toolApp(page, tool, { given, onLog }) {
  const { client } = page;
  const origins = await originsOf(page);
  const { server = "", name: ownName = tool.name } = origins.find((each) => each.tool === tool.name) ?? {};
  const refused = new Set();

  async function open() {
    const { contents } = await asked(client.request("resources/read", { uri: appOf(tool) }));
    const [found, ...others] = Array.isArray(contents) ? contents : [];
    const type = String(found?.mimeType).replaceAll(" ", "").toLowerCase();
    if (type !== MIME_TYPE || others.length > 0) throw new Refusal(`It is not one resource of the type ${MIME_TYPE}.`);
    const html = typeof found.text === "string" ? found.text : decoded(found.blob);
    return { html, ui: found._meta?.ui ?? {}, tool: { ...tool, name: ownName }, arguments: given };
  }

  async function callTool(name, values, ask) {
    const wanted = await toolNamed(page, server, name);
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

  async function readResource(uri) {
    const outside = outsideUri(server, uri); // asked for at this program alone
    const { contents, ...rest } = await asked(client.request("resources/read", { uri: outside }));
    const own = (each) => (each?.uri === outside ? { ...each, uri } : each);
    return { ...rest, contents: Array.isArray(contents) ? contents.map(own) : contents };
  }

  const note = (logger, data) => onLog({ level: "info", logger, data });
  return {
    name: tool.name,
    server,
    open,
    callTool,
    readResource,
    onLog,
    onMessage: (text) => {
      note("ui/message", text);
      return true;
    },
    onContext: (text) => note("ui/update-model-context", text),
  };
}

/** Return of which program each tool is: names alone do not say it (COORD-06). */
async function originsOf(page) {
  return (await page.get("/dev/tools"))?.tools ?? [];
}

/** Return the tool that an app means, of the program that the app is of. */
async function toolNamed(page, server, name) {
  const origins = await originsOf(page);
  const found = origins.find((each) => each.server === server && each.name === name);
  return found && page.toolsOf().find((tool) => tool.name === found.tool);
}

/** Return the URI that the front has for one of a program (GATE-57, GATE-65). */
function outsideUri(server, uri) {
  return uri.startsWith(SCHEME) ? `${SCHEME}${server}+${uri.slice(SCHEME.length)}` : `${server}+${uri}`;
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
