// Reads the bytes of a resource; a large one in byte ranges, because sources refuse to return it in one response.

import { bytes } from './format.js';

/** The largest resource that is read at once, and the size of the ranges of larger ones. */
const WHOLE = 4 * 1024 * 1024;
const PART = 1024 * 1024;

/**
 * Reads a resource as the bytes of a file: the `parts` and the `mimeType`, and the `contents` if they are in one response.
 * If the resource is read in ranges, more than `most` bytes are an error.
 */
export async function readFile(read, { uri, size }, { most, signal } = {}) {
  let part = PART;
  if (!(size > WHOLE)) {
    try {
      return whole(await read(uri, { signal }));
    } catch (cause) {
      const { limit } = cause.data ?? {};
      if (!limit) throw cause;
      part = Math.min(PART, limit);
    }
  }
  const range = async (first) => {
    const { contents } = await read(`${uri}${uri.includes('?') ? '&' : '?'}bytes=${first}-${first + part - 1}`, { signal });
    const [content] = contents;
    return { data: dataOf(content), mimeType: content.mimeType, total: content._meta?.['dev.libris/totalBytes'] };
  };
  const first = await range(0).catch(() => ({}));
  // The source has no ranges.
  if (first.total === undefined) return whole(await read(uri, { signal }));
  const { total, mimeType } = first;
  if (total > most) throw new Error(`the resource has ${bytes(total)}; the page reads at most ${bytes(most)}`);
  const parts = [first.data];
  for (let at = first.data.length; at < total;) {
    const next = await range(at);
    if (next.total !== total || next.data.length === 0) throw new Error('the resource changed while it was read; try again');
    parts.push(next.data);
    at += next.data.length;
  }
  return { parts, mimeType };
}

function whole({ contents }) {
  const [content = {}] = contents;
  return { contents, parts: [dataOf(content)], mimeType: content.mimeType };
}

/** The bytes of a content. */
export function dataOf({ text = '', blob }) {
  if (blob === undefined) return new TextEncoder().encode(text);
  const binary = atob(blob);
  const data = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) data[at] = binary.charCodeAt(at);
  return data;
}

/** The text in bytes, or `undefined` if they are not UTF-8. */
export function textOf(parts) {
  try {
    const decoder = new TextDecoder('utf-8', { fatal: true });
    return parts.map((part) => decoder.decode(part, { stream: true })).join('') + decoder.decode();
  } catch {
    return undefined;
  }
}

/** Bytes in Base64. */
export function base64Of(parts) {
  const data = parts.length === 1 ? parts[0] : new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  if (parts.length > 1) {
    let at = 0;
    for (const part of parts) {
      data.set(part, at);
      at += part.length;
    }
  }
  const pieces = [];
  for (let at = 0; at < data.length; at += 8192) pieces.push(String.fromCharCode(...data.subarray(at, at + 8192)));
  return btoa(pieces.join(''));
}
