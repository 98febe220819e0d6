// A browser that reports every error, foreign request and policy violation of the pages it visits.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import puppeteer from 'puppeteer-core';

const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
const pictures = process.env.LIBRIS_SCREENSHOTS ?? join(import.meta.dirname, '../../target/picker');
mkdirSync(pictures, { recursive: true });

export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 780, hasTouch: true, isMobile: true };
/** The widths at which every test visits the page. */
export const SCREENS = [['desktop', DESKTOP], ['phone', PHONE]];
export const SMALLEST = { width: 320, height: 568, hasTouch: true, isMobile: true };

function chromium() {
  const named = process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
  return named ?? execFileSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' }).trim();
}

export const launch = () => puppeteer.launch({
  executablePath: chromium(),
  protocolTimeout: 240_000,
  args: [
    '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking', '--no-first-run',
    // Nothing but the server under test can be reached.
    '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
  ],
});

/** Opens a page of the server. `problems` collects what must not happen; requests to `sandbox`, another origin, may. */
export async function visit(browser, origin, { path = '/', viewport = DESKTOP, dark = false, before, sandbox } = {}) {
  const context = await browser.createBrowserContext();
  await context.overridePermissions(origin, ['clipboard-read', 'clipboard-write']).catch(() => {});
  const page = await context.newPage();
  await page.setViewport(viewport);
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }]);
  // The browser logs violations of the policy as errors, those of frames too.
  const problems = [];
  page.on('console', message => {
    if (['error', 'warn', 'assert'].includes(message.type())) problems.push(`console: ${message.text()} ${message.location().url ?? ''}`);
  });
  page.on('pageerror', error => problems.push(`error: ${error.message}`));
  page.on('dialog', async dialog => {
    problems.push(`dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  page.on('request', request => {
    const url = request.url();
    const isOwn = url.startsWith(`${origin}/`) || url === sandbox || /^(blob:|data:|about:)/.test(url);
    if (!isOwn) problems.push(`foreign request: ${url}`);
  });
  page.on('requestfailed', request => {
    const { errorText } = request.failure();
    // The page itself ends its streams and the searches that it no longer needs.
    if (errorText !== 'net::ERR_ABORTED') problems.push(`failed: ${errorText} ${request.url()}`);
  });
  context.on('targetcreated', target => {
    if (target.type() === 'page') problems.push(`a window was opened: ${target.url()}`);
  });
  await before?.(page);
  await page.goto(origin + path, { waitUntil: 'load' });
  return {
    page,
    problems,
    /** Closes the page, and fails if anything happened that must not, except what matches. */
    async close({ except } = {}) {
      await context.close();
      const unexpected = problems.filter(problem => !except?.test(problem));
      if (unexpected.length > 0) throw new Error(`the page had problems:\n${unexpected.join('\n')}`);
    },
  };
}

const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
/** What only a whole page has. */
const OF_PAGES = ['bypass', 'document-title', 'landmark-one-main', 'page-has-heading-one', 'region'];

const audit = ({ disabled = [], preload = true } = {}) => `axe.run(document, {
  iframes: false,
  preload: ${preload},
  runOnly: ${JSON.stringify(RULES)},
  rules: ${JSON.stringify(Object.fromEntries(disabled.map(rule => [rule, { enabled: false }])))},
}).then(({ violations }) => violations.map(({ id, nodes }) => id + ': ' + nodes.slice(0, 3).map(node => node.html.slice(0, 160) + ' ' + node.failureSummary.slice(0, 200)).join(' | ')))`;
const AUDIT = audit();

/** Where no script of a page runs, no timer does either; axe-core uses some to continue. */
const WITHOUT_TIMERS = 'window.setTimeout = (run, _, ...given) => { Promise.resolve().then(() => run(...given)); return 0; };';

/** Fails if axe-core finds a violation in a frame whose policy allows scripts. */
export async function accessibleFrame(frame, what) {
  await frame.evaluate(readFileSync(axe, 'utf8'));
  const violations = await frame.evaluate(AUDIT);
  if (violations.length > 0) throw new Error(`${what}: axe-core found\n${violations.join('\n')}`);
}

/** Fails if axe-core finds a violation in the page or in its preview. */
export async function accessible(page, what) {
  await accessiblePage(page, what);
  await accessiblePreview(page, what);
}

/** Fails if axe-core finds a violation in the frame of the preview, if there is one. */
export async function accessiblePreview(page, what) {
  for (const frame of page.mainFrame().childFrames()) {
    await frame.evaluate(WITHOUT_TIMERS);
    await frame.evaluate(readFileSync(axe, 'utf8'));
    const violations = await frame.evaluate(audit({ disabled: OF_PAGES, preload: false }));
    if (violations.length > 0) throw new Error(`${what}, in its preview: axe-core found\n${violations.join('\n')}`);
  }
}

async function accessiblePage(page, what) {
  // The protocol runs this in a world of its own, where the policy of the page does not apply.
  const source = readFileSync(axe, 'utf8');
  const client = await page.createCDPSession();
  const { frameTree } = await client.send('Page.getFrameTree');
  const { executionContextId } = await client.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id, worldName: 'axe' });
  const run = expression => client.send('Runtime.evaluate', { expression, contextId: executionContextId, awaitPromise: true, returnByValue: true });
  await run(source);
  const { result, exceptionDetails } = await run(AUDIT);
  await client.detach();
  if (exceptionDetails) throw new Error(exceptionDetails.text);
  if (result.value.length > 0) throw new Error(`${what}: axe-core found\n${result.value.join('\n')}`);
}

export async function picture(page, name) {
  await page.screenshot({ path: join(pictures, `${name}.png`) });
}

export const origin = server => server.url.replace(/\/mcp$/, '');

/** Waits until a server has indexed its resources. The index is built at the lowest priority, which takes a while on a busy machine. */
export async function indexed(server) {
  const end = Date.now() + 300_000;
  const isComplete = text => /^libris_search_pending 0$/m.test(text) && /^libris_search_resources \d\d/m.test(text);
  while (!isComplete(await (await fetch(`${origin(server)}/metrics`)).text())) {
    if (Date.now() > end) throw new Error('the search index is not completed');
    await new Promise(resolve => setTimeout(resolve, 100));
  }
}

/** Waits until the tree has a row with this name, and returns its element. */
export async function row(page, name) {
  await until(page, name => [...document.querySelectorAll('.tree-rows .row .name')].some(one => one.textContent === name), name);
  return page.evaluateHandle(name => [...document.querySelectorAll('.tree-rows .row')].find(one => one.querySelector('.name').textContent === name), name);
}

/** On a phone, shows one of the panes. */
export const pane = (page, name) => page.evaluate(name => { document.querySelector('.panes').dataset.pane = name; }, name);

/** Opens folders of the tree one after the other, then clicks what is last. */
export async function open(page, ...names) {
  for (const name of names) {
    const element = await row(page, name);
    if (await element.evaluate(one => one.getAttribute('aria-expanded') !== 'true')) await element.click();
    if (page.viewport().isMobile && name !== names.at(-1)) await pane(page, 'browse');
  }
}

/** Waits until a function of the page is true. */
export const until = (page, condition, ...given) => page.waitForFunction(condition, { timeout: Number(process.env.WAIT ?? 30_000), polling: 50 }, ...given);

/** The text of the preview, from the accessibility-independent snapshot, because no script runs in its frame. */
export async function previewText(page) {
  const client = await page.createCDPSession();
  try {
    const { documents, strings } = await client.send('DOMSnapshot.captureSnapshot', { computedStyles: [] });
    const frames = documents.slice(1);
    return frames.map(({ nodes }) => nodes.nodeValue.map(index => (index >= 0 ? strings[index] : '')).join(' ')).join('\n');
  } finally {
    await client.detach();
  }
}

/** Waits until the preview contains a text. */
export async function previewShows(page, text) {
  const end = Date.now() + 30_000;
  let shown = '';
  while (Date.now() < end) {
    shown = await previewText(page).catch(() => '');
    if (typeof text === 'string' ? shown.includes(text) : text.test(shown)) return shown;
    await new Promise(resolve => setTimeout(resolve, 50));
  }
  throw new Error(`the preview does not show ${text}, but:\n${shown.slice(0, 600)}`);
}
