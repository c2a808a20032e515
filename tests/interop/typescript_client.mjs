// The official TypeScript client makes the tour of tour.py and prints its report as JSON.
//
// Its argument is JSON: {"modern": bool} and the way to the server: {"url": string},
// {"sse": string} for the transport of 2024-11-05, or {"command": [string]}.

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const { modern, url, sse, command } = JSON.parse(process.argv[2]);
const report = {};
const updated = [];
const logged = [];
let listChanged;
let resourceUpdated;
let counted;
const everythingCounted = new Promise((resolve) => (counted = resolve));
const seen = () => report.progress.length === 3 && logged.length === 3 && counted();
const changeOfList = new Promise((resolve) => (listChanged = resolve));
const changeOfResource = new Promise((resolve) => (resourceUpdated = resolve));

const client = new Client(
  { name: 'interop-typescript', version: '1.0.0' },
  {
    capabilities: { elicitation: { form: {} }, sampling: {}, roots: {} },
    versionNegotiation: { mode: modern ? { pin: '2026-07-28' } : 'legacy' }
  }
);
client.setRequestHandler('elicitation/create', () => ({
  action: 'accept',
  content: { name: 'Ada' }
}));
client.setRequestHandler('sampling/createMessage', () => ({
  role: 'assistant',
  model: 'test',
  content: { type: 'text', text: 'I am a model' }
}));
client.setRequestHandler('roots/list', () => ({ roots: [{ uri: 'file:///home/ada' }] }));
client.setNotificationHandler('notifications/message', ({ params }) => {
  logged.push(params.data);
  seen();
});
client.setNotificationHandler('notifications/resources/updated', ({ params }) => {
  updated.push(params.uri);
  resourceUpdated();
});
client.setNotificationHandler('notifications/tools/list_changed', () => listChanged());

const transport = url
  ? new StreamableHTTPClientTransport(new URL(url))
  : sse
    ? new SSEClientTransport(new URL(sse))
    : new StdioClientTransport({ command: command[0], args: command.slice(1) });
await client.connect(transport);

const sorted = (things, name) => things.map((each) => each[name]).sort();
const say = async (name, args = {}, options) =>
  (await client.callTool({ name, arguments: args }, options)).content[0].text;

const { name, version } = client.getServerVersion();
report.revision = client.getNegotiatedProtocolVersion();
report.server = `${name} ${version}`;
report.instructions = client.getInstructions();
report.tools = sorted((await client.listTools()).tools, 'name');
report.add = (await client.callTool({ name: 'add', arguments: { a: 2, b: 3 } })).structuredContent;
report.refused = (await client.callTool({ name: 'add', arguments: { a: 'two', b: 3 } })).isError;
report.picture = (await client.callTool({ name: 'picture' })).content.map((block) => block.type);

report.resources = sorted((await client.listResources()).resources, 'uri');
const { resourceTemplates } = await client.listResourceTemplates();
report.templates = sorted(resourceTemplates, 'uriTemplate');
report.read = (await client.readResource({ uri: 'note://today' })).contents[0].text;
report.read_template = (await client.readResource({ uri: 'note://by-name/rent' })).contents[0].text;

report.prompts = sorted((await client.listPrompts()).prompts, 'name');
const prompt = await client.getPrompt({ name: 'greet', arguments: { name: 'Ada' } });
report.prompt = prompt.messages[0].content.text;
const completion = await client.complete({
  ref: { type: 'ref/prompt', name: 'greet' },
  argument: { name: 'name', value: 'A' }
});
report.completion = completion.completion.values;

report.user = await say('ask_user');
report.model = await say('ask_model');
report.roots = await say('ask_roots');

report.progress = [];
if (!modern) await client.setLoggingLevel('info');
const counting = client.callTool(
  {
    name: 'count',
    arguments: { to: 3 },
    ...(modern && { _meta: { 'io.modelcontextprotocol/logLevel': 'info' } })
  },
  { onprogress: ({ progress }) => report.progress.push(progress) && seen() }
);
await everythingCounted;
await say('enough');
await counting;
report.logged = logged;

if (modern) {
  await client.listen({ toolsListChanged: true, resourceSubscriptions: ['note://today'] });
} else {
  await client.subscribeResource({ uri: 'note://today' });
}
await say('touch', { uri: 'note://today' });
await changeOfResource;
report.updated = updated;
await say('learn');
await changeOfList;
report.list_changed = true;

const cancelling = new AbortController();
const cancelled = say('wait', {}, { signal: cancelling.signal }).catch(() => undefined);
await say('waiting');
cancelling.abort();
await cancelled;
report.aborted = await say('ended_with');

if (url && !modern) report.reconnected = await say('drop');
await client.close();
console.log(JSON.stringify(report));
