// Light and dark: as the system says, unless the person chose.

import { fill, icon } from './dom.js';
import { recall, remember } from './storage.js';

const KEY = 'libris-theme';
const dark = matchMedia('(prefers-color-scheme: dark)');

function current() {
  return recall(KEY) ?? (dark.matches ? 'dark' : 'light');
}

/** Lets a button switch the theme; `changed` is called after each change. */
export function setUpTheme(button, changed = () => {}) {
  const apply = () => {
    const theme = current();
    document.documentElement.dataset.theme = theme;
    const label = theme === 'dark' ? 'Light theme' : 'Dark theme';
    button.setAttribute('aria-label', label);
    button.title = label;
    fill(button, icon('sun'));
  };
  button.addEventListener('click', () => {
    remember(KEY, current() === 'dark' ? 'light' : 'dark');
    apply();
    changed();
  });
  dark.addEventListener('change', () => {
    apply();
    changed();
  });
  apply();
}
