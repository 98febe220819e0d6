// The stream of changes that the page follows, against a server that is played here.
import assert from 'node:assert/strict';
import { test } from 'node:test';

Object.assign(globalThis, { sessionStorage: { getItem: () => null }, addEventListener: () => {} });
const { Mcp } = await import('../../crates/web/page/mcp.js');

/** Answers the requests of a page: each becomes a stream, unless the server is down. */
function server() {
  const streams = [];
  const played = { streams, isDown: false };
  globalThis.fetch = async (_, { body, signal }) => {
    if (played.isDown) throw new TypeError('network error');
    const { params: { notifications } } = JSON.parse(body);
    const stream = { uris: notifications.resourceSubscriptions, isOpen: true };
    const events = new ReadableStream({
      start(controller) {
        stream.tell = (method, params = {}) => controller.enqueue(new TextEncoder().encode(`data: ${JSON.stringify({ method: `notifications/${method}`, params })}\n\n`));
        stream.end = () => controller.close();
        signal.addEventListener('abort', () => {
          stream.isOpen = false;
          controller.error(signal.reason);
        });
      },
    });
    streams.push(stream);
    return new Response(events, { headers: { 'content-type': 'text/event-stream' } });
  };
  return played;
}

/** Waits until something is true. */
async function until(condition, what) {
  const end = Date.now() + 10_000;
  while (!condition()) {
    assert.ok(Date.now() < end, `not ${what}`);
    await new Promise(resolve => setTimeout(resolve, 5));
  }
}

function follower() {
  const mcp = new Mcp();
  const told = [];
  for (const name of ['updated', 'listchanged', 'missed']) mcp.addEventListener(name, ({ detail }) => told.push(detail ?? name));
  return { mcp, told };
}

const ACKNOWLEDGED = 'subscriptions/acknowledged';

test('no change is lost while other resources are chosen', async () => {
  const { streams } = server();
  const { mcp, told } = follower();
  mcp.follow(['a:1']);
  await until(() => streams.length === 1, 'connected');
  streams[0].tell(ACKNOWLEDGED);
  await until(() => mcp.state === 'live', 'live');
  mcp.follow(['a:1', 'a:2']);
  await until(() => streams.length === 2, 'connected again');
  assert.deepEqual(streams[1].uris, ['a:1', 'a:2']);
  // The server has not acknowledged the new stream.
  streams[0].tell('resources/updated', { uri: 'a:1' });
  streams[0].tell('resources/list_changed');
  await until(() => told.length === 2, 'told of both changes');
  streams[1].tell(ACKNOWLEDGED);
  await until(() => !streams[0].isOpen, 'the first stream is closed');
  streams[1].tell('resources/updated', { uri: 'a:2' });
  await until(() => told.length === 3, 'told of the third change');
  assert.deepEqual(told, ['a:1', 'listchanged', 'a:2']);
  // The same resources need no other stream.
  mcp.follow(['a:2', 'a:1']);
  assert.equal(streams.length, 2);
});

test('what changed while the page was offline is fetched, even if other resources are chosen meanwhile', async () => {
  const played = server();
  const { streams } = played;
  const { mcp, told } = follower();
  mcp.follow(['a:1']);
  await until(() => streams.length === 1, 'connected');
  streams[0].tell(ACKNOWLEDGED);
  await until(() => mcp.state === 'live', 'live');
  played.isDown = true;
  streams[0].end();
  await until(() => mcp.state === 'offline', 'offline');
  mcp.follow(['a:1', 'a:2']);
  played.isDown = false;
  await until(() => streams.length === 2, 'connected again');
  // It is chosen again before the server acknowledges the stream.
  mcp.follow(['a:3']);
  await until(() => streams.length === 3, 'connected for the last choice');
  assert.equal(streams[1].isOpen, false);
  streams[2].tell(ACKNOWLEDGED);
  await until(() => mcp.state === 'live', 'live again');
  assert.deepEqual(streams[2].uris, ['a:3']);
  assert.deepEqual(told, ['missed']);
});

test('a stream that ends before its successor is acknowledged leaves a gap that is fetched', async () => {
  const { streams } = server();
  const { mcp, told } = follower();
  mcp.follow(['a:1']);
  await until(() => streams.length === 1, 'connected');
  streams[0].tell(ACKNOWLEDGED);
  await until(() => mcp.state === 'live', 'live');
  mcp.follow(['a:2']);
  await until(() => streams.length === 2, 'connected again');
  streams[0].end();
  await new Promise(resolve => setTimeout(resolve, 20));
  streams[1].tell(ACKNOWLEDGED);
  await until(() => told.length > 0, 'told');
  assert.deepEqual(told, ['missed']);
  assert.equal(streams.length, 2);
});
