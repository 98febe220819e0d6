// Texts for people: names, sizes, dates, kinds of resources and estimates of tokens.

/** Characters that change the direction of the text around them, and control characters. */
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** A text of somebody else for one line: control characters and changes of direction become visible. */
export function clean(text, most = 300) {
  const shown = String(text ?? '').slice(0, most + 1).replace(UNSAFE, '\ufffd');
  return shown.length > most ? `${shown.slice(0, most)}…` : shown;
}

/** A passage of a search as running text: without the numbers of its lines and the marks of Markdown and of pages. A dot ends a heading. */
export function passage(text) {
  return String(text ?? '')
    .replace(/^\s*\d+: ?/gm, '')
    .replace(/<!-{2} (\w+ \d+) -->/g, '$1 ·')
    .replace(/^\s*#{1,6}\s+(.+?)\s*$/gm, '$1 ·')
    .replace(/^\s*(?:[-*+>]\s+|-{3,}\s*$|`{3}.*$)/gm, '')
    .replace(/!?\[([^\]\n]*)\]\([^)\n]*\)/g, '$1')
    .replace(/`+([^`\n]+)`+/g, '$1')
    .replace(/\*\*([^*\n]+)\*\*/g, '$1')
    .replace(/\s+/g, ' ')
    .replace(/ ·\s*$/, '')
    .trim();
}

export const DIRECTORY = 'inode/directory';

/** A URI without the slash at its end: the key of a folder, whether its URI is written with the slash or without. */
export function folderKey(uri) {
  return uri.endsWith('/') && !/^[^:]+:\/\/\/?$/.test(uri) ? uri.slice(0, -1) : uri;
}

/** The last segment of a URI. */
export function lastSegment(uri) {
  const path = uri.split(/[?#]/, 1)[0].replace(/\/+$/, '');
  const name = path.slice(path.lastIndexOf('/') + 1);
  try {
    return decodeURIComponent(name) || uri;
  } catch {
    return name || uri;
  }
}

/** The URI of the folder that a URI is in; `null` at the top. */
export function parentOf(uri) {
  const path = folderKey(uri.split(/[?#]/, 1)[0]);
  const root = /^[^:/?#]+:(?:\/\/[^/]*)?/.exec(path)?.[0] ?? '';
  const rest = path.slice(root.length);
  const end = rest.lastIndexOf('/');
  if (end > 0) return root + rest.slice(0, end);
  return rest !== '' && /:\/\/[^/]/.test(root) ? root : null;
}

/** The name of a resource in a list: the last segment of its URI, or its query. */
export function nameOf(resource) {
  if (resource.label) return clean(resource.label, 160);
  const query = resource.uri.indexOf('?');
  const name = lastSegment(resource.uri);
  return clean(query >= 0 ? name + resource.uri.slice(query) : name, 160);
}

/** The title of a resource, if it says more than its name. */
export function titleOf(resource) {
  const title = clean(resource.title ?? '', 200);
  if (!title) return '';
  const path = decode(resource.uri.split(/[?#]/, 1)[0]);
  return path.replace(/\/$/, '').endsWith(title.replace(/\/$/, '')) ? '' : title;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const UNITS = ['B', 'KB', 'MB', 'GB', 'TB'];

export function bytes(size) {
  if (size === null || size === undefined) return '';
  let unit = 0;
  let value = size;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export function count(number) {
  return number.toLocaleString('en');
}

export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? '' : 's'}`;
}

const DAY = new Intl.DateTimeFormat(undefined, { year: 'numeric', month: 'short', day: 'numeric' });
const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

export function date(text) {
  const time = Date.parse(text ?? '');
  return Number.isNaN(time) ? '' : DAY.format(time);
}

export function moment(text) {
  const time = Date.parse(text ?? '');
  return Number.isNaN(time) ? '' : MOMENT.format(time);
}

const EXTENSIONS = {
  md: 'text', markdown: 'text', txt: 'text', rst: 'text', log: 'text', adoc: 'text',
  json: 'data', yaml: 'data', yml: 'data', toml: 'data', xml: 'data', ini: 'data',
  csv: 'table', tsv: 'table', xlsx: 'table', xls: 'table', ods: 'table', parquet: 'table',
  pdf: 'book', epub: 'book', docx: 'book', odt: 'book', pptx: 'book', odp: 'book', rtf: 'book', ipynb: 'book',
  zip: 'archive', tar: 'archive', gz: 'archive', tgz: 'archive', bz2: 'archive', xz: 'archive',
};

/** The icon of a resource by its media type and name. */
export function kindOf(resource) {
  const mime = resource.mimeType ?? '';
  if (resource.folder || mime === DIRECTORY) return 'folder';
  if (resource.uriTemplate) return 'template';
  const [group] = mime.split('/');
  if (group === 'image' || group === 'audio' || group === 'video') return group;
  const name = lastSegment(resource.uri);
  const known = EXTENSIONS[name.slice(name.lastIndexOf('.') + 1).toLowerCase()];
  if (known) return known;
  if (mime === 'application/json' || mime.endsWith('+json') || mime.endsWith('xml')) return 'data';
  if (mime === 'text/markdown' || mime === 'text/plain' || mime === 'text/html') return 'text';
  if (mime === 'text/csv') return 'table';
  if (mime === 'application/pdf') return 'book';
  return group === 'text' || mime.includes('script') ? 'code' : mime ? 'binary' : 'text';
}

/** The words for a kind, for people who do not see the icon. */
export const KIND_NAMES = {
  folder: 'Folder', open: 'Folder', text: 'Text', code: 'Source', data: 'Data', table: 'Table', image: 'Image',
  audio: 'Audio', video: 'Video', book: 'Document', archive: 'Archive', binary: 'Binary', template: 'Template',
};

/** Documents: their size in bytes says nothing about the length of their text. */
const DOCUMENT = /\.(?:pdf|docx|xlsx|pptx|od[tsp]|epub|rtf|doc|xls|ppt)$/i;

/** About how many tokens a model needs for a resource; `null` for a document whose text was not read yet. */
export function tokensOf(resource) {
  if (resource.tokens !== undefined) return resource.tokens;
  const kind = kindOf(resource);
  if (kind === 'image') return 1500;
  if (textUri(resource) || DOCUMENT.test(lastSegment(resource.uri))) return null;
  if (['folder', 'audio', 'video', 'archive', 'binary'].includes(kind) || /\.parquet$/i.test(resource.uri)) return 0;
  return Math.ceil((resource.size ?? 0) / 4);
}

/** About how many tokens a text has: four bytes each in English prose and code, fewer characters in other scripts. */
export function tokensOfText(text) {
  let wide = 0;
  for (let index = 0; index < text.length; index += 1) if (text.charCodeAt(index) > 0x2e80) wide += 1;
  return Math.ceil((text.length - wide) / 4 + wide);
}

/** From this length on, a word of a query also marks longer words that begin with it. */
const PREFIX = 3;

/** Splits a text at words like those of a query: plain and matching parts in turn. */
export function marked(text, query) {
  const words = query.match(/[\p{L}\p{N}_]{2,}/gu) ?? [];
  if (words.length === 0) return [text];
  const pattern = words.slice(0, 12).map((word) => (word.length < PREFIX ? `${word}(?![\\p{L}\\p{N}_])` : `${word}[\\p{L}\\p{N}_]*`));
  return text.split(new RegExp(`((?<![\\p{L}\\p{N}_])(?:${pattern.join('|')}))`, 'giu'));
}

/** The URI of the text of a document, unless the document is text that is better as it is. */
export function textUri(resource) {
  const mime = resource.mimeType ?? '';
  const isReadable = (mime.startsWith('text/') && mime !== 'text/html') || mime.includes('json') || /\.ipynb$/i.test(resource.uri);
  return isReadable ? undefined : resource._meta?.['dev.libris/text'];
}

/** The URI of the first page as an image, if the server renders the pages of this document. */
export function imageUri(resource) {
  return resource?._meta?.['dev.libris/image'];
}
