// Looks up what the count of tokens of a selection needs: sizes, and the text of documents.

import { textUri, tokensOf, tokensOfText } from './format.js';

/** The most resources that are looked up, how many at once, and the most documents whose text is read. */
const MOST = 200;
const AT_ONCE = 2;
const MOST_DOCUMENTS = 50;

export class Measure {
  #library;
  #selection;
  #lookedUp = new Set();
  #documents = 0;
  #running = 0;

  constructor({ library, selection }) {
    this.#library = library;
    this.#selection = selection;
  }

  /** Continues with what is selected now. */
  run() {
    while (this.#running < AT_ONCE) {
      const next = this.#next();
      if (!next) return;
      this.#running += 1;
      // What cannot be read stays uncounted.
      next().catch(() => {}).finally(() => {
        this.#running -= 1;
        this.run();
      });
    }
  }

  #next() {
    for (const resource of this.#selection.all.slice(0, MOST)) {
      const { uri, size, local } = resource;
      const text = textUri(resource);
      if (!local && size === undefined && this.#isNew(uri)) return () => this.#locate(uri);
      if (text && tokensOf(resource) === null && this.#documents < MOST_DOCUMENTS && this.#isNew(text)) {
        this.#documents += 1;
        return () => this.#count(uri, text);
      }
    }
    return null;
  }

  #isNew(uri) {
    const isNew = !this.#lookedUp.has(uri);
    this.#lookedUp.add(uri);
    return isNew;
  }

  /** What the list knows of a resource that was selected elsewhere. */
  async #locate(uri) {
    const node = await this.#library.locate(uri);
    if (node) this.#selection.learn(uri, node.resource);
  }

  async #count(uri, text) {
    const { contents } = await this.#library.read(text);
    const tokens = contents.reduce((sum, content) => sum + tokensOfText(content.text ?? ''), 0);
    this.#selection.learn(uri, { tokens });
  }
}
