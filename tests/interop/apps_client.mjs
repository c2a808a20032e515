// The official client and the helpers of hosts look at the apps of a server; its arguments start it.

import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { RESOURCE_MIME_TYPE, getToolUiResourceUri, isToolVisibilityAppOnly } from '@modelcontextprotocol/ext-apps/app-bridge';

const extensions = { 'io.modelcontextprotocol/ui': { mimeTypes: [RESOURCE_MIME_TYPE] } };
const [command, ...args] = process.argv.slice(2);
const report = {};
for (const mode of ['legacy', { pin: '2026-07-28' }]) {
  const client = new Client({ name: 'apps', version: '1.0.0' }, { capabilities: { extensions }, versionNegotiation: { mode } });
  await client.connect(new StdioClientTransport({ command, args, stderr: 'ignore' }));
  const { tools } = await client.listTools();
  const uri = getToolUiResourceUri(tools.find(({ name }) => name === 'list_orders'));
  const { contents } = await client.readResource({ uri });
  report[mode.pin ?? mode] = {
    uri,
    forAppsAlone: tools.filter(isToolVisibilityAppOnly).map(({ name }) => name),
    mimeType: contents[0].mimeType === RESOURCE_MIME_TYPE,
    ui: contents[0]._meta.ui,
    declared: client.getServerCapabilities().extensions ?? null
  };
  await client.close();
}
console.log(JSON.stringify(report));
