// An MCP client (2026-07-28) for the server of this page: requests, and a stream of changes that recovers by itself.

const VERSION = '2026-07-28';
const META = {
  'io.modelcontextprotocol/protocolVersion': VERSION,
  'io.modelcontextprotocol/clientCapabilities': {},
  'io.modelcontextprotocol/clientInfo': { name: 'libris-picker', title: 'Libris picker', version: '1' },
};
const TOKEN = 'libris-token';
/** How long the first attempt waits after a stream was lost, and the longest that later ones wait, in milliseconds. */
const FIRST_WAIT = 500;
const LONGEST_WAIT = 15000;

/** An error that the server answered. */
export class McpError extends Error {
  constructor(message, code, data, status) {
    super(message);
    Object.assign(this, { code, data, status });
  }
}

export class Mcp extends EventTarget {
  #next = 1;
  #token = sessionStorage.getItem(TOKEN);
  /** The URIs to follow. */
  #wanted = new Set();
  /** The stream that the server has acknowledged, and the one that will replace it. */
  #stream = null;
  #opening = null;
  /** Whether there may have been changes of which no stream told. */
  #isBehind = false;
  #retry = null;
  #wait = FIRST_WAIT;
  #login = null;
  state = 'connecting';

  /** Where requests for credentials go: a function that returns a promise of a token. */
  askForToken = null;

  /** Sends a request and returns its result. */
  async request(method, params = {}, { signal } = {}) {
    const response = await this.#post(method, params, signal);
    const type = response.headers.get('content-type') ?? '';
    if (type.startsWith('text/event-stream')) {
      for await (const message of events(response.body)) {
        if ('result' in message || 'error' in message) return settle(message, response.status);
      }
      throw new McpError('the response ended early');
    }
    let message;
    try {
      message = await response.json();
    } catch {
      throw new McpError(`the server answered ${response.status}`, undefined, undefined, response.status);
    }
    return settle(message, response.status);
  }

  /** Posts JSON to another path of the server. */
  async post(path, value, { signal } = {}) {
    const send = () => fetch(path, { method: 'POST', signal, headers: this.#headers({}), body: JSON.stringify(value) });
    const response = await this.#authenticated(send);
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) {
      const message = answer.error?.message ?? answer.error ?? `the server answered ${response.status}`;
      throw new McpError(String(message), undefined, undefined, response.status);
    }
    return answer;
  }

  /** Asks for the preview of a resource. */
  preview(asked, options) {
    return this.post('/picker/preview', asked, options);
  }

  /** Fetches a path of the server as text. */
  async text(path) {
    const response = await this.#authenticated(() => fetch(path, { headers: this.#headers({}) }));
    if (!response.ok) throw new McpError(`the server answered ${response.status}`, undefined, undefined, response.status);
    return response.text();
  }

  #headers(more) {
    const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...more };
    if (this.#token) headers.authorization = `Bearer ${this.#token}`;
    return headers;
  }

