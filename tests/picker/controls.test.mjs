// The controls of the page, its themes and sizes, and how it follows a server that changes, fails or stops.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { bin, serveHttp, start } from '../libris.mjs';
import { SCREENS, accessible, indexed, launch, open, origin, pane, picture, previewShows, row, until, visit } from './browser.mjs';
import { everything } from './library.mjs';

const ROOT = join(import.meta.dirname, '../..');
const WIDE = { width: 1920, height: 1080 };

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

/** The texts of a column of the list, from the top of the screen to the bottom: rows are reused, in any order. */
const column = (page, selector) => page.evaluate(selector => {
  const cells = [...document.querySelectorAll(`.list-rows ${selector}`)].filter(one => one.offsetParent);
  const top = one => one.getBoundingClientRect().top;
  return cells.sort((one, other) => top(one) - top(other)).map(one => one.textContent);
}, selector);

/** Waits until a column of the list has these texts. */
async function shows(page, selector, expected) {
  const deadline = Date.now() + 30_000;
  while (JSON.stringify(await column(page, selector)) !== JSON.stringify(expected)) {
    assert.ok(Date.now() < deadline, `${await column(page, selector)} is not ${expected}`);
    await new Promise(resolve => setTimeout(resolve, 50));
  }
}

for (const [screen, viewport] of SCREENS) {
  describe(screen, () => {
    let server;
    let library;
    before(async () => {
      library = everything();
      server = await serveHttp(['--config', library.config]);
      await indexed(server);
    });
    after(() => server?.stop());

    test('sorts by every column, and says so', async () => {
      const { page, close } = await visit(browser, origin(server), { path: '/#uri=file%3A%2F%2F%2Fhandbook%2Fguide', viewport });
      const names = ['decisions.md', 'first-day.md', 'on-call.md'];
      const sorted = () => page.$$eval('[role="columnheader"][aria-sort]', all => all.filter(one => one.getAttribute('aria-sort') !== 'none').map(one => `${one.textContent.split(' ')[0]} ${one.getAttribute('aria-sort')}`));
      await shows(page, '.entry-name bdi', names);
      assert.deepEqual(await sorted(), ['Name ascending']);
      await page.click('.list-head .name .sort');
      await shows(page, '.entry-name bdi', names.toReversed());
      assert.deepEqual(await sorted(), ['Name descending']);
      // A phone shows the columns of names and sizes only.
      assert.equal(await page.$eval('.list-head .modified', one => one.offsetParent !== null), !viewport.isMobile);
      if (!viewport.isMobile) {
        await page.click('.list-head .modified .sort');
        await until(page, () => document.querySelector('.cell.modified[aria-sort="descending"]'));
        // Its time is years before that of the others.
        const deadline = Date.now() + 30_000;
        while ((await column(page, '.entry-name bdi')).at(-1) !== 'decisions.md') assert.ok(Date.now() < deadline, 'sorted by time');
      }
      await page.click('.list-head .size .sort');
      await until(page, () => document.querySelector('.cell.size[aria-sort="descending"]'));
      await shows(page, '.entry-name bdi', ['decisions.md', 'on-call.md', 'first-day.md']);
      await close();
    });

    test('counts what is in a folder', async () => {
      const { page, close } = await visit(browser, origin(server), { viewport });
      const number = readdirSync(join(library.handbook, 'guide')).length;
      await open(page, 'handbook');
      await pane(page, 'browse');
      await (await row(page, 'guide')).click();
      await until(page, number => document.querySelector('.detail > .foot')?.textContent.startsWith(`${number} entries`), number);
      await until(page, number => [...document.querySelectorAll('.tree-rows .row')].find(one => one.querySelector('.name').textContent === 'guide').querySelector('.count')?.textContent === String(number), number);
      await close();
    });

    test('a mention offers templates, and resources before anything is typed', async () => {
      const { page, close } = await visit(browser, origin(server), { viewport });
      await open(page, 'handbook');
      await row(page, 'README.md');
      await page.click('#basket');
      await page.type('#message', '@');
      await until(page, () => document.querySelectorAll('#offers li').length > 1);
      await page.keyboard.press('Escape');
      await page.type('#message', 'Files_of');
      await page.$eval('#message', one => { one.value = ''; });
      await page.type('#message', '@handbook');
      await until(page, () => [...document.querySelectorAll('#offers li')].some(one => one.textContent.startsWith('Template: ')));
      const isTemplate = () => page.$eval('#offers li[aria-selected="true"]', one => one.textContent.startsWith('Template: '));
      while (!await isTemplate()) await page.keyboard.press('ArrowDown');
      await page.keyboard.press('Enter');
      await page.waitForSelector('.template-form');
      assert.equal(await page.$eval('#message', one => one.value), '');
      await close();
    });

    test('the keys that a template offers are those of the table', async () => {
      const { page, close } = await visit(browser, origin(server), { viewport });
      await row(page, 'shop');
      const offered = {};
      for (const table of ['users', 'items']) {
        await page.evaluate(() => { location.hash = ''; });
        await page.evaluate(() => { location.hash = `template=${encodeURIComponent('sqlite://shop/{table}/rows/{key}{?format}')}`; });
        await page.waitForSelector('#field-table');
        await page.$eval('#field-table', one => { one.value = ''; });
        await page.type('#field-table', table);
        await page.focus('#field-key');
        await until(page, () => document.querySelectorAll('#field-key-list li').length > 0);
        offered[table] = await page.$$eval('#field-key-list li', all => all.map(one => one.textContent));
      }
      assert.equal(offered.users.length, 3);
      assert.notDeepEqual(offered.users, offered.items);
      await close();
    });

    test('takes files by a button, refuses folders, shows what is over the budget, and downloads', async () => {
      const downloads = join(library.handbook, '../downloads');
      mkdirSync(downloads);
      const large = join(downloads, 'large.txt');
      writeFileSync(large, 'word '.repeat(10_000));
      const { page, close } = await visit(browser, origin(server), { viewport });
      await row(page, 'handbook');
      await page.click('#basket');
      const [chooser] = await Promise.all([page.waitForFileChooser(), page.click('.attach button')]);
      assert.equal(chooser.isMultiple(), true);
      await chooser.accept([large, join(library.handbook, 'README.md')]);
      await until(page, () => /large\.txt[\s\S]*README\.md/.test(document.querySelector('.picked').textContent));
      await page.select('.meter select', '8000');
      await until(page, () => /tokens, [\d,]+ over$/.test(document.querySelector('.meter-text .over')?.textContent) && document.querySelector('.meter-bar.over'));
      await accessible(page, 'a selection over the budget');
      await page.select('.meter select', '200000');
      await until(page, () => !document.querySelector('.meter-bar.over'));

      const client = await page.createCDPSession();
      const { x, y } = await page.$eval('#message', one => one.getBoundingClientRect().toJSON());
      const data = { items: [], files: [downloads], dragOperationsMask: 1 };
      for (const type of ['dragEnter', 'dragOver', 'drop']) await client.send('Input.dispatchDragEvent', { type, x: x + 20, y: y + 20, data });
      await until(page, () => document.getElementById('toast').textContent.startsWith('A folder cannot be attached'));
      assert.equal(await page.$eval('.badge', one => one.textContent), '2');

      await client.send('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: downloads, browserContextId: page.browserContext().id }).catch(() => client.send('Page.setDownloadBehavior', { behavior: 'allow', downloadPath: downloads }));
      await page.click('.actions .save');
      const end = Date.now() + 30_000;
      const saved = () => readdirSync(downloads).find(name => name !== 'large.txt' && !name.endsWith('.crdownload'));
      while (!saved()) {
        assert.ok(Date.now() < end, 'nothing was downloaded');
        await new Promise(resolve => setTimeout(resolve, 50));
      }
      assert.match(readFileSync(join(downloads, saved()), 'utf8'), /word word[\s\S]*# Handbook/);
      await close();
    });

    test('takes several files of one name, and a file again that was edited', async () => {
      const mine = join(library.handbook, '../mine');
      const [one, two] = ['one', 'two'].map(name => join(mine, name, 'notes.md'));
      for (const file of [one, two]) {
        mkdirSync(join(file, '..'), { recursive: true });
        writeFileSync(file, `# ${file === one ? 'One' : 'Two'}\n`);
        utimesSync(file, 1_600_000_000, 1_600_000_000);
      }
      const { page, close } = await visit(browser, origin(server), { viewport });
      await row(page, 'handbook');
      await page.click('#basket');
      const choose = async (...files) => {
        const [chooser] = await Promise.all([page.waitForFileChooser(), page.click('.attach button')]);
        await chooser.accept(files);
      };
      const told = text => until(page, text => document.getElementById('toast').textContent === text, text);
      const contents = async () => {
        await page.select('.actions select', 'json');
        await page.click('.actions .primary');
        await until(page, () => / as MCP JSON$/.test(document.getElementById('toast').textContent));
        const blocks = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
        return Object.fromEntries(blocks.map(({ resource }) => [resource.uri, resource.text]));
      };
      await choose(one, two);
      await told('Another file of this name is attached as notes (2).md');
      await choose(two);
      await told('notes (2).md is attached already');
      assert.deepEqual(await contents(), { 'local:notes.md': '# One\n', 'local:notes%20(2).md': '# Two\n' });
      writeFileSync(one, '# One, edited\n');
      await choose(one);
      await told('notes.md is attached as it is now');
      assert.deepEqual(await contents(), { 'local:notes.md': '# One, edited\n', 'local:notes%20(2).md': '# Two\n' });
      await accessible(page, 'two files of one name');
      await picture(page, `${screen}-one-name`);
      await close();
    });

    test('a source that has only templates is filled in, too', async () => {
      const { page, close } = await visit(browser, origin(server), { viewport });
      await (await row(page, 'Templates')).click();
      await pane(page, 'browse');
      await (await row(page, 'Greetings')).click();
      await page.waitForSelector('#field-language');
      await page.focus('#field-language');
      const offered = name => page.$$eval(`#field-${name}-list li`, all => all.map(one => one.textContent));
      await until(page, () => document.querySelectorAll('#field-language-list li').length === 3);
      assert.deepEqual(await offered('language'), ['english', 'french', 'german']);
      await picture(page, `${screen}-only-templates`);
      await accessible(page, 'the template of a source without resources');
      await page.type('#field-language', 'fr');
      await until(page, () => document.querySelectorAll('#field-language-list li').length === 1);
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('Enter');
      await page.type('#field-name', 'gr');
      await until(page, () => document.querySelectorAll('#field-name-list li').length === 1);
      assert.deepEqual(await offered('name'), ['grace']);
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('Enter');
      await page.click('.template-form .primary');
      await previewShows(page, 'A greeting in french for grace');
      await close();
    });

    test('a change of the list leaves the place as it is, and flashes', async () => {
      const crowd = join(library.handbook, 'crowd');
      mkdirSync(crowd);
      for (let number = 100; number < 200; number += 1) writeFileSync(join(crowd, `file-${number}.md`), '# File\n');
      const { page, close } = await visit(browser, origin(server), { viewport: { ...viewport, height: 500 } });
      await open(page, 'handbook', 'crowd');
      await pane(page, 'browse');
      await row(page, 'file-105.md');
      await page.focus('.tree-rows');
      await page.keyboard.type('file-150');
      await until(page, () => document.querySelector('.row.active .name')?.textContent === 'file-150.md');
      const place = () => page.evaluate(() => {
        const active = document.querySelector('.tree-rows .row.active');
        return { name: active?.querySelector('.name').textContent, top: active?.getBoundingClientRect().top, described: document.querySelector('.tree-rows').getAttribute('aria-activedescendant') === active?.id };
      });
      const before = await place();
      assert.equal(before.described, true);
      const height = () => page.$eval('.tree-rows .space', one => one.clientHeight);
      const rows = await height();
      for (const name of ['file-000.md', 'file-001.md']) writeFileSync(join(crowd, name), '# Before\n');
      await until(page, rows => document.querySelector('.tree-rows .space').clientHeight === rows + 2 * 34, rows);
      await until(page, () => document.querySelector('.row.active .name')?.textContent === 'file-150.md');
      assert.deepEqual({ ...await place(), described: true }, before);
      // One that is added in view flashes.
      writeFileSync(join(crowd, 'file-150-and.md'), '# Beside\n');
      await until(page, () => [...document.querySelectorAll('.tree-rows .row[data-flash] .name')].some(one => one.textContent === 'file-150-and.md'));
      // The active row stays so when it goes up, and the next one takes its place when it goes away.
      rmSync(join(crowd, 'file-000.md'));
      rmSync(join(crowd, 'file-150.md'));
      await until(page, () => document.querySelector('.row.active .name') && ![...document.querySelectorAll('.tree-rows .name')].some(one => one.textContent === 'file-150.md'));
      await page.keyboard.press('Enter');
      await until(page, () => document.querySelector('.detail h2')?.textContent === 'File' || document.querySelector('.detail h2')?.textContent === 'Beside');
      await close();
    });

    test('a changed preview is marked', async () => {
      const { page, close } = await visit(browser, origin(server), { path: '/#uri=file%3A%2F%2F%2Fhandbook%2Fkinds%2Flive.md', viewport });
      await previewShows(page, 'version');
      await until(page, () => document.getElementById('state').dataset.state === 'live');
      writeFileSync(join(library.kinds, 'live.md'), '# Live\n\nA marked version.\n');
      await until(page, () => document.querySelector('.panel.renewed'));
      await previewShows(page, 'A marked version');
      await close();
    });

    for (const dark of [false, true]) {
      test(`the edges of controls can be seen, ${dark ? 'dark' : 'light'}`, async () => {
        const { page, close } = await visit(browser, origin(server), { dark, viewport });
        await row(page, 'handbook');
        await page.click('#basket');
        await page.type('#query', 'handbook');
        await until(page, () => document.querySelector('.hit'));
        const contrasts = await page.evaluate(() => {
          const luminance = text => {
            const [r, g, b] = text.match(/[\d.]+/g).map(Number).map(one => one / 255).map(one => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const ground = element => {
            for (let at = element.parentElement; at; at = at.parentElement) {
              const { backgroundColor } = getComputedStyle(at);
              if (!/, 0\)$/.test(backgroundColor)) return backgroundColor;
            }
            return 'rgb(255, 255, 255)';
          };
          return ['#query', '#message', '.filters select', '.actions select', '.hit .tick'].map(selector => {
            const element = document.querySelector(selector);
            const [one, other] = [getComputedStyle(element).borderTopColor, ground(element)].map(luminance).sort((a, b) => b - a);
            return [selector, (one + 0.05) / (other + 0.05)];
          });
        });
        for (const [selector, contrast] of contrasts) assert.ok(contrast >= 3, `${selector}: ${contrast}`);
        await close();
      });
    }

    test('is accessible in the dark', async () => {
      for (const [path, shown] of [
        ['/#uri=file%3A%2F%2F%2Fhandbook%2Fguide', '.list-rows .entry'],
        ['/#q=page', '.hit'],
        ['/#uri=file%3A%2F%2F%2Fhandbook%2FREADME.md&sel=file%3A%2F%2F%2Fhandbook%2FREADME.md', '.picked .picked-name'],
        ['/#template=sqlite%3A%2F%2Fshop%2F%7Btable%7D%2Frows%2F%7Bkey%7D%7B%3Fformat%7D', '.template-form'],
        ['/#uri=file%3A%2F%2F%2Fhandbook%2Fdata%2Fsettings.json', '.frame'],
        ['/#uri=file%3A%2F%2F%2Fhandbook%2Fpeople%2Fteam.csv', '.frame'],
        ['/status', '.tile'],
      ]) {
        const { page, close } = await visit(browser, origin(server), { path, dark: true, viewport });
        await page.waitForSelector(shown);
        await accessible(page, `dark, ${path}`);
        await picture(page, `${screen}-dark-${path.replace(/\W+/g, '-').slice(-24)}`);
        await close();
      }
    });

    test('the button switches the theme, for good', async () => {
      const { page, close } = await visit(browser, origin(server), { path: '/#uri=file%3A%2F%2F%2Fhandbook%2FREADME.md', viewport });
      const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
      await page.waitForSelector('.frame');
      assert.equal(await theme(), 'light');
      await page.click('#theme');
      assert.equal(await theme(), 'dark');
      await until(page, () => document.querySelector('.frame')?.srcdoc.includes('data-theme="dark"'));
      await page.reload();
      assert.equal(await theme(), 'dark');
      assert.equal(await page.$eval('#theme', one => one.getAttribute('aria-label')), 'Light theme');
      await close();
    });
  });
}

test('uses a wide window', async t => {
  const server = await serveHttp([join(ROOT, 'examples/handbook')]);
  t.after(() => server.stop());
  const { page, close } = await visit(browser, origin(server), { path: '/#uri=file%3A%2F%2F%2Fhandbook%2FREADME.md', viewport: WIDE });
  await page.waitForSelector('.frame');
  await page.click('#basket');
  const boxes = await page.$$eval('.panes > *', all => all.map(one => one.getBoundingClientRect()).map(({ left, right }) => [left, right]));
  assert.equal(boxes.length, 3);
  assert.deepEqual([boxes[0][0], boxes[2][1]], [0, WIDE.width]);
  // The panes stand side by side.
  assert.deepEqual(boxes.slice(1).map(([left]) => left), boxes.slice(0, -1).map(([, right]) => right));
  await accessible(page, 'a wide window');
  await picture(page, 'wide');
  await close();
});

describe('a server that fails or stops', () => {
  const library = everything();

  test('the status names a source that is unavailable', async t => {
    const folder = join(library.handbook, '../fails');
    mkdirSync(folder);
    writeFileSync(join(folder, 'libris.toml'), '[[files]]\npath = "../handbook"\n\n[[sql]]\nurl = "postgres://nobody@127.0.0.1:1/none"\n');
    const failing = await serveHttp(['--config', join(folder, 'libris.toml')]);
    t.after(() => failing.stop());
    const { page, close } = await visit(browser, origin(failing), { path: '/status' });
    await until(page, () => /1 of 2 sources unavailable/.test(document.querySelector('.lead').textContent));
    await until(page, () => document.querySelectorAll('.failed-dot').length === 1 && /unavailable since/.test(document.querySelector('.sources').textContent));
    await accessible(page, 'a source that is unavailable');
    await picture(page, 'status-unavailable');
    await close();
  });

  test('the page recovers when the server is back', async t => {
    const config = ['serve', library.handbook];
    const first = await start(bin, [...config, '--http', '127.0.0.1:0']);
    const { port } = new URL(first.url);
    const { page, close } = await visit(browser, origin(first), { path: '/#uri=file%3A%2F%2F%2Fhandbook%2Fkinds%2Flive.md' });
    await previewShows(page, 'version');
    await until(page, () => document.getElementById('state').dataset.state === 'live');
    await first.kill();
    await until(page, () => document.getElementById('state').dataset.state === 'offline');
    writeFileSync(join(library.kinds, 'live.md'), '# Live\n\nA version of another time.\n');
    writeFileSync(join(library.handbook, 'while-away.md'), '# Away\n');
    const second = await start(bin, [...config, '--http', `127.0.0.1:${port}`]);
    t.after(() => second.stop());
    await until(page, () => document.getElementById('state').dataset.state === 'live');
    await previewShows(page, 'A version of another time');
    await row(page, 'while-away.md');
    // The browser logs the requests that found no server.
    await close({ except: /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/ });
  });
});
