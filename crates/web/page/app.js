// The picker: connects, and joins the tree, the search, the preview, the selection and the composer.

import { announce, fill, h, icon, settled } from './dom.js';
import { clean, folderKey, nameOf } from './format.js';
import { Library } from './library.js';
import { Measure } from './measure.js';
import { Tree } from './browse.js';
import { Search } from './search.js';
import { Detail } from './preview.js';
import { Selection, Tray } from './selection.js';
import { Composer } from './composer.js';
import { TemplateForm } from './templates.js';
import { site } from './site.js';

const STATES = {
  connecting: 'Connecting…',
  live: 'Live',
  offline: 'Offline, trying again…',
  static: 'Connected',
};
/** In milliseconds: the list is read again once its changes have paused, or gone on, for this long. */
const LIST_PAUSE = 400;
const LIST_LONGEST = 2000;

const { mcp } = site;
const library = new Library(mcp);
const selection = new Selection();
const panes = document.querySelector('.panes');
const side = document.getElementById('side');
const query = document.getElementById('query');
const trayElement = document.getElementById('tray');
const basket = document.getElementById('basket');

const tree = new Tree({ library, selection, open });
const search = new Search({ library, selection, open, closed: () => showSide(tree) });
const detail = new Detail({ element: document.getElementById('detail'), library, mcp, selection, open, back: () => pane('browse') });
const composer = new Composer({ library, selection, open });
const link = site.link && (() => site.link(hash({ sel: selection.all.filter(({ local }) => !local).map(({ uri }) => uri) })));
const tray = new Tray({ selection, library, open, close: () => toggleTray(false), composer: composer.element, link });
tray.prompt = () => composer.text;
tray.taken = () => composer.said(composer.text);

side.append(search.element, tree.element);
trayElement.append(tray.element);

function showSide(part) {
  tree.element.hidden = part !== tree;
}

/** On narrow screens, one pane is shown at a time. */
function pane(name) {
  panes.dataset.pane = name;
}

function toggleTray(shown) {
  trayElement.hidden = !shown;
  basket.setAttribute('aria-expanded', String(shown));
  panes.classList.toggle('with-tray', shown);
  if (!shown && panes.dataset.pane === 'tray') pane('browse');
  if (shown) pane('tray');
}

basket.addEventListener('click', () => toggleTray(trayElement.hidden || (panes.dataset.pane !== 'tray' && matchMedia('(max-width: 760px)').matches)));

function drawBasket() {
  fill(basket, icon('basket'), h('span', { class: 'wide' }, 'Selection'), h('span', { class: `badge ${selection.size === 0 ? 'zero' : ''}` }, String(selection.size)));
}

// The address: what is open, and what a link restores.

function hash({ uri, template, q, sel }) {
  const parts = new URLSearchParams();
  if (uri) parts.set('uri', uri);
  if (template) parts.set('template', template);
  if (q) parts.set('q', q);
  for (const one of sel ?? []) parts.append('sel', one);
  const text = parts.toString();
  return text ? `#${text}` : '';
}

let wanted = 0;

/** Opens a node of the tree, a resource, or a template. */
function open({ node, resource, template, lines, quiet }) {
  wanted += 1;
  pane('detail');
  if (template) {
    tree.mark(template.uriTemplate);
    detail.template(new TemplateForm({ library, template, opened: (made) => open({ resource: made }) }));
    if (!quiet) site.navigate(hash({ template: template.uriTemplate }));
    follow();
    return;
  }
  const shown = node?.resource ?? resource;
  const isFolder = node?.folder;
  // Before it is read, so that a change after the read is not lost.
  follow(shown.uri);
  if (isFolder) detail.showFolder(node);
  else detail.showResource(shown, { lines });
  tree.mark(isFolder ? node.key : shown.uri);
  search.mark(shown.uri);
  document.title = `${nameOf(shown)} – ${clean(library.server.title ?? library.server.name ?? 'Libris', 60)}`;
  if (!quiet) site.navigate(hash({ uri: shown.uri }));
  if (!node && shown.size === undefined) complete(shown, wanted);
}

/** Adds what the list knows of a resource that was found in another way. */
async function complete(resource, asked) {
  const node = await library.locate(resource.uri).catch(() => null);
  if (!node) return;
  selection.learn(node.uri, node.resource);
  if (asked !== wanted || node.folder || detail.uri !== resource.uri) return;
  detail.showResource(node.resource, { lines: resource.lines });
}

