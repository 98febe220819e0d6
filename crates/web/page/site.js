// Where the picker runs: a web page of its server, which it asks over HTTP. Inside a chat, `chat.js` takes the place of this module.

import { saveFile } from './export.js';
import { askForToken } from './login.js';
import { Mcp } from './mcp.js';
import { setUpTheme } from './theme.js';

const mcp = new Mcp();
mcp.askForToken = askForToken;

let style = null;

/** The style of previews, whose frame has no origin and cannot load it. After a failure, the next preview fetches it again. */
function previewStyle() {
  style ??= mcp.text('/picker/preview.css').catch((cause) => {
    style = null;
    throw cause;
  });
  return style;
}

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

  /** The largest file that can be saved. */
  largestFile: 1024 * 1024 * 1024,

  /** The URL of a picture, a sound or a film. */
  mediaUrl: (parts, mimeType) => URL.createObjectURL(new Blob(parts, { type: mimeType })),

  /** The frame of previews: no scripts run in it, and its links to resources change the address of this page. */
  frame: {
    sandbox: 'allow-popups allow-popups-to-escape-sandbox allow-top-navigation-by-user-activation',
    head: async () => `<style>${await previewStyle()}</style>`,
  },

  /** The chat to which the selection goes, if the picker is in one. */
  chat: null,
};
