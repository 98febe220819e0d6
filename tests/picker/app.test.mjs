// The picker inside a chat: an MCP App in the reference host, in a sandbox with the policy of the specification.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { serveHttp } from '../libris.mjs';
import { PHONE, accessibleFrame, indexed, launch, picture, until, visit } from './browser.mjs';
import { serveChat } from './host/serve.mjs';
import { everything, hostile } from './library.mjs';

const README = 'file:///handbook/README.md';
const KINDS = { text: {}, resourceLink: {}, structuredContent: {} };
const CAPABILITIES = { serverTools: {}, serverResources: {}, updateModelContext: KINDS, message: { text: {} }, openLinks: {}, downloadFile: {} };
const CONTEXT = { theme: 'light', displayMode: 'inline', availableDisplayModes: ['inline', 'fullscreen'], containerDimensions: { width: 728, maxHeight: 640 } };
const CHAT = { width: 900, height: 720 };
/** The chat in a window and on a phone, and how wide the app is in it. */
const SCREENS = [
  ['desktop', 'app', { viewport: CHAT, context: CONTEXT }],
  ['phone', 'phone-app', { viewport: PHONE, context: { ...CONTEXT, containerDimensions: { width: 358, maxHeight: 640 } } }],
];

let browser;
let server;
let chat;
let library;
before(async () => {
  library = everything();
  writeFileSync(join(library.kinds, 'links.md'), '# Links\n\n[The web](https://example.org/page), [here](#there), [the team](../people/team.csv)\n\n## There\n');
  [browser, server] = await Promise.all([launch(), serveHttp(['--config', library.config])]);
  chat = await serveChat(server.url);
  await indexed(server);
});
after(async () => {
  await chat?.stop();
  await server?.stop();
  await browser?.close();
});

/** Opens the chat, and in it the picker by its tool. */
async function converse({ mode = 'auto', given = {}, viewport = CHAT, context = CONTEXT, capabilities = CAPABILITIES, dark = false, host = chat } = {}) {
  const visitor = await visit(browser, host.url, { viewport, sandbox: host.proxy, dark });
  const { page } = visitor;
  await until(page, () => window.openApp);
  if (dark) await page.evaluate(() => document.documentElement.classList.add('dark'));
  const connected = await page.evaluate(mode => window.connect({ mode }), mode);
  const opened = await page.evaluate(asked => window.openApp(asked), { name: 'open_picker', given, proxy: host.proxy, context, capabilities });
  const app = page.frames().find(frame => frame.parentFrame()?.url() === host.proxy);
  return { ...visitor, page, app, connected, opened };
}

const row = (app, name) => until(app, name => [...document.querySelectorAll('.tree-rows .row .name')].find(one => one.textContent === name), name);

/** Clicks a row of the tree, in one step, because rows are drawn again while the tree is loaded. */
const open = (app, name) => until(app, name => {
  const found = [...document.querySelectorAll('.tree-rows .row')].find(one => one.querySelector('.name')?.textContent === name);
  found?.click();
  return Boolean(found);
}, name);

/** The pane that is shown at this width. */
const pane = (app, name) => app.evaluate(name => { document.querySelector('.panes').dataset.pane = name; }, name);

/** The frame of the preview, once its text matches. */
async function preview(page, app, text) {
  const end = Date.now() + 30_000;
  let shown = '';
  while (Date.now() < end) {
    const frame = page.frames().find(one => one.parentFrame() === app);
    shown = await frame?.evaluate(() => document.body.textContent).catch(() => '') ?? '';
    if (text.test(shown)) return frame;
    await new Promise(resolve => setTimeout(resolve, 50));
  }
  throw new Error(`the preview does not show ${text}, but:\n${shown.slice(0, 600)}`);
}

const received = (page, what) => page.evaluate(what => window.received[what], what);

