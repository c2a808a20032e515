// The official TypeScript client logs in at the server whose URL is its argument, and calls `who`.
//
// It prints the page at which a person agrees, and reads the URL at which their browser ended.

import { createInterface } from 'node:readline';

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const url = new URL(process.argv[2]);
const kept = {};
const authProvider = {
  redirectUrl: process.argv[3],
  clientMetadata: { client_name: 'typescript', redirect_uris: [process.argv[3]] },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => (kept.tokens = tokens),
  redirectToAuthorization: (page) => console.log(String(page)),
  saveCodeVerifier: (verifier) => (kept.verifier = verifier),
  codeVerifier: () => kept.verifier
};
const transport = () => new StreamableHTTPClientTransport(url, { authProvider });
const client = () => new Client({ name: 'interop-login', version: '1.0.0' });

const first = transport();
try {
  await client().connect(first);
  throw new Error('the server asked for no token');
} catch (error) {
  if (!(error instanceof UnauthorizedError)) throw error;
}
const lines = createInterface({ input: process.stdin });
const back = new URL((await lines[Symbol.asyncIterator]().next()).value);
lines.close();
await first.finishAuth(back.searchParams.get('code'));
const second = client();
await second.connect(transport());
const answer = await second.callTool({ name: 'who', arguments: {} });
console.log(answer.content[0].text.replaceAll('\n', ' '));
await second.close();
