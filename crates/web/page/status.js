// The state of the server: its sources, its index, its streams and its memory.

import { fill, h } from './dom.js';
import { bytes, clean, count, counted, moment } from './format.js';
import { Mcp } from './mcp.js';
import { askForToken } from './login.js';
import { setUpTheme } from './theme.js';

const STATUS = 'libris://status';
const INTERVAL = 3000;

const mcp = new Mcp();
mcp.askForToken = askForToken;
const main = document.getElementById('status');
const sources = h('ul', { class: 'sources' });
const summary = h('p', { class: 'lead' }, 'Reading…');
const index = h('div', {});
const tiles = h('dl', { class: 'tiles' });
const rates = h('dl', { class: 'tiles' });
let before = null;

setUpTheme(document.getElementById('theme'));
fill(main, h('h1', {}, 'Status'), summary, h('h2', {}, 'Sources'), sources, index,
  h('h2', {}, 'Now'), tiles, h('h2', {}, 'Per minute'), rates);

/** The values of the Prometheus text format, without the prefix of their names. */
function parse(text) {
  const values = {};
  for (const line of text.split('\n')) {
    const found = /^[a-z]+_([a-z0-9_]+) (\d+)$/.exec(line);
    if (found) values[found[1]] = Number(found[2]);
  }
  return values;
}

function tile(name, value, note) {
  return h('div', { class: 'tile' }, h('dt', {}, name), h('dd', {}, value, note ? h('small', {}, note) : null));
}

async function showSources() {
  try {
    const { contents } = await mcp.request('resources/read', { uri: `${STATUS}?as=json` });
    const status = JSON.parse(contents[0].text);
    const failed = status.unavailable;
    summary.textContent = failed === 0 ? `${counted(status.sources.length, 'source')}, all available` : `${failed} of ${counted(status.sources.length, 'source')} unavailable`;
    fill(sources, status.sources.map((source) => h('li', {},
      h('span', { class: `dot ${source.available ? 'ok' : 'failed-dot'}` }),
      h('bdi', { class: 'name' }, clean(source.source, 200)),
      h('span', { class: 'label' }, source.available ? 'available' : `unavailable since ${moment(source.since)}`),
      source.reason ? h('span', { class: 'why' }, clean(source.reason, 400)) : null,
      source.unwatchedSince ? h('span', { class: 'why' }, `changes are not reported since ${moment(source.unwatchedSince)}`) : null)));
    showIndex(status.search);
  } catch (cause) {
    summary.textContent = clean(cause.message, 300);
    fill(sources);
  }
}

function showIndex(search) {
  if (!search) return fill(index);
  const part = search.complete ? 1 : search.listed > 0 ? Math.min(1, search.indexed / search.listed) : 0;
  const bar = h('span', {});
  bar.style.width = `${part * 100}%`;
  const text = search.complete ? `${counted(search.indexed, 'resource')} indexed` : search.listed > 0 ? `${count(search.indexed)} of ${counted(search.listed, 'resource')} indexed so far` : 'Listing the resources…';
  return fill(index, h('h2', {}, 'Search index'), h('p', {}, text, search.remark ? `; ${clean(search.remark, 300)}` : ''),
    h('div', { class: 'progress', role: 'progressbar', 'aria-label': 'Search index', 'aria-valuemin': '0', 'aria-valuemax': '100', 'aria-valuenow': String(Math.round(part * 100)) }, bar));
}

async function showMetrics() {
  let values;
  try {
    values = parse(await mcp.text('/metrics'));
  } catch (cause) {
    fill(tiles, tile('Metrics', '–', clean(cause.message, 100)));
    return;
  }
  const memory = (values.request_body_bytes ?? 0) + (values.unsent_bytes ?? 0) + (values.subscription_bytes ?? 0) + (values.cache_bytes ?? 0);
  fill(tiles,
    tile('Connections', count(values.connections ?? 0), `at most ${count(values.connections_limit ?? 0)}`),
    tile('Requests in progress', count(values.requests ?? 0)),
    tile('Streams', count((values.listen_streams ?? 0) + (values.session_streams ?? 0)), counted(values.subscriptions ?? 0, 'subscription')),
    tile('Sessions', count(values.sessions ?? 0), 'of clients before 2026-07-28'),
    tile('Memory of requests', bytes(memory), `cache ${bytes(values.cache_bytes ?? 0)}`));
  const now = performance.now();
  const minutes = before ? (now - before.at) / 60000 : 0;
  const names = { requests_total: 'Requests', requests_refused_total: 'Refused requests', requests_rate_limited_total: 'Rate-limited requests', connections_refused_total: 'Refused connections', connections_evicted_total: 'Evicted connections' };
  fill(rates, Object.entries(names).filter(([name]) => name in values).map(([name, text]) => {
    const rate = before ? Math.round((values[name] - (before.values[name] ?? 0)) / minutes) : 0;
    return tile(text, count(rate), `${count(values[name])} since the start`);
  }));
  if (!before || now - before.at > 60000) before = { at: now, values };
}

mcp.addEventListener('state', ({ detail }) => {
  const element = document.getElementById('state');
  element.dataset.state = detail;
  fill(element, h('span', { class: 'dot' }), h('span', {}, detail === 'live' ? 'Live' : detail === 'offline' ? 'Offline, trying again…' : 'Connected'));
});
mcp.addEventListener('updated', showSources);
mcp.addEventListener('missed', showSources);

const discovered = await mcp.request('server/discover').catch(() => ({}));
const server = discovered.serverInfo ?? discovered._meta?.['io.modelcontextprotocol/serverInfo'] ?? {};
document.getElementById('server').textContent = clean(server.title ?? server.name ?? 'Libris', 60);
await showSources();
await showMetrics();
mcp.follow([STATUS]);
setInterval(() => {
  if (document.visibilityState === 'visible') {
    showMetrics();
    if (index.childElementCount > 0 || mcp.state === 'offline') showSources();
  }
}, INTERVAL);
