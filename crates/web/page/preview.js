// The pane of what is open: a resource with its preview, source and details, or a folder as a list.

import { announce, fill, h, icon, iconButton, perFrame } from './dom.js';
import { KIND_NAMES, bytes, clean, count, date, folderKey, imageUri, kindOf, lastSegment, moment, nameOf, parentOf, textUri, titleOf, tokensOf } from './format.js';
import { copyText } from './export.js';
import { PageView } from './pages.js';
import { site } from './site.js';
import { snippets } from './snippets.js';
import { VirtualRows } from './rows.js';

/** The largest picture, sound or film that is shown, and from which size on the reading for a download is announced. */
const LARGEST_MEDIA = 32 * 1024 * 1024;
const LARGE_DOWNLOAD = 8 * 1024 * 1024;

/** Marks HTML as made by the server's renderer, where browsers ask for that. */
const trusted = globalThis.trustedTypes?.createPolicy('libris-preview', { createHTML: (html) => html }) ?? { createHTML: (html) => html };

/** Media types of documents that the server can give as text. */
const DOCUMENT = /pdf|officedocument|opendocument|epub|ms-excel|rtf/;

/** Media types of documents whose text the server can give page by page, and the most pages to choose from. */
const PAGED = /pdf|presentation/;
const MAX_PAGES = 2000;

/** A document for the frame, which can neither load anything nor run what the resource brings along. */
async function documentOf(html, theme) {
  // The frame cannot see how wide the page around it is.
  const narrow = matchMedia('(max-width: 760px)').matches ? ' data-narrow' : '';
  return trusted.createHTML(`<!doctype html><html lang="en" data-theme="${theme}"${narrow}><meta charset="utf-8">`
    + `${await site.frame.head()}<body>${html}</body></html>`);
}

export class Detail {
  #library;
  #mcp;
  #selection;
  #open;
  #running = null;
  #view = 'preview';
  /** The parts that were turned to, each with its URI and where it begins; none for the first. */
  parts = [];
  #url = null;
  #shown = null;
  #columns = { by: 'name', down: false };

  constructor({ element, library, mcp, selection, open, back }) {
    Object.assign(this, { element, back });
    this.#library = library;
    this.#mcp = mcp;
    this.#selection = selection;
    this.#open = open;
    library.addEventListener('changed', perFrame(() => this.updateFolder()));
    selection.addEventListener('changed', () => {
      this.#drawPick();
      this.listing?.refresh();
    });
  }

  /** The URI that is open, whose changes are followed. */
  get uri() {
    return this.#shown?.uri ?? null;
  }

  #reset() {
    this.#running?.abort();
    this.#running = new AbortController();
    if (this.#url) URL.revokeObjectURL(this.#url);
    this.#url = null;
    this.listing = null;
    this.folder = null;
    return this.#running.signal;
  }

