// The client commands of Libris on servers that others wrote, or wrote with other SDKs.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { serveHttp } from '../libris.mjs';
import { libris, printsAsBefore } from './snapshots.mjs';

const at = path => fileURLToPath(new URL(path, import.meta.url));
const programs = at('../../examples/compare');
const everything = fileURLToPath(import.meta.resolve('@modelcontextprotocol/server-everything/dist/index.js'));

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

  test('read -o', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'libris-read-'));
    after(() => rmSync(folder, { recursive: true }));
    const file = join(folder, 'contents');
    assert.equal(await succeeds(['read', '-o', file, text.uri], target()), '');
    assert.match(readFileSync(file, 'utf8'), text.content);
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

/** Runs a program for an update of a resource. */
async function runsAProgram(target, uri) {
  const printed = await succeeds(['watch', '--count', '1', '--uri', uri, '--exec', 'echo'], target);
  // What Libris prints, and what the program does.
  assert.deepEqual(printed.trimEnd().split('\n'), [`updated ${uri}`, `updated ${uri}`]);
}

// The same notes, with several SDKs.
const servers = {
  'rmcp': [at('../../target/debug/compare-rmcp')],
  'FastMCP': [at('../../target/clients/fastmcp/bin/python'), '-B', `${programs}/serve_fastmcp.py`],
  '@modelcontextprotocol/server': [process.execPath, `${programs}/typescript.mjs`],
};

const fileName = sdk => ({ rmcp: 'rmcp', FastMCP: 'fastmcp' })[sdk] ?? 'typescript';

// A note is added each second, so what counts or lists all of them is left out.
const template = 'docs://documents/{doc_id}{?version}';
const commandsOnNotes = [
  ['info'],
  ['ls', '--below', 'docs://documents/note-00'],
  ['ls', '--long', '--below', 'docs://documents/note-00'],
  ['ls', '--tree', '--below', 'docs://documents/note-01'],
  ['ls', '--json', '--below', 'docs://documents/note-017'],
  ['ls', '--mime', 'image/*'],
  ['templates'],
  ['templates', '--long'],
  ['complete', template, 'doc_id=note-01'],
  ['complete', template, 'doc_id=nothing'],
  ['read', 'docs://documents/note-017'],
  ['read', '--json', 'docs://documents/note-017?version=1'],
  ['read', 'docs://documents/none'],
  ['search', 'note-017', '--limit', '1', '--below', 'docs://documents/note-01'],
  ['bundle', '--query', 'note-017', '--budget', '200', '--below', 'docs://documents/note-017'],
  ['prompts'],
  ['skills'],
  ['bench', '--requests', '3', '--uri', 'docs://documents/note-017'],
];

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
    if (sdk !== 'FastMCP') {
      test('watch', () => watches(command, 'docs://documents/note-000'));
      test('watch --exec', () => runsAProgram(command, 'docs://documents/note-001'));
    }
    test('what every command prints', () => printsAsBefore(fileName(sdk), command, commandsOnNotes));
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

const commandsOnEverything = [
  ['info'],
  ['ls'],
  ['ls', '--long'],
  ['ls', '--tree'],
  ['ls', '--json', '--below', 'demo://resource/static/document/startup.md'],
  ['ls', '--mime', 'image/*'],
  ['templates'],
  ['templates', '--long'],
  ['complete', 'demo://resource/dynamic/text/{resourceId}', 'resourceId=1'],
  ['read', 'demo://resource/dynamic/text/7'],
  ['read', '--json', 'demo://resource/dynamic/text/7'],
  ['read', 'demo://resource/static/document/none.md'],
  ['search', 'simulated logging', '--limit', '3'],
  ['bundle', '--query', 'simulated logging', '--budget', '200'],
  ['prompts'],
  ['prompts', '--get', 'args-prompt', '--with', 'city=Oslo'],
  ['prompts', '--get', 'args-prompt'],
  ['prompts', '--get', 'none'],
  ['skills'],
  ['watch', '--uri', 'demo://resource/dynamic/text/7', '--count', '1'],
  ['bench', '--requests', '14'],
];

