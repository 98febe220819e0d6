// The parts of the page that need no browser: URIs, templates, names and exports.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { attach } from '../../crates/web/page/attach.js';
import { settled } from '../../crates/web/page/dom.js';
import { readFile, textOf } from '../../crates/web/page/file.js';
import { clean, folderKey, kindOf, lastSegment, marked, parentOf, passage, titleOf, tokensOf, tokensOfText } from '../../crates/web/page/format.js';
import { expand, variables } from '../../crates/web/page/templates.js';
import { contextOf } from '../../crates/web/page/context.js';
import { exported } from '../../crates/web/page/export.js';
import { snippets } from '../../crates/web/page/snippets.js';

test('a URI has a folder and a name', () => {
  for (const [uri, parent, name] of [
    ['file:///docs/guide/x%20y.md', 'file:///docs/guide', 'x y.md'],
    ['file:///docs/guide/', 'file:///docs', 'guide'],
    ['file:///docs/', null, 'docs'],
    ['git://project/refs', 'git://project', 'refs'],
    ['git://project/', null, 'project'],
    ['libris://status', null, 'status'],
    ['urn:a:b', null, 'urn:a:b'],
    ['db://shop/users/rows?limit=1#x', 'db://shop/users', 'rows'],
    ['file:///docs/%zz', 'file:///docs', '%zz'],
  ]) {
    assert.deepEqual([parentOf(uri), lastSegment(uri)], [parent, name], uri);
  }
  assert.equal(folderKey('file:///docs/'), 'file:///docs');
  assert.equal(folderKey('file:///'), 'file:///');
});

test('templates are filled in as RFC 6570 says', () => {
  const values = { path: 'a b/ü.md', table: 'x/y', limit: '10', empty: '', var: 'value' };
  for (const [template, uri] of [
    ['file:///docs/{+path}{?lines,limit}', 'file:///docs/a%20b/%C3%BC.md?limit=10'],
    ['db://{table}/rows{?empty}', 'db://x%2Fy/rows'],
    ['a:{var:3}{/var,limit}{;limit}{&limit}{#path}{.var}', 'a:val/value/10;limit=10&limit=10#a%20b/%C3%BC.md.value'],
  ]) {
    assert.equal(expand(template, values), uri, template);
  }
  assert.equal(expand('a:b{?filter*}', { filter: 'x=1&y=a b' }), 'a:b?x=1&y=a%20b');
  assert.deepEqual(variables('a:{x}{?y,x,z*}'), ['x', 'y', 'z']);
});

test('texts of others are shown safely', () => {
  assert.equal(clean('a\u202eb\nc\u0000'), 'a\ufffdb\ufffdc\ufffd');
  assert.equal(clean('x'.repeat(400), 10), `${'x'.repeat(10)}…`);
  assert.equal(titleOf({ uri: 'file:///h/data/a.json', title: 'data/a.json' }), '');
  assert.equal(titleOf({ uri: 'file:///h/a.md', title: 'Start' }), 'Start');
  assert.deepEqual(marked('Keys (a+b) keyring monkey', 'key (a+b'), ['', 'Keys', ' (a+b) ', 'keyring', ' monkey']);
  assert.deepEqual(marked('one on call', 'on call'), ['one ', 'on', ' ', 'call', '']);
  assert.equal(passage('5: # On call\n7: The [one](on-call.md)\n8: - looks at 12:30'), 'On call · The one looks at 12:30');
  assert.equal(passage('1: Run `libris serve`, **now**\n2: ## Next'), 'Run libris serve, now Next');
  assert.equal(passage('1: <!-- page 12 -->\n2: \n3: Chapter 12'), 'page 12 · Chapter 12');
  assert.equal(kindOf({ uri: 'a:b.csv', mimeType: 'text/plain' }), 'table');
  assert.equal(tokensOfText('abcd'.repeat(10)), 10);
  assert.equal(tokensOfText('日本語'), 3);
});