  async #post(method, params, signal) {
    const id = this.#next;
    this.#next += 1;
    const body = JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta: META } });
    const subject = params.uri ?? params.name;
    const named = { 'mcp-protocol-version': VERSION, 'mcp-method': method };
    if (typeof subject === 'string') named['mcp-name'] = headerValue(subject);
    return this.#authenticated(() => fetch('/mcp', { method: 'POST', signal, headers: this.#headers(named), body }));
  }

  /** Sends a request, and asks for credentials as long as the server wants some. */
  async #authenticated(send) {
    for (;;) {
      let response;
      try {
        response = await send();
      } catch (cause) {
        if (cause.name !== 'AbortError') this.#become('offline');
        throw cause;
      }
      if (response.status !== 401 || !this.askForToken) return response;
      const message = await response.json().then((answer) => answer.error?.message, () => '');
      this.#login ??= this.askForToken(this.#token ? message || 'This key was not accepted.' : '').finally(() => {
        this.#login = null;
      });
      this.#token = await this.#login;
      sessionStorage.setItem(TOKEN, this.#token);
    }
  }

  get hasToken() {
    return Boolean(this.#token);
  }

  forgetToken() {
    this.#token = null;
    sessionStorage.removeItem(TOKEN);
  }

  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.dispatchEvent(new CustomEvent('state', { detail: state }));
  }

  /** Follows the list and these resources. A call with other resources replaces the one before. */
  follow(uris) {
    const isSame = uris.length === this.#wanted.size && uris.every((uri) => this.#wanted.has(uri));
    const isFollowing = this.#stream || this.#opening || this.#retry;
    if (this.state === 'static' || (isSame && isFollowing)) return;
    this.#wanted = new Set(uris);
    if (!isFollowing) addEventListener('online', () => this.#reopen());
    // While the server cannot be reached, the next attempt to connect follows these resources.
    if (!this.#retry) this.#open();
  }

  /** Opens a stream. The one before goes on until this one is acknowledged, so that no change is lost in between. */
  async #open() {
    this.#retry = null;
    this.#opening?.abort();
    const stream = new AbortController();
    this.#opening = stream;
    const { signal } = stream;
    try {
      const filter = { resourcesListChanged: true, resourceSubscriptions: [...this.#wanted] };
      const response = await this.#post('subscriptions/listen', { notifications: filter }, signal);
      const type = response.headers.get('content-type') ?? '';
      if (!type.startsWith('text/event-stream')) {
        settle(await response.json(), response.status);
        throw new McpError('the server has no stream');
      }
      for await (const message of events(response.body)) {
        if (signal.aborted) return;
        if (message.method === 'notifications/subscriptions/acknowledged') {
          this.#acknowledged(stream);
        } else if (message.method === 'notifications/resources/updated') {
          this.dispatchEvent(new CustomEvent('updated', { detail: message.params.uri }));
        } else if (message.method === 'notifications/resources/list_changed') {
          this.dispatchEvent(new CustomEvent('listchanged'));
        }
      }
    } catch (cause) {
      if (!signal.aborted && cause.code === -32601) {
        this.#opening = null;
        this.#become('static');
        return;
      }
    }
    if (!signal.aborted) this.#lost(stream);
  }

  #acknowledged(stream) {
    this.#stream?.abort();
    this.#stream = stream;
    this.#opening = null;
    this.#wait = FIRST_WAIT;
    this.#become('live');
    const wasBehind = this.#isBehind;
    this.#isBehind = false;
    if (wasBehind) this.dispatchEvent(new CustomEvent('missed'));
  }

  /** A stream ended, or could not be opened. Changes are lost until the next one is acknowledged. */
  #lost(stream) {
    this.#isBehind = true;
    if (this.#stream === stream) this.#stream = null;
    else this.#opening = null;
    if (this.#opening || this.#retry) return;
    this.#become('offline');
    this.#retry = setTimeout(() => this.#open(), this.#wait * (0.75 + Math.random() / 2));
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
  }

  /** Opens a stream at once, because the network has changed and the streams before may be dead. */
  #reopen() {
    if (this.state === 'static') return;
    clearTimeout(this.#retry);
    this.#stream?.abort();
    this.#stream = null;
    this.#isBehind = true;
    this.#open();
  }
}

function settle(message, status) {
  if (message.error) throw new McpError(message.error.message, message.error.code, message.error.data, status);
  return message.result;
}

/** A header value. A text with other characters than those of ASCII, or with a space at an end, is sent in Base64. */
function headerValue(text) {
  if (/^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !/^=\?base64\?/.test(text)) return text;
  const bytes = new TextEncoder().encode(text);
  return `=?base64?${btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))}?=`;
}

/** The messages of an event stream. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffered = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      buffered += value;
      let end;
      while ((end = buffered.search(/\r?\n\r?\n/)) >= 0) {
        const event = buffered.slice(0, end);
        buffered = buffered.slice(end).replace(/^\r?\n\r?\n/, '');
        const data = event.split(/\r?\n/).filter((line) => line.startsWith('data:'));
        if (data.length > 0) yield JSON.parse(data.map((line) => line.slice(5).trimStart()).join('\n'));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
