// A minimal server of the TypeScript SDK 1: typescript1.mjs FOLDER stdio|legacy
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { ListResourcesRequestSchema, ReadResourceRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { listen, load } from './shelf.mjs';

const [folder, way] = process.argv.slice(2);
const shelf = load(folder);

function minimal() {
  const server = new Server({ name: 'minimal', version: '1' }, { capabilities: { resources: {} } });
  server.setRequestHandler(ListResourcesRequestSchema, shelf.list);
  server.setRequestHandler(ReadResourceRequestSchema, shelf.read);
  return server;
}

/** A server for each session. */
function sessions() {
  const open = new Map();
  return async (request, response) => {
    let transport = open.get(request.headers['mcp-session-id']);
    if (!transport) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        enableJsonResponse: true,
        onsessioninitialized: id => void open.set(id, transport),
      });
      await minimal().connect(transport);
    }
    await transport.handleRequest(request, response);
  };
}

if (way === 'stdio') await minimal().connect(new StdioServerTransport());
else listen(createServer(sessions()));
