// The tree of resources: rows of the folders that are open, with keys, selection and ranges.

import { fill, h, icon, perFrame } from './dom.js';
import { KIND_NAMES, count, counted, kindOf, titleOf } from './format.js';
import { VirtualRows } from './rows.js';

const ROW = 34;
const TYPING_PAUSE = 800;
const FLASH = 2500;
/** What identifies a row while others are added or removed. */
const keyOf = ({ node, more, template }) => (node ? node.key : more ? `more ${more.key}` : template ? `template ${template.uriTemplate}` : 'templates');
const SCHEMES = { git: 'branch', sqlite: 'database', postgres: 'database', mysql: 'database' };

export class Tree {
  #library;
  #selection;
  #open;
  #rows;
  #box;
  #active = null;
  #anchor = null;
  #typed = '';
  #typedAt = -TYPING_PAUSE;
  #current = null;

  constructor({ library, selection, open }) {
    this.#library = library;
    this.#selection = selection;
    this.#open = open;
    this.#box = h('div', {
      class: 'rows tree-rows', role: 'tree', tabindex: '0', 'aria-label': 'Resources', 'aria-multiselectable': 'true',
      onkeydown: (event) => this.#key(event),
      onclick: (event) => this.#click(event),
    });
    this.#rows = new VirtualRows(this.#box, {
      height: ROW,
      draw: (item, index, element) => this.#draw(item, index, element),
      shown: (first, last) => this.#shown(first, last),
      keyOf,
      preferred: () => this.#active,
    });
    this.status = h('p', { class: 'foot', role: 'status' });
    this.element = h('div', { class: 'browse' }, this.#box, this.status);
    library.addEventListener('changed', () => this.update());
    selection.addEventListener('changed', () => this.#rows.refresh());
  }

  focus() {
    this.#box.focus();
  }

  /** Flattens what is open into rows, once per frame. */
  update = perFrame(() => {
    const rows = [];
    const push = (node) => {
      for (const [index, child] of (node.children ?? []).entries()) {
        rows.push({ node: child, index });
        if (child.folder && child.expanded) push(child);
      }
      if (node.loading || node.error || (node.children && node.cursor)) rows.push({ more: node });
    };
    push(this.#library.root);
    if (this.#library.templates.length > 0) {
      rows.push({ heading: true });
      if (this.showsTemplates) rows.push(...this.#library.templates.map((template) => ({ template })));
    }
    this.#replace(rows);
    this.#summarise(rows);
  });

  /** Shows other rows; the active one and the beginning of a range stay those of the same resources. */
  #replace(rows) {
    const [active, anchor] = [this.#active, this.#anchor].map((index) => this.#rows.items[index]);
    const indexOf = (item) => {
      const key = item && keyOf(item);
      return item ? rows.findIndex((row) => keyOf(row) === key) : -1;
    };
    this.#rows.set(rows);
    if (this.#active === null) return;
    const index = indexOf(active);
    this.#active = Math.max(0, index >= 0 ? index : Math.min(this.#active, rows.length - 1));
    const start = indexOf(anchor);
    this.#anchor = start >= 0 ? start : this.#active;
    this.#box.setAttribute('aria-activedescendant', `row-${this.#active}`);
  }

  #summarise(rows) {
    const { unavailable } = this.#library;
    const loaded = rows.filter((row) => row.node).length;
    const parts = [this.#library.isFlat ? counted(this.#library.nodes.size, 'entry').replace('entrys', 'entries') : `${count(loaded)} shown`];
    if (unavailable.length > 0) parts.push(`${counted(unavailable.length, 'source')} unavailable`);
    fill(this.status, parts.join(' · '));
    this.status.classList.toggle('warn', unavailable.length > 0);
  }

  showsTemplates = false;

  #draw(item, index, element) {
    element.id = `row-${index}`;
    element.className = 'row';
    for (const name of ['aria-level', 'aria-expanded', 'aria-selected', 'aria-posinset', 'aria-setsize', 'data-flash']) {
      element.removeAttribute(name);
    }
    element.setAttribute('role', 'treeitem');
    element.classList.toggle('active', index === this.#active);
    if (item.more) return this.#drawMore(item.more, element);
    if (item.heading) return this.#drawHeading(element);
    if (item.template) return this.#drawTemplate(item.template, element);
    const { node } = item;
    const { resource } = node;
    const isSelected = node.folder ? false : this.#selection.has(node.uri);
    element.setAttribute('aria-level', node.depth + 1);
    element.setAttribute('aria-posinset', item.index + 1);
    element.setAttribute('aria-setsize', node.parent.cursor ? -1 : node.parent.children.length);
    if (!node.folder) element.setAttribute('aria-selected', isSelected);
    if (node.folder) element.setAttribute('aria-expanded', node.expanded);
    element.classList.toggle('selected', isSelected);
    element.classList.toggle('current', this.#current === node.key);
    if (node.flash && performance.now() - node.flash < FLASH) element.setAttribute('data-flash', '');
    const kind = kindOf(resource);
    const scheme = node.depth === 0 && node.folder ? SCHEMES[node.uri.split(':', 1)[0]] : null;
    const number = node.children && node.cursor === null ? node.children.length : resource.count;
    const isLeast = node.children ? Boolean(node.cursor) : resource.countIsMinimum;
    const indent = h('span', { class: 'indent' });
    indent.style.width = `${node.depth * 16}px`;
    fill(
      element,
      indent,
      h('span', { class: 'twist', 'data-act': node.folder ? 'twist' : null }, node.folder ? icon('chevron', node.expanded ? 'down' : '') : null),
      h('span', { class: 'mark' },
        icon(scheme ?? (kind === 'folder' && node.expanded ? 'open' : kind), `kind ${kind}`),
        h('span', { class: 'tick', 'data-act': 'tick', title: node.folder ? 'Select everything in this folder' : 'Select' }, icon('check'))),
      h('span', { class: 'hidden' }, `${KIND_NAMES[kind]}: `),
      h('bdi', { class: 'name' }, node.name),
      h('span', { class: 'about' }, titleOf(resource)),
      node.folder && number !== undefined && number !== null
        ? h('span', { class: 'count' }, `${count(number)}${isLeast ? '+' : ''}`)
        : null,
    );
    element.title = resource.description ? `${node.uri}\n${resource.description.slice(0, 300)}` : node.uri;
  }

  #drawMore(node, element) {
    const indent = h('span', { class: 'indent' });
    indent.style.width = `${(node.depth + 1) * 16}px`;
    element.classList.add('more');
    element.classList.toggle('failed', Boolean(node.error));
    const text = node.error ? `${node.error.message} — press Enter to try again` : 'Loading…';
    fill(element, indent, node.error ? icon('warning', 'kind') : h('span', { class: 'spinner' }), h('span', { class: 'name' }, text));
    element.title = text;
  }

  #drawHeading(element) {
    element.setAttribute('aria-expanded', this.showsTemplates);
    element.setAttribute('aria-level', 1);
    element.classList.add('heading');
    fill(
      element,
      h('span', { class: 'indent' }),
      h('span', { class: 'twist' }, icon('chevron', this.showsTemplates ? 'down' : '')),
      icon('template', 'kind template'),
      h('span', { class: 'name' }, 'Templates'),
      h('span', { class: 'about' }),
      h('span', { class: 'count' }, count(this.#library.templates.length)),
    );
    element.title = 'Resources whose URI has variables to fill in';
  }

  #drawTemplate(template, element) {
    element.setAttribute('aria-level', 2);
    element.classList.toggle('current', this.#current === template.uriTemplate);
    const indent = h('span', { class: 'indent' });
    indent.style.width = '16px';
    fill(
      element,
      indent,
      h('span', { class: 'twist' }),
      icon('template', 'kind template'),
      h('bdi', { class: 'name' }, template.title ?? template.name),
      h('span', { class: 'about' }, template.uriTemplate),
    );
    element.title = template.uriTemplate;
  }

  #shown(first, last) {
    for (let index = first; index < Math.min(last + 1, this.#rows.items.length); index += 1) {
      const node = this.#rows.items[index]?.more;
      if (node && !node.loading && !node.error) this.#library.load(node);
    }
  }

  #click(event) {
    const element = event.target.closest('.row');
    if (!element) return;
    const index = Number(element.id.slice(4));
    const act = event.target.closest('[data-act]')?.dataset.act;
    if (event.shiftKey && this.#anchor !== null) {
      this.#activate(index);
      this.#selectRange(this.#anchor, index);
      return;
    }
    this.#anchor = index;
    this.#activate(index);
    if (act === 'tick' || event.ctrlKey || event.metaKey) this.#toggleSelected(index);
    else if (act === 'twist') this.#toggleFolder(this.#rows.items[index].node);
    else this.#enter(index);
  }

  #activate(index) {
    const items = this.#rows.items;
    this.#active = Math.max(0, Math.min(index, items.length - 1));
    this.#box.setAttribute('aria-activedescendant', `row-${this.#active}`);
    this.#rows.reveal(this.#active);
    this.#rows.refresh();
  }

  #enter(index) {
    const item = this.#rows.items[index];
    if (!item) return;
    if (item.heading) {
      this.showsTemplates = !this.showsTemplates;
      this.update();
    } else if (item.more) {
      item.more.error = null;
      this.#library.load(item.more);
    } else if (item.template) {
      this.#open({ template: item.template });
    } else {
      if (item.node.folder) this.#toggleFolder(item.node);
      this.#open({ node: item.node });
    }
  }

  #toggleFolder(node, expanded = !node.expanded) {
    if (!node?.folder) return;
    node.expanded = expanded;
    if (expanded) this.#library.open(node);
    this.update();
  }

  async #toggleSelected(index) {
    const item = this.#rows.items[index];
    if (!item?.node) return;
    if (!item.node.folder) this.#selection.toggle(item.node.resource);
    else await this.#selection.addFolder(this.#library, item.node);
  }

  #selectRange(from, to) {
    const [first, last] = from < to ? [from, to] : [to, from];
    const nodes = this.#rows.items.slice(first, last + 1).map((item) => item.node);
    this.#selection.add(nodes.filter((node) => node && !node.folder).map((node) => node.resource));
  }

  #key(event) {
    const items = this.#rows.items;
    const at = this.#active ?? -1;
    const item = items[at];
    const move = (to) => {
      event.preventDefault();
      this.#typedAt = -TYPING_PAUSE;
      const from = this.#anchor ?? Math.max(at, 0);
      this.#activate(to);
      if (event.shiftKey) this.#selectRange(from, this.#active);
      else this.#anchor = this.#active;
    };
    switch (event.key) {
      case 'ArrowDown': return move(at + 1);
      case 'ArrowUp': return move(Math.max(0, at - 1));
      case 'Home': return move(0);
      case 'End': return move(items.length - 1);
      case 'PageDown': return move(at + this.#rows.page);
      case 'PageUp': return move(at - this.#rows.page);
      case 'ArrowRight':
        event.preventDefault();
        if (item?.heading && !this.showsTemplates) return this.#enter(at);
        if (item?.node?.folder && !item.node.expanded) return this.#toggleFolder(item.node, true);
        return item?.node?.folder ? move(at + 1) : undefined;
      case 'ArrowLeft': {
        event.preventDefault();
        if (item?.heading && this.showsTemplates) return this.#enter(at);
        if (item?.node?.folder && item.node.expanded) return this.#toggleFolder(item.node, false);
        const parent = items.findIndex((row) => row.node && row.node === item?.node?.parent);
        return parent >= 0 ? move(parent) : undefined;
      }
      case 'Enter':
        event.preventDefault();
        return this.#enter(at);
      case ' ':
        event.preventDefault();
        return this.#toggleSelected(at);
      case 'a':
        if (event.ctrlKey || event.metaKey) {
          event.preventDefault();
          return this.#selectRange(0, items.length - 1);
        }
    }
    if (event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey && event.key !== '/') this.#typeAhead(event);
  }

  #typeAhead(event) {
    event.preventDefault();
    const now = performance.now();
    const isFirst = now - this.#typedAt > TYPING_PAUSE;
    this.#typed = isFirst ? event.key : this.#typed + event.key;
    this.#typedAt = now;
    const typed = this.#typed.toLowerCase();
    const items = this.#rows.items;
    const start = (this.#active ?? -1) + (isFirst ? 1 : 0);
    for (let step = 0; step < items.length; step += 1) {
      const index = (Math.max(start, 0) + step) % items.length;
      const { node, template } = items[index];
      const name = node?.name ?? template?.name ?? '';
      if (name.toLowerCase().startsWith(typed)) {
        this.#anchor = index;
        return this.#activate(index);
      }
    }
  }

  /** Marks what the preview shows. */
  mark(key) {
    this.#current = key;
    this.#rows.refresh();
  }

  /** Scrolls to a node. */
  show(node) {
    this.update();
    requestAnimationFrame(() => requestAnimationFrame(() => {
      const index = this.#rows.items.findIndex((item) => item.node === node);
      if (index >= 0) this.#activate(index);
    }));
  }
}
