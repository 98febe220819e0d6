// The pages of a PDF as images. Those near the visible part are read, a few at a time; images far from it are dropped.

import { fill, h, icon, iconButton } from './dom.js';
import { dataOf } from './file.js';
import { clean, count } from './format.js';
import { site } from './site.js';

/** The widths that are asked for, so that readers with similar windows share the images in the cache of the server. */
const WIDTHS = [800, 1200, 1600, 2000];
const MAX_PAGES = 2000;
const MAX_READS = 2;
const MAX_IMAGES = 12;

/** The scrolling view of all pages. */
export class PageView {
  #uri;
  #read;
  #signal;
  #width;
  #sheets = [];
  #reading = 0;
  #current = 1;
  #observers = [];

  /** `uri` is that of the first image, and `read` reads a URI. */
  constructor({ uri, name, read, signal, width }) {
    this.#uri = uri;
    this.#read = read;
    this.#signal = signal;
    const wanted = Math.max(320, width) * Math.min(devicePixelRatio, 2);
    this.#width = WIDTHS.find((one) => one >= wanted) ?? WIDTHS.at(-1);
    this.element = h('div', { class: 'pages', tabindex: '0', role: 'group', 'aria-label': `Pages of ${name}` });
    signal.addEventListener('abort', () => this.#close(), { once: true });
  }

  /** Reads the first page, which says how many there are. */
  async open() {
    const first = await this.#image(1);
    this.total = first.pages;
    const number = Math.min(first.pages, MAX_PAGES);
    this.#sheets = Array.from({ length: number }, (_, index) => this.#sheet(index + 1, first));
    fill(this.element, this.#sheets.map(({ element }) => element));
    this.#show(this.#sheets[0], first);
    const watch = (rootMargin, action) => {
      const observer = new IntersectionObserver((entries) => {
        for (const { target, isIntersecting } of entries) action(this.#sheets[target.dataset.page - 1], isIntersecting);
        this.#loadNext();
      }, { root: this.element, rootMargin });
      this.#sheets.forEach(({ element }) => observer.observe(element));
      this.#observers.push(observer);
    };
    watch('100% 0px', (sheet, isNear) => { sheet.near = isNear; });
    // The page in the middle is the current one.
    watch('-50% 0px', (sheet, isCurrent) => {
      if (!isCurrent || sheet.page === this.#current) return;
      this.#current = sheet.page;
      this.#drawBar();
    });
    this.bar = this.#bar(number);
    this.#drawBar();
  }

  get current() {
    return this.#current;
  }

  /** Scrolls to a page. */
  turn(page) {
    const sheet = this.#sheets[Math.min(Math.max(page, 1), this.#sheets.length) - 1];
    sheet?.element.scrollIntoView({ block: 'start' });
  }

  #sheet(page, { width, height }) {
    const element = h('figure', { class: 'sheet', 'data-page': page, 'aria-label': `Page ${page} of ${count(this.total)}` });
    element.style.aspectRatio = `${width} / ${height}`;
    return { page, element, near: false, url: null, state: 'empty' };
  }

  async #image(page) {
    const { contents } = await this.#read(`${this.#uri}&pages=${page}&width=${this.#width}`, { signal: this.#signal });
    const [content = {}] = contents;
    const fact = (name) => content._meta?.[`dev.libris/${name}`] ?? 1;
    return { content, pages: fact('pages'), width: fact('width'), height: fact('height') };
  }

  /** Reads the next image that is wanted: of the pages near the visible part, the closest to its middle. */
  #loadNext() {
    while (this.#reading < MAX_READS && !this.#signal.aborted) {
      const distance = ({ page }) => Math.abs(page - this.#current);
      const [next] = this.#sheets.filter(({ near, state }) => near && state === 'empty').sort((one, other) => distance(one) - distance(other));
      if (!next) return;
      next.state = 'reading';
      this.#reading += 1;
      this.#image(next.page).then((image) => this.#show(next, image), (cause) => this.#fail(next, cause)).finally(() => {
        this.#reading -= 1;
        this.#loadNext();
      });
    }
  }

  #show(sheet, { content, width, height }) {
    if (this.#signal.aborted) return;
    sheet.url = site.mediaUrl([dataOf(content)], content.mimeType);
    sheet.state = 'shown';
    sheet.element.style.aspectRatio = `${width} / ${height}`;
    const image = h('img', { alt: `Page ${sheet.page} of ${count(this.total)}. The tab Text has its words.` });
    image.src = sheet.url;
    fill(sheet.element, image);
    const shown = this.#sheets.filter(({ state }) => state === 'shown');
    if (shown.length <= MAX_IMAGES) return;
    const farthest = shown.filter(({ near }) => !near).sort((one, other) => Math.abs(other.page - this.#current) - Math.abs(one.page - this.#current))[0];
    if (farthest) this.#drop(farthest);
  }

  #drop(sheet) {
    URL.revokeObjectURL(sheet.url);
    Object.assign(sheet, { url: null, state: 'empty' });
    fill(sheet.element);
  }

  #fail(sheet, cause) {
    if (this.#signal.aborted) return;
    sheet.state = 'failed';
    const again = h('button', { class: 'framed', type: 'button', onclick: () => {
      sheet.state = 'empty';
      fill(sheet.element);
      this.#loadNext();
    } }, icon('refresh'), 'Try again');
    fill(sheet.element, h('div', { class: 'failure', role: 'alert' }, icon('warning'), h('p', {}, clean(cause.message, 400)), again));
  }

  /** The controls that turn the pages. */
  #bar(number) {
    const step = (name, label, by) => iconButton(name, label, () => this.turn(this.#current + by));
    this.select = h('select', { 'aria-label': 'Page', onchange: () => this.turn(Number(this.select.value)) },
      Array.from({ length: number }, (_, index) => h('option', { value: index + 1 }, `Page ${index + 1} of ${count(this.total)}`)));
    this.previous = step('back', 'Previous page', -1);
    this.next = step('chevron', 'Next page', 1);
    return h('span', { class: 'pager' }, this.previous, this.select, this.next);
  }

  #drawBar() {
    this.select.value = this.#current;
    this.previous.disabled = this.#current <= 1;
    this.next.disabled = this.#current >= this.#sheets.length;
  }

  #close() {
    this.#observers.forEach((observer) => observer.disconnect());
    this.#sheets.filter(({ url }) => url).forEach((sheet) => this.#drop(sheet));
  }
}
