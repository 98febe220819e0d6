// The host of an MCP App, which passes requests on to the server: JSON-RPC in messages to the window around this one.

const VERSION = '2026-01-26';
/** Requests that hosts pass on as they are. The tool answers all others, and these where a host passes none on. */
const PASSED_ON = new Set(['resources/list', 'resources/read', 'resources/templates/list']);
const REQUEST_TOOL = 'picker_request';
const METHOD_NOT_FOUND = -32601;

/** An error that the host or the server answered. */
export class HostError extends Error {
  constructor(message, code, data) {
    super(message);
    Object.assign(this, { code, data });
  }
}

export class Host extends EventTarget {
  #next = 1;
  #pending = new Map();
  #connected = null;
  state = 'connecting';
  /** What the host can do, and how it looks. */
  capabilities = {};
  context = {};
  name = '';

  constructor() {
    super();
    addEventListener('message', ({ source, data }) => {
      if (source === parent && data?.jsonrpc === '2.0') this.#receive(data);
    });
  }

  /** Introduces the app; once, however often it is called. */
  connect() {
    this.#connected ??= this.#initialize().catch((cause) => {
      this.#connected = null;
      throw cause;
    });
    return this.#connected;
  }

  async #initialize() {
    const { hostCapabilities, hostContext, hostInfo } = await this.ask('ui/initialize', {
      appInfo: { name: 'libris-picker', title: 'Libris picker', version: '1' },
      appCapabilities: { availableDisplayModes: ['inline', 'fullscreen'] },
      protocolVersion: VERSION,
    });
    this.capabilities = hostCapabilities ?? {};
    this.name = hostInfo?.title ?? hostInfo?.name ?? '';
    this.#learn(hostContext ?? {});
    this.tell('ui/notifications/initialized');
    if (!this.capabilities.serverTools) throw new HostError('this host does not let its apps call the server');
    this.state = 'static';
    this.dispatchEvent(new CustomEvent('state', { detail: this.state }));
  }

  /** Sends a request to the server, and returns its result. */
  async request(method, params = {}, { signal } = {}) {
    await this.connect();
    const isPassedOn = method === 'tools/call' || (PASSED_ON.has(method) && this.capabilities.serverResources);
    if (isPassedOn) return this.ask(method, params, signal);
    const result = await this.ask('tools/call', { name: REQUEST_TOOL, arguments: { method, params } }, signal);
    const text = result.content?.[0]?.text;
    if (result.isError) throw new HostError(text ?? 'the request failed');
    return result.structuredContent ?? JSON.parse(text);
  }

  preview(asked, options) {
    return this.request('picker/preview', asked, options);
  }

  /** Does nothing: a host tells its apps of changes of the list only. */
  follow() {}

  /** Sends a request to the host. */
  ask(method, params, signal) {
    const id = this.#next;
    this.#next += 1;
    return new Promise((resolve, reject) => {
      const stop = () => {
        this.#pending.delete(id);
        this.tell('notifications/cancelled', { requestId: id });
        reject(signal.reason);
      };
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      signal?.addEventListener('abort', stop, { once: true });
      this.#pending.set(id, (message) => {
        signal?.removeEventListener('abort', stop);
        if (message.error) reject(new HostError(message.error.message, message.error.code, message.error.data));
        else resolve(message.result ?? {});
      });
      this.#post({ id, method, params });
    });
  }

  /** Sends a notification to the host. */
  tell(method, params = {}) {
    this.#post({ method, params });
  }

  #post(message) {
    // The host may have any origin. Nothing that it may not know is sent.
    parent.postMessage({ jsonrpc: '2.0', ...message }, '*');
  }

  #receive({ id, method, params, ...rest }) {
    if (method === undefined) {
      this.#pending.get(id)?.(rest);
      this.#pending.delete(id);
    } else if (id !== undefined) {
      const isKnown = method === 'ping' || method === 'ui/resource-teardown';
      this.#post(isKnown ? { id, result: {} } : { id, error: { code: METHOD_NOT_FOUND, message: `unknown method ${method}` } });
    } else if (method === 'ui/notifications/host-context-changed') {
      this.#learn(params ?? {});
    } else if (method === 'ui/notifications/tool-input') {
      this.dispatchEvent(new CustomEvent('input', { detail: params?.arguments ?? {} }));
    } else if (method === 'notifications/resources/list_changed') {
      this.dispatchEvent(new CustomEvent('listchanged'));
    }
  }

  #learn(context) {
    Object.assign(this.context, context);
    this.dispatchEvent(new CustomEvent('context'));
  }
}
