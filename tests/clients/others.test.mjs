// The client commands of Libris on servers that others wrote, or wrote with other SDKs.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { bin } from '../libris.mjs';

const at = path => fileURLToPath(new URL(path, import.meta.url));
const programs = at('../../examples/compare');
const everything = fileURLToPath(import.meta.resolve('@modelcontextprotocol/server-everything/dist/index.js'));

/** Runs a command of Libris at 80 columns: its exit code and what it printed. */
function libris(args, target) {
  const command = [...args, ...(typeof target === 'string' ? [target] : ['--', ...target])];
  const env = { ...process.env, COLUMNS: '80', LIBRIS_LOG: 'error' };
  return new Promise(resolve => {
    execFile(bin, command, { env, maxBuffer: 1 << 26, timeout: 120_000 }, (error, stdout, stderr) =>
      resolve({ code: error ? error.code : 0, stdout, stderr }),
    );
  });
}

/** Runs a command that succeeds. */
async function succeeds(args, target) {
  const { code, stdout, stderr } = await libris(args, target);
  assert.equal(code, 0, stderr);
  return stdout;
}

const jsonLines = text => text.trimEnd().split('\n').map(line => JSON.parse(line));

/** What every server must allow. */
function allows(target, { name, text, missing, template }) {
  test('info', async () => {
    const [info] = jsonLines(await succeeds(['info', '--json'], target()));
    assert.match(info.name, name);
    assert.ok(info.capabilities.resources, 'it has resources');
    assert.match(await succeeds(['info'], target()), /^revision +20\d\d-\d\d-\d\d$/m);
  });

  test('ls', async () => {
    const lines = (await succeeds(['ls'], target())).trimEnd().split('\n');
    const uris = jsonLines(await succeeds(['ls', '--json'], target())).map(resource => resource.uri);
    assert.deepEqual(uris, [...uris].sort((a, b) => (a < b ? -1 : 1)), 'in the order of URIs');
    assert.ok(uris.includes(text.uri), `${text.uri} is listed`);
    for (const line of lines) assert.ok(line.length <= 80 || !line.includes('  '), line);
  });

  test('read', async () => {
    assert.match(await succeeds(['read', text.uri], target()), text.content);
    const parts = jsonLines(await succeeds(['read', '--json', text.uri], target()));
    assert.match(parts[0].text, text.content);
    const { code, stderr } = await libris(['read', missing], target());
    assert.equal(code, 3, stderr);
  });

  test('templates and complete', async () => {
    const templates = jsonLines(await succeeds(['templates', '--json'], target()));
    assert.ok(templates.some(one => one.uriTemplate === template.uri), `${template.uri} is listed`);
    const completed = await succeeds(['complete', template.uri, template.typed], target());
    assert.match(completed, template.completed);
  });
}

/** Waits for two updates of a resource. */
async function watches(target, uri) {
  const args = ['watch', '--count', '2', '--uri', uri];
  const lines = (await succeeds(args, target)).trimEnd().split('\n');
  assert.equal(lines.length, 2);
  for (const line of lines) assert.match(line, /^(updated|described|added|lost)/);
}

// The same notes, with several SDKs.
const servers = {
  'rmcp': [at('../../target/debug/compare-rmcp')],
  'FastMCP': [at('../../target/clients/fastmcp/bin/python'), '-B', `${programs}/serve_fastmcp.py`],
  '@modelcontextprotocol/server': [process.execPath, `${programs}/typescript.mjs`],
};

for (const [sdk, command] of Object.entries(servers)) {
  describe(`libris on a server with ${sdk}`, { concurrency: 2 }, () => {
    allows(() => command, {
      name: /^documents$/,
      text: { uri: 'docs://documents/note-001', content: /^# note-001\n/ },
      missing: 'docs://documents/none',
      template: { uri: 'docs://documents/{doc_id}{?version}', typed: 'doc_id=note-00', completed: /^note-000\nnote-001\n/ },
    });
    test('a query of a template', async () => {
      assert.equal(await succeeds(['read', 'docs://documents/note-002?version=2'], command), '# note-002\n\nVersion 2.\n');
    });
    // FastMCP accepts subscriptions, and its servers never send an update.
    if (sdk !== 'FastMCP') test('watch', () => watches(command, 'docs://documents/note-000'));
  });
}

const ofEverything = {
  name: /everything/,
  text: { uri: 'demo://resource/static/document/features.md', content: /Everything Server/ },
  missing: 'demo://resource/static/document/none.md',
  template: {
    uri: 'demo://resource/dynamic/text/{resourceId}',
    typed: 'resourceId=1',
    completed: /^1\n/,
  },
};

describe('libris on server-everything over stdio', { concurrency: 2 }, () => {
  const target = [process.execPath, everything, 'stdio'];
  allows(() => target, ofEverything);
  test('binary contents', async () => {
    const [part] = jsonLines(await succeeds(['read', '--json', 'demo://resource/dynamic/blob/7'], target));
    assert.match(Buffer.from(part.blob, 'base64').toString(), /7/);
  });
});

describe('libris on server-everything over HTTP', async () => {
  let url;
  let server;
  const started = (async () => {
    const probe = createServer().listen(0, '127.0.0.1');
    await once(probe, 'listening');
    const { port } = probe.address();
    probe.close();
    await once(probe, 'close');
    server = spawn(process.execPath, [everything, 'streamableHttp'], {
      env: { ...process.env, PORT: String(port) },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    process.once('exit', () => server.kill('SIGKILL'));
    for await (const line of createInterface({ input: server.stderr })) {
      if (/listening/i.test(line)) break;
    }
    server.stderr.resume();
    url = `http://127.0.0.1:${port}/mcp`;
  })();
  after(() => server?.kill());
  await started;
  allows(() => url, ofEverything);
});
