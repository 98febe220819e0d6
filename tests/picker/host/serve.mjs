// Serves the chat and its sandbox on two origins. The chat passes `/mcp` on to the server under test.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { join } from 'node:path';
import { rolldown } from 'rolldown';

const file = name => readFileSync(join(import.meta.dirname, name));

/** What the specification says hosts must use for an app that declares no domains. */
const POLICY = [
  "default-src 'none'", "script-src 'self' 'unsafe-inline'", "style-src 'self' 'unsafe-inline'", "img-src 'self' data:",
  "media-src 'self' data:", "connect-src 'none'", "frame-src 'none'", "object-src 'none'", "base-uri 'self'",
].join('; ');

async function listen(server) {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${server.address().port}`;
}

async function bundled() {
  const bundle = await rolldown({ input: join(import.meta.dirname, 'host.js'), platform: 'browser', logLevel: 'silent' });
  const { output } = await bundle.generate({ format: 'es', codeSplitting: false });
  await bundle.close();
  return output[0].code;
}

/** Starts both; `stop()` ends them. */
export async function serveChat(mcp) {
  const script = await bundled();
  const sent = (response, type, body, headers = {}) => response.writeHead(200, { 'content-type': type, ...headers }).end(body);
  const chat = createServer((asked, response) => {
    if (asked.url === '/mcp') {
      const { host, origin, referer, ...headers } = asked.headers;
      const passed = request(mcp, { method: asked.method, headers }, answer => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      });
      passed.on('error', () => response.destroy());
      response.on('close', () => passed.destroy());
      asked.pipe(passed);
    } else if (asked.url === '/host.js') sent(response, 'text/javascript', script);
    else if (asked.url === '/') sent(response, 'text/html', file('host.html'));
    else response.writeHead(404).end();
  });
  const sandbox = createServer((asked, response) => sent(response, 'text/html', file('proxy.html'), { 'content-security-policy': POLICY }));
  const [url, proxy] = [await listen(chat), await listen(sandbox)];
  return {
    url,
    proxy: `${proxy}/`,
    async stop() {
      for (const server of [chat, sandbox]) {
        server.closeAllConnections();
        server.close();
        await once(server, 'close');
      }
    },
  };
}
