// A folder worth serving, and what every client must find in it and hear of it: over stdio and over HTTP.
import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { bin, serveHttp } from '../libris.mjs';

export const LEGACY = '2025-11-25';
export const MODERN = '2026-07-28';

export const LIST_CHANGED = 'the list changed';
const INDEX = 'libris://index';
const STATUS = 'libris://status';
const NOT_FOUND = { [LEGACY]: -32002, [MODERN]: -32602 };
const ROOT = 'file:///library/';
const TEMPLATE = `${ROOT}{+path}{?lines,bytes}`;
const FOLDERS = `${ROOT}{+folder}{?after,match,format,contents}`;
const SEGMENTS = 'file:///library{/path*}';
const IMAGES = `${ROOT}{+path}?as=image{&pages,width}`;
const TEXTS = `${ROOT}{+path}{?as,pages,sheet,rows,chapter,cells,mails,lines,content}`;
const INTRO = Array.from({ length: 9 }, (_, n) => `line ${n + 1}\n`);
const PICTURE = Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), Uint8Array.from({ length: 256 }, (_, n) => n)]);
const ODD = ['with space.md', 'books 📚.md', '100%.md', '#1.md', 'why?.md'];

/** Makes the folder; it needs three pages, and has names that a URI must escape. */
function makeLibrary() {
  const home = mkdtempSync(join(tmpdir(), 'libris-clients-'));
  const folder = join(home, 'library');
  const put = (directory, name, content) => {
    mkdirSync(join(folder, directory), { recursive: true });
    writeFileSync(join(folder, directory, name), content);
  };
  for (let n = 0; n < 250; n++) put(`chapter ${n % 5}`, `note-${n}.md`, `# Note ${n}\n`);
  for (const name of ODD) put('odd', name, `${name}\n`);
  put('guide', 'intro.md', INTRO.join(''));
  put('guide', 'picture.png', PICTURE);
  return { folder, remove: () => rmSync(home, { recursive: true }) };
}

const uriOf = path => ROOT + path.split('/').map(encodeURIComponent).join('/');

function everythingIn(folder) {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  const path = entry => join(entry.parentPath, entry.name).slice(folder.length + 1);
  return [ROOT, ...entries.map(entry => uriOf(path(entry) + (entry.isDirectory() ? '/' : '')))].sort();
}

/** What a client was told, in order: URIs that were updated, and `LIST_CHANGED`. */
class News extends EventEmitter {
  heard = [];

  tell(what) {
    this.heard.push(what);
    this.emit('told');
  }

  async until(what) {
    const signal = AbortSignal.timeout(10_000);
    while (!this.heard.includes(what)) {
      await once(this, 'told', { signal }).catch(() => assert.fail(`${what} was not told, only: ${this.heard}`));
    }
  }
}

/** How a client of the handshake era comes to be told of exactly the given URIs. */
export function subscriber(client) {
  let followed = [];
  return async uris => {
    for (const uri of followed) if (!uris.includes(uri)) await client.unsubscribeResource({ uri });
    for (const uri of uris) if (!followed.includes(uri)) await client.subscribeResource({ uri });
    return (followed = uris);
  };
}

/** Serves a new library and lets the client in. */
async function enter(connect, transport) {
  const library = makeLibrary();
  const news = new News();
  let server, visitor;
  const leave = async () => {
    await visitor?.close?.();
    await server?.stop();
    library.remove();
  };
  try {
    if (transport === 'http') server = await serveHttp([library.folder]);
    const target = server ? { url: server.url } : { command: bin, args: ['serve', library.folder, '--stdio'] };
    visitor = await connect(target, what => news.tell(what));
  } catch (error) {
    await leave();
    throw error;
  }
  return { folder: library.folder, news, visitor, leave };
}

