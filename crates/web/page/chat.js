// Where the picker runs inside a chat: an MCP App in a sandboxed frame of its host. It takes the place of `site.js`.

import { contextOf, selectionText } from './context.js';
import { announce, debounced, fill, h, icon } from './dom.js';
import { base64Of, textOf } from './file.js';
import { clean } from './format.js';
import { Host } from './host.js';

/** The height in a conversation, where the host leaves it to the app. */
const HEIGHT = 560;
const SHARE_PAUSE = 250;

/** The only script in the frame of a preview: tells the picker which link was followed. */
const FOLLOW_LINKS = `addEventListener('click', (event) => {
  const link = event.target.closest('a[href]');
  if (!link) return;
  event.preventDefault();
  const href = link.getAttribute('href');
  if (href.startsWith('#')) document.getElementById(decodeURIComponent(href.slice(1)))?.scrollIntoView();
  else parent.postMessage({ followed: href }, '*');
});`;

const host = new Host();
const root = document.documentElement;
const dark = matchMedia('(prefers-color-scheme: dark)');
const previewStyle = document.getElementById('preview-style').textContent;
const note = h('p', { class: 'shared', role: 'status' });
const expand = h('button', { class: 'quiet', type: 'button', hidden: true, onclick: () => toggleFullscreen() });
let address = '';
let navigated = () => {};

function open(target) {
  address = new URLSearchParams(target).toString();
  navigated();
}

/** Fits the frame to the conversation, and the picker to the frame. */
function fit() {
  const { containerDimensions: box = {}, displayMode, availableDisplayModes = [], safeAreaInsets: inset } = host.context;
  const isFull = displayMode === 'fullscreen';
  if (inset) document.body.style.padding = [inset.top, inset.right, inset.bottom, inset.left].map((side) => `${Number(side) || 0}px`).join(' ');
  if (!isFull && !box.height) host.tell('ui/notifications/size-changed', { height: Math.min(HEIGHT, box.maxHeight ?? HEIGHT) });
  root.classList.toggle('no-save', !host.capabilities.downloadFile);
  expand.hidden = !availableDisplayModes.includes(isFull ? 'inline' : 'fullscreen');
  const label = isFull ? 'Back to the conversation' : 'Full screen';
  expand.setAttribute('aria-label', label);
  expand.title = label;
  fill(expand, icon(isFull ? 'reduce' : 'expand'));
}

async function toggleFullscreen() {
  const mode = host.context.displayMode === 'fullscreen' ? 'inline' : 'fullscreen';
  const granted = await host.ask('ui/request-display-mode', { mode }).catch(() => ({}));
  if (!granted.mode) return;
  host.context.displayMode = granted.mode;
  fit();
}

/** Asks the host to do something for the person; a refusal is shown. */
async function please(method, params, refusal) {
  try {
    const { isError } = await host.ask(method, params);
    if (!isError) return true;
    announce(refusal);
  } catch (cause) {
    announce(`${refusal}: ${clean(cause.message, 160)}`);
  }
  return false;
}

function follow(href) {
  if (href.startsWith('/#')) open(href.slice(2));
  else if (/^(https?|mailto):/i.test(href)) please('ui/open-link', { url: href }, 'The link was not opened');
}

addEventListener('message', ({ source, data }) => {
  const isPreview = [...document.querySelectorAll('iframe.frame')].some((frame) => frame.contentWindow === source);
  if (isPreview && typeof data?.followed === 'string') follow(data.followed);
});

async function share(resources) {
  const kinds = host.capabilities.updateModelContext;
  if (!kinds) {
    fill(note, 'The selection goes along with your message.');
    return;
  }
  try {
    await host.ask('ui/update-model-context', contextOf(resources, kinds));
    fill(note, resources.length > 0 ? [icon('check'), 'The model knows this selection.'] : null);
  } catch (cause) {
    fill(note, icon('warning'), `The chat did not take the selection: ${clean(cause.message, 160)}`);
  }
}

host.addEventListener('state', fit);
host.addEventListener('context', () => host.state === 'static' && fit());
host.addEventListener('input', ({ detail: { query, uri } }) => {
  if (query) open({ q: query });
  else if (uri) open({ uri });
});
document.querySelector('.brand').removeAttribute('href');
document.querySelector('.tools a').remove();
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  document.getElementById('side').focus();
});
document.querySelector('.tools').prepend(expand);

export const site = {
  mcp: host,

  endpoint: null,

  get address() {
    return address;
  },

  navigate() {},

  onNavigation(action) {
    navigated = action;
  },

  link: null,

  /** The host receives the file in a single message. */
  largestFile: 32 * 1024 * 1024,

  save({ parts, name, type }) {
    const text = type.startsWith('text/') ? textOf(parts) : undefined;
    const resource = { uri: `file:///${encodeURIComponent(name)}`, mimeType: type, ...(text !== undefined ? { text } : { blob: base64Of(parts) }) };
    return please('ui/download-file', { contents: [{ type: 'resource', resource }] }, 'The file was not saved');
  },

  setUpTheme(button, changed) {
    button.hidden = true;
    const apply = () => {
      const wanted = host.context.theme ?? (dark.matches ? 'dark' : 'light');
      const theme = wanted === 'dark' ? 'dark' : 'light';
      if (root.dataset.theme === theme) return;
      root.dataset.theme = theme;
      changed();
    };
    host.addEventListener('context', apply);
    dark.addEventListener('change', apply);
    apply();
  },

  /** Policies of hosts allow `data:`, and no other scheme. */
  mediaUrl: (parts, mimeType) => `data:${mimeType};base64,${base64Of(parts)}`,

  /** The policy allows no script but the one that follows links. */
  frame: {
    sandbox: 'allow-scripts',
    async head() {
      const nonce = base64Of([crypto.getRandomValues(new Uint8Array(18))]);
      return `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'nonce-${nonce}'; script-src 'nonce-${nonce}'">`
        + `<style nonce="${nonce}">${previewStyle}</style><script nonce="${nonce}">${FOLLOW_LINKS}<\/script>`;
    },
  },

  chat: {
    /** The line that says whether the model knows the selection. */
    note,

    share: debounced(SHARE_PAUSE, share),

    /** Sends a message to the conversation, with the selection if the model does not know it yet. */
    send(text, resources) {
      const isShared = Boolean(host.capabilities.updateModelContext) || resources.length === 0;
      const message = isShared ? text : `${text}\n\n${selectionText(resources)}`;
      return please('ui/message', { role: 'user', content: [{ type: 'text', text: message }] }, 'The message was not sent');
    },
  },
};
