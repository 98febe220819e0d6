// Search as you type: filters, hits with the words marked, and what to try if nothing is found.

import { debounced, fill, h, icon } from './dom.js';
import { KIND_NAMES, clean, count, kindOf, marked, nameOf, passage, titleOf } from './format.js';
import { VirtualRows } from './rows.js';

const ROW = 100;
const PAUSE = 140;
/** How the server says that its index is incomplete, and after how many milliseconds a search is repeated then. */
const BUILDING = /The search index is being built[^\n]*/;
const AGAIN = 1500;
const DAY = 86400000;
const TYPES = [
  ['', 'Any type'],
  ['text/markdown', 'Markdown'],
  ['text/*', 'Text and source'],
  ['application/json', 'JSON'],
  ['text/csv', 'Tables (CSV)'],
  ['application/pdf', 'PDF'],
  ['image/*', 'Images'],
];
const AGES = [['', 'Any time'], ['1', 'Past day'], ['7', 'Past week'], ['31', 'Past month'], ['366', 'Past year']];
const AUDIENCES = [['', 'Any audience'], ['user', 'For people'], ['assistant', 'For the model']];

export class Search {
  #library;
  #selection;
  #open;
  #rows;
  #box;
  #running = null;
  #active = -1;
  #query = '';
  #current = null;

  constructor({ library, selection, open, closed }) {
    Object.assign(this, { closed });
    this.#library = library;
    this.#selection = selection;
    this.#open = open;
    const choose = (label, options) => h('select', { 'aria-label': label, onchange: () => this.run(this.#query) },
      options.map(([value, text]) => h('option', { value }, text)));
    this.source = choose('Source', [['', 'All sources']]);
    this.type = choose('Type', TYPES);
    this.age = choose('Modified', AGES);
    this.audience = choose('Audience', AUDIENCES);
    this.status = h('p', { class: 'foot', role: 'status' });
    this.empty = h('div', { class: 'nothing', hidden: true });
    this.#box = h('div', {
      class: 'rows', role: 'listbox', tabindex: '0', 'aria-label': 'Results', 'aria-multiselectable': 'true',
      onkeydown: (event) => this.#key(event),
      onclick: (event) => {
        const element = event.target.closest('.row');
        if (!element) return;
        this.#activate(Number(element.id.slice(4)));
        if (event.target.closest('[data-act]')) this.#selection.toggle(this.#rows.items[this.#active]);
        else this.#enter();
      },
    });
    this.#rows = new VirtualRows(this.#box, { height: ROW, draw: (hit, index, element) => this.#draw(hit, index, element) });
    this.element = h('div', { class: 'browse results', hidden: true },
      h('div', { class: 'filters' }, this.source, this.type, this.age, this.audience),
      this.empty, this.#box, this.status);
    selection.addEventListener('changed', () => this.#rows.refresh());
    this.later = debounced(PAUSE, (query) => this.run(query));
  }

  /** The sources at the top of the tree, to choose from. */
  #offerSources() {
    const roots = (this.#library.root.children ?? []).filter((node) => node.folder);
    if (this.source.options.length === roots.length + 1) return;
    const chosen = this.source.value;
    fill(this.source, h('option', { value: '' }, 'All sources'),
      roots.map((node) => h('option', { value: node.uri }, node.name)));
    this.source.value = chosen;
  }

  typed(query) {
    this.#query = query;
    this.element.hidden = query.trim() === '';
    if (this.element.hidden) {
      clearTimeout(this.again);
      this.#running?.abort();
      this.closed();
      return;
    }
    this.#offerSources();
    this.later(query);
  }

  async run(query) {
    if (query.trim() === '') return;
    this.#running?.abort();
    const running = new AbortController();
    this.#running = running;
    this.element.setAttribute('aria-busy', 'true');
    try {
      const found = await this.#library.search(query.trim(), {
        scope: this.source.value || undefined,
        mime: this.type.value || undefined,
        audience: this.audience.value || undefined,
        since: this.age.value ? new Date(Date.now() - Number(this.age.value) * DAY).toISOString() : undefined,
        signal: running.signal,
      });
      if (running.signal.aborted) return;
      this.#show(query, found);
    } catch (cause) {
      if (running.signal.aborted) return;
      this.#rows.set([]);
      this.#box.hidden = true;
      this.empty.hidden = false;
      fill(this.empty, icon('warning'), h('p', {}, clean(cause.message, 400)));
      this.status.textContent = '';
    } finally {
      if (this.#running === running) this.element.removeAttribute('aria-busy');
    }
  }

  #show(query, found) {
    this.#active = -1;
    const hits = found.results;
    this.#rows.set(hits);
    this.#box.hidden = hits.length === 0;
    this.#box.scrollTop = 0;
    this.empty.hidden = hits.length > 0;
    if (hits.length === 0) this.#suggest(query, found);
    this.#searchAgain(query, found);
    const number = found.total ?? hits.length;
    const words = [hits.length === 0 ? 'Nothing found' : `${count(Math.max(number, hits.length))}${found.more && !found.total ? '+' : ''} found`];
    if (number > hits.length && hits.length > 0) words.push(`the best ${hits.length} shown`);
    if (found.byName) words.push('by name');
    if (found.correction) words.push(`for “${clean(found.correction, 80)}”`);
    this.status.textContent = words.join(' · ');
  }

