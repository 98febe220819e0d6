// What the page remembers between visits. A frame without an origin has no storage; there it remembers until it is closed.

const memory = new Map();

/** The remembered value; `null` if there is none. */
export function recall(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return memory.get(key) ?? null;
  }
}

export function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    memory.set(key, value);
  }
}
