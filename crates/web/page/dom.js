// Elements: creates them without HTML, so that no text can become markup.

const SVG = 'http://www.w3.org/2000/svg';

/** Creates an element. Properties that begin with `on` are listeners, others are attributes; `null` leaves one out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'class') element.className = value;
    else if (name === 'value' || name === 'checked' || name === 'disabled' || name === 'hidden') element[name] = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** Replaces the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

const PATHS = {
  folder: 'M2 4.500h4l1.500 1.800H14v6.700H2z',
  open: 'M2 12.800V4.500h4l1.500 1.800H13v1.900M2 12.800l2-4.600h11l-2 4.600z',
  text: 'M4 1.800h5.500L12.500 5v9.200H4zM9.300 2v3.200h3M6 8h4.500M6 10.500h4.500',
  code: 'M5.500 4.500 2 8l3.500 3.500M10.500 4.500 14 8l-3.500 3.500',
  data: 'M5.500 2C3.800 2 5 7 2.800 8 5 9 3.800 14 5.500 14M10.500 2c1.700 0 .5 5 2.700 6-2.200 1-1 6-2.700 6',
  table: 'M2 3h12v10H2zM2 6.300h12M2 9.700h12M6.500 3v10',
  image: 'M2 3h12v10H2zM2 11.500l3.500-3.500 2.500 2.500 2.500-3 3.500 4M5.300 6a.6.6 0 1 0 .01 0',
  audio: 'M6 12V3.500l7-1.500v8.500M6 12a1.800 1.500 0 1 1-.01-.1M13 10.500a1.800 1.500 0 1 1-.01-.1',
  video: 'M2 4h8.500v8H2zM10.500 7 14 5v6l-3.500-2z',
  book: 'M3 2.500h8A1.500 1.500 0 0 1 12.500 4v9.500h-8A1.500 1.500 0 0 1 3 12zM3 12a1.500 1.500 0 0 1 1.500-1.500h8',
  archive: 'M2 3h12v3H2zM3 6v7h10V6M6.500 8.500h3',
  binary: 'M3 3h3v4H3zM10 9h3v4h-3zM10.500 3.500 12 3v4M3.500 9.500 5 9v4',
  template: 'M2.500 3h11v3h-11zM2.500 8.500h5v4.500h-5zM10 8.500h3.500M10 10.800h3.500M10 13h3.500',
  database: 'M8 2c3 0 5 .8 5 2s-2 2-5 2-5-.8-5-2 2-2 5-2zM3 4v8c0 1.200 2 2 5 2s5-.8 5-2V4M3 8c0 1.200 2 2 5 2s5-.8 5-2',
  branch: 'M4.500 5v6M4.500 5a1.500 1.500 0 1 1 .01 0M4.500 14a1.500 1.500 0 1 1 .01 0M11.500 7a1.500 1.500 0 1 1 .01 0M11.500 7c0 2.500-4 2-6.500 4',
  chevron: 'M6 4l4 4-4 4',
  search: 'M7 2.500a4.500 4.500 0 1 1-.01 0M10.300 10.300 14 14',
  close: 'M4 4l8 8M12 4l-8 8',
  back: 'M9.500 3.500 5 8l4.500 4.500',
  copy: 'M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3',
  download: 'M8 2v8M4.800 7 8 10.200 11.200 7M2.500 13.500h11',
  link: 'M6.500 9.500l3-3M7 4.500l1.500-1.500a3 3 0 0 1 4.300 4.300L11.500 8.800M9 11.500 7.500 13a3 3 0 0 1-4.300-4.300L4.500 7.200',
  basket: 'M2 6h12l-1.500 7.500h-9zM5 6l2-4M11 6 9 2M6.500 9v2M9.500 9v2',
  sun: 'M8 5a3 3 0 1 1-.01 0M8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1',
  plus: 'M8 3v10M3 8h10',
  check: 'M3 8.500 6.500 12 13 4.500',
  warning: 'M8 2 14.500 13.500h-13zM8 6.500v3.200M8 11.500v.5',
  more: 'M3.500 8h.01M8 8h.01M12.500 8h.01',
  expand: 'M9.500 2.500h4v4M6.500 13.500h-4v-4M13.500 2.500 9 7M2.500 13.500 7 9',
  reduce: 'M13 7H9V3M3 9h4v4M9 7l4.500-4.500M7 9l-4.500 4.500',
  send: 'M2.500 8 13.500 2.800 10 13.500 7.500 9z',
  refresh: 'M13 8a5 5 0 1 1-1.500-3.600M13 2.500v2.500h-2.500',
  spark: 'M8 2l1.400 4.600L14 8l-4.600 1.400L8 14l-1.400-4.600L2 8l4.600-1.400z',
};

/** A line icon of 16 pixels, hidden from assistive technology. */
export function icon(name, extra = '') {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('class', `icon ${extra}`);
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', PATHS[name] ?? PATHS.binary);
  svg.append(path);
  return svg;
}

/** A button with an icon; the label is its tooltip and its name. */
export function iconButton(name, label, onclick, extra = '') {
  return h('button', { class: `quiet ${extra}`, type: 'button', 'aria-label': label, title: label, onclick }, icon(name));
}

/** Calls a function once the calls have paused for some milliseconds. */
export function debounced(delay, action) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), delay);
  };
}

/**
 * Calls an asynchronous function once the calls have paused for some milliseconds, or have gone on for `longest`. It is
 * never called again before it has finished.
 */
export function settled(pause, longest, action) {
  let timer;
  let first = null;
  let running = false;
  let isAsked = false;
  const schedule = () => {
    const now = performance.now();
    first ??= now;
    clearTimeout(timer);
    timer = setTimeout(run, Math.max(0, Math.min(pause, first + longest - now)));
  };
  const run = async () => {
    first = null;
    if (running) {
      isAsked = true;
      return;
    }
    running = true;
    try {
      await action();
    } finally {
      running = false;
      if (isAsked) schedule();
      isAsked = false;
    }
  };
  return schedule;
}

/** Calls a function once per frame, however often it is asked for. */
export function perFrame(action) {
  let isScheduled = false;
  return () => {
    if (isScheduled) return;
    isScheduled = true;
    requestAnimationFrame(() => {
      isScheduled = false;
      action();
    });
  };
}

/** Announces a text to assistive technology, and shows it for a moment. */
export function announce(text) {
  const toast = document.getElementById('toast');
  toast.textContent = text;
  toast.classList.add('shown');
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => toast.classList.remove('shown'), 2600);
}
