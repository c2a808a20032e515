// A server made with the official TypeScript SDK, for our client: one of everything that app.py has.
//
//     node official_server.mjs stdio
//     node official_server.mjs http [PORT]
//     node official_server.mjs plain [PORT]
//
// Over HTTP it listens on a free port unless it is told one, and prints its URL when it does; `plain`
// has neither sessions nor streams. `count` goes on until `enough` is called; `waiting` tells when
// `wait` runs, to be cancelled, and `ended_with` what became of it: no client has to guess at times.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from '@modelcontextprotocol/node';
import {
  McpServer,
  ResourceTemplate,
  completable,
  createMcpHandler,
  inputRequired,
  inputResponse,
  isLegacyRequest
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const once = () => {
  let settle;
  const happened = new Promise((resolve) => (settle = resolve));
  return { happened, settle };
};
const heard = once();
const started = once();
const ended = once();
const subscribed = new Set();
let learned = false;
let handler;

const text = (words) => ({ content: [{ type: 'text', text: words }] });
const pixel = Buffer.from('\x89PNG', 'latin1').toString('base64');

function tools(server) {
  const tool = (name, config, call) => server.registerTool(name, config, call);
  tool(
    'add',
    {
      description: 'Add two numbers.',
      inputSchema: z.object({ a: z.int(), b: z.int() }),
      outputSchema: z.object({ total: z.int() }),
      annotations: { readOnlyHint: true, idempotentHint: true }
    },
    ({ a, b }) => ({ ...text(JSON.stringify({ total: a + b })), structuredContent: { total: a + b } })
  );
  tool('picture', { description: 'Return a text and an image.' }, () => ({
    content: [
      { type: 'text', text: 'a pixel' },
      { type: 'image', data: pixel, mimeType: 'image/png' }
    ]
  }));
  tool('fail', { description: 'Fails.' }, () => {
    throw new Error('it cannot be done');
  });
  tool('process_id', { description: 'The process that answers.' }, () => text(String(process.pid)));
  tool('enough', { description: 'Lets `count` end.' }, () => heard.settle() ?? text('enough'));
  tool(
    'count',
    { description: 'Report a count as progress until the call is aborted.', inputSchema: z.object({ to: z.int() }) },
    async ({ to }, { mcpReq }) => {
      for (let number = 1; number <= to; number++) {
        const progressToken = mcpReq._meta?.progressToken;
        const params = { progressToken, progress: number, total: to, message: `at ${number}` };
        await mcpReq.notify({ method: 'notifications/progress', params });
        await mcpReq.log('info', `counted ${number}`);
      }
      await heard.happened;
      return text('done');
    }
  );
  tool('wait', { description: 'Waits until nobody wants the answer.' }, async ({ mcpReq }) => {
    const aborted = new Promise((resolve) => mcpReq.signal.addEventListener('abort', resolve));
    started.settle();
    await aborted;
    ended.settle();
    return text('nobody reads this');
  });
  tool('waiting', { description: 'Returns when `wait` runs.' }, async () => {
    await started.happened;
    return text('it waits');
  });
  tool('ended_with', { description: 'Returns when `wait` was withdrawn.' }, async () => {
    await ended.happened;
    return text('cancelled');
  });
  tool('drop', { description: 'Closes the stream its result would have come by.' }, ({ http }) => {
    http?.closeSSE?.();
    return text('found again');
  });
}

function questions(server) {
  const ask = (name, description, request, read) =>
    server.registerTool(name, { description }, ({ mcpReq }) => {
      const answer = inputResponse(mcpReq.inputResponses, 'asked');
      return answer.kind === 'missing'
        ? inputRequired({ inputRequests: { asked: request } })
        : text(read(answer));
    });
  const requestedSchema = z.object({ name: z.string() });
  const form = inputRequired.elicit({ message: 'Who is there?', requestedSchema });
  ask('ask_user', 'Asks who is there.', form, ({ action, content }) =>
    action === 'accept' ? `accept: ${content.name}` : action
  );
  const question = { role: 'user', content: { type: 'text', text: 'Say something.' } };
  const sampling = inputRequired.createMessage({ messages: [question], maxTokens: 10 });
  ask('ask_model', "Asks the client's model.", sampling, ({ result }) => result.content.text);
  const roots = inputRequired.listRoots();
  ask('ask_roots', "Asks for the client's roots.", roots, (answer) =>
    answer.roots.map(({ uri }) => uri).join(' ')
  );
}

// Over HTTP in the stateless mode there is a server for each request; the handler has the subscriptions.
function changes(server, era) {
  const notify = era === 'modern' ? handler?.notify : undefined;
  const learn = () => server.registerTool('learned', { description: 'What was learned.' }, () => text('yes'));
  server.registerTool(
    'touch',
    { description: 'Says that a resource has changed.', inputSchema: z.object({ uri: z.string() }) },
    async ({ uri }) => {
      if (notify) notify.resourceUpdated(uri);
      else if (era === 'modern' || subscribed.has(uri)) await server.server.sendResourceUpdated({ uri });
      return text('touched');
    }
  );
  server.registerTool('learn', { description: 'Adds a tool.' }, () => {
    learned = true;
    learn();
    notify?.toolsChanged();
    return text('learned');
  });
  if (learned) learn();
}

function features(server) {
  const contents = (uri, rest) => ({ contents: [{ uri: uri.href, ...rest }] });
  server.registerResource('photo', 'note://photo', { mimeType: 'image/png' }, (uri) =>
    contents(uri, { mimeType: 'image/png', blob: pixel })
  );
  server.registerResource('today', 'note://today', { mimeType: 'text/plain' }, (uri) =>
    contents(uri, { mimeType: 'text/plain', text: 'water the plants' })
  );
  server.registerResource(
    'note',
    new ResourceTemplate('note://by-name/{name}', { list: undefined }),
    { mimeType: 'application/json' },
    (uri, { name }) => contents(uri, { mimeType: 'application/json', text: JSON.stringify({ name }) })
  );
  const name = completable(z.string(), (value) =>
    ['Ada', 'Alan', 'Grace'].filter((each) => each.startsWith(value))
  );
  server.registerPrompt('greet', { description: 'Greets somebody.', argsSchema: z.object({ name }) }, (args) => ({
    messages: [{ role: 'user', content: { type: 'text', text: `Greet ${args.name}.` } }]
  }));
}

function subscriptions({ server }) {
  server.setRequestHandler('resources/subscribe', ({ params }) => subscribed.add(params.uri) && {});
  server.setRequestHandler('resources/unsubscribe', ({ params }) => subscribed.delete(params.uri) && {});
}

function make({ era }) {
  const server = new McpServer(
    { name: 'official-typescript', version: '1.0.0' },
    {
      instructions: 'Be kind.',
      capabilities: { logging: {}, resources: { subscribe: true, listChanged: true } }
    }
  );
  for (const add of [tools, questions, changes, features]) add(server, era);
  if (era === 'legacy') subscriptions(server);
  return server;
}

// -- over HTTP: the stateless mode by the SDK's handler, sessions with events as its guide has them --

class Events {
  #events = [];

  async storeEvent(stream, message) {
    this.#events.push({ stream, message });
    return String(this.#events.length);
  }

  async getStreamIdForEventId(id) {
    return this.#events[Number(id) - 1]?.stream;
  }

  async replayEventsAfter(last, { send }) {
    const { stream } = this.#events[Number(last) - 1];
    for (let at = Number(last); at < this.#events.length; at++) {
      const { stream: of, message } = this.#events[at];
      if (of === stream && Object.keys(message).length > 0) await send(String(at + 1), message);
    }
    return stream;
  }
}

const sessions = new Map();

async function opened() {
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: new Events(),
    retryInterval: 10,
    onsessioninitialized: (id) => sessions.set(id, transport)
  });
  await make({ era: 'legacy' }).connect(transport);
  return transport;
}

async function body(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return chunks.length > 0 ? JSON.parse(Buffer.concat(chunks)) : undefined;
}

function withSessions() {
  handler = createMcpHandler(make, { legacy: 'reject' });
  const stateless = toNodeHandler(handler);
  return async (request, response) => {
    const parsed = await body(request);
    if (!(await isLegacyRequest(await toWebRequest(request, parsed)))) {
      return stateless(request, response, parsed);
    }
    const id = request.headers['mcp-session-id'];
    const transport = id === undefined ? await opened() : sessions.get(id);
    if (transport === undefined) return response.writeHead(404).end();
    return transport.handleRequest(request, response, parsed);
  };
}

function withoutSessions() {
  handler = createMcpHandler(make, { responseMode: 'json' });
  return toNodeHandler(handler);
}

function serveHttp(answer, port) {
  const server = createServer(answer);
  server.listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
}

const [transport = 'stdio', port = '0'] = process.argv.slice(2);
if (transport === 'http') serveHttp(withSessions(), Number(port));
else if (transport === 'plain') serveHttp(withoutSessions(), Number(port));
else serveStdio(make);
