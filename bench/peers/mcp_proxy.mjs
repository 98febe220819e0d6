// mcp-proxy in front of a server over stdio, on a free port. The arguments are the command line of the server.
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { setTimeout } from 'node:timers/promises';

const probe = createServer().listen(0, '127.0.0.1');
await once(probe, 'listening');
const { port } = probe.address();
probe.close();
await once(probe, 'close');

const options = ['--host', '127.0.0.1', '--port', String(port), '--server', 'stream'];
process.argv.splice(2, Infinity, ...options, '--', ...process.argv.slice(2));
await import(new URL('./node_modules/mcp-proxy/dist/bin/mcp-proxy.mjs', import.meta.url));

for (;;) {
  const socket = connect(port, '127.0.0.1');
  const listens = await Promise.race([
    once(socket, 'connect').then(() => true, () => false),
    setTimeout(1000, false),
  ]);
  socket.destroy();
  if (listens) break;
  await setTimeout(20);
}
console.error(`listening on http://127.0.0.1:${port}/mcp`);
