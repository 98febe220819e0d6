// A folder worth serving, and what every client must find in it: over stdio and over HTTP.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { bin, serveHttp } from '../libris.mjs';

export const LEGACY = '2025-11-25';
export const MODERN = '2026-07-28';

const NOT_FOUND = { [LEGACY]: -32002, [MODERN]: -32602 };
const ROOT = 'file:///library/';
const TEMPLATE = `${ROOT}{+path}{?lines,bytes}`;
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

/**
 * Declares the tests of one client. `connect` is given `{ url }` or `{ command, args }` and returns
 * `{ revision, list, read, templates, complete, errorOf, close }`; what it cannot do, it leaves out.
 * A client that turns the pages by itself says `pagesItself`, one that does not tell the code of an
 * error `hidesCodes`.
 */
export function visits(client, { revision, connect }) {
  for (const transport of ['stdio', 'http']) {
    describe(`${client} over ${transport}`, { concurrency: 2 }, () => {
      let library, server, visitor;
      before(async () => {
        library = makeLibrary();
        server = transport === 'http' && (await serveHttp([library.folder]));
        visitor = await connect(server ? { url: server.url } : { command: bin, args: ['serve', library.folder, '--stdio'] });
      });
      after(async () => {
        await visitor?.close?.();
        await server?.stop?.();
        library?.remove();
      });

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
        assert.deepEqual(found.map(resource => resource.uri).sort(), everythingIn(library.folder));
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
        assert.deepEqual(Buffer.from(content.blob, 'base64'), readFileSync(join(library.folder, 'guide/picture.png')));
      });

      test('reads a directory', async () => {
        const contents = await visitor.read(`${ROOT}guide/`);
        assert.deepEqual(contents.map(content => content.uri).sort(), [uriOf('guide/intro.md'), uriOf('guide/picture.png')]);
      });

      test('reads a range', async () => {
        const [lines] = await visitor.read(`${ROOT}guide/intro.md?lines=2-4`);
        assert.equal(lines.text, INTRO.slice(1, 4).join(''));
        const [bytes] = await visitor.read(`${ROOT}guide/intro.md?bytes=0-9`);
        assert.equal(bytes.text, INTRO.join('').slice(0, 10));
      });

      test('lists templates', async () => {
        assert.deepEqual((await visitor.templates()).map(template => template.uriTemplate), [TEMPLATE]);
      });

      test('completes a path', async context => {
        if (!visitor.complete) return context.skip('this client cannot ask for completions');
        assert.deepEqual(await visitor.complete(TEMPLATE, 'path', 'gui'), ['guide/']);
        assert.deepEqual(await visitor.complete(TEMPLATE, 'path', 'guide/in'), ['guide/intro.md']);
      });

      test('meets not-found', async () => {
        const uri = uriOf('guide/missing.md');
        const error = await visitor.read(uri).then(() => assert.fail('it was found'), visitor.errorOf ?? (error => error));
        assert.match(error.message, /not found/i);
        if (!visitor.hidesCodes) assert.deepEqual([error.code, error.data.uri], [NOT_FOUND[revision], uri]);
      });
    });
  }
}
