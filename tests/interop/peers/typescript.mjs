// The official TypeScript client, v1 and v2, as a peer: the same orders and reports as driver.py.
//
// Arguments: 1 or 2, and the file with the orders.

import { readFileSync } from 'node:fs';

const sdk = Number(process.argv[2]);
const orders = JSON.parse(readFileSync(process.argv[3], 'utf8'));
const v1 = '@modelcontextprotocol/sdk';
const v2 = '@modelcontextprotocol/client';
const { Client } = await import(sdk === 1 ? `${v1}/client/index.js` : v2);
const { StreamableHTTPClientTransport } = await import(sdk === 1 ? `${v1}/client/streamableHttp.js` : v2);
const { StdioClientTransport } = await import(sdk === 1 ? `${v1}/client/stdio.js` : `${v2}/stdio`);
const { SUPPORTED_PROTOCOL_VERSIONS } = await import(sdk === 1 ? `${v1}/types.js` : v2);
const elicit = sdk === 1 ? (await import(`${v1}/types.js`)).ElicitRequestSchema : 'elicitation/create';

const ANSWERS = {
  'Who comes': { name: 'Ann', people: 2, day: '2030-01-02' },
  'What would': { value: 'cheese' },
  'Please pay': undefined
};

function block(content) {
  if (content.type === 'text') return content.text;
  if (content.type === 'image') return `${content.mimeType} ${content.data}`;
  return `${content.type} ${content.uri}`;
}

async function call(client, name, args) {
  const progress = [];
  const options = { onprogress: (each) => progress.push(each.progress) };
  const asked = { name, arguments: args };
  const result = await (sdk === 1
    ? client.callTool(asked, undefined, options)
    : client.callTool(asked, options));
  const seen = {};
  if (result.content.length) seen.content = result.content.map(block);
  if (result.structuredContent !== undefined) seen.structured = result.structuredContent;
  if (result.isError) seen.error = true;
  if (progress.length) seen.progress = progress;
  return seen;
}

async function tools(client) {
  return (await client.listTools()).tools.map((each) => each.name).sort();
}

async function read(client, uri) {
  const [found] = (await client.readResource({ uri })).contents;
  return found.text ?? found.blob;
}

// Clients offer their newest revision; `revision` is put in its place.
function offering(transport, revision) {
  const send = transport.send.bind(transport);
  transport.send = (message, options) => {
    if (message.method === 'initialize') message.params.protocolVersion = revision;
    return send(message, options);
  };
  return transport;
}

async function visit({ revision, url, command, env, steps }) {
  const modern = revision >= '2026';
  const client = new Client(
    { name: 'peer', version: '1.0.0' },
    {
      capabilities: { elicitation: { form: {}, url: {} } },
      versionNegotiation: { mode: modern ? { pin: revision } : 'legacy' }
    }
  );
  client.setRequestHandler(elicit, ({ params }) => {
    const [words] = Object.keys(ANSWERS).filter((each) => params.message.startsWith(each));
    return { action: 'accept', ...(ANSWERS[words] && { content: ANSWERS[words] }) };
  });
  const transport = url
    ? new StreamableHTTPClientTransport(new URL(url))
    : new StdioClientTransport({ command: command[0], args: command.slice(1), env, stderr: 'ignore' });
  let agreed;
  const setProtocolVersion = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    agreed = version;
    setProtocolVersion?.(version);
  };
  await client.connect(offering(transport, revision));
  const report = [];
  for (const [kind, ...words] of steps) {
    report.push(await { tools, call, read }[kind](client, ...words).catch((error) => ({ raised: error.message })));
  }
  await client.close();
  return { revision: agreed ?? client.getNegotiatedProtocolVersion(), steps: report };
}

// v2 names the revisions of the handshake there.
const speaks = [...SUPPORTED_PROTOCOL_VERSIONS, ...(sdk === 2 ? ['2026-07-28'] : [])].sort();
const reports = new Array(orders.length);
for (const revision of speaks) {
  const those = orders.map((order, index) => ({ order, index })).filter(({ order }) => order.revision === revision);
  await Promise.all(those.map(async ({ order, index }) => (reports[index] = await visit(order))));
}
console.log(JSON.stringify({ speaks, reports }));