async function openUri(uri, quiet) {
  const node = await library.reveal(uri).catch(() => null);
  if (node) {
    open({ node, quiet });
    tree.show(node);
  } else {
    open({ resource: { uri: uri.split('#', 1)[0] }, quiet });
  }
}

async function restore() {
  const parts = new URLSearchParams(site.address);
  const chosen = parts.getAll('sel');
  if (chosen.length > 0) {
    selection.add(chosen.map((uri) => library.nodes.get(uri)?.resource ?? { uri }));
    toggleTray(true);
    pane('tray');
    detail.welcome();
  }
  if (parts.get('q')) {
    query.value = parts.get('q');
    // The model asks for what the conversation is about.
    if (site.chat) composer.said(query.value);
    search.typed(query.value);
    showSide(search);
  }
  if (parts.get('uri')) await openUri(parts.get('uri'), true);
  else if (parts.get('template')) {
    const template = library.templates.find((one) => one.uriTemplate === parts.get('template'));
    if (template) open({ template, quiet: true });
  } else if (chosen.length === 0) {
    detail.welcome();
    pane('browse');
  }
}

let isLoaded = false;
site.onNavigation(() => isLoaded && restore());

// Live: what is open and what is selected is followed.

function follow(opened = detail.uri) {
  const uris = new Set();
  if (opened) uris.add(opened);
  for (const { uri, local } of selection.all.slice(0, 200)) if (!local) uris.add(uri);
  mcp.follow([...uris]);
}

const listChanged = settled(LIST_PAUSE, LIST_LONGEST, () => library.refresh(detail.folder).catch(() => {}));

mcp.addEventListener('listchanged', () => {
  listChanged();
  library.loadSkills().catch(() => {});
});
mcp.addEventListener('missed', () => {
  listChanged();
  detail.refresh();
});
mcp.addEventListener('updated', ({ detail: uri }) => {
  const node = library.nodes.get(uri) ?? library.nodes.get(folderKey(uri));
  if (node) node.flash = performance.now();
  tree.update();
  if (detail.uri === uri) {
    if (detail.isFolder) listChanged();
    else detail.refresh();
  }
});
mcp.addEventListener('state', ({ detail: state }) => drawState(state));

function drawState(state) {
  const element = document.getElementById('state');
  element.dataset.state = state;
  element.title = STATES[state];
  fill(element, h('span', { class: 'dot' }), h('span', { class: state === 'offline' ? '' : 'wide' }, STATES[state]));
}

const measure = new Measure({ library, selection });

selection.addEventListener('changed', () => {
  drawBasket();
  measure.run();
  follow();
  site.chat?.share(selection.all);
});

// Search and keys.

query.addEventListener('input', () => {
  const text = query.value;
  if (text.trim()) {
    showSide(search);
    pane('browse');
  }
  search.typed(text);
});
query.addEventListener('keydown', (event) => {
  if (event.key === 'ArrowDown' || event.key === 'Enter') {
    event.preventDefault();
    if (event.key === 'Enter') search.run(query.value);
    if (query.value.trim()) search.focus();
    else tree.focus();
  } else if (event.key === 'Escape') {
    leaveSearch();
  }
});

function leaveSearch() {
  query.value = '';
  search.typed('');
  tree.focus();
}

addEventListener('keydown', (event) => {
  const typing = event.target.closest?.('input, textarea, select, [contenteditable]');
  if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    query.focus();
    query.select();
  } else if (event.key === 'Escape' && !typing && query.value) {
    leaveSearch();
  }
});

// Start.

site.setUpTheme(document.getElementById('theme'), () => detail.shown && !detail.isFolder && detail.refresh());
drawBasket();
drawState('connecting');

async function start() {
  for (let wait = 500; ; wait = Math.min(wait * 2, 10000)) {
    try {
      await library.connect();
      break;
    } catch (cause) {
      drawState('offline');
      announce(clean(cause.message, 200));
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
  const title = clean(library.server.title ?? library.server.name ?? 'Libris', 60);
  document.getElementById('server').textContent = title;
  document.title = title;
  follow();
  library.loadTemplates().catch(() => {});
  library.loadSkills().catch(() => {});
  const loaded = library.load(library.root);
  // A flat list is shown while it is loaded.
  if (!site.address) detail.welcome();
  await loaded;
  const [only, ...others] = (library.root.children ?? []).filter((node) => node.folder);
  if (only && others.length === 0 && !only.expanded) {
    only.expanded = true;
    library.load(only);
  }
  isLoaded = true;
  if (site.address) await restore();
}

start();