test('tokens are counted by the size of texts only', () => {
  const sized = (name, mimeType, more) => tokensOf({ uri: `file:///a/${name}`, mimeType, size: 4000, ...more });
  assert.equal(sized('a.md', 'text/markdown'), 1000);
  assert.equal(sized('a.ipynb', 'application/json'), 1000);
  assert.equal(sized('a.png', 'image/png'), 1500);
  for (const [name, mime] of [['a.bin', 'application/octet-stream'], ['a.zip', 'application/zip'], ['a.wav', 'audio/wav'], ['a.parquet', 'application/vnd.apache.parquet']]) {
    assert.equal(sized(name, mime), 0, name);
  }
  // Until the text was read.
  for (const name of ['a.pdf', 'a.docx', 'a.xlsx', 'a.epub']) assert.equal(sized(name, 'application/x-document'), null, name);
  const page = { _meta: { 'dev.libris/text': 'file:///a/a.html?as=text' } };
  assert.equal(sized('a.html', 'text/html', page), null);
  assert.equal(sized('a.html', 'text/html', { ...page, tokens: 12 }), 12);
});

/** A source with byte ranges, of which one request may have at most `limit` bytes, or with none. */
function ranged(data, { limit = Infinity, hasRanges = true, changes } = {}) {
  const asked = [];
  const read = async uri => {
    const [, first, last] = /bytes=(\d+)-(\d+)$/.exec(uri) ?? [];
    asked.push(first === undefined ? 'all' : Number(last) - Number(first) + 1);
    if (first === undefined) {
      if (data.length > limit) throw Object.assign(new Error('too large'), { data: { limit, size: data.length } });
      return { contents: [{ uri, mimeType: 'audio/wav', blob: data.toString('base64') }] };
    }
    if (!hasRanges) throw new Error('resource not found');
    if (Number(last) - Number(first) + 1 > limit) throw new Error('too large');
    const total = changes && asked.length > 2 ? data.length + 1 : data.length;
    const part = data.subarray(Number(first), Number(last) + 1);
    return { contents: [{ uri, mimeType: 'audio/wav', blob: part.toString('base64'), _meta: { 'dev.libris/totalBytes': total } }] };
  };
  return { read, asked };
}

test('a large resource is read in ranges, if its source has some', async () => {
  const data = Buffer.from(Array.from({ length: 5_500_000 }, (_, index) => index * 7 % 251));
  const readAll = async (source, size, options) => {
    const { parts, mimeType } = await readFile(source.read, { uri: 'file:///a.wav', size }, options);
    assert.equal(mimeType, 'audio/wav');
    assert.ok(Buffer.concat(parts).equals(data));
    return source.asked;
  };
  assert.deepEqual(await readAll(ranged(data), 5_500_000), Array(6).fill(1 << 20));
  // A source that does not say the size refuses to return it at once.
  const limited = await readAll(ranged(data, { limit: 1_000_000 }));
  assert.deepEqual(limited, ['all', ...Array(6).fill(1_000_000)]);
  assert.deepEqual(await readAll(ranged(data, { hasRanges: false }), 5_500_000), [1 << 20, 'all']);
  assert.deepEqual(await readAll(ranged(data)), ['all']);
  await assert.rejects(readAll(ranged(data), 5_500_000, { most: 5_000_000 }), /the resource has 5\.5 MB; the page reads at most 5\.0 MB/);
  await assert.rejects(readAll(ranged(data, { changes: true }), 5_500_000), /changed while it was read/);
  // A character may begin in one range and end in the next.
  assert.equal(textOf([Buffer.from([0x61, 0xc3]), Buffer.from([0xa4])]), 'aä');
  assert.equal(textOf([Buffer.from([0xc3])]), undefined);
});

test('an action waits for a pause, but not for long, and never runs twice at once', async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const pass = async milliseconds => {
    now += milliseconds;
    t.mock.timers.tick(milliseconds);
    for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
  };
  let runs = 0;
  let finish;
  const ask = settled(400, 2000, () => {
    runs += 1;
    return new Promise(resolve => { finish = resolve; });
  });
  for (let step = 0; step < 9; step += 1) {
    ask();
    await pass(200);
  }
  assert.equal(runs, 0);
  ask();
  await pass(200);
  assert.equal(runs, 1, 'after two seconds of changes');
  // A change while it runs leads to one more run, after it.
  ask();
  ask();
  await pass(5000);
  assert.equal(runs, 1);
  finish();
  await pass(0);
  await pass(400);
  assert.equal(runs, 2);
  finish();
  await pass(5000);
  assert.equal(runs, 2);
});

