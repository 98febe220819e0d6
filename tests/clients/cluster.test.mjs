// A session of the TypeScript SDK of the handshake era survives the death of its replica, behind a load balancer.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync, mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { serveCluster } from '../cluster.mjs';

// The time in milliseconds after which no further notification is expected without a change: longer than lost changes are
// held back.
const QUIET = 4_000;

/** Waits until `so` returns true. */
async function eventually(what, so) {
  const began = Date.now();
  while (!(await so())) {
    if (Date.now() - began > 60_000) throw new Error(`not in time: ${what}`);
    await new Promise(done => setTimeout(done, 50));
  }
}

test('a session survives the death of its replica in mid-conversation', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'libris-'));
  mkdirSync(join(folder, 'docs'));
  for (const name of ['a', 'b']) writeFileSync(join(folder, `docs/${name}.txt`), 'first');
  writeFileSync(join(folder, 'libris.toml'), '[[files]]\npath = "docs"\n');
  const cluster = await serveCluster(join(folder, 'libris.toml'));
  try {
    const client = new Client({ name: 'libris-tests', version: '0' });
    const transport = new StreamableHTTPClientTransport(new URL(cluster.url));
    const heard = new Set();
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => heard.add(params.uri));
    await client.connect(transport);
    const session = transport.sessionId;
    await client.subscribeResource({ uri: 'file:///docs/a.txt' });
    for (const replica of cluster.replicas.slice(0, 2)) {
      await replica.kill();
      // Requests go on: the load balancer passes them to the others, which restore the session.
      for (let request = 0; request < 6; request++) {
        const { contents } = await client.readResource({ uri: 'file:///docs/a.txt' });
        assert.match(contents[0].text, /first|changed/);
      }
    }
    await client.subscribeResource({ uri: 'file:///docs/b.txt' });
    assert.equal(transport.sessionId, session);
    // It hears of what may have changed meanwhile. Only when that is over is a notification due to the change below.
    let last = Date.now();
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
      heard.add(params.uri);
      last = Date.now();
    });
    await eventually('it hears nothing new', () => Date.now() - last > QUIET);
    heard.clear();
    // Its event stream has moved to the replica that is left, or moves there.
    for (const name of ['a', 'b']) writeFileSync(join(folder, `docs/${name}.txt`), 'changed');
    await eventually('it hears of both', () => heard.has('file:///docs/a.txt') && heard.has('file:///docs/b.txt'));
    await client.close();
  } finally {
    await cluster.stop();
    rmSync(folder, { recursive: true });
  }
});