describe('inside a chat', () => {
  test('a host that shows no apps is told of none', async () => {
    const visitor = await visit(browser, chat.url, { viewport: CHAT, sandbox: chat.proxy });
    for (const mode of ['auto', 'legacy']) {
      const { tools, capabilities } = await visitor.page.evaluate(mode => window.connect({ mode, showsApps: false }), mode);
      assert.deepEqual(tools.map(({ name }) => name), ['search_resources', 'read_resource', 'list_resources']);
      assert.equal(capabilities.extensions?.['io.modelcontextprotocol/ui'], undefined);
    }
    await visitor.close();
  });

  for (const mode of ['auto', 'legacy']) {
    for (const [screen, prefix, size] of SCREENS) {
      test(`its tool opens it, and the model learns of the selection (${mode}, ${screen})`, async () => {
        const { page, app, connected, opened, close } = await converse({ mode, given: { query: 'on call' }, ...size });
        assert.deepEqual(connected.forModels, ['search_resources', 'read_resource', 'list_resources', 'open_picker']);
        assert.deepEqual(connected.capabilities.extensions['io.modelcontextprotocol/ui'], {});
        assert.match(opened.result.content[0].text, /the user now sees the picker/);
        assert.equal(opened.app.name, 'libris-picker');
        assert.deepEqual(opened.modes, { availableDisplayModes: ['inline', 'fullscreen'] });
        // The query of the tool is searched for.
        await until(app, () => document.getElementById('query').value === 'on call' && document.querySelector('.hit mark'));
        assert.equal(await app.$eval('#server', one => one.textContent), 'The handbook');
        await picture(page, `${prefix}-search-${mode}`);
        await accessibleFrame(app, 'results in a chat');
        const uri = await app.evaluate(() => {
          const hit = document.querySelector('.hit');
          hit.querySelector('.tick').click();
          return hit.querySelector('.where')?.textContent;
        });
        await until(page, () => window.received.contexts.at(-1)?.structuredContent.selected.length === 1);
        const [context] = (await received(page, 'contexts')).slice(-1);
        const [selected] = context.structuredContent.selected;
        assert.ok(uri.includes(selected.uri) || selected.uri.includes(uri.trim()), `${uri} ${selected.uri}`);
        assert.match(context.content[0].text, /^The user has selected 1 resource of this server/);
        assert.ok(context.content[0].text.includes(selected.uri));
        assert.deepEqual(context.content[1], { type: 'resource_link', ...selected });
        await app.click('#basket');
        await until(app, () => document.querySelector('.shared').textContent === 'The model knows this selection.');
        await app.evaluate(() => document.querySelector('.tray-head .link').click());
        await until(page, () => window.received.contexts.at(-1).structuredContent.selected.length === 0);
        // What the model asked for is what the conversation is about.
        await until(app, () => document.querySelector('.suggestions').textContent.includes('What fits the conversation'));
        await close();
      });
    }
  }

  for (const [screen, prefix, size] of SCREENS) {
    test(`browses, previews and follows links (${screen})`, async t => {
      const { page, app, close } = await converse(size);
      await until(app, () => [...document.querySelectorAll('.tree-rows .name')].some(one => one.textContent === 'shop'));
      assert.deepEqual(await received(page, 'heights'), [560]);
      await picture(page, `${prefix}-start`);
      await open(app, 'handbook');
      await until(app, () => document.querySelector('.list-rows')?.textContent.includes('README.md'));
      // The folder has what only `resources/directory/read` gives.
      await until(app, () => document.querySelectorAll('.list-rows .cell.size').length > 0);
      await app.evaluate(() => [...document.querySelectorAll('.entry-name')].find(one => one.textContent.includes('README.md')).click());
      let frame = await preview(page, app, /Start with the first day/);
      await until(app, () => document.querySelector('.facts').textContent.includes('priority 0.9'));
      await picture(page, `${prefix}-preview`);
      await accessibleFrame(app, 'a preview in a chat');
      // A host does not tell of changes of a resource.
      const readme = join(library.handbook, 'README.md');
      const original = readFileSync(readme);
      t.after(() => writeFileSync(readme, original));
      writeFileSync(readme, '# Handbook\n\nRewritten: [the first day](guide/first-day.md).\n');
      await app.click('[aria-label="Read again"]');
      frame = await preview(page, app, /Rewritten/);
      await (await frame.$('a')).click();
      frame = await preview(page, app, /first day/i);
      await until(app, () => document.querySelector('.detail h2').textContent.toLowerCase().includes('first day'));
      await pane(app, 'browse');
      await open(app, 'kinds');
      await pane(app, 'browse');
      await open(app, 'links.md');
      frame = await preview(page, app, /The web, here, the team/);
      await (await frame.$('a.web')).click();
      await until(page, () => window.received.links.length === 1);
      assert.deepEqual(await received(page, 'links'), ['https://example.org/page']);
      await (await frame.$('a[href^="#"]')).click();
      await (await frame.$('a[target="_top"]')).click();
      await preview(page, app, /\d+ rows/);
      await pane(app, 'browse');
      await open(app, 'picture.svg');
      await until(app, () => document.querySelector('.media img')?.naturalWidth > 0);
      await pane(app, 'browse');
      await open(app, 'report.pdf');
      await until(app, () => document.querySelector('[data-page="1"] img')?.naturalWidth > 0);
      await picture(page, `${prefix}-pdf`);
      await accessibleFrame(app, 'the pages of a PDF in a chat');
      await app.click('#tab-text');
      await preview(page, app, /Quarterly results are excellent/);
      await app.click('[aria-label="Download"]');
      await until(page, () => window.received.files.length === 1);
      const [file] = await received(page, 'files');
      assert.equal(file.resource.mimeType, 'application/pdf');
      assert.ok(Buffer.from(file.resource.blob, 'base64').toString().startsWith('%PDF'));
      await app.click('#tab-details');
      await until(app, () => document.querySelector('.details')?.textContent.includes('application/pdf'));
      assert.equal(await app.$('.snippet-code'), null);
      await close();
    });
  }

  test('nothing in a preview runs but its links', async () => {
    const { page, app, close } = await converse({ given: { uri: README } });
    const frame = await preview(page, app, /Handbook/);
    const blocked = await frame.evaluate(() => new Promise(resolve => {
      addEventListener('securitypolicyviolation', ({ effectiveDirective }) => resolve(effectiveDirective));
      const script = document.createElement('script');
      script.textContent = 'window.ran = true';
      document.body.append(script);
      setTimeout(() => resolve(window.ran ? 'ran' : 'nothing'), 2000);
    }));
    assert.equal(blocked, 'script-src-elem');
    assert.equal(await frame.evaluate(() => { try { return parent.document.title; } catch (cause) { return cause.name; } }), 'SecurityError');
    // Nor can it speak as the host does, or open what is no link to the web.
    await frame.evaluate(() => {
      parent.postMessage({ jsonrpc: '2.0', method: 'ui/notifications/tool-input', params: { arguments: { query: 'forged' } } }, '*');
      parent.postMessage({ followed: 'javascript:alert(1)' }, '*');
      parent.postMessage({ followed: 'https://example.org/last' }, '*');
    });
    await until(page, () => window.received.links.length > 0);
    assert.deepEqual(await received(page, 'links'), ['https://example.org/last']);
    assert.equal(await app.$eval('#query', one => one.value), '');
    // The violation is what is tested.
    await close({ except: /Content Security Policy/ });
  });

  for (const [screen, prefix, size] of SCREENS) {
    test(`a hostile library runs nothing and loads nothing (${screen})`, async t => {
      const evil = await serveHttp(['--config', hostile().config]);
      const host = await serveChat(evil.url);
      t.after(async () => {
        await host.stop();
        await evil.stop();
      });
      const { page, app, close } = await converse({ host, ...size });
      await open(app, 'hostile');
      await until(app, () => document.querySelectorAll('.list-rows .entry').length >= 9);
      await pane(app, 'browse');
      const names = await app.$$eval('.tree-rows .row:not(.heading):not([aria-expanded]) .name', all => all.map(one => one.textContent));
      assert.ok(names.length >= 15, `${names.length} files`);
      for (const name of names) {
        await pane(app, 'browse');
        await open(app, name);
        await until(app, name => document.querySelector('.panel .frame, .panel .media, .panel .pages, .panel .failure') && document.querySelector('.crumbs'), name);
        assert.equal(await app.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, name);
      }
      await pane(app, 'browse');
      await app.type('#query', 'hostile');
      await until(app, () => [...document.querySelectorAll('.hit')].some(one => one.textContent.includes('<img src=x')));
      await app.evaluate(() => document.querySelector('.hit .tick').click());
      await until(page, () => window.received.contexts.at(-1)?.structuredContent.selected.length === 1);
      assert.equal(await app.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
      await picture(page, `${prefix}-hostile`);
      await close();
    });
  }

  test('fills in templates with completion', async () => {
    const { app, close } = await converse();
    // The rows of the templates move when the sources are listed.
    await row(app, 'shop');
    await open(app, 'Templates');
    await pane(app, 'browse');
    await open(app, 'Files of handbook');
    await app.waitForSelector('#field-path');
    await app.type('#field-path', 'READ');
    await until(app, () => document.querySelector('#field-path-list')?.textContent.includes('README.md'));
    await close();
  });

  test('sends a message, and follows the host in theme and size', async () => {
    const { page, app, close } = await converse({ dark: true, context: { ...CONTEXT, theme: 'dark' } });
    await open(app, 'handbook');
    await pane(app, 'browse');
    await row(app, 'people');
    assert.equal(await app.evaluate(() => document.documentElement.dataset.theme), 'dark');
    await app.evaluate(() => [...document.querySelectorAll('.tree-rows .row')].find(one => one.querySelector('.name').textContent === 'README.md').querySelector('.tick').click());
    await app.click('#basket');
    await app.type('#message', '@git-w');
    await until(app, () => document.querySelector('#offers li')?.textContent.includes('git-workflow'));
    await app.$eval('#message', one => { one.value = ''; });
    await app.type('#message', 'What is in this one? ');
    await until(app, () => document.querySelector('.shared').textContent === 'The model knows this selection.');
    await picture(page, 'app-dark');
    await accessibleFrame(app, 'the selection in a chat');
    await app.evaluate(() => document.querySelector('.composer .primary').click());
    await until(page, () => window.received.messages.length === 1);
    await until(app, () => document.getElementById('message').value === '');
    assert.deepEqual(await received(page, 'messages'), [{ role: 'user', content: [{ type: 'text', text: 'What is in this one?' }] }]);
    await page.evaluate(context => window.setContext(context), { ...CONTEXT, theme: 'light' });
    await until(app, () => document.documentElement.dataset.theme === 'light');
    await app.click('[aria-label="Full screen"]');
    await until(page, () => window.received.modes.at(-1) === 'fullscreen');
    await until(app, () => innerHeight > 650 && document.querySelector('[aria-label="Back to the conversation"]'));
    await picture(page, 'app-full');
    assert.ok(await app.$eval('.picked', one => one.clientHeight) >= 34, 'what is selected stays visible above the suggestions');
    assert.deepEqual(await page.evaluate(() => window.teardown()), {});
    await close();
  });

  test('a host that takes no context gets the selection with the message', async () => {
    const { updateModelContext, downloadFile, ...capabilities } = CAPABILITIES;
    const { page, app, close } = await converse({ given: { uri: README }, capabilities });
    await until(app, () => document.querySelector('.pick-button'));
    await app.click('.pick-button');
    await app.click('#basket');
    await until(app, () => document.querySelector('.shared').textContent.includes('goes along with your message'));
    assert.equal(await app.evaluate(() => getComputedStyle(document.querySelector('.actions .save')).display), 'none');
    await app.type('#message', 'Summarise it. ');
    await app.evaluate(() => document.querySelector('.composer .primary').click());
    await until(page, () => window.received.messages.length === 1);
    const [{ content: [{ text }] }] = await received(page, 'messages');
    assert.match(text, /^Summarise it\.\n\nThe user has selected 1 resource/);
    assert.ok(text.includes(README));
    assert.deepEqual(await received(page, 'contexts'), []);
    await close();
  });
});
