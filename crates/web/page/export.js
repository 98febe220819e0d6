// The selection as text for other programs: Markdown, XML, or the contents of MCP.

import { base64Of, textOf } from './file.js';
import { clean, nameOf, textUri, tokensOfText } from './format.js';

export const FORMATS = [['markdown', 'Markdown'], ['xml', 'XML'], ['json', 'MCP JSON']];
const AT_ONCE = 4;
/** The largest resource that is exported. */
const LARGEST = 32 * 1024 * 1024;

/** Reads the resources and writes them in a format. `learn` is told how many tokens each has. */
export async function exported(format, resources, library, prompt, learn) {
  const read = new Array(resources.length);
  let next = 0;
  const work = async () => {
    while (next < resources.length) {
      const index = next;
      next += 1;
      read[index] = await readOne(library, resources[index]);
      const { text } = read[index];
      if (text !== undefined) learn?.(resources[index].uri, { tokens: tokensOfText(text) });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  const failed = read.filter((one) => one.error).length;
  const writers = { markdown: asMarkdown, xml: asXml, json: asJson };
  const kinds = { markdown: ['md', 'text/markdown'], xml: ['xml', 'application/xml'], json: ['json', 'application/json'] };
  const [extension, type] = kinds[format];
  const text = writers[format](resources, read, prompt);
  return { text, parts: [new TextEncoder().encode(text)], name: `selection.${extension}`, type, failed };
}

/** The content of a resource; documents as their text. */
async function readOne(library, resource) {
  try {
    if (resource.local) return fileOf(resource, [new Uint8Array(await resource.local.arrayBuffer())]);
    const text = textUri(resource);
    const read = await library.readFile(text ? { uri: text } : resource, { most: LARGEST });
    const { contents, parts, mimeType } = read;
    if (!contents) return fileOf({ ...resource, mimeType }, parts);
    const texts = contents.filter((content) => typeof content.text === 'string').map((content) => content.text);
    return { contents, text: texts.length > 0 ? texts.join('\n\n') : undefined };
  } catch (cause) {
    return { contents: [], error: cause.message };
  }
}

/** The content with the bytes of a file, as text if they are text. */
function fileOf({ uri, mimeType }, parts) {
  const text = textOf(parts);
  return { contents: [text === undefined ? { uri, mimeType, blob: base64Of(parts) } : { uri, mimeType, text }], text };
}

/** A fence that is longer than every run of backticks in the text. */
function fence(text) {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
  return '`'.repeat(longest + 1);
}

function asMarkdown(resources, read, prompt) {
  const parts = resources.map((resource, index) => {
    const { text, error } = read[index];
    const title = clean(resource.title ?? '', 200) || nameOf(resource);
    const about = `## ${title}\n\nSource: <${resource.uri}>\n`;
    if (error) return `${about}\n*Could not be read: ${error}*\n`;
    if (text === undefined) return `${about}\n*Binary, ${resource.mimeType ?? 'unknown type'}*\n`;
    const mark = fence(text);
    const language = resource.mimeType === 'text/markdown' ? 'markdown' : (/\.([a-z0-9]+)$/i.exec(resource.uri)?.[1] ?? '');
    return `${about}\n${mark}${language}\n${text.replace(/\n?$/, '\n')}${mark}\n`;
  });
  return (prompt ? `${prompt}\n\n` : '') + parts.join('\n');
}

function escapeXml(text) {
  return text.replace(/[&<>"]/g, (letter) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[letter]);
}

function asXml(resources, read, prompt) {
  const parts = resources.map((resource, index) => {
    const { text, error } = read[index];
    const title = clean(resource.title ?? '', 200) || nameOf(resource);
    const attributes = `index="${index + 1}" uri="${escapeXml(resource.uri)}" title="${escapeXml(title)}"`;
    if (error) return `<document ${attributes} error="${escapeXml(error)}"/>`;
    if (text === undefined) return `<document ${attributes} type="${escapeXml(resource.mimeType ?? 'binary')}"/>`;
    return `<document ${attributes}>\n${escapeXml(text)}\n</document>`;
  });
  return `<documents>\n${parts.join('\n')}\n</documents>\n${prompt ? `\n${prompt}\n` : ''}`;
}

/** Content blocks of MCP, as they stand in a message of a prompt. */
function asJson(resources, read, prompt) {
  const blocks = read.flatMap(({ contents }) => contents.map((resource) => ({ type: 'resource', resource })));
  if (prompt) blocks.push({ type: 'text', text: prompt });
  return `${JSON.stringify(blocks, null, 2)}\n`;
}

/** Copies a text; without permission for the clipboard, by selecting it. */
export async function copyText({ text }) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
}

/** Saves a file. */
export function saveFile({ parts, name, type }) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
