// What the server has: folders, loaded page by page when they are opened, and search.

import { readFile } from './file.js';
import { DIRECTORY, clean, folderKey, nameOf, parentOf, passage } from './format.js';

const DIRECTORY_READ = 'resources/directory/read';
/** How many pages of a folder are loaded at a time, and the most resources that a folder adds to a selection. */
const PAGES_AT_ONCE = 4;
const MAX_BELOW = 2000;
/** The size of the bundles from which suggestions are taken. */
const BUNDLE_TOKENS = 8000;
/** Of the results of a search, those with at least this share of the best score are suggested. */
const SUGGESTED_SHARE = 0.3;
const SKILLS = 'io.modelcontextprotocol/skills';
const MAX_SKILLS = 1000;

/** A resource or folder in the tree. */
export class TreeNode {
  children = null;
  /** The cursor of the next page; `null` if all children are known. */
  cursor = undefined;
  loading = null;
  expanded = false;
  /** Whether the children may have changed since they were loaded, so that `open` reads them again. */
  stale = false;
  error = null;
  flash = 0;

  constructor(resource, parent) {
    this.parent = parent;
    this.depth = parent ? parent.depth + 1 : -1;
    this.update(resource);
  }

  update(resource) {
    this.resource = resource;
    this.uri = resource.uri;
    this.folder = resource.folder ?? resource.mimeType === DIRECTORY;
    this.key = this.folder ? folderKey(resource.uri) : resource.uri;
    this.name = resource.uri === '' ? '' : nameOf(resource);
  }
}

/** Whether a resource has changed, as far as the list tells. */
function hasChanged(before, now) {
  return before.annotations?.lastModified !== now.annotations?.lastModified || before.size !== now.size;
}

export class Library extends EventTarget {
  root = new TreeNode({ uri: '', folder: true }, null);
  nodes = new Map();
  templates = [];
  skills = [];
  tools = new Set();
  server = {};
  unavailable = [];
  #mcp;
  #flat = null;
  #hasDirectories = true;

  constructor(mcp) {
    super();
    this.#mcp = mcp;
  }

  /** Learns what the server can do. */
  async connect() {
    const found = await this.#mcp.request('server/discover');
    this.server = found.serverInfo ?? found._meta?.['io.modelcontextprotocol/serverInfo'] ?? {};
    this.instructions = found.instructions ?? '';
    if (found.capabilities?.tools) {
      const { tools } = await this.#mcp.request('tools/list').catch(() => ({ tools: [] }));
      this.tools = new Set(tools.map((tool) => tool.name));
    }
    this.hasSkills = Boolean(found.capabilities?.extensions?.[SKILLS]);
    this.root.expanded = true;
  }

  get searchesText() {
    return this.tools.has('search_resources');
  }

  /** Whether the tree is made from the whole list, because the server has no folders to ask for. */
  get isFlat() {
    return this.#flat !== null;
  }

  async callTool(name, values, options) {
    const result = await this.#mcp.request('tools/call', { name, arguments: values }, options);
    if (result.isError) throw new Error(result.content?.[0]?.text ?? 'the tool failed');
    return result.structuredContent ?? {};
  }