  /** Searches again while the index is being built. */
  #searchAgain(query, found) {
    clearTimeout(this.again);
    if (!BUILDING.test(found.hint ?? '')) return;
    this.again = setTimeout(() => {
      if (this.#query === query && !this.element.hidden) this.run(query);
    }, AGAIN);
  }

  #suggest(query, found) {
    const tips = [];
    const building = BUILDING.exec(found.hint ?? '')?.[0];
    const filtered = [this.source, this.type, this.age, this.audience].some((filter) => filter.value);
    if (filtered) {
      tips.push(h('button', { class: 'link', type: 'button', onclick: () => this.#clear() }, 'Remove the filters'));
    }
    const words = query.trim().split(/\s+/);
    if (words.length > 1) {
      tips.push(h('button', { class: 'link', type: 'button', onclick: () => this.#replace(words[0]) }, `Search for “${clean(words[0], 40)}” only`));
    }
    if (/["-]/.test(query)) tips.push(h('span', {}, 'Leave out the quotation marks and the words with a minus.'));
    tips.push(h('span', {}, found.byName ? 'This server compares names and titles only.' : 'Try a more common word, or browse the folders.'));
    fill(this.empty, icon('search'), h('p', { class: 'strong' }, `Nothing matches “${clean(query.trim(), 80)}”`),
      building ? h('p', {}, clean(building, 300)) : null, h('ul', {}, tips.map((tip) => h('li', {}, tip))));
  }

  #clear() {
    for (const filter of [this.source, this.type, this.age, this.audience]) filter.value = '';
    this.run(this.#query);
  }

  #replace(query) {
    const input = document.getElementById('query');
    input.value = query;
    this.typed(query);
    input.focus();
  }

  #draw(hit, index, element) {
    const isSelected = this.#selection.has(hit.uri);
    const kind = kindOf(hit);
    element.id = `hit-${index}`;
    element.className = 'row hit';
    element.setAttribute('role', 'option');
    element.setAttribute('aria-selected', isSelected);
    element.classList.toggle('selected', isSelected);
    element.classList.toggle('active', index === this.#active);
    element.classList.toggle('current', hit.uri === this.#current);
    const words = (text) => marked(text, this.#query).map((part, at) => (at % 2 ? h('mark', {}, part) : part));
    const title = clean(hit.title ?? '', 160) || nameOf(hit);
    const snippet = clean(passage(hit.snippet), 260);
    fill(
      element,
      h('span', { class: 'mark' }, icon(kind, `kind ${kind}`), h('span', { class: 'tick', 'data-act': 'tick', title: 'Select' }, icon('check'))),
      h('span', { class: 'hit-text' },
        h('span', { class: 'hidden' }, `${KIND_NAMES[kind]}: `),
        h('bdi', { class: 'name' }, words(title)),
        snippet ? h('bdi', { class: 'snippet' }, words(snippet)) : h('span', { class: 'snippet' }, titleOf(hit)),
        h('span', { class: 'where' }, h('bdi', {}, clean(hit.uri, 200)), hit.lines ? ` · lines ${hit.lines}` : '', hit.heading ? ` · ${clean(hit.heading, 60)}` : '')),
    );
  }

  #activate(index) {
    if (this.#rows.items.length === 0) return;
    this.#active = Math.max(0, Math.min(index, this.#rows.items.length - 1));
    this.#box.setAttribute('aria-activedescendant', `hit-${this.#active}`);
    this.#rows.reveal(this.#active);
    this.#rows.refresh();
  }

  #enter() {
    const hit = this.#rows.items[this.#active];
    if (hit) this.#open({ resource: hit, lines: hit.lines });
  }

  #key(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: this.#rows.page, PageUp: -this.#rows.page, Home: -1e9, End: 1e9 };
    if (event.key in steps) {
      event.preventDefault();
      this.#activate(this.#active + steps[event.key]);
    } else if (event.key === 'Enter') {
      this.#enter();
    } else if (event.key === ' ') {
      event.preventDefault();
      const hit = this.#rows.items[this.#active];
      if (hit) this.#selection.toggle(hit);
    }
  }

  mark(uri) {
    this.#current = uri;
    this.#rows.refresh();
  }

  focus() {
    this.#box.focus();
    if (this.#active < 0) this.#activate(0);
  }
}
