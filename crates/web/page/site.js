// Where the picker runs: a web page of its server, which it asks over HTTP. Inside a chat, `chat.js` takes the place of this module.

import { saveFile } from './export.js';
import { askForToken } from './login.js';
import { Mcp } from './mcp.js';
import { setUpTheme } from './theme.js';

const mcp = new Mcp();
mcp.askForToken = askForToken;

/** The style of previews. Their frame has no origin, so it cannot load one. */
const style = fetch('/picker/preview.css').then((response) => response.text());

export const site = {
  mcp,

  /** The address of the server for other programs. */
  endpoint: `${location.origin}/mcp`,

  /** What to open, as in the fragment of a link. */
  get address() {
    return location.hash.slice(1);
  },

  /** Records what is open. */
  navigate: (hash) => history.pushState(null, '', hash),

  /** Calls a function when the address changes. */
  onNavigation: (action) => addEventListener('hashchange', action),

  /** A link to this page with this fragment. */
  link: (hash) => location.origin + location.pathname + hash,

  save: saveFile,

  setUpTheme,

  /** The URL of a picture, a sound or a film. */
  mediaUrl({ blob, text, mimeType }) {
    const data = blob !== undefined ? Uint8Array.from(atob(blob), (letter) => letter.charCodeAt(0)) : text ?? '';
    return URL.createObjectURL(new Blob([data], { type: mimeType }));
  },

  /** The frame of previews: no scripts run in it, and its links to resources change the address of this page. */
  frame: {
    sandbox: 'allow-popups allow-popups-to-escape-sandbox allow-top-navigation-by-user-activation',
    head: async () => `<style>${await style}</style>`,
  },

  /** The chat to which the selection goes, if the picker is in one. */
  chat: null,
};