  #changed() {
    this.dispatchEvent(new CustomEvent('changed'));
  }

  async loadTemplates() {
    const templates = [];
    let cursor;
    do {
      const page = await this.#mcp.request('resources/templates/list', cursor ? { cursor } : {});
      templates.push(...page.resourceTemplates);
      this.#note(page);
      cursor = page.nextCursor;
    } while (cursor && templates.length < 1000);
    this.templates = templates;
    this.#changed();
  }

  /** Loads the skills, as resources: the `SKILL.md` of each, by the name of the skill. */
  async loadSkills() {
    if (!this.hasSkills) return;
    const skills = [];
    let cursor;
    do {
      const page = await this.#mcp.request('skills/list', cursor ? { cursor } : {});
      for (const { uri, frontmatter = {} } of page.skills ?? []) {
        const { name = uri, description = '' } = frontmatter;
        skills.push({ uri, label: String(name), name: 'SKILL.md', title: String(name), description: String(description), mimeType: 'text/markdown' });
      }
      cursor = page.nextCursor;
    } while (cursor && skills.length < MAX_SKILLS);
    this.skills = skills;
  }

  #note(page) {
    const missing = page._meta?.['dev.libris/unavailable'];
    this.unavailable = missing ? [missing].flat() : [];
  }

  /** Loads the first pages of a folder, or reads it again if it was changed while it was closed. */
  open(node) {
    if (!node.children) return this.load(node);
    if (!node.stale) return Promise.resolve();
    return this.#refreshFolder(node).then(() => this.#changed());
  }

  /** Loads the next pages of a folder. */
  load(node) {
    if (node.loading || node.cursor === null) return node.loading ?? Promise.resolve();
    node.error = null;
    node.loading = this.#loadPages(node)
      .catch((cause) => {
        if (cause.name !== 'AbortError') node.error = cause;
      })
      .finally(() => {
        node.loading = null;
        this.#changed();
      });
    return node.loading;
  }

  async #loadPages(node) {
    for (let page = 0; page < PAGES_AT_ONCE && node.cursor !== null; page += 1) {
      const { resources, next } = await this.#page(node, node.cursor);
      if (resources === null) return;
      node.children ??= [];
      this.#add(node, resources);
      node.cursor = next ?? null;
      this.#changed();
    }
  }

  /** One page of the children of a folder. */
  async #page(node, cursor) {
    if (this.#flat) {
      await this.#flat;
      return { resources: null };
    }
    if (node === this.root) {
      if (this.tools.has('list_resources')) return this.#listed(node, undefined, cursor);
      await this.#loadFlat();
      return { resources: null };
    }
    if (this.#hasDirectories && !node.resource.synthetic) {
      try {
        const asked = { uri: node.uri };
        if (cursor) asked.cursor = cursor;
        const page = await this.#mcp.request(DIRECTORY_READ, asked);
        this.#note(page);
        return { resources: page.resources, next: page.nextCursor };
      } catch (cause) {
        if (cause.code === -32601) this.#hasDirectories = false;
        else if (!this.tools.has('list_resources') || cursor) throw cause;
      }
    }
    if (this.tools.has('list_resources')) return this.#listed(node, node.uri, cursor);
    await this.#loadFlat();
    return { resources: null };
  }

  /** A page of the tool `list_resources`, which also lists folders that exist only as the beginning of URIs. */
  async #listed(node, parent, cursor) {
    const values = {};
    if (parent) values.parent = parent;
    if (cursor) values.cursor = cursor;
    const page = await this.callTool('list_resources', values);
    const resources = page.entries.map((entry) => ({
      ...entry,
      mimeType: entry.folder ? (entry.mimeType ?? DIRECTORY) : entry.mimeType,
      synthetic: entry.folder && !entry.mimeType,
      // If a folder is no resource, the tool gives the beginning of the URIs as its title.
      title: entry.title === entry.uri ? undefined : entry.title,
    }));
    // If there is only one source, the tool lists the entries of the source in place of the source.
    if (node === this.root && page.parent && !cursor) {
      const top = this.#add(this.root, [{ uri: page.parent, mimeType: DIRECTORY, folder: true }])[0];
      top.expanded = true;
      this.root.children ??= [];
      await this.load(top);
      return { resources: [], next: undefined };
    }
    return { resources, next: page.nextCursor };
  }

  /** Adds resources to a folder, and returns their nodes. */
  #add(node, resources) {
    node.children ??= [];
    return resources.map((resource) => {
      const key = resource.folder || resource.mimeType === DIRECTORY ? folderKey(resource.uri) : resource.uri;
      let child = this.nodes.get(key);
      if (child && child.parent === node) {
        child.update({ ...child.resource, ...resource });
      } else {
        child = new TreeNode(resource, node);
        node.children.push(child);
        this.nodes.set(key, child);
      }
      return child;
    });
  }

  /** Loads the whole list, and makes folders of the paths of URIs. */
  #loadFlat() {
    this.#flat ??= (async () => {
      let cursor;
      do {
        const page = await this.#mcp.request('resources/list', cursor ? { cursor } : {});
        this.#note(page);
        for (const resource of page.resources) this.#insert(resource);
        cursor = page.nextCursor;
        this.#changed();
      } while (cursor);
      this.root.cursor = null;
    })().catch((cause) => {
      this.#flat = null;
      throw cause;
    });
    return this.#flat;
  }

  #insert(resource) {
    const folder = resource.mimeType === DIRECTORY;
    const key = folder ? folderKey(resource.uri) : resource.uri;
    const known = this.nodes.get(key);
    if (known) {
      if (hasChanged(known.resource, resource)) known.flash = performance.now();
      known.update(resource);
      return known;
    }
    const parent = this.#folder(parentOf(key));
    const [node] = this.#add(parent, [resource]);
    if (folder) {
      node.children ??= [];
      node.cursor = null;
    }
    return node;
  }

  #folder(uri) {
    if (uri === null) return this.root;
    const known = this.nodes.get(uri);
    if (known) {
      if (!known.folder) known.update({ ...known.resource, folder: true });
      known.children ??= [];
      known.cursor = null;
      return known;
    }
    return this.#insert({ uri, mimeType: DIRECTORY, synthetic: true });
  }

  /**
   * Reads the folders that are open in the tree again, and the one that is `shown`; others when they are opened. What is
   * open, selected and in view stays so.
   */
  async refresh(shown = null) {
    if (this.#flat) {
      this.#flat = null;
      const before = new Set(this.nodes.keys());
      const seen = new Set();
      let cursor;
      do {
        const page = await this.#mcp.request('resources/list', cursor ? { cursor } : {});
        for (const resource of page.resources) {
          const node = this.#insert(resource);
          for (let at = node; at && at !== this.root; at = at.parent) seen.add(at.key);
        }
        cursor = page.nextCursor;
      } while (cursor);
      for (const key of before) if (!seen.has(key)) this.#remove(this.nodes.get(key));
      for (const key of seen) {
        if (before.has(key)) continue;
        const node = this.nodes.get(key);
        node.flash = performance.now();
        node.parent.children.sort((one, other) => (one.uri < other.uri ? -1 : 1));
      }
      this.#flat = Promise.resolve();
      this.#changed();
      return;
    }
    await this.#refreshFolder(this.root, shown);
    this.#changed();
  }

  async #refreshFolder(node, shown) {
    if (!node.children || node.loading) return;
    node.stale = false;
    const loaded = node.children.length;
    const found = [];
    let cursor;
    try {
      do {
        const { resources, next } = await this.#page(node, cursor);
        if (resources === null) return;
        found.push(...resources);
        cursor = next;
      } while (cursor && found.length < loaded + 1);
    } catch {
      return;
    }
    // The root has the only source as its child, and the tool lists the entries of that source.
    if (node === this.root && found.length === 0 && loaded === 1) {
      await this.#refreshFolder(node.children[0], shown);
      return;
    }
    const before = new Map(node.children.map((child) => [child.key, child]));
    const children = [];
    for (const resource of found) {
      const folder = resource.folder || resource.mimeType === DIRECTORY;
      const key = folder ? folderKey(resource.uri) : resource.uri;
      let child = before.get(key);
      if (child) {
        if (hasChanged(child.resource, resource)) child.flash = performance.now();
        child.update({ ...child.resource, ...resource });
        before.delete(key);
      } else {
        child = new TreeNode(resource, node);
        child.flash = performance.now();
        this.nodes.set(key, child);
      }
      children.push(child);
    }
    for (const gone of before.values()) this.#forget(gone);
    node.children = children;
    node.cursor = cursor ?? null;
    for (const child of children) {
      if (!child.children) continue;
      if (child.expanded || child === shown) await this.#refreshFolder(child, shown);
      else child.stale = true;
    }
  }

  #remove(node) {
    if (!node) return;
    this.#forget(node);
    const siblings = node.parent?.children;
    if (siblings) siblings.splice(siblings.indexOf(node), 1);
  }

  #forget(node) {
    this.nodes.delete(node.key);
    for (const child of node.children ?? []) this.#forget(child);
  }

  /** The node of a resource, whose folders are opened; `null` if it is not in the list. */
  async reveal(uri) {
    const node = await this.locate(uri);
    for (let at = node?.parent; at; at = at.parent) at.expanded = true;
    this.#changed();
    return node;
  }

  /** The node of a resource, whose folders are loaded where that is possible; `null` if it is not in the list. */
  async locate(uri) {
    const known = () => this.nodes.get(uri) ?? this.nodes.get(folderKey(uri)) ?? null;
    if (known()) return known();
    const path = [];
    for (let at = parentOf(uri); at !== null; at = parentOf(at)) path.unshift(at);
    for (const folder of path) {
      const node = this.nodes.get(folder);
      if (!node) continue;
      for (let tries = 0; tries < 25 && node.cursor !== null && !known(); tries += 1) await this.load(node);
    }
    return known();
  }

  /** The resources below a folder, and whether these are all. */
  async below(node) {
    const resources = [];
    const pending = [node];
    while (pending.length > 0) {
      const folder = pending.shift();
      if (folder.stale) await this.open(folder);
      while (folder.cursor !== null && !folder.error) await this.load(folder);
      for (const child of folder.children ?? []) {
        if (child.folder) pending.push(child);
        else resources.push(child.resource);
        if (resources.length >= MAX_BELOW) return { resources, complete: false };
      }
    }
    return { resources, complete: true };
  }

  /** Searches by text, or by name if the server has no search. */
  async search(query, { scope, mime, audience, since, limit = 50, signal } = {}) {
    if (this.searchesText) {
      const values = { query, limit };
      if (scope) values.scope = scope;
      if (mime) values.mime = mime;
      if (audience) values.audience = audience;
      if (since) values.modified_since = since;
      const found = await this.callTool('search_resources', values, { signal });
      return {
        ...found,
        results: found.results.map((hit) => ({ ...hit, ...this.#known(hit.uri), title: hit.title, snippet: hit.snippet })),
      };
    }
    return this.#searchNames(query, { scope, mime, audience, since, limit });
  }

  /** Resources that fit a message, each once and with the reason: from a bundle, if the server makes some, or from the search. */
  async suggest(text, { limit }) {
    if (!this.tools.has('bundle_resources')) {
      const { results } = await this.search(text, { limit });
      const least = SUGGESTED_SHARE * (results[0]?.score ?? 0);
      return results.filter(({ score = least }) => score >= least).map((hit) => ({ ...hit, reason: hit.heading ? `In “${hit.heading}”: ${passage(hit.snippet)}` : passage(hit.snippet) }));
    }
    const { passages } = await this.callTool('bundle_resources', { query: text, budget: BUNDLE_TOKENS });
    const found = new Map();
    for (const { uri, title, mimeType, lines, reason } of passages) {
      if (!found.has(uri)) found.set(uri, { mimeType, ...this.#known(uri), uri, title, reason: `Lines ${lines}: ${reason}` });
    }
    return [...found.values()].slice(0, limit);
  }

  #known(uri) {
    return this.nodes.get(uri)?.resource ?? {};
  }

  #searchNames(query, { scope, mime, audience, since, limit }) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const results = [];
    let total = 0;
    for (const node of this.nodes.values()) {
      if (node.folder) continue;
      const { uri, title = '', description = '', mimeType = '', annotations = {} } = node.resource;
      if (scope && !uri.startsWith(scope)) continue;
      if (mime && !(mime.endsWith('/*') ? mimeType.startsWith(mime.slice(0, -1)) : mimeType === mime)) continue;
      // As in the search of the server, resources without an audience are for everybody.
      if (audience && annotations.audience?.length > 0 && !annotations.audience.includes(audience)) continue;
      if (since && !(Date.parse(annotations.lastModified) >= Date.parse(since))) continue;
      const name = node.name.toLowerCase();
      const text = `${name}\n${uri}\n${title}\n${description}`.toLowerCase();
      if (!words.every((word) => text.includes(word))) continue;
      total += 1;
      const score = words.every((word) => name.includes(word)) ? (name.startsWith(words[0]) ? 3 : 2) : 1;
      if (results.length < limit * 20) results.push({ ...node.resource, snippet: clean(description, 300), score });
    }
    results.sort((one, other) => other.score - one.score);
    return { results: results.slice(0, limit), total, more: total > limit, byName: true };
  }

  read(uri, options) {
    return this.#mcp.request('resources/read', { uri }, options);
  }

  /** Reads the bytes of a resource, however large it is. */
  readFile(resource, options) {
    return readFile((uri, more) => this.read(uri, more), resource, options);
  }

  complete(template, argument, value, known, options) {
    const asked = {
      ref: { type: 'ref/resource', uri: template },
      argument: { name: argument, value },
      context: { arguments: known },
    };
    return this.#mcp.request('completion/complete', asked, options);
  }
}