/**
 * Declares the tests of one client. `connect` is given `{ url }` or `{ command, args }`, and a function
 * to call with what the client is told. It returns `{ revision, list, read, templates, complete, tools, call,
 * follow, errorOf, close }`; what it cannot do, it leaves out. `follow` is given the URIs to be told of from then
 * on, besides the list, and returns those that the server agreed to. A client that turns the pages by
 * itself says `pagesItself`, one that does not tell the code of an error `hidesCodes`.
 */
export function visits(client, { revision, connect }) {
  for (const transport of ['stdio', 'http']) {
    describe(`${client} over ${transport}`, { concurrency: 2 }, () => {
      let visit, visitor;
      before(async () => {
        visit = await enter(connect, transport);
        visitor = visit.visitor;
      });
      after(() => visit?.leave());

      test(`speaks ${revision}`, async () => assert.equal(await visitor.revision(), revision));

      test('lists every page', async () => {
        const found = [];
        let pages = 0;
        let cursor;
        do {
          const page = await visitor.list(cursor);
          found.push(...page.resources);
          cursor = page.nextCursor;
          pages++;
        } while (cursor);
        assert.deepEqual(found.map(resource => resource.uri).sort(), [...everythingIn(visit.folder), INDEX, STATUS]);
        assert.equal(pages, visitor.pagesItself ? 1 : 3);
        const directories = found.filter(resource => resource.mimeType === 'inode/directory');
        assert.deepEqual(directories.length, 8);
      });

      test('reads every odd name', async () => {
        for (const name of ODD) {
          const uri = uriOf(`odd/${name}`);
          const [content, ...more] = await visitor.read(uri);
          assert.deepEqual([content.uri, content.text, more], [uri, `${name}\n`, []]);
        }
      });

      test('reads text', async () => {
        const [content] = await visitor.read(uriOf('guide/intro.md'));
        assert.deepEqual([content.mimeType, content.text], ['text/markdown', INTRO.join('')]);
      });

      test('reads a blob', async () => {
        const [content] = await visitor.read(uriOf('guide/picture.png'));
        assert.equal(content.mimeType, 'image/png');
        assert.deepEqual(Buffer.from(content.blob, 'base64'), readFileSync(join(visit.folder, 'guide/picture.png')));
      });

      test('reads a directory', async () => {
        const contents = await visitor.read(`${ROOT}guide/`);
        assert.deepEqual(contents.map(content => content.uri), [`${ROOT}guide/`, uriOf('guide/intro.md')]);
        assert.ok(contents[0].text.includes(`[picture.png](${uriOf('guide/picture.png')})`), contents[0].text);
      });

      test('reads a range', async () => {
        const [lines] = await visitor.read(`${ROOT}guide/intro.md?lines=2-4`);
        assert.equal(lines.text, INTRO.slice(1, 4).join(''));
        const [bytes] = await visitor.read(`${ROOT}guide/intro.md?bytes=0-9`);
        assert.equal(bytes.text, INTRO.join('').slice(0, 10));
      });

      test('lists templates', async () => {
        const templates = (await visitor.templates()).map(template => template.uriTemplate);
        assert.deepEqual(templates, [FOLDERS, IMAGES, TEXTS, TEMPLATE, SEGMENTS, `${INDEX}{?below}`, `${STATUS}{?as}`]);
      });

      test('completes a path', async context => {
        if (!visitor.complete) return context.skip('this client cannot ask for completions');
        assert.deepEqual(await visitor.complete(TEMPLATE, 'path', 'gui'), ['guide/']);
        assert.deepEqual(await visitor.complete(TEMPLATE, 'path', 'guide/in'), ['guide/intro.md']);
        assert.deepEqual(await visitor.complete(SEGMENTS, 'path', 'guide/in'), ['guide/intro.md']);
      });

      test('calls tools', async () => {
        const tools = await visitor.tools();
        assert.deepEqual(tools.map(tool => tool.name), ['search_resources', 'read_resource', 'list_resources']);
        assert.ok(tools.every(tool => tool.annotations.readOnlyHint && tool.outputSchema.type === 'object'));
        const found = await visitor.call('search_resources', { query: 'intro' });
        assert.equal(found.structuredContent.results[0].uri, uriOf('guide/intro.md'));
        const link = found.content.find(block => block.type === 'resource_link');
        assert.deepEqual([link.uri, link.mimeType], [uriOf('guide/intro.md'), 'text/markdown']);
        const read = await visitor.call('read_resource', { uri: uriOf('guide/intro.md'), lines: '2-3' });
        assert.deepEqual([read.structuredContent.text, read.isError], [INTRO.slice(1, 3).join(''), false]);
        assert.ok(read.content[0].text.includes(INTRO[1] + INTRO[2]), read.content[0].text);
        const listed = await visitor.call('list_resources', { parent: `${ROOT}guide/` });
        assert.deepEqual(listed.structuredContent.entries.map(entry => entry.uri), ['intro.md', 'picture.png'].map(name => uriOf(`guide/${name}`)));
      });

      test('gets prompts', async () => {
        assert.deepEqual((await visitor.prompts()).map(prompt => prompt.name), ['use-resources']);
        const messages = await visitor.prompt('use-resources', { topic: 'xylophones' });
        assert.match(messages[0].content.text, /Task: xylophones\n/);
        const { resource } = messages.find(({ content }) => content.type === 'resource').content;
        assert.equal(resource.uri, INDEX);
        assert.ok(resource.text.includes(ROOT), resource.text);
      });

      test('meets not-found', async () => {
        const uri = uriOf('guide/missing.md');
        const error = await visitor.read(uri).then(() => assert.fail('it was found'), visitor.errorOf ?? (error => error));
        assert.match(error.message, /not found/i);
        if (!visitor.hidesCodes) assert.deepEqual([error.code, error.data.uri], [NOT_FOUND[revision], uri]);
      });

      test('hears of what it follows, and of nothing else', async context => {
        if (!visitor.follow) return context.skip('this client cannot subscribe');
        const { folder, news, visitor: follower, leave } = await enter(connect, transport);
        context.after(leave);
        const write = path => writeFileSync(join(folder, path), 'written\n');
        const text = async path => (await follower.read(uriOf(path)))[0].text;
        // What is told together comes in any order. When the second of these is heard, everything that
        // was owed when the first was told has been heard too.
        const settle = async fences => {
          for (const fence of fences) {
            write(fence);
            await news.until(uriOf(fence));
          }
        };
        const [followed, other, created] = [`odd/${ODD[1]}`, 'guide/intro.md', 'guide/created.md'];
        const [first, second] = [0, 1].map(chapter => [0, 5].map(n => `chapter ${chapter}/note-${chapter + n}.md`));
        const fences = [...first, ...second].map(uriOf);

        const agreed = [uriOf(followed), ...fences];
        assert.deepEqual((await follower.follow(agreed)).toSorted(), agreed.toSorted());
        assert.equal(await text(followed), `${ODD[1]}\n`);
        write(created);
        await news.until(LIST_CHANGED);
        assert.deepEqual(news.heard, [LIST_CHANGED]);

        write(other);
        write(followed);
        await news.until(uriOf(followed));
        await settle(first);
        const told = new Set(news.heard.splice(0));
        told.delete(LIST_CHANGED); // the list shows sizes
        assert.deepEqual(told, new Set([uriOf(followed), ...first.map(uriOf)]));
        assert.equal(await text(followed), 'written\n');

        await follower.follow(fences);
        write(followed);
        await settle(second);
        assert.ok(!news.heard.includes(uriOf(followed)), `still told: ${news.heard}`);
      });

      test('cannot follow what nobody serves', async context => {
        if (!visitor.follow) return context.skip('this client cannot subscribe');
        const following = visitor.follow(['file:///nowhere/missing.md']);
        if (revision === MODERN) return assert.deepEqual(await following, []);
        const error = await following.then(() => assert.fail('it was found'), visitor.errorOf ?? (error => error));
        assert.deepEqual([error.code, error.data.uri], [NOT_FOUND[revision], 'file:///nowhere/missing.md']);
      });
    });
  }
}
