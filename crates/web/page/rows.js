// A list of any length of which only the rows in view are elements.

import { h } from './dom.js';

const OVERSCAN = 8;

export class VirtualRows {
  #box;
  #space;
  #drawn = new Map();
  #scheduled = false;
  #height;
  /** The row to scroll to once the list is shown; on a phone, another pane can hide it. */
  #hiddenRow = null;
  items = [];

  /**
   * `draw(item, index, element)` fills the element of a row; `shown(first, last)` tells which rows are in view. With
   * `keyOf(item)`, a row in view stays where it is when others are added or removed above it: the row with the index
   * `preferred()` if it is in view, otherwise the first one that remains.
   */
  constructor(box, { height, draw, shown, keyOf, preferred }) {
    Object.assign(this, { draw, shown, keyOf, preferred });
    this.#box = box;
    this.#height = height;
    this.#space = h('div', { class: 'space', role: 'presentation' });
    box.append(this.#space);
    box.addEventListener('scroll', () => this.schedule(), { passive: true });
    new ResizeObserver(() => {
      if (this.#hiddenRow !== null) this.reveal(this.#hiddenRow);
      this.schedule();
    }).observe(box);
  }

  get rowHeight() {
    return this.#height;
  }

  set(items) {
    const before = this.keyOf ? this.#inView() : [];
    this.items = items;
    this.refresh();
    if (before.length === 0) return;
    // The first of these rows that is still there stays where it is.
    const ranks = new Map(before.map(({ key }, rank) => [key, rank]));
    let kept = null;
    for (let index = 0; index < items.length && kept?.rank !== 0; index += 1) {
      const rank = ranks.get(this.keyOf(items[index]));
      if (rank !== undefined && !(kept?.rank <= rank)) kept = { rank, index };
    }
    if (kept) this.#box.scrollTop += (kept.index - before[kept.rank].index) * this.#height;
  }

  /** The keys of the rows in view, with their indices; none at the top of the list, where new rows are to be seen. */
  #inView() {
    const top = this.#box.scrollTop;
    const first = Math.ceil(top / this.#height);
    const last = Math.min(this.items.length, Math.floor((top + this.#box.clientHeight) / this.#height));
    const preferred = this.preferred?.() ?? -1;
    const isPreferred = preferred >= first && preferred < last;
    if (top === 0 && !isPreferred) return [];
    const indices = Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
    return (isPreferred ? [preferred, ...indices] : indices).map((index) => ({ index, key: this.keyOf(this.items[index]) }));
  }

  /** Draws all rows in view anew. */
  refresh() {
    this.#space.style.height = `${this.items.length * this.#height}px`;
    for (const row of this.#drawn.values()) row.stale = true;
    this.schedule();
  }

  schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.#render();
    });
  }

  #render() {
    const top = this.#box.scrollTop;
    const view = this.#box.clientHeight || 600;
    const first = Math.max(0, Math.floor(top / this.#height) - OVERSCAN);
    const last = Math.min(this.items.length, Math.ceil((top + view) / this.#height) + OVERSCAN);
    const spare = [];
    for (const [index, row] of this.#drawn) {
      if (index < first || index >= last) {
        spare.push(row);
        this.#drawn.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) {
      let row = this.#drawn.get(index);
      const item = this.items[index];
      if (!row) {
        row = spare.pop() ?? { element: this.#space.appendChild(h('div', { class: 'row' })) };
        row.element.style.transform = `translateY(${index * this.#height}px)`;
        row.stale = true;
        this.#drawn.set(index, row);
      }
      if (row.stale || row.item !== item) {
        row.item = item;
        row.stale = false;
        this.draw(item, index, row.element);
      }
    }
    for (const row of spare) row.element.remove();
    this.shown?.(Math.floor(top / this.#height), Math.ceil((top + view) / this.#height));
  }

  /** Scrolls until a row is in view. */
  reveal(index) {
    this.#hiddenRow = this.#box.clientHeight === 0 ? index : null;
    if (this.#hiddenRow !== null) return;
    const top = index * this.#height;
    const view = this.#box.clientHeight;
    if (top < this.#box.scrollTop) this.#box.scrollTop = top;
    else if (top + this.#height > this.#box.scrollTop + view) this.#box.scrollTop = top + this.#height - view;
    this.schedule();
  }

  get page() {
    return Math.max(1, Math.floor(this.#box.clientHeight / this.#height) - 1);
  }
}
