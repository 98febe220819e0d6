// The files of a folder, held in memory, as the handlers of a TypeScript server that does as little as it can.
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';

const PAGE = 100;

/** What a folder holds: `read` and `list` answer requests. */
export function load(folder) {
  const resources = [];
  const contents = new Map();
  for (const name of readdirSync(folder).sort()) {
    const file = join(folder, name);
    const { mtime, size } = statSync(file);
    const uri = `file:///${basename(folder)}/${name}`;
    const text = name.endsWith('.txt');
    const mimeType = text ? 'text/plain' : 'application/octet-stream';
    resources.push({ uri, name, mimeType, size, annotations: { lastModified: `${mtime.toISOString().slice(0, 19)}Z` } });
    const data = readFileSync(file);
    const content = { uri, mimeType };
    const held = data.toString();
    contents.set(uri, text ? () => ({ ...content, text: held }) : () => ({ ...content, blob: data.toString('base64') }));
  }
  return {
    read({ params }) {
      const content = contents.get(params.uri);
      if (!content) throw new Error('resource not found');
      return { contents: [content()] };
    },
    list({ params }) {
      const start = Number(params?.cursor ?? 0);
      const end = start + PAGE;
      const nextCursor = end < resources.length ? { nextCursor: String(end) } : {};
      return { resources: resources.slice(start, end), ...nextCursor };
    },
  };
}

/** Listens on a free port of this machine, on connections that stay open. */
export function listen(http) {
  http.keepAliveTimeout = 600_000;
  http.listen(0, '127.0.0.1', () => console.error(`listening on http://127.0.0.1:${http.address().port}/mcp`));
}