describe('libris on server-everything over stdio', { concurrency: 2 }, () => {
  const target = [process.execPath, everything, 'stdio'];
  allows(() => target, ofEverything);
  test('binary contents', async () => {
    const [part] = jsonLines(await succeeds(['read', '--json', 'demo://resource/dynamic/blob/7'], target));
    assert.match(Buffer.from(part.blob, 'base64').toString(), /7/);
  });
  test('watch --exec', () => runsAProgram(target, 'demo://resource/dynamic/text/7'));
  test('what every command prints', () => printsAsBefore('everything', target, commandsOnEverything));
});

// Published servers that are built on FastMCP and on version 2 of the TypeScript SDK. The templates of the first are paths
// instead of URIs, and its reads need the network. The second has one resource, an MCP App.
const commandsOnWikipedia = [
  ['info'],
  ['info', '--json'],
  ['ls'],
  ['templates'],
  ['templates', '--long'],
  ['templates', '--json'],
  ['complete', '/article/{title}', 'title=Li'],
  ['read', '/article/Library'],
  ['read', 'wikipedia://article/Library'],
  ['search', 'library'],
  ['bundle', '--query', 'library', '--budget', '200'],
  ['prompts'],
  ['skills'],
];

describe('libris on wikipedia-mcp', () => {
  const target = [at('../../target/clients/fastmcp/bin/wikipedia-mcp')];
  test('what every command prints', () => printsAsBefore('wikipedia', target, commandsOnWikipedia));
});

const app = 'ui://get-time/mcp-app.html';
const commandsOnApp = [
  ['info'],
  ['info', '--json'],
  ['ls'],
  ['ls', '--long'],
  ['ls', '--tree'],
  ['ls', '--json'],
  ['ls', '--mime', 'text/*'],
  ['ls', '--mime', 'image/*'],
  ['templates'],
  ['complete', 'ui://{name}', 'name=a'],
  ['read', 'ui://get-time/none.html'],
  ['search', 'get time'],
  ['bundle', '--query', 'get time', '--budget', '200'],
  ['prompts'],
  ['skills'],
  ['bench', '--requests', '3'],
];

describe('libris on server-basic-vanillajs', () => {
  const main = import.meta.resolve('@modelcontextprotocol/server-basic-vanillajs');
  const target = [process.execPath, fileURLToPath(new URL('index.js', main)), '--stdio'];
  test('read and read -o', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'libris-app-'));
    after(() => rmSync(folder, { recursive: true }));
    const file = join(folder, 'app.html');
    await succeeds(['read', '-o', file, app], target);
    const written = readFileSync(file, 'utf8');
    assert.match(written, /^<!DOCTYPE html>/);
    assert.equal(await succeeds(['read', app], target), written);
    const [part] = jsonLines(await succeeds(['read', '--json', app], target));
    assert.deepEqual([part.uri, part.text], [app, written]);
  });
  test('what every command prints', () => printsAsBefore('app', target, commandsOnApp));
});

// A published server for Python, which keeps insights about a database in a resource.
const commandsOnSqlite = [
  ['info'],
  ['ls'],
  ['ls', '--long'],
  ['ls', '--json'],
  ['templates'],
  ['read', 'memo://insights'],
  ['read', '--json', 'memo://insights'],
  ['read', 'memo://none'],
  ['read', '--as', 'text', 'memo://insights'],
  ['search', 'insights'],
  ['prompts'],
  ['prompts', '--get', 'mcp-demo'],
  ['skills'],
  ['bench', '--requests', '3'],
];

describe('libris on mcp-server-sqlite', () => {
  const folder = mkdtempSync(join(tmpdir(), 'libris-sqlite-'));
  after(() => rmSync(folder, { recursive: true }));
  const target = [at('../../target/clients/mcp1/bin/mcp-server-sqlite'), '--db-path', join(folder, 'shop.db')];
  test('what every command prints', () => printsAsBefore('sqlite', target, commandsOnSqlite));
});

