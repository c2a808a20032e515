// Many sessions of an official TypeScript client, for many_sessions.py.
//
// Its argument is JSON: {"sdk": 1 or 2, "url": string, "sessions": number, "path": string}. It prints
// a line with the processes in which its sessions are, each of which has a call that is held, and
// reads a line with the process that was killed. Then it prints its report.

import { createInterface } from 'node:readline';

const { sdk, url, sessions, path } = JSON.parse(process.argv[2]);
const v1 = '@modelcontextprotocol/sdk';
const { Client } = await import(sdk === 1 ? `${v1}/client/index.js` : '@modelcontextprotocol/client');
const { StreamableHTTPClientTransport } = await import(
  sdk === 1 ? `${v1}/client/streamableHttp.js` : '@modelcontextprotocol/client'
);
const elicit = sdk === 1 ? (await import(`${v1}/types.js`)).ElicitRequestSchema : 'elicitation/create';

async function open() {
  const client = new Client(
    { name: 'many', version: '1.0.0' },
    { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: 'legacy' } }
  );
  client.setRequestHandler(elicit, () => ({ action: 'accept', content: { name: 'Ada' } }));
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const say = async (name, args = {}, options = {}) => {
    const called = { name, arguments: args };
    const result = await (sdk === 1
      ? client.callTool(called, undefined, options)
      : client.callTool(called, options));
    return result.content[0].text;
  };
  return { client, say };
}

const report = { kept: 0, lost: 0, back: 0, problems: [] };
const expect = (given, wanted) => {
  if (given !== wanted) throw new Error(`${given} instead of ${wanted}`);
};

async function begin() {
  const { client, say } = await open();
  const pid = await say('pid');
  expect(await say('ask'), 'Ada');
  expect(await say('drop'), 'found again');
  const leaving = new AbortController();
  let holds;
  const holding = new Promise((resolve) => (holds = resolve));
  const held = say('hold', { path }, { signal: leaving.signal, onprogress: holds });
  held.catch(() => undefined);
  await holding;
  return { client, say, pid, held, leaving };
}

async function goOn({ client, say, pid, held, leaving }, killed) {
  if (pid !== killed) {
    expect(await held, 'held');
    expect(await say('ask'), 'Ada');
    expect(await say('pid'), pid);
    report.kept += 1;
    await client.close();
    return;
  }
  leaving.abort();
  const answer = await say('pid').then(String, (error) => error);
  if (answer.code !== 404 && answer.data?.status !== 404) throw answer;
  report.lost += 1;
  await client.close();
  const again = await open();
  expect(await again.say('ask'), 'Ada');
  report.back += 1;
  await again.client.close();
}

const begun = await Promise.all(Array.from({ length: sessions }, begin));
console.log(JSON.stringify(begun.map(({ pid }) => Number(pid))));
for await (const line of createInterface({ input: process.stdin })) {
  const going = begun.map((each) => goOn(each, line).catch((error) => report.problems.push(`${error}`)));
  await Promise.all(going);
  break;
}
console.log(JSON.stringify(report));
process.exit(0);
