// Takes the pictures of the manual: `tests/run-picker screens`, or those that are named, as with `tests/run-picker screens status`.
import { join } from 'node:path';
import { serveHttp } from '../libris.mjs';
import { indexed, launch, origin, pane, previewShows, row, until, visit } from './browser.mjs';
import { everything } from './library.mjs';

const folder = join(import.meta.dirname, '../../docs/screens');
const DESKTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 780, hasTouch: true, isMobile: true, deviceScaleFactor: 2 };
const wanted = process.argv.slice(2);
const ON_CALL = encodeURIComponent('file:///handbook/guide/on-call.md');

const browser = await launch();
const server = await serveHttp(['--config', everything().config]);
await indexed(server);

/** Opens a page, lets it be prepared, and takes its picture. */
async function screen(name, { prepare, ...options }) {
  if (wanted.length > 0 && !wanted.includes(name)) return;
  const { page, close } = await visit(browser, origin(server), { viewport: DESKTOP, ...options });
  await prepare(page);
  await until(page, () => !document.querySelector('.spinner') && !document.querySelector('.toast.shown'));
  await page.screenshot({ path: join(folder, `${name}.png`) });
  await close();
}

const shown = async page => {
  await previewShows(page, 'on call');
  await row(page, 'on-call.md');
};

async function search(page) {
  await row(page, 'handbook');
  await page.type('#query', 'on call');
  await until(page, () => document.querySelector('.hit mark'));
}

await screen('picker', { path: `/#uri=${ON_CALL}`, prepare: async page => {
  await shown(page);
  await page.evaluate(() => {
    for (const name of ['README.md', 'on-call.md']) [...document.querySelectorAll('.tree-rows .row')].find(one => one.querySelector('.name').textContent === name).querySelector('.tick').click();
  });
  await page.click('#basket');
  await page.type('#message', 'Who is on call tonight? Compare with @team');
  await until(page, () => document.querySelector('#offers li')?.textContent.includes('team.csv'));
} });
await screen('search', { prepare: async page => {
  await search(page);
  await page.click('.hit .name');
  await previewShows(page, 'on call');
} });
await screen('composer', { path: `/#uri=${ON_CALL}`, prepare: async page => {
  await shown(page);
  await page.click('#basket');
  await page.type('#message', 'Who is on call tonight, and whom do they wake up?');
  await until(page, () => document.querySelectorAll('.suggestions li').length > 1);
} });
await screen('dark', { path: '/#uri=file%3A%2F%2F%2Fhandbook%2Fkinds%2Fprogram.rs', dark: true, prepare: page => previewShows(page, 'main') });
await screen('pdf', { path: '/#uri=file%3A%2F%2F%2Fhandbook%2Fkinds%2Freport.pdf', prepare: page => until(page, () => document.querySelector('[data-page="1"] img')?.naturalWidth > 0) });
await screen('phone', { viewport: PHONE, prepare: async page => {
  await search(page);
  await pane(page, 'browse');
} });
// All of it, once it counts requests: its own are the first.
await screen('status', { path: '/status', viewport: { ...DESKTOP, height: 930 }, prepare: async page => {
  await until(page, () => document.querySelector('.progress')?.getAttribute('aria-valuenow') === '100');
  await until(page, () => [...document.querySelectorAll('.tile')].some(one => one.querySelector('dt').textContent === 'Requests' && /[1-9]/.test(one.querySelector('dd').firstChild.textContent)));
} });

await server.stop();
await browser.close();
