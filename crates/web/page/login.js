// Asks for an API key or an access token where the server wants one.

import { h } from './dom.js';

/** Shows the dialog until the person submits it. Returns a promise of the key or token. */
export function askForToken(refused) {
  return new Promise((resolve) => {
    const input = h('input', { id: 'token', type: 'password', autocomplete: 'off', required: true, 'aria-describedby': 'token-about' });
    const dialog = h('dialog', { class: 'dialog', 'aria-labelledby': 'login-title' },
      h('form', {
        onsubmit: (event) => {
          event.preventDefault();
          const token = input.value.trim();
          if (!token) return;
          dialog.close();
          dialog.remove();
          resolve(token);
        },
      },
      h('h2', { id: 'login-title' }, 'This library is locked'),
      h('p', { id: 'token-about' }, 'Enter an API key or an access token of this server. It stays in this tab until you close it.'),
      refused ? h('p', { class: 'refused', role: 'alert' }, refused) : null,
      h('label', { for: 'token' }, 'Key or token'), input,
      h('div', { class: 'row-end' }, h('button', { class: 'primary', type: 'submit' }, 'Unlock'))));
    dialog.addEventListener('cancel', (event) => event.preventDefault());
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}