  #head(resource, title, extra = []) {
    const path = [];
    for (let at = parentOf(resource.uri); at !== null; at = parentOf(at)) path.unshift(at);
    const step = (uri) => {
      const node = this.#library.nodes.get(folderKey(uri));
      return h('li', {}, node ? h('button', { class: 'crumb', type: 'button', onclick: () => this.#open({ node }) }, clean(lastSegment(uri), 60)) : h('span', { class: 'crumb' }, clean(lastSegment(uri), 60)));
    };
    return h('header', { class: 'detail-head' },
      h('div', { class: 'crumbs' }, iconButton('back', 'Back to the list', () => this.back(), 'phone'),
        h('nav', { 'aria-label': 'Folders' }, h('ol', {}, path.length > 0 ? path.map(step) : h('li', {}, h('span', { class: 'crumb' }, resource.uri.split(':', 1)[0]))))),
      h('div', { class: 'title-line' }, h('h2', {}, h('bdi', {}, title)), h('div', { class: 'title-tools' }, extra)));
  }

  welcome() {
    this.#reset();
    this.#shown = null;
    const { server, instructions } = this.#library;
    const keys = [['↑ ↓', 'move'], ['→ ←', 'open and close a folder'], ['Enter', 'preview'], ['Space', 'select'], ['Shift + ↑ ↓', 'select a range'], ['/', 'search'], ['Esc', 'leave the search']];
    fill(this.element, h('div', { class: 'welcome' },
      h('h2', {}, clean(server.title ?? server.name ?? 'Libris', 100)),
      h('p', { class: 'lead' }, clean(server.description ?? 'Choose a resource to see it here, tick what you need, and take it along.', 400)),
      h('dl', { class: 'keys' }, keys.map(([key, what]) => h('div', {}, h('dt', {}, h('kbd', {}, key)), h('dd', {}, what)))),
      instructions ? h('details', {}, h('summary', {}, 'What models are told'), h('pre', { class: 'instructions' }, instructions.slice(0, 4000))) : null));
  }

  template(form) {
    this.#reset();
    this.#shown = null;
    fill(this.element, h('div', { class: 'detail-body pad' }, iconButton('back', 'Back to the list', () => this.back(), 'phone'), form.element));
    form.focus();
  }

  // A folder as a list.

  showFolder(node) {
    this.#reset();
    this.#shown = { uri: node.uri, folder: true };
    this.folder = node;
    const { resource } = node;
    const all = h('input', { type: 'checkbox', 'aria-label': 'Select everything in this folder', onchange: () => this.#selection.addFolder(this.#library, node) });
    this.all = all;
    const head = (by, text, extra = '') => h('span', { role: 'columnheader', class: `cell ${by} ${extra}`, 'aria-sort': this.#columns.by === by ? (this.#columns.down ? 'descending' : 'ascending') : 'none' },
      h('button', { type: 'button', class: 'sort', onclick: () => {
        this.#columns = { by, down: this.#columns.by === by ? !this.#columns.down : by !== 'name' };
        this.showFolder(node);
      } }, text, this.#columns.by === by ? h('span', { 'aria-hidden': 'true' }, this.#columns.down ? ' ↓' : ' ↑') : null));
    const box = h('div', { class: 'rows list-rows', role: 'rowgroup', tabindex: '-1' });
    const note = h('p', { class: 'foot', role: 'status' });
    const listing = new VirtualRows(box, {
      height: 40,
      draw: (child, index, element) => this.#drawEntry(child, index, element),
      keyOf: (child) => child.key,
      shown: (first, last) => {
        if (last >= listing.items.length - 5 && node.cursor && !node.loading) this.#library.load(node);
      },
    });
    this.listing = listing;
    fill(this.element,
      this.#head(resource, node.name, iconButton('refresh', 'List again', () => this.#library.refresh(node), 'framed')),
      resource.description ? h('p', { class: 'lead pad' }, clean(resource.description, 600)) : null,
      h('div', { class: 'listing', role: 'table', 'aria-label': `Contents of ${node.name}`, 'aria-rowcount': '-1' },
        h('div', { role: 'rowgroup' }, h('div', { class: 'list-head', role: 'row' },
          h('span', { role: 'columnheader', class: 'cell pick' }, all),
          head('name', 'Name'), head('size', 'Size'), head('modified', 'Modified'), head('priority', 'Priority'), head('audience', 'Audience'))),
        box),
      note);
    this.note = note;
    this.#library.open(node);
    this.updateFolder();
  }

  /** Shows what is known of the folder now. */
  updateFolder() {
    const node = this.folder;
    if (!node || !this.listing) return;
    const children = node.children ?? [];
    const { by, down } = this.#columns;
    const value = {
      name: (child) => child.name.toLowerCase(),
      size: (child) => child.resource.size ?? -1,
      modified: (child) => Date.parse(child.resource.annotations?.lastModified) || 0,
      priority: (child) => child.resource.annotations?.priority ?? -1,
      audience: (child) => (child.resource.annotations?.audience ?? []).join(),
    }[by];
    const keyed = children.map((child) => [child.folder ? 0 : 1, value(child), child]);
    keyed.sort((one, other) => one[0] - other[0] || (one[1] < other[1] ? -1 : one[1] > other[1] ? 1 : 0) * (down ? -1 : 1));
    this.listing.set(keyed.map(([, , child]) => child));
    const size = children.reduce((sum, child) => sum + (child.resource.size ?? 0), 0);
    const state = node.error ? node.error.message : node.loading && children.length === 0 ? 'Loading…' : `${count(children.length)}${node.cursor ? '+' : ''} entries${size ? ` · ${bytes(size)}` : ''}`;
    this.note.textContent = state;
  }

  #drawEntry(child, index, element) {
    const { resource } = child;
    const { annotations = {} } = resource;
    const kind = kindOf(resource);
    element.className = 'row entry';
    element.setAttribute('role', 'row');
    element.classList.toggle('selected', this.#selection.has(child.uri));
    if (child.flash && performance.now() - child.flash < 2500) element.setAttribute('data-flash', '');
    else element.removeAttribute('data-flash');
    const pick = h('input', {
      type: 'checkbox', 'aria-label': `Select ${child.name}`, checked: this.#selection.has(child.uri),
      onchange: () => (child.folder ? this.#selection.addFolder(this.#library, child) : this.#selection.toggle(resource)),
    });
    const cell = (name, ...content) => h('span', { role: 'cell', class: `cell ${name}` }, content);
    fill(element,
      cell('pick', pick),
      cell('name', h('button', { class: 'entry-name', type: 'button', title: resource.uri, onclick: () => this.#open({ node: child }) },
        icon(kind, `kind ${kind}`), h('bdi', {}, child.name), h('span', { class: 'about' }, titleOf(resource)))),
      cell('size', child.folder ? '' : bytes(resource.size)),
      cell('modified', date(annotations.lastModified)),
      cell('priority', annotations.priority ?? ''),
      cell('audience', (annotations.audience ?? []).join(', ')));
  }

  // A resource.

  showResource(resource, { lines } = {}) {
    if (this.#shown?.uri !== resource.uri) {
      this.page = null;
      this.pages = null;
      this.parts = [];
    }
    this.#shown = resource;
    this.lines = lines;
    const title = titleOf(resource) || nameOf(resource);
    const { annotations = {} } = resource;
    const kind = kindOf(resource);
    this.pick = h('button', { class: 'pick-button', type: 'button', onclick: () => this.#selection.toggle(this.#shown) });
    const facts = [resource.mimeType ?? KIND_NAMES[kind], bytes(resource.size), tokensOf(resource) ? `≈ ${count(tokensOf(resource))} tokens` : '',
      date(annotations.lastModified), annotations.audience ? `for ${annotations.audience.join(' and ')}` : '',
      annotations.priority !== undefined ? `priority ${annotations.priority}` : ''];
    const chosen = this.#chosen;
    const tab = (view, text) => h('button', {
      type: 'button', role: 'tab', id: `tab-${view}`, 'aria-selected': String(chosen === view), 'aria-controls': 'panel', tabindex: chosen === view ? '0' : '-1',
      onclick: () => {
        this.#view = view;
        this.parts = [];
        this.showResource(this.#shown, { lines: this.lines });
        this.element.querySelector(`#tab-${view}`)?.focus();
      },
      onkeydown: (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (step) {
          const tabs = [...event.target.parentElement.children];
          tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length].click();
        }
      },
    }, text);
    this.panel = h('div', { class: 'panel', id: 'panel', role: 'tabpanel', 'aria-labelledby': `tab-${chosen}` });
    fill(this.element,
      this.#head(resource, title, [this.pick, iconButton('refresh', 'Read again', () => this.refresh(), 'framed'), iconButton('download', 'Download', () => this.#download(), 'framed save')]),
      h('p', { class: 'facts' }, facts.filter(Boolean).join(' · ')),
      h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'View' }, tab('preview', imageUri(resource) ? 'Pages' : 'Preview'), imageUri(resource) ? tab('text', 'Text') : null, tab('source', 'Source'), tab('details', 'Details')),
      this.panel);
    this.#drawPick();
    this.#load();
  }

  /** The view that is shown. Only a document with images of its pages has the view `text`. */
  get #chosen() {
    return this.#view === 'text' && !imageUri(this.#shown) ? 'preview' : this.#view;
  }

  #drawPick() {
    if (!this.pick || !this.#shown) return;
    const isSelected = this.#selection.has(this.#shown.uri);
    this.pick.setAttribute('aria-pressed', String(isSelected));
    fill(this.pick, icon(isSelected ? 'check' : 'plus'), isSelected ? 'Selected' : 'Select');
  }

  /** Reads the open resource again, because it changed. */
  refresh() {
    if (!this.#shown || this.#shown.folder || this.#chosen === 'details') return;
    this.panel?.classList.add('changed');
    this.#load(true);
  }

  async #load(again = false) {
    const signal = this.#reset();
    const resource = this.#shown;
    const { panel } = this;
    const view = this.#chosen;
    if (view === 'details') return this.#details(panel, resource, signal);
    if (!again) fill(panel, h('div', { class: 'loading' }, h('span', { class: 'spinner' }), 'Reading…'));
    try {
      const kind = kindOf(resource);
      if (view === 'preview' && imageUri(resource)) {
        await this.#sheets(panel, resource, signal);
      } else if (view === 'preview' && ['image', 'audio', 'video'].includes(kind) && (resource.size ?? 0) <= LARGEST_MEDIA) {
        await this.#media(panel, resource, kind, signal);
      } else {
        await this.#document(panel, resource, signal);
      }
      panel.classList.remove('changed');
      if (again) {
        panel.classList.add('renewed');
        setTimeout(() => panel.classList.remove('renewed'), 1200);
      }
    } catch (cause) {
      if (signal.aborted) return undefined;
      fill(panel, h('div', { class: 'failure', role: 'alert' }, icon('warning'), h('p', { class: 'strong' }, 'This resource could not be shown'),
        h('p', {}, clean(cause.message, 600)),
        h('p', { class: 'ways-on' }, h('button', { class: 'framed', type: 'button', onclick: () => this.#load() }, icon('refresh'), 'Try again'),
          view === 'preview' && imageUri(resource) ? h('button', { class: 'framed', type: 'button', onclick: () => this.element.querySelector('#tab-text').click() }, icon('text'), 'Show the text') : null)));
    }
    return undefined;
  }

  async #media(panel, resource, kind, signal) {
    const { parts, mimeType } = await this.#library.readFile(resource, { most: LARGEST_MEDIA, signal });
    const url = site.mediaUrl(parts, mimeType ?? resource.mimeType);
    this.#url = url;
    const name = nameOf(resource);
    if (kind === 'image') {
      const size = h('span', { class: 'media-size' });
      const image = h('img', { alt: name, onload: () => { size.textContent = `${image.naturalWidth} × ${image.naturalHeight}`; },
        onerror: () => fill(panel, h('div', { class: 'failure' }, icon('warning'), h('p', {}, 'The browser cannot show this image. Its source shows the bytes.'))) });
      image.src = url;
      const frame = h('button', { class: 'media', type: 'button', 'aria-label': `${name}: fit to the window or show in full size`, onclick: () => frame.classList.toggle('full') }, image);
      fill(panel, frame, h('p', { class: 'media-note' }, size));
    } else {
      const player = h(kind, { controls: true, 'aria-label': name });
      player.src = url;
      fill(panel, h('div', { class: 'media' }, player));
    }
  }

  /** The pages of a document, with their layout. */
  async #sheets(panel, resource, signal) {
    const before = this.pages?.current ?? 1;
    const pages = new PageView({
      uri: imageUri(resource), name: nameOf(resource), signal, width: panel.clientWidth,
      read: (uri, options) => this.#library.read(uri, options),
    });
    await pages.open();
    if (signal.aborted) return;
    this.pages = pages;
    fill(panel, pages.element, h('div', { class: 'frame-note' }, h('span', {}, 'Pages as they are printed'), pages.total > 1 ? pages.bar : null));
    if (before > 1) pages.turn(before);
  }

  async #document(panel, resource, signal) {
    const source = this.#chosen === 'source';
    const text = textUri(resource);
    const paged = text && this.page ? `${text}&pages=${this.page}` : text;
    const whole = source ? resource.uri : paged ?? resource.uri;
    const part = this.parts.at(-1) ?? {};
    const uri = part.uri ?? whole;
    const asked = { uri, source };
    if (uri === resource.uri && typeof resource.size === 'number') asked.size = resource.size;
    if (part.start) asked.start = part.start;
    let preview = await this.#mcp.preview(asked, { signal });
    if (preview.kind === 'hex' && !source) {
      // A resource that is not in a list has no media type until it is read.
      const [group] = (preview.mimeType ?? '').split('/');
      if (['image', 'audio', 'video'].includes(group)) return this.#media(panel, resource, group, signal);
      if (!uri.includes('?') && DOCUMENT.test(preview.mimeType ?? '')) {
        const asText = await this.#mcp.preview({ uri: `${uri}?as=text` }, { signal }).catch(() => null);
        if (signal.aborted) return undefined;
        preview = asText ?? preview;
      }
    }
    const theme = document.documentElement.dataset.theme ?? '';
    const frame = h('iframe', {
      class: 'frame', title: `${source ? 'Source' : 'Preview'} of ${nameOf(resource)}`,
      sandbox: site.frame.sandbox,
      referrerpolicy: 'no-referrer',
    });
    frame.srcdoc = await documentOf(preview.html, theme);
    if (signal.aborted) return undefined;
    const notes = [];
    if (text && uri === paged && !source) notes.push('Text of the document');
    const pages = notes.length > 0 && PAGED.test(resource.mimeType ?? '') ? this.#pages(preview.pages) : null;
    if (preview.cut) notes.push(source ? 'Only the beginning is shown' : 'Shortened; Source has all of it');
    const { rest, totalBytes } = preview;
    const first = part.start?.byte ?? 0;
    if (totalBytes) notes.push(`${bytes(first)} to ${bytes(rest?.byte ?? totalBytes)} of ${bytes(totalBytes)}`);
    else if (rest) notes.push(`${bytes(first)} to ${bytes(rest.byte)}`);
    const next = rest ? { uri, start: rest } : preview.next ? { uri: preview.next } : null;
    fill(panel, frame, notes.length > 0 || next || this.parts.length > 0
      ? h('div', { class: 'frame-note' }, h('span', {}, notes.join(' · ')), pages, this.#partButtons(next)) : null);
    return undefined;
  }

  /** The buttons that turn the parts of a resource that is too large to be shown at once. */
  #partButtons(next) {
    if (!next && this.parts.length === 0) return null;
    const button = (label, parts) => h('button', { class: 'link', type: 'button', disabled: !parts, onclick: () => {
      this.parts = parts;
      this.turned = label;
      this.#load();
    } }, label);
    const buttons = [
      button('Previous part', this.parts.length > 0 ? this.parts.slice(0, -1) : null),
      button('Next part', next ? [...this.parts, next] : null),
    ];
    this.#keepFocus(buttons.filter((one) => !one.disabled), (one) => one.textContent);
    return h('span', { class: 'parts' }, buttons);
  }

  /** Moves the focus to the control that replaces the pressed one, or to the first control if there is none. */
  #keepFocus(controls, labelOf) {
    if (this.turned) {
      const pressed = controls.find((one) => labelOf(one) === this.turned) ?? controls[0];
      requestAnimationFrame(() => pressed?.focus());
    }
    this.turned = null;
  }

  /** The controls that select one page of a document, or all pages. */
  #pages(number) {
    if (!(number > 1)) return null;
    const turn = (page, label) => {
      this.page = page;
      this.parts = [];
      this.turned = label;
      this.#load();
    };
    const select = h('select', { 'aria-label': 'Page', onchange: () => turn(Number(select.value) || null, 'Page') },
      h('option', { value: '' }, `All ${count(number)} pages`),
      Array.from({ length: Math.min(number, MAX_PAGES) }, (_, index) => h('option', { value: index + 1, selected: index + 1 === this.page }, `Page ${index + 1} of ${count(number)}`)));
    const step = (name, label, page) => {
      const button = iconButton(name, label, () => turn(page, label));
      button.disabled = page < 1 || page > number;
      return button;
    };
    const bar = h('span', { class: 'pager' }, step('back', 'Previous page', (this.page ?? 1) - 1), select, step('chevron', 'Next page', (this.page ?? 0) + 1));
    this.#keepFocus([select, ...[...bar.children].filter((one) => !one.disabled)], (one) => one.getAttribute('aria-label'));
    return bar;
  }

  async #details(panel, resource, signal) {
    const { annotations = {}, _meta = {} } = resource;
    const copy = (text) => iconButton('copy', 'Copy', async () => {
      await copyText({ text });
      announce('Copied');
    });
    const term = (name, value, extra) => (value === undefined || value === '' || value === null ? null : h('div', {}, h('dt', {}, name), h('dd', {}, h('bdi', {}, value), extra)));
    const hints = h('dd', {}, '…');
    const list = h('dl', { class: 'details' },
      term('URI', resource.uri, copy(resource.uri)),
      term('Name', clean(resource.name ?? '', 500)),
      term('Title', clean(resource.title ?? '', 500)),
      term('Description', clean(resource.description ?? '', 2000)),
      term('Media type', resource.mimeType),
      term('Size', resource.size === undefined ? '' : `${count(resource.size)} bytes`),
      term('Modified', moment(annotations.lastModified)),
      term('Priority', annotations.priority === undefined ? '' : String(annotations.priority)),
      term('Audience', (annotations.audience ?? []).join(', ')),
      ...Object.entries(_meta).map(([name, value]) => term(name, clean(typeof value === 'string' ? value : JSON.stringify(value), 500))),
      h('div', {}, h('dt', {}, 'Cache'), hints));
    fill(panel, h('div', { class: 'details-body' }, list, site.endpoint ? this.#samples(resource) : null));
    try {
      const read = await this.#library.read(resource.uri, { signal });
      const life = read.ttlMs === undefined ? 'no hint' : read.ttlMs === 0 ? 'ask each time' : `fresh for ${count(read.ttlMs / 1000)} s`;
      hints.textContent = [life, read.cacheScope].filter(Boolean).join(', ');
    } catch (cause) {
      if (!signal.aborted) hints.textContent = clean(cause.message, 300);
    }
  }

  /** Programs that read the resource. */
  #samples(resource) {
    const code = h('pre', { class: 'snippet-code', tabindex: '0' });
    const samples = snippets(site.endpoint, resource.uri, this.#mcp.hasToken);
    let chosen = Object.keys(samples)[0];
    const language = h('select', { 'aria-label': 'Language', onchange: () => {
      chosen = language.value;
      code.textContent = samples[chosen];
    } }, Object.keys(samples).map((name) => h('option', { value: name }, name)));
    code.textContent = samples[chosen];
    return [h('div', { class: 'code-head' }, h('h3', {}, 'Read it from code'), language, iconButton('copy', 'Copy the code', async () => {
      await copyText({ text: samples[chosen] });
      announce('Copied');
    }, 'framed')), code];
  }

  async #download() {
    try {
      const shown = this.#shown;
      if (shown.size > LARGE_DOWNLOAD) announce('Reading…');
      const { parts, mimeType } = await this.#library.readFile(shown, { most: site.largestFile });
      await site.save({ parts, name: lastSegment(shown.uri), type: mimeType ?? 'application/octet-stream' });
    } catch (cause) {
      announce(clean(cause.message, 200));
    }
  }

  get isFolder() {
    return this.folder !== null && this.#shown?.folder;
  }

  get shown() {
    return this.#shown;
  }

}