// A published server for Python, built on FastMCP, whose resources about its configuration need no cluster.
const commandsOnKubernetes = [
  ['info'],
  ['ls'],
  ['ls', '--long'],
  ['ls', '--tree'],
  ['ls', '--json', '--below', 'kubeconfig://'],
  ['ls', '--mime', 'image/*'],
  ['templates'],
  ['templates', '--long'],
  ['complete', 'manifest://pods/{namespace}/{name}', 'namespace=o'],
  ['read', 'kubeconfig://contexts'],
  ['read', '--json', 'namespace://current'],
  ['read', 'kubeconfig://none'],
  ['prompts'],
  ['prompts', '--get', 'debug_networking'],
  ['skills'],
  ['bench', '--requests', '3', '--uri', 'namespace://current'],
];

describe('libris on kubectl-mcp-server', () => {
  const folder = mkdtempSync(join(tmpdir(), 'libris-kubernetes-'));
  after(() => rmSync(folder, { recursive: true }));
  const config = join(folder, 'config');
  writeFileSync(config, JSON.stringify({
    apiVersion: 'v1', kind: 'Config', 'current-context': 'shop',
    clusters: [{ name: 'north', cluster: { server: 'https://127.0.0.1:1' } }],
    users: [{ name: 'ada', user: { token: 'none' } }],
    contexts: [
      { name: 'shop', context: { cluster: 'north', user: 'ada', namespace: 'orders' } },
      { name: 'spare', context: { cluster: 'north', user: 'ada' } },
    ],
  }));
  const server = at('../../target/clients/fastmcp/bin/kubectl-mcp-serve');
  const target = ['env', `KUBECONFIG=${config}`, `HOME=${folder}`, server, 'serve'];
  test('what every command prints', () => printsAsBefore('kubernetes', target, commandsOnKubernetes));
});

// A published server with rmcp inside, in a package for Python. Its tools need the network, its resources do not.
const commandsOnBiomcp = [
  ['info'],
  ['info', '--json'],
  ['ls'],
  ['ls', '--long'],
  ['ls', '--tree'],
  ['ls', '--json', '--below', 'biomcp://help'],
  ['ls', '--mime', 'image/*'],
  ['templates'],
  ['complete', 'biomcp://skill/{name}', 'name=t'],
  ['read', 'biomcp://skill/trial-recruitment'],
  ['read', '--json', 'biomcp://skill/trial-recruitment'],
  ['read', 'biomcp://none'],
  ['search', 'recruitment', '--limit', '2'],
  ['bundle', '--query', 'recruitment', '--budget', '500'],
  ['prompts'],
  ['skills'],
  ['bench', '--requests', '3', '--uri', 'biomcp://help'],
];

describe('libris on biomcp-cli', () => {
  const folder = mkdtempSync(join(tmpdir(), 'libris-biomcp-'));
  after(() => rmSync(folder, { recursive: true }));
  const target = ['env', `HOME=${folder}`, at('../../target/clients/fastmcp/bin/biomcp'), 'serve'];
  test('read and read -o', async () => {
    const file = join(folder, 'help.md');
    assert.equal(await succeeds(['read', '-o', file, 'biomcp://help'], target), '');
    const written = readFileSync(file, 'utf8');
    assert.match(written, /^---\nname: biomcp\n/);
    assert.equal(await succeeds(['read', 'biomcp://help'], target), written);
  });
  test('what every command prints', () => printsAsBefore('biomcp', target, commandsOnBiomcp));
});

