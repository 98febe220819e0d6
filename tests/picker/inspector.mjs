// Takes the pictures of the MCP Inspector on the server of the manual's pictures: `tests/run-picker inspector`. Its symbols
// are in Debian's `fonts-symbola`.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { serveHttp } from '../libris.mjs';
import { indexed, launch, until } from './browser.mjs';
import { everything } from './library.mjs';

const folder = join(import.meta.dirname, '../../docs/screens');
const program = fileURLToPath(import.meta.resolve('@modelcontextprotocol/inspector/clients/launcher/build/index.js'));
// The Inspector keeps its state in the home folder, which is not ours to write to.
const home = mkdtempSync(join(tmpdir(), 'libris-inspector-'));

const browser = await launch();
const server = await serveHttp(['--config', everything().config]);
await indexed(server);
// It announces the port that it is given, so it cannot choose one itself.
const probe = createServer().listen(0, '127.0.0.1');
await once(probe, 'listening');
const { port } = probe.address();
probe.close();
const inspector = spawn(process.execPath, [program, '--web', '--transport', 'http', '--server-url', server.url, '--protocol-era', 'modern'], {
  env: { ...process.env, HOME: home, HOST: '127.0.0.1', CLIENT_PORT: String(port), MCP_AUTO_OPEN_ENABLED: 'false' },
  stdio: ['ignore', 'pipe', 'ignore'],
});
process.once('exit', () => inspector.kill('SIGKILL'));
let address;
for await (const line of createInterface({ input: inspector.stdout })) {
  address = line.match(/http:\/\/\S+TOKEN=\S+/)?.[0];
  if (address) break;
}
inspector.stdout.resume();

const page = await browser.newPage();
await page.setViewport({ width: 1280, height: 800 });
await page.goto(address, { waitUntil: 'load' });
await page.waitForSelector('input[aria-label^="Connect"]');
await page.$eval('input[aria-label^="Connect"]', one => one.click());

/** Clicks the control with this text. */
const click = (selector, text) => until(page, (selector, text) => {
  const found = [...document.querySelectorAll(selector)].find(one => one.textContent.trim() === text);
  found?.click();
  return Boolean(found);
}, selector, text);

async function picture(name, ready) {
  await until(page, ready);
  // Its panels move for a moment.
  await new Promise(resolve => setTimeout(resolve, 1_000));
  await page.screenshot({ path: join(folder, `inspector-${name}.png`) });
}

await click('label', 'Resources');
// The heads of two open lists cover each other.
await click('button', 'Templates (24)');
await click('button', 'On call');
await picture('markdown', () => document.body.innerText.includes('text/markdown'));
await click('button', 'people/team.csv');
await picture('table', () => document.body.innerText.includes('text/csv'));
await click('button', 'kinds/report.pdf');
await picture('pdf', () => document.body.innerText.includes('application/pdf'));
await page.type('input[placeholder="Search..."]', 'wake');
await picture('search', () => /URIs \(\d\)/.test(document.body.innerText));

await browser.close();
await server.stop();
inspector.kill();
rmSync(home, { recursive: true, force: true });
process.exit();
