// Notes as resources, with the TypeScript SDK.
import { EventEmitter } from 'node:events';
import {
  McpServer,
  ProtocolError,
  ProtocolErrorCode,
  ResourceNotFoundError,
  ResourceTemplate,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

// The store.

/** The versions of each note; says `changed` and `added`. */
class Store extends EventEmitter {
  notes = new Map();

  constructor() {
    super();
    for (let n = 0; n < 250; n++) this.add();
  }

  add() {
    const id = `note-${String(this.notes.size).padStart(3, '0')}`;
    this.notes.set(id, [1, 2, 3].map(version => `# ${id}\n\nVersion ${version}.\n`));
    this.emit('added', id);
  }

  rewrite(id, second) {
    this.notes.get(id).splice(-1, 1, `# ${id}\n\nWritten in second ${second}.\n`);
    this.emit('changed', id);
  }

  ids() {
    return [...this.notes.keys()];
  }

  text(id, version) {
    if (id === 'note-249' && version === 1) throw new Error('cannot open /srv/archive/note-249.md');
    const versions = this.notes.get(id);
    return versions?.[(version ?? versions.length) - 1];
  }
}

const title = id => id.replace('note-', 'Note ');

// The server.

const store = new Store();

let second = 0;
setInterval(() => {
  store.rewrite('note-000', ++second);
  store.add();
}, 1000).unref();

function documents({ era }) {
  const server = new McpServer(
    { name: 'documents', version: '1.0.0' },
    { capabilities: { resources: { subscribe: true, listChanged: true } } },
  );
  server.registerResource(
    'documents',
    'docs://documents',
    { title: 'Documents', description: 'The ids of all documents.', mimeType: 'application/json' },
    ({ href }) => ({
      contents: [{ uri: href, mimeType: 'application/json', text: JSON.stringify(store.ids()) }],
    }),
  );

  const about = {
    title: 'Document',
    description: 'One document, the newest version unless another one is named.',
    mimeType: 'text/markdown',
    annotations: { audience: ['user', 'assistant'], priority: 0.8 },
  };
  const complete = { doc_id: typed => store.ids().filter(id => id.startsWith(typed)) };
  const list = () => ({
    resources: store.ids().map(id => ({ uri: `docs://documents/${id}`, name: id, title: title(id) })),
  });
  const read = (uri, { doc_id, version }) => {
    if (version !== undefined && !/^\d+$/.test(version)) {
      throw new ProtocolError(ProtocolErrorCode.InvalidParams, `\`version\` cannot be \`${version}\``);
    }
    const text = store.text(doc_id, version && Number(version));
    if (text === undefined) throw new ResourceNotFoundError(uri.href);
    return { contents: [{ uri: uri.href, mimeType: 'text/markdown', text }] };
  };
  // A URI without the query does not match the first of these.
  const version = new ResourceTemplate('docs://documents/{doc_id}{?version}', { list: undefined, complete });
  server.registerResource('version', version, about, read);
  const document = new ResourceTemplate('docs://documents/{doc_id}', { list, complete });
  server.registerResource('document', document, about, read);

  const subscribed = new Set();
  server.server.setRequestHandler('resources/subscribe', ({ params }) => {
    subscribed.add(params.uri);
    return {};
  });
  server.server.setRequestHandler('resources/unsubscribe', ({ params }) => {
    subscribed.delete(params.uri);
    return {};
  });
  store.on('changed', id => {
    const uri = `docs://documents/${id}`;
    if (era === 'modern' || subscribed.has(uri)) server.server.sendResourceUpdated({ uri }).catch(() => {});
  });
  store.on('added', () => server.sendResourceListChanged());
  return server;
}

serveStdio(documents);
