// The selection: resources to use, their tokens against a budget, and how to take them along.

import { announce, fill, h, icon, iconButton } from './dom.js';
import { bytes, count, counted, kindOf, nameOf, tokensOf } from './format.js';
import { copyText, exported, FORMATS } from './export.js';
import { site } from './site.js';
import { recall, remember } from './storage.js';

const BUDGETS = [8000, 32000, 128000, 200000, 1000000];
const BUDGET = 'libris-budget';

export class Selection extends EventTarget {
  #resources = new Map();

  has(uri) {
    return this.#resources.has(uri);
  }

  get(uri) {
    return this.#resources.get(uri);
  }

  get all() {
    return [...this.#resources.values()];
  }

  get size() {
    return this.#resources.size;
  }

  /** About how many tokens the selection has, without the documents whose text was not read yet. */
  get tokens() {
    return this.all.reduce((sum, resource) => sum + (tokensOf(resource) ?? 0), 0);
  }

  /** The documents whose tokens are not known yet. */
  get uncounted() {
    return this.all.filter((resource) => tokensOf(resource) === null);
  }

  #changed() {
    this.dispatchEvent(new CustomEvent('changed'));
  }

  add(resources) {
    for (const resource of resources) {
      if (!this.#resources.has(resource.uri)) this.#resources.set(resource.uri, resource);
    }
    this.#changed();
  }

  toggle(resource) {
    if (!this.#resources.delete(resource.uri)) this.#resources.set(resource.uri, resource);
    this.#changed();
  }

  /** Puts a resource in the place of the one with its URI. */
  replace(resource) {
    this.#resources.set(resource.uri, resource);
    this.#changed();
  }

  remove(uri) {
    this.#resources.delete(uri);
    this.#changed();
  }

  clear() {
    this.#resources.clear();
    this.#changed();
  }

  /** Adds all resources below a folder; if all of them are selected, removes them. */
  async addFolder(library, node) {
    const { resources, complete } = await library.below(node);
    if (resources.length > 0 && resources.every((resource) => this.has(resource.uri))) {
      for (const resource of resources) this.#resources.delete(resource.uri);
      this.#changed();
      announce(`${counted(resources.length, 'resource')} removed`);
      return;
    }
    this.add(resources);
    announce(`${counted(resources.length, 'resource')} selected${complete ? '' : '; the folder has more'}`);
  }

  /** Replaces what is known of a resource, such as its size after it was read. */
  learn(uri, facts) {
    const known = this.#resources.get(uri);
    if (!known) return;
    this.#resources.set(uri, { ...known, ...facts });
    this.#changed();
  }
}

/** The panel of the selection. */
export class Tray {
  #selection;
  #library;
  #open;
  #list;
  #meter;
  #head;
  #actions;

  constructor({ selection, library, open, close, composer, link }) {
    Object.assign(this, { link });
    this.#selection = selection;
    this.#library = library;
    this.#open = open;
    this.budget = Number(recall(BUDGET)) || BUDGETS[1];
    this.#head = h('h2', {}, 'Selection');
    this.#list = h('ul', { class: 'picked' });
    this.#meter = h('div', { class: 'meter' });
    const format = h('select', { 'aria-label': 'Format' }, FORMATS.map(([value, text]) => h('option', { value }, text)));
    this.#actions = h('div', { class: 'actions' },
      format,
      h('button', { class: 'primary', type: 'button', onclick: () => this.#take(format.value, copyText) }, icon('copy'), 'Copy'),
      iconButton('download', 'Download', () => this.#take(format.value, site.save), 'framed save'),
      link ? iconButton('link', 'Copy a link to this selection', () => this.#copyLink(), 'framed') : null);
    this.element = h('div', { class: 'tray-inner' },
      h('div', { class: 'tray-head' }, this.#head,
        h('button', { class: 'link', type: 'button', onclick: () => selection.clear() }, 'Clear'),
        iconButton('close', 'Close the selection', close)),
      this.#list, this.#meter, site.chat?.note, this.#actions, composer);
    selection.addEventListener('changed', () => this.update());
    this.update();
  }

  update() {
    const resources = this.#selection.all;
    this.#head.textContent = resources.length === 0 ? 'Selection' : `${counted(resources.length, 'resource')} selected`;
    this.element.classList.toggle('empty', resources.length === 0);
    if (resources.length === 0) {
      fill(this.#list, h('li', { class: 'none' }, 'Nothing is selected. Tick resources, press the space bar, or type @ below.'));
    } else {
      const shown = resources.slice(0, 200);
      fill(this.#list, shown.map((resource) => h('li', {},
        icon(kindOf(resource), `kind ${kindOf(resource)}`),
        resource.local ? h('span', { class: 'picked-name', title: 'A file of this machine' }, h('bdi', {}, nameOf(resource)))
          : h('button', { class: 'picked-name', type: 'button', title: resource.uri, onclick: () => this.#open({ resource }) },
            h('bdi', {}, nameOf(resource))),
        h('span', { class: 'picked-size' }, tokensOf(resource) ? `≈ ${count(tokensOf(resource))}` : bytes(resource.size)),
        iconButton('close', `Remove ${nameOf(resource)}`, () => this.#selection.remove(resource.uri)))),
      resources.length > shown.length ? h('li', { class: 'none' }, `and ${count(resources.length - shown.length)} more`) : null);
    }
    this.#drawMeter();
  }

  #drawMeter() {
    const { tokens, uncounted } = this.#selection;
    const rest = uncounted.length > 0 ? ` and ${counted(uncounted.length, 'document')}` : '';
    const part = Math.min(1, tokens / this.budget);
    const over = tokens > this.budget;
    const fillBar = h('span', { class: 'meter-fill' });
    fillBar.style.width = `${(part * 100).toFixed(1)}%`;
    const budget = h('select', {
      'aria-label': 'Budget in tokens',
      onchange: () => {
        this.budget = Number(budget.value);
        remember(BUDGET, budget.value);
        this.#drawMeter();
      },
    }, BUDGETS.map((value) => h('option', { value, selected: value === this.budget }, `${count(value)} tokens`)));
    fill(this.#meter,
      h('div', {
        class: `meter-bar ${over ? 'over' : ''}`, role: 'meter', 'aria-label': 'Tokens of the selection',
        'aria-valuemin': '0', 'aria-valuemax': String(this.budget), 'aria-valuenow': String(Math.min(tokens, this.budget)),
        'aria-valuetext': `about ${count(tokens)}${rest} of ${count(this.budget)} tokens`,
      }, fillBar),
      h('div', { class: 'meter-text' },
        h('span', { class: over ? 'over' : '' }, over ? `≈ ${count(tokens)} tokens${rest}, ${count(tokens - this.budget)} over` : `≈ ${count(tokens)} tokens${rest} of`),
        budget));
  }

  async #take(format, use) {
    const resources = this.#selection.all;
    if (resources.length === 0) return announce('Select something first');
    announce('Reading…');
    const file = await exported(format, resources, this.#library, this.prompt?.() ?? '', (uri, facts) => this.#selection.learn(uri, facts));
    await use(file);
    this.taken?.();
    announce(file.failed > 0 ? `${counted(resources.length - file.failed, 'resource')} taken, ${file.failed} could not be read`
      : `${counted(resources.length, 'resource')} as ${FORMATS.find(([name]) => name === format)[1]}`);
    return undefined;
  }

  async #copyLink() {
    await copyText({ text: this.link() });
    announce('Link copied');
  }
}