/** Starts server-everything over HTTP, on a free port or on this one. */
async function everythingOverHttp(wanted = 0) {
  const probe = createServer().listen(wanted, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  await once(probe, 'close');
  const server = spawn(process.execPath, [everything, 'streamableHttp'], {
    env: { ...process.env, PORT: String(port) },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const ended = once(server, 'close');
  process.once('exit', () => server.kill('SIGKILL'));
  for await (const line of createInterface({ input: server.stderr })) {
    if (/listening/i.test(line)) break;
  }
  server.stderr.resume();
  const stop = async () => {
    server.kill('SIGKILL');
    await ended;
  };
  return { url: `http://127.0.0.1:${port}/mcp`, port, stop };
}

describe('libris on server-everything over HTTP', async () => {
  const server = await everythingOverHttp();
  after(() => server.stop());
  allows(() => server.url, ofEverything);
  // The same as over stdio.
  test('what every command prints', () => printsAsBefore('everything', server.url, commandsOnEverything));
});

describe('a gateway of three servers', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'libris-gateway-'));
  let http = await everythingOverHttp();
  const upstream = (name, keys) =>
    ['[[mcp]]', `name = "${name}"`, 'uris = "prefixed"', 'prompts = true', 'retry = "100ms"', ...keys, ''].join('\n');
  const run = words => `run = ${JSON.stringify(words)}`;
  writeFileSync(
    join(folder, 'libris.toml'),
    upstream('one', [run([process.execPath, everything, 'stdio'])]) +
      upstream('two', [`url = "${http.url}"`]) +
      upstream('three', [run(servers['@modelcontextprotocol/server'])]),
  );
  const gateway = await serveHttp(['--config', join(folder, 'libris.toml')]);
  after(async () => {
    await gateway.stop();
    await http.stop();
    rmSync(folder, { recursive: true });
  });

  test('serves the resources of all', async () => {
    const uris = jsonLines(await succeeds(['ls', '--json'], gateway.url)).map(resource => resource.uri);
    for (const uri of ['one+demo://resource/static/document/startup.md', 'two+demo://resource/static/document/startup.md', 'three+docs://documents/note-001']) {
      assert.ok(uris.includes(uri), `${uri} is listed`);
    }
    assert.equal(await succeeds(['read', 'three+docs://documents/note-002?version=2'], gateway.url), '# note-002\n\nVersion 2.\n');
    const [text] = jsonLines(await succeeds(['read', '--json', 'one+demo://resource/dynamic/text/7'], gateway.url));
    assert.equal(text.uri, 'one+demo://resource/dynamic/text/7');
    const [blob] = jsonLines(await succeeds(['read', '--json', 'two+demo://resource/dynamic/blob/7'], gateway.url));
    assert.match(Buffer.from(blob.blob, 'base64').toString(), /^Resource 7/);
  });

  test('routes templates, completion and prompts', async () => {
    const templates = jsonLines(await succeeds(['templates', '--json'], gateway.url)).map(one => one.uriTemplate);
    for (const template of ['one+demo://resource/dynamic/text/{resourceId}', 'two+demo://resource/dynamic/blob/{resourceId}', 'three+docs://documents/{doc_id}{?version}']) {
      assert.ok(templates.includes(template), `${template} is listed`);
    }
    assert.equal(await succeeds(['complete', 'one+demo://resource/dynamic/text/{resourceId}', 'resourceId=3'], gateway.url), '3\n');
    assert.match(await succeeds(['complete', 'three+docs://documents/{doc_id}{?version}', 'doc_id=note-00'], gateway.url), /^note-000\nnote-001\n/);
    assert.match(await succeeds(['prompts', '--get', 'two_args-prompt', '--with', 'city=Oslo'], gateway.url), /weather in Oslo/);
    const embedded = ['prompts', '--get', 'one_resource-prompt', '--with', 'resourceType=Text', '--with', 'resourceId=1'];
    assert.match(await succeeds(embedded, gateway.url), /\(resource one\+demo:\/\/resource\/dynamic\/text\/1\)/);
  });

  test('passes updates on', () => watches(gateway.url, 'three+docs://documents/note-000'));

  test('survives the end of one, and its return', async () => {
    await http.stop();
    const gone = 'two+demo://resource/static/document/startup.md';
    const read = () => libris(['read', gone], gateway.url);
    for (let answer = await read(); answer.code === 0; answer = await read());
    const { code, stderr } = await read();
    assert.equal(code, 4, stderr);
    assert.match(stderr, /MCP server `two`/);
    assert.match(await succeeds(['read', 'one+demo://resource/static/document/startup.md'], gateway.url), /^# Everything Server/);
    const status = await succeeds(['read', 'libris://status'], gateway.url);
    assert.match(status, /mcp two/);
    http = await everythingOverHttp(http.port);
    const deadline = Date.now() + 60_000;
    while ((await read()).code !== 0) assert.ok(Date.now() < deadline, 'the server is found again');
  });
});
