// A minimal server of the TypeScript SDK 2: typescript.mjs FOLDER stdio|modern|legacy
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, Server } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { listen, load } from './shelf.mjs';

const [folder, way] = process.argv.slice(2);
const shelf = load(folder);

function minimal() {
  const server = new Server({ name: 'minimal', version: '1' }, { capabilities: { resources: {} } });
  server.setRequestHandler('resources/list', shelf.list);
  server.setRequestHandler('resources/read', shelf.read);
  return server;
}

/** A server for each session. */
function sessions() {
  const open = new Map();
  return async (request, response) => {
    let transport = open.get(request.headers['mcp-session-id']);
    if (!transport) {
      transport = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        enableJsonResponse: true,
        onsessioninitialized: id => void open.set(id, transport),
      });
      await minimal().connect(transport);
    }
    await transport.handleRequest(request, response);
  };
}

if (way === 'stdio') serveStdio(minimal);
else if (way === 'modern') listen(createServer(toNodeHandler(createMcpHandler(minimal))));
else listen(createServer(sessions()));
