// A server of the official SDK with an app, made with its helpers, over stdio.

import { RESOURCE_MIME_TYPE, getUiCapability, registerAppResource, registerAppTool } from '@modelcontextprotocol/ext-apps/server';
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

const uri = 'ui://orders/table';
const csp = { connectDomains: ['https://api.example.com'] };

serveStdio(() => {
  const server = new McpServer({ name: 'apps', version: '1.0.0' });
  const declared = () => getUiCapability(server.server.getClientCapabilities()) ?? null;
  registerAppTool(server, 'orders', { description: 'Orders.', _meta: { ui: { resourceUri: uri } } }, () => ({
    content: [{ type: 'text', text: JSON.stringify(declared()) }]
  }));
  registerAppTool(server, 'refund', { description: 'Refund.', _meta: { ui: { visibility: ['app'] } } }, () => ({
    content: []
  }));
  registerAppResource(server, 'Orders', uri, { _meta: { ui: { csp } } }, () => ({
    contents: [{ uri, mimeType: RESOURCE_MIME_TYPE, text: '<!doctype html>' }]
  }));
  return server;
});
