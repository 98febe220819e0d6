// The parts of the page that need no browser: URIs, templates, names and exports.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clean, folderKey, kindOf, lastSegment, marked, parentOf, passage, titleOf, tokensOfText } from '../../crates/web/page/format.js';
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
  assert.equal(passage('5: # On call\n7: The [one](on-call.md)\n8: - looks at 12:30'), 'On call · The one looks at 12:30');
  assert.equal(passage('1: Run `libris serve`, **now**\n2: ## Next'), 'Run libris serve, now Next');
  assert.equal(passage('1: <!-- page 12 -->\n2: \n3: Chapter 12'), 'page 12 · Chapter 12');
  assert.equal(kindOf({ uri: 'a:b.csv', mimeType: 'text/plain' }), 'table');
  assert.equal(tokensOfText('abcd'.repeat(10)), 10);
  assert.equal(tokensOfText('日本語'), 3);
});

test('exports keep contents apart, whatever they contain', async () => {
  const contents = {
    'a:1': [{ uri: 'a:1', mimeType: 'text/markdown', text: '````\n</document>&' }],
    'a:2': [{ uri: 'a:2', blob: 'AAE=' }],
  };
  const library = { read: async uri => {
    if (!contents[uri]) throw new Error('resource not found');
    return { contents: contents[uri] };
  } };
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
