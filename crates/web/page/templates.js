// A template as a form: a field for each variable, with completion that knows the other values.

import { debounced, fill, h, icon } from './dom.js';
import { clean } from './format.js';

/** The expressions of a URI template (RFC 6570) with their operators and variables. */
export function expressions(template) {
  return [...template.matchAll(/\{([+#./;?&]?)([^{}]+)\}/g)].map(([text, operator, names]) => ({
    text,
    operator,
    variables: names.split(',').map((name) => {
      const [, plain, modifier] = /^([^*:]+)(.*)$/.exec(name.trim()) ?? [null, name, ''];
      return { name: plain, modifier };
    }),
  }));
}

export function variables(template) {
  return [...new Set(expressions(template).flatMap(({ variables: all }) => all.map(({ name }) => name)))];
}

const RESERVED = /[^A-Za-z0-9\-._~:/?#[\]@!$&'()*+,;=%]/gu;

function encode(value, operator) {
  if (operator === '+' || operator === '#') return value.replace(RESERVED, (letter) => encodeURIComponent(letter));
  return encodeURIComponent(value).replace(/[!'()*]/g, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** Fills in a template. Variables without a value are left out. */
export function expand(template, values) {
  const rules = {
    '': ['', ',', false], '+': ['', ',', false], '#': ['#', ',', false], '.': ['.', '.', false], '/': ['/', '/', false],
    ';': [';', ';', true], '?': ['?', '&', true], '&': ['&', '&', true],
  };
  let uri = template;
  for (const { text, operator, variables: all } of expressions(template)) {
    const [first, separator, named] = rules[operator];
    const parts = all.filter(({ name }) => values[name]).map(({ name, modifier }) => {
      const value = values[name];
      // An exploded variable of a query is written as pairs.
      if (named && modifier === '*') return value.split('&').map((pair) => pair.split('=').map((one) => encode(one, operator)).join('=')).join('&');
      const cut = modifier.startsWith(':') ? value.slice(0, Number(modifier.slice(1))) : value;
      return named ? `${name}=${encode(cut, operator)}` : encode(cut, operator);
    });
    uri = uri.replace(text, parts.length > 0 ? first + parts.join(separator) : '');
  }
  return uri;
}

/** Whether a variable may be left out, as those of queries, fragments and parameters (`;`). */
function isOptional(template, name) {
  return expressions(template).every(({ operator, variables: all }) => !all.some((one) => one.name === name) || '?&#;'.includes(operator || ' '));
}

export class TemplateForm {
  #library;
  #template;
  #fields = new Map();
  #result;
  #submit;

  constructor({ library, template, opened }) {
    this.#library = library;
    this.#template = template;
    const names = variables(template.uriTemplate);
    this.#result = h('output', { class: 'result', 'aria-live': 'polite' });
    this.#submit = h('button', { class: 'primary', type: 'submit' }, 'Open');
    const form = h('form', {
      class: 'template-form',
      onsubmit: (event) => {
        event.preventDefault();
        const uri = this.uri;
        opened({ uri, name: template.name, title: undefined, mimeType: template.mimeType });
      },
    }, names.map((name) => this.#field(name)), h('div', { class: 'row-end' }, this.#result, this.#submit));
    this.element = h('div', { class: 'template' },
      h('p', { class: 'kicker' }, icon('template', 'kind'), 'Template'),
      h('h2', {}, clean(template.title ?? template.name, 200)),
      template.description ? h('p', { class: 'lead' }, clean(template.description, 1000)) : null,
      h('p', { class: 'uri' }, this.#pretty(template.uriTemplate)),
      form);
    this.#update();
  }

  focus() {
    this.#fields.values().next().value?.input.focus();
  }

  #pretty(text) {
    return text.split(/(\{[^{}]*\})/).map((part, index) => (index % 2 ? h('span', { class: 'variable' }, part) : part));
  }

  get values() {
    const values = {};
    for (const [name, { input }] of this.#fields) if (input.value !== '') values[name] = input.value;
    return values;
  }

  get uri() {
    return expand(this.#template.uriTemplate, this.values);
  }

  #update() {
    const missing = [...this.#fields].filter(([name, { input }]) => input.value === '' && !isOptional(this.#template.uriTemplate, name));
    this.#result.textContent = missing.length > 0 ? '' : this.uri;
    this.#submit.disabled = missing.length > 0;
  }

  #field(name) {
    const optional = isOptional(this.#template.uriTemplate, name);
    const id = `field-${name}`;
    const list = h('ul', { class: 'offers', id: `${id}-list`, role: 'listbox', 'aria-label': `Values of ${name}`, hidden: true });
    const state = { values: [], active: -1, asked: 0 };
    const draw = () => {
      list.hidden = state.values.length === 0;
      input.setAttribute('aria-expanded', String(!list.hidden));
      if (state.active >= 0 && !list.hidden) input.setAttribute('aria-activedescendant', `${id}-${state.active}`);
      else input.removeAttribute('aria-activedescendant');
      fill(list, state.values.map((value, index) => h('li', {
        id: `${id}-${index}`, role: 'option', 'aria-selected': String(index === state.active),
        onmousedown: (event) => {
          event.preventDefault();
          take(index);
        },
      }, h('bdi', { class: 'name' }, clean(value, 200)))));
      list.children[state.active]?.scrollIntoView({ block: 'nearest' });
    };
    const close = () => {
      state.asked += 1;
      Object.assign(state, { values: [], active: -1 });
      draw();
    };
    const take = (index) => {
      input.value = state.values[index];
      close();
      this.#update();
      // A folder is completed further.
      if (input.value.endsWith('/')) ask();
    };
    const ask = async () => {
      state.asked += 1;
      const { asked } = state;
      const known = this.values;
      delete known[name];
      try {
        const { completion } = await this.#library.complete(this.#template.uriTemplate, name, input.value, known);
        if (asked !== state.asked || document.activeElement !== input) return;
        state.values = completion.values.filter((value) => value !== input.value).slice(0, 50);
        state.active = -1;
        note.textContent = completion.hasMore || completion.total > completion.values.length ? 'There are more; keep typing.' : '';
        draw();
      } catch (cause) {
        if (asked === state.asked) note.textContent = clean(cause.message, 200);
      }
    };
    const askSoon = debounced(120, ask);
    const note = h('span', { class: 'note', 'aria-live': 'polite' });
    const input = h('input', {
      id, type: 'text', role: 'combobox', autocomplete: 'off', spellcheck: 'false', 'aria-expanded': 'false',
      'aria-controls': `${id}-list`, 'aria-autocomplete': 'list', required: !optional,
      oninput: () => {
        this.#update();
        askSoon();
      },
      // Offers values before anything is typed.
      onfocus: () => ask(),
      onblur: () => setTimeout(close, 150),
      onkeydown: (event) => {
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (step && state.values.length > 0) {
          event.preventDefault();
          state.active = (state.active + step + state.values.length) % state.values.length;
          draw();
        } else if (event.key === 'Enter' && state.active >= 0) {
          event.preventDefault();
          take(state.active);
        } else if (event.key === 'Escape' && !list.hidden) {
          event.stopPropagation();
          close();
        }
      },
    });
    this.#fields.set(name, { input });
    return h('div', { class: 'field' },
      h('label', { for: id }, name, optional ? h('span', { class: 'optional' }, ' optional') : null),
      h('div', { class: 'combo' }, input, list), note);
  }
}