test('exports keep contents apart, whatever they contain', async () => {
  const contents = {
    'a:1': [{ uri: 'a:1', mimeType: 'text/markdown', text: '````\n</document>&' }],
    'a:2': [{ uri: 'a:2', blob: 'AAE=' }],
  };
  const read = async uri => {
    if (!contents[uri]) throw new Error('resource not found');
    return { contents: contents[uri] };
  };
  const library = { readFile: (resource, options) => readFile(read, resource, options) };
  const resources = [{ uri: 'a:1', title: 'One <1>', mimeType: 'text/markdown' }, { uri: 'a:2' }, { uri: 'a:3' }];
  const learned = {};
  const make = format => exported(format, resources, library, 'Why?', (uri, facts) => { learned[uri] = facts.tokens; });
  const markdown = await make('markdown');
  assert.equal(markdown.failed, 1);
  assert.match(markdown.text, /^Why\?\n\n## One <1>\n\nSource: <a:1>\n\n`````markdown\n````\n<\/document>&\n`````\n/);
  assert.match(markdown.text, /\*Could not be read: resource not found\*/);
  const xml = (await make('xml')).text;
  assert.match(xml, /<document index="1" uri="a:1" title="One &lt;1&gt;">\n````\n&lt;\/document&gt;&amp;\n<\/document>/);
  assert.match(xml, /<document index="3" uri="a:3" title="a:3" error="resource not found"\/>/);
  const json = JSON.parse((await make('json')).text);
  assert.deepEqual(json, [
    { type: 'resource', resource: contents['a:1'][0] },
    { type: 'resource', resource: contents['a:2'][0] },
    { type: 'text', text: 'Why?' },
  ]);
  assert.equal(learned['a:1'], 5);
  // A text that is too large for one response is exported like any other.
  const large = ranged(Buffer.from('a line\n'.repeat(1_000_000)), { limit: 2_000_000 });
  const whole = await exported('markdown', [{ uri: 'a:4', size: 7_000_000 }], { readFile: (resource, options) => readFile(large.read, resource, options) }, '');
  assert.equal(whole.failed, 0);
  assert.equal(whole.text.match(/^a line$/gm).length, 1_000_000);
});

test('a URI cannot leave its quotes in a program', () => {
  const { curl, TypeScript } = snippets('http://127.0.0.1/mcp', "file:///a'b\"c", false);
  assert.ok(curl.includes("'mcp-name: file:///a'\\''b\"c'"));
  assert.ok(TypeScript.includes('"file:///a\'b\\"c"'));
  // With a key, all of them send it.
  for (const [language, program] of Object.entries(snippets('http://127.0.0.1/mcp', 'a:b', true))) {
    assert.match(program, /\bKEY\b/, language);
  }
  for (const [language, program] of Object.entries(snippets('http://127.0.0.1/mcp', 'a:b', false))) {
    assert.doesNotMatch(program, /\bKEY\b/, language);
  }
});

test('the program in Rust is the one that `cargo test` compiles and runs', () => {
  const compiled = readFileSync(join(import.meta.dirname, '../../crates/cli/tests/samples/rust.rs'), 'utf8');
  for (const [name, needsKey] of [['read_without_key', false], ['read_with_key', true]]) {
    const program = snippets('ENDPOINT', 'URI', needsKey).Rust.replace('"ENDPOINT"', 'endpoint').replace('"URI"', 'uri');
    assert.ok(compiled.includes(`async fn ${name}(endpoint: &str, uri: &str) -> Result<String, Box<dyn std::error::Error>> {\n${program}\n`), name);
  }
});

test('the model learns of a selection what the host takes', () => {
  const resources = [
    { uri: 'file:///docs/a.md', name: 'a.md', title: 'First\u202e\nline', mimeType: 'text/markdown', size: 2048, priority: 1 },
    { uri: 'db://shop/users' },
  ];
  const described = [
    { uri: 'file:///docs/a.md', name: 'a.md', title: 'First\u202e\nline', mimeType: 'text/markdown', size: 2048 },
    { uri: 'db://shop/users', name: 'users' },
  ];
  const text = 'The user has selected 2 resources of this server in the picker. Read what you need with `read_resource`:\n'
    + '- a.md: file:///docs/a.md (First\ufffd\ufffdline, text/markdown, 2.0 KB)\n- users: db://shop/users';
  assert.deepEqual(contextOf(resources, { text: {} }), { content: [{ type: 'text', text }] });
  assert.deepEqual(contextOf(resources, { resourceLink: {}, structuredContent: {} }), {
    content: [{ type: 'text', text }, ...described.map(one => ({ type: 'resource_link', ...one }))],
    structuredContent: { selected: described },
  });
  assert.match(contextOf([], {}).content[0].text, /no resources selected/);
  const many = contextOf(Array.from({ length: 250 }, (_, number) => ({ uri: `a:${number}` })), { resourceLink: {} });
  assert.equal(many.content.length, 201);
  assert.match(many.content[0].text, /selected 250 resources[\s\S]*\nand 50 more$/);
});

test('files of one name are told apart', async () => {
  const known = new Map();
  const put = resource => known.set(resource.uri, resource);
  const selection = { get: uri => known.get(uri), add: ([resource]) => put(resource), replace: put };
  const add = (...files) => attach(files.map(([text, name = 'notes.md', lastModified = 1]) => new File([text], name, { lastModified })), selection);
  const texts = async () => Object.fromEntries(await Promise.all([...known.values()].map(async ({ uri, local }) => [uri, await local.text()])));
  assert.equal(await add(['one'], ['two!']), 'Another file of this name is attached as notes (2).md');
  // The same two, whenever they were saved.
  assert.equal(await add(['one']), 'notes.md is attached already');
  assert.equal(await add(['two!', 'notes.md', 2]), 'notes (2).md is attached already');
  assert.equal(await add(['six', 'notes.md', 2]), 'Another file of this name is attached as notes (3).md');
  assert.equal(await add(['plain', 'LICENSE'], ['hidden', '.env'], ['text', 'a.tar.gz']), undefined);
  await add(['other', 'LICENSE'], ['other', '.env'], ['other', 'a.tar.gz']);
  assert.deepEqual(await texts(), {
    'local:notes.md': 'one', 'local:notes%20(2).md': 'two!', 'local:notes%20(3).md': 'six',
    'local:LICENSE': 'plain', 'local:.env': 'hidden', 'local:a.tar.gz': 'text',
    'local:LICENSE%20(2)': 'other', 'local:.env%20(2)': 'other', 'local:a.tar%20(2).gz': 'other',
  });
  // Large files are not read: they are told apart by their times.
  const large = lastModified => ({ name: 'film.webm', size: 1 << 30, lastModified, slice: () => new Blob(['x']), arrayBuffer: () => assert.fail('too large to be read') });
  await attach([large(1)], selection);
  assert.equal(await attach([large(1)], selection), 'film.webm is attached already');
  assert.equal(await attach([large(2)], selection), 'Another file of this name is attached as film (2).webm');
  for (const uri of ['local:film.webm', 'local:film%20(2).webm']) known.delete(uri);
  // What was empty, or cannot be read any more, is out of date.
  const gone = selection.get('local:notes.md');
  put({ ...gone, tokens: 9, local: { size: 3, lastModified: 1, slice: () => ({ arrayBuffer: () => Promise.reject(new Error('changed')) }), arrayBuffer: () => Promise.reject(new Error('changed')) } });
  assert.equal(await add(['uno', 'notes.md', 3]), 'notes.md is attached as it is now');
  assert.equal(selection.get('local:notes.md').tokens, undefined);
  await add(['', 'empty.txt']);
  assert.equal(await add(['filled', 'empty.txt', 2]), 'empty.txt is attached as it is now');
  assert.deepEqual([(await texts())['local:notes.md'], (await texts())['local:empty.txt'], known.size], ['uno', 'filled', 10]);
});
