// The composer: a message in which `@` offers resources, templates and skills, and what else could be attached.

import { attach } from './attach.js';
import { announce, debounced, fill, h, icon } from './dom.js';
import { clean, kindOf, nameOf } from './format.js';
import { site } from './site.js';
import { recall, remember } from './storage.js';

const OFFERED = 8;
const SUGGESTED = 4;
const MIN_SUGGEST = 12;
/** How many messages before this one are kept, and how many characters of all are searched for. */
const REMEMBERED = 4;
const TOPIC = 400;
const AUTOMATIC = 'libris-attach';

function withoutMentions(text) {
  return text.replace(/@\S+/g, ' ').trim();
}

export class Composer {
  #library;
  #selection;
  #open;
  #area;
  #menu;
  #offers = [];
  #active = 0;
  #from = -1;
  #asked = 0;
  #suggestions;
  #automatic;
  #dismissed = new Set();
  #before = [];
  #attached = Promise.resolve();

  constructor({ library, selection, open }) {
    this.#library = library;
    this.#selection = selection;
    this.#open = open;
    this.#menu = h('ul', { class: 'offers', id: 'offers', role: 'listbox', 'aria-label': 'Resources to mention', hidden: true });
    this.#area = h('textarea', {
      id: 'message', rows: '4', placeholder: 'Write your question. Type @ to mention a resource.',
      'aria-controls': 'offers', 'aria-autocomplete': 'list',
      oninput: () => this.#typed(),
      onkeydown: (event) => this.#key(event),
      onblur: () => setTimeout(() => this.#close(), 150),
    });
    this.#suggestions = h('div', { class: 'suggestions', 'aria-live': 'polite' });
    this.#automatic = h('input', { type: 'checkbox', id: 'automatic', checked: recall(AUTOMATIC) === 'yes',
      onchange: () => {
        remember(AUTOMATIC, this.#automatic.checked ? 'yes' : 'no');
        this.#suggest();
      } });
    this.element = h('div', { class: 'composer' },
      h('label', { for: 'message' }, 'Message'),
      h('div', { class: 'composer-box' }, this.#area, this.#menu),
      // A chat cannot read the files of this machine.
      site.chat ? null : this.#attachButton(),
      site.chat ? h('div', { class: 'row-end' }, h('button', { class: 'primary', type: 'button', onclick: () => this.#send() }, icon('send'), 'Send')) : null,
      this.#suggestions);
    if (!site.chat) this.#acceptDrops();
    this.suggestLater = debounced(450, () => this.#suggest());
    selection.addEventListener('changed', () => this.#redraw());
  }

  /** A button that does what dropping files here does. */
  #attachButton() {
    const input = h('input', { type: 'file', id: 'attach', class: 'hidden', multiple: true, tabindex: '-1', 'aria-label': 'Files to attach',
      onchange: () => {
        this.#attach([...input.files]);
        // The same file can be chosen again.
        input.value = '';
      } });
    return h('div', { class: 'attach' }, input, h('button', { class: 'quiet', type: 'button', onclick: () => input.click() }, icon('plus'), 'Attach files'));
  }

  #acceptDrops() {
    const mark = (on) => this.element.classList.toggle('dropping', on);
    this.element.addEventListener('dragover', (event) => {
      if (!event.dataTransfer.types.includes('Files')) return;
      event.preventDefault();
      mark(true);
    });
    this.element.addEventListener('dragleave', () => mark(false));
    this.element.addEventListener('drop', (event) => {
      mark(false);
      const items = [...event.dataTransfer.items].filter((item) => item.kind === 'file');
      if (items.length === 0) return;
      event.preventDefault();
      const isFolder = (item) => item.webkitGetAsEntry()?.isDirectory;
      if (items.some(isFolder)) announce('A folder cannot be attached; drop the files in it');
      this.#attach(items.filter((item) => !isFolder(item)).map((item) => item.getAsFile()));
    });
  }

  /** Selects files beside the resources, after those that were dropped before; they stay in the browser. */
  #attach(files) {
    this.#attached = this.#attached.then(async () => {
      const note = await attach(files, this.#selection);
      if (note) announce(note);
    });
  }

  /** Sends the message to the conversation that the picker is in. */
  async #send() {
    if (!this.text) {
      announce('Write a message first');
      return;
    }
    if (!await site.chat.send(this.text, this.#selection.all)) return;
    this.said(this.text);
    this.#area.value = '';
    this.#suggest();
    announce('Sent');
  }

  get text() {
    return this.#area.value.trim();
  }

  /** Remembers a message of the conversation: what follows it is about the same, unless it says otherwise. */
  said(text) {
    const said = withoutMentions(text);
    if (!said) return;
    this.#before = [said, ...this.#before.filter((one) => one !== said)].slice(0, REMEMBERED);
    this.suggestLater();
  }

  #typed() {
    this.suggestLater();
    const before = this.#area.value.slice(0, this.#area.selectionStart);
    const found = /(?:^|\s)@([^\s@]*)$/.exec(before);
    if (!found) return this.#close();
    this.#from = this.#area.selectionStart - found[1].length - 1;
    return this.#offer(found[1]);
  }

  async #offer(typed) {
    this.#asked += 1;
    const asked = this.#asked;
    const wanted = typed.toLowerCase();
    const isNamed = ({ label }) => wanted !== '' && label.toLowerCase().startsWith(wanted);
    const skills = this.#library.skills
      .filter(({ label, description }) => `${label} ${description}`.toLowerCase().includes(wanted))
      .sort((one, other) => isNamed(other) - isNamed(one))
      .slice(0, 2)
      .map((skill) => ({ resource: skill, skill: true, label: clean(skill.label, 80), about: clean(skill.description, 90) }));
    const templates = this.#library.templates
      .filter((template) => `${template.name} ${template.title ?? ''} ${template.uriTemplate}`.toLowerCase().includes(wanted))
      .slice(0, 2)
      .map((template) => ({ template, label: clean(template.title ?? template.name, 80), about: template.uriTemplate }));
    let resources = [];
    if (typed === '') {
      const known = [...this.#library.nodes.values()].filter((node) => !node.folder).slice(0, OFFERED);
      resources = known.map((node) => node.resource);
    } else {
      const found = await this.#library.search(typed, { limit: OFFERED }).catch(() => ({ results: [] }));
      if (asked !== this.#asked) return;
      resources = found.results;
    }
    // A mention is by name, so names that match come before texts that do.
    const rank = (resource) => {
      const name = nameOf(resource).toLowerCase();
      return name.startsWith(wanted) ? 0 : name.includes(wanted) ? 1 : 2;
    };
    resources = [...resources].sort((one, other) => rank(one) - rank(other));
    const offered = resources.map((resource) => ({ resource, label: nameOf(resource), about: clean(resource.title ?? resource.uri, 90) }));
    const named = skills.filter(isNamed);
    const others = [...skills.filter((skill) => !isNamed(skill)), ...templates];
    const isSkill = ({ resource: { uri } }) => skills.some(({ resource }) => resource.uri === uri);
    const space = OFFERED - named.length - others.length;
    this.#show([...named, ...offered.filter((offer) => !isSkill(offer)).slice(0, space), ...others]);
  }

  #show(offers) {
    this.#offers = offers;
    this.#active = 0;
    this.#menu.hidden = offers.length === 0;
    this.#drawOffers();
  }

  #drawOffers() {
    fill(this.#menu, this.#offers.map((offer, index) => h('li', {
      id: `offer-${index}`, role: 'option', 'aria-selected': String(index === this.#active),
      onmousedown: (event) => {
        event.preventDefault();
        this.#take(index);
      },
    }, icon(offer.template ? 'template' : offer.skill ? 'spark' : kindOf(offer.resource), 'kind'), h('span', { class: 'hidden' }, offer.template ? 'Template: ' : offer.skill ? 'Skill: ' : ''), h('bdi', { class: 'name' }, offer.label), h('span', { class: 'about' }, offer.about))));
    if (this.#menu.hidden) this.#area.removeAttribute('aria-activedescendant');
    else this.#area.setAttribute('aria-activedescendant', `offer-${this.#active}`);
  }

  #take(index) {
    const offer = this.#offers[index];
    if (!offer) return;
    const end = this.#area.selectionStart;
    const { value } = this.#area;
    if (offer.template) {
      this.#area.value = value.slice(0, this.#from) + value.slice(end);
      this.#close();
      this.#open({ template: offer.template });
      return;
    }
    const mention = `@${offer.label.replace(/\s+/g, '_')} `;
    this.#area.value = value.slice(0, this.#from) + mention + value.slice(end);
    const caret = this.#from + mention.length;
    this.#area.setSelectionRange(caret, caret);
    this.#selection.add([offer.resource]);
    this.#close();
    this.suggestLater();
  }

  #close() {
    this.#asked += 1;
    this.#offers = [];
    this.#menu.hidden = true;
    this.#drawOffers();
  }

  #key(event) {
    if (this.#menu.hidden) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      this.#active = (this.#active + step + this.#offers.length) % this.#offers.length;
      this.#drawOffers();
    } else if (event.key === 'Enter' || event.key === 'Tab') {
      event.preventDefault();
      this.#take(this.#active);
    } else if (event.key === 'Escape') {
      event.stopPropagation();
      this.#close();
    }
  }

  #found = [];

  /** What the conversation is about: the end of the message, and as much of those before it as fits. */
  #topic() {
    const message = withoutMentions(this.text).slice(-TOPIC);
    return [message, ...this.#before.filter((one) => one !== message)].filter(Boolean).join('\n').slice(0, TOPIC);
  }

  /** Looks for what the message is about. */
  async #suggest() {
    const text = this.#topic();
    const isShort = text.length < MIN_SUGGEST && this.#before.length === 0;
    if (!text || isShort || !this.#library.searchesText) {
      this.#found = [];
      return this.#redraw();
    }
    const found = await this.#library.suggest(text, { limit: SUGGESTED * 2 }).catch(() => []);
    // The message was sent or changed meanwhile.
    if (this.#topic() !== text) return undefined;
    this.#found = found;
    if (this.#automatic.checked) {
      this.#selection.add(this.#left().slice(0, SUGGESTED));
    }
    return this.#redraw();
  }

  #left() {
    return this.#found.filter((hit) => !this.#selection.has(hit.uri) && !this.#dismissed.has(hit.uri));
  }

  #redraw() {
    const left = this.#left().slice(0, SUGGESTED);
    const choice = h('label', { class: 'automatic' }, this.#automatic, 'Attach what fits by itself');
    if (left.length === 0) {
      fill(this.#suggestions, this.#found.length > 0 ? choice : null);
      return;
    }
    fill(this.#suggestions,
      h('div', { class: 'suggest-head' }, icon('spark', 'kind'), h('strong', {}, this.#before.length > 0 ? 'What fits the conversation' : 'What fits your message'),
        h('button', { class: 'link', type: 'button', onclick: () => this.#selection.add(left) }, 'Add all')),
      h('ul', {}, left.map((hit) => h('li', {},
        h('div', {}, h('bdi', { class: 'name' }, clean(hit.title ?? '', 100) || nameOf(hit)),
          h('span', { class: 'about' }, clean(hit.reason, 110))),
        h('button', { class: 'quiet framed', type: 'button', 'aria-label': `Add ${nameOf(hit)}`, onclick: () => this.#selection.add([hit]) }, icon('plus')),
        h('button', { class: 'quiet', type: 'button', 'aria-label': `Do not suggest ${nameOf(hit)}`, onclick: () => { this.#dismissed.add(hit.uri); this.#redraw(); } }, icon('close'))))),
      choice);
  }
}
