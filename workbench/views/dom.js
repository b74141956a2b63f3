// Shared by the page's own components: building elements without HTML text, figures with units, and
// the link to Python.  Names from models only ever become text nodes.

function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'class') node.className = value;
    else if (typeof value === 'function') node.addEventListener(name, value);
    else if (name === 'style') Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** Returns a function that schedules one callback for the next frame, however often it is called. */
function perFrame(callback) {
  let isScheduled = false;
  return () => {
    if (isScheduled) return;
    isScheduled = true;
    requestAnimationFrame(() => {
      isScheduled = false;
      callback();
    });
  };
}

const SVG = 'http://www.w3.org/2000/svg';

function svg(tag, props, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (typeof value === 'function') node.addEventListener(name, value);
    else if (value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  for (const child of children.flat()) {
    if (child) node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** A name that may wrap after underscores instead of being cut. */
const breakable = (name) => name.split(/(?<=_)/).map((part, i) => [i ? h('wbr') : null, part]).flat();

// -- the keyboard -------------------------------------------------------------------------------

/** Redraws and restores the focus; the focused element is found by the first of these attributes it has. */
function keepFocus(root, names, draw) {
  const node = root.getRootNode().activeElement;
  const name = node && root.contains(node) && names.find((each) => node.getAttribute(each));
  const selector = name && `[${name}="${CSS.escape(node.getAttribute(name))}"]`;
  draw();
  if (selector && !root.contains(root.getRootNode().activeElement)) root.querySelector(selector)?.focus({ preventScroll: true });
}

/** The header of a sortable column.  `order`: the name of the column sorted by and 1 (ascending)
 * or -1; `sort` receives the name.  Draw it with `keepFocus(..., ['data-sort'], ...)`. */
function sortHeader({ name, title, unit, hint, kind = '', table = '' }, [by, sign] = [], sort) {
  const on = by === name;
  return h('th', { class: kind, title: hint, scope: 'col', 'data-column': name, 'aria-sort': on ? (sign > 0 ? 'ascending' : 'descending') : 'none' },
    h('button', { class: 'sort', 'data-sort': `${table} ${name}`, click: () => sort(name) },
      title + (on ? (sign > 0 ? ' ↑' : ' ↓') : ''), unit !== undefined && h('small', {}, unit || '\u00a0')));
}

/** Makes many `nodes` (marks of a plot) one Tab stop: arrow keys, Home and End move between
 * them, Enter and Space click.  `start`: the one that Tab reaches first. */
function walkMarks(picture, nodes, start = 0) {
  let current = nodes[start];
  for (const node of nodes) node.setAttribute('tabindex', node === current ? 0 : -1);
  picture.addEventListener('focusin', ({ target }) => {
    if (!nodes.includes(target)) return;
    current?.setAttribute('tabindex', -1);
    current = target;
    current.setAttribute('tabindex', 0);
  });
  picture.addEventListener('keydown', (event) => {
    const now = nodes.indexOf(event.target);
    if (now < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1, Home: 0, End: nodes.length - 1 }[event.key];
    if (event.key === 'Enter' || event.key === ' ') nodes[now].dispatchEvent(new MouseEvent('click', { bubbles: true }));
    else if (to === undefined) return;
    else nodes[to]?.focus();
    event.preventDefault();
    event.stopPropagation();
  });
}

// -- figures ------------------------------------------------------------------------------------

/** The definition of a view's figure and how it is measured; GLOSSARY is the table of workbench/state/glossary.py. */
const explain = (view, name) => GLOSSARY[view]?.[name]?.[2] ?? '';

/** Columns of a view: `[name, kind]` with the label, the unit and the tooltip of the glossary, as
 * `[name, label, unit, tooltip, kind]`. */
const columnsOf = (view, ...columns) => columns.map((each) => {
  const [name, kind] = [each].flat();
  return [name, ...GLOSSARY[view][name], kind];
});

const GROUPED = new Intl.NumberFormat('en-US'); // created once: that takes longer than a row
const count = (value) => GROUPED.format(Math.round(value));

function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  if (value === 0) return '0';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞';
  const size = Math.abs(value);
  if (size >= 1e15 || size < 1e-3) return value.toExponential(digits - 1).replace('e+', 'e');
  if (size >= 10 ** digits) return count(value);
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return value.toFixed(decimals);
}

/** An error relative to the largest magnitude: a number, or the text for one that JSON cannot represent. */
function relative(value) {
  if (value === null || value === undefined) return '–';
  if (value === 0) return '0';
  if (value === 'inf' || value === Infinity) return '∞';
  return typeof value === 'number' ? value.toExponential(1).replace('e+', 'e').replace(/e0$/, '') : value;
}

/** Replaces the text for infinity in these columns by the number. */
function readInfinite(rows, ...columns) {
  for (const row of rows) for (const name of columns) if (row?.[name] === 'inf') row[name] = Infinity;
}

const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? '' : 's'}`;

function scaled(value, steps) {
  for (const [size, name] of steps) if (Math.abs(value) >= size) return `${number(value / size)} ${name}`;
  const [size, name] = steps[steps.length - 1];
  return `${number(value / size)} ${name}`;
}

const UNITS = {
  us: [[1e6, 's'], [1e3, 'ms'], [1, 'µs'], [1e-3, 'ns']],
  B: [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']],
  flop: [[1e12, 'Tflop'], [1e9, 'Gflop'], [1e6, 'Mflop'], [1e3, 'kflop'], [1, 'flop']],
};
const bytes = (value) => scaled(value, UNITS.B);
const seconds = (value) => (value === 0 ? '0 s' : scaled(1e6 * value, UNITS.us));

/** The common unit of a column, so that its numbers can be compared by eye: the largest in which the
 * largest number is at least 10.  `[unit, scale]`. */
function columnUnit(kind, values) {
  const largest = values.reduce((maximum, value) => Math.max(maximum, Math.abs(value ?? 0)), 0);
  const [size, unit] = UNITS[kind].find(([step]) => step === 1 || (step > 1 && largest >= 10 * step));
  return [unit, 1 / size];
}

function figure(value, unit) {
  if (value === null || value === undefined) return '–';
  if (unit === 'B') return bytes(value);
  if (unit === 's') return seconds(value);
  if (unit === 'ms') return seconds(value / 1e3);
  if (unit === 'us') return seconds(value / 1e6);
  if (unit === 'flop') return scaled(value, UNITS.flop);
  if (unit === 'relative') return relative(value);
  if (Number.isInteger(value)) return unit ? `${count(value)} ${unit}` : count(value);
  return unit ? `${number(value)} ${unit}` : number(value);
}

function ago(epochSeconds) {
  const age = Date.now() / 1000 - epochSeconds;
  if (age < 60) return 'just now';
  if (age < 3600) return plural(Math.floor(age / 60), 'minute') + ' ago';
  if (age < 86400) return plural(Math.floor(age / 3600), 'hour') + ' ago';
  const date = new Date(epochSeconds * 1000);
  return date.toISOString().slice(0, 10);
}

/** `33.1 to 33.9 ms`. */
const interval = (low, high, unit) => {
  const [from, to] = [figure(low, unit), figure(high, unit)];
  const [a, b] = [from.lastIndexOf(' '), to.lastIndexOf(' ')];
  return from.slice(a) === to.slice(b) ? `${from.slice(0, a)} to ${to}` : `${from} to ${to}`;
};

const MARKS = { bitwise: '✓', within: '≈', failed: '✗', unchecked: '–' };
const MARK_WORDS = {
  bitwise: 'every bit kept', within: 'within tolerance', failed: 'failed', unchecked: 'not checked',
};

// -- copying ------------------------------------------------------------------------------------

/** Copies `content`; where that is not allowed, selects `source`, the node that displays it. */
async function copyText(content, button, source) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(content);
    button.textContent = 'Copied';
  } catch { // the user copies it by hand
    const range = document.createRange();
    range.selectNodeContents(source);
    const selected = source.getRootNode().getSelection?.() ?? getSelection();
    selected.removeAllRanges();
    selected.addRange(range);
    button.textContent = 'Selected';
  }
  setTimeout(() => { button.textContent = label; }, 1500);
}

/** Adds keys to the rows of a table: arrows, Home and End go to a selectable row, from
 * the one that `isSelected` in the selection; Enter calls `enter`. */
function walkRows(scroll, { selection, rows, isSelected, isSelectable = () => true, go, enter }) {
  let reached = -1; // several rows can be on at once (the results of an op): this is the one that the keys reached
  scroll.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('.sort')) return;
    const all = rows(), current = selection();
    const now = all[reached] && isSelected(all[reached], current) ? reached : all.findIndex((row) => isSelected(row, current));
    const selectable = [...all.keys()].filter((i) => isSelectable(all[i]));
    const to = { ArrowDown: selectable.find((i) => i > now), ArrowUp: selectable.findLast((i) => i < now), Home: selectable[0], End: selectable.at(-1) }[event.key];
    if (event.key === 'Enter') enter();
    else if (to === undefined) return;
    else {
      reached = to;
      go(all[to]);
    }
    event.preventDefault();
    event.stopPropagation();
  });
}

// -- code ---------------------------------------------------------------------------------------

const PYTHON = /(?<c>#.*)|(?<s>[rbfuRBFU]{0,2}(?:"""|'''|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?))|(?<k>\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False|self)\b)|(?<a>@[\w.]+)|(?<f>\b[A-Za-z_]\w*(?=\())|(?<w>[A-Za-z_]\w*)|(?<n>\b\d[\w.]*)/g;

/** Highlights one line of Python; `state.inside` holds the quotes of a string that continues on the next. */
function highlightPython(line, state = { inside: '' }) {
  const parts = [];
  const add = (text, kind) => { if (text) parts.push(kind && kind !== 'w' ? h('span', { class: `hl-${kind}` }, text) : text); };
  let position = 0;
  if (line.length > 2000) return [line];
  const string = (from, body) => {
    const end = line.indexOf(state.inside, body);
    position = end < 0 ? line.length : end + 3;
    add(line.slice(from, position), 's');
    if (end >= 0) state.inside = '';
  };
  if (state.inside) string(0, 0);
  while (position < line.length) {
    PYTHON.lastIndex = position;
    const found = PYTHON.exec(line);
    if (!found) break;
    add(line.slice(position, found.index));
    const [kind] = Object.entries(found.groups).find(([, text]) => text !== undefined);
    const quotes = kind === 's' && found[0].slice(-3);
    if (quotes === '"""' || quotes === "'''") {
      state.inside = quotes;
      string(found.index, found.index + found[0].length);
      continue;
    }
    add(found[0], kind);
    position = found.index + found[0].length;
  }
  add(line.slice(position));
  return parts;
}

// -- two recordings -----------------------------------------------------------------------------

/** The runs of a library that A can be compared with; `label`: the name, in A's own folder only the file's. */
function otherRuns(library, a) {
  const folder = (path) => path.slice(0, path.lastIndexOf('/') + 1);
  return library.filter((each) => each.path !== a.path && each.status !== 'unreadable')
    .map((each) => ({ ...each, label: folder(each.path) === folder(a.path) ? each.path.slice(folder(a.path).length) : each.name }));
}

/** Chooses the two recordings: A is the open one, B is chosen from `library` or by its path. */
function pairBar({ a, b, library, about, choose, send }) {
  const path = h('input', { type: 'text', placeholder: 'the path of a .run file', 'aria-label': 'Path of the recording to compare with', hidden: true });
  path.addEventListener('keydown', (event) => { event.stopPropagation(); if (event.key === 'Enter' && path.value.trim()) choose(path.value.trim()); });
  const listed = b && library.find((each) => each.path === b.path);
  const select = h('select', { 'aria-label': 'Compare with', change: () => {
    if (select.value === '/') { path.hidden = false; path.focus(); } else choose(select.value);
  } },
  h('option', { value: '' }, b ? 'no recording' : 'choose a recording…'),
  b && !listed && h('option', { value: b.path }, `${b.name}  (${about(b)})`),
  library.map((each) => h('option', { value: each.name, title: each.path }, `${each.label}  (${each.model} · ${each.target}${each.variant ? ` · ${each.variant}` : ''}${each.total_ms === null ? '' : `, ${figure(each.total_ms, 'ms')}`})`)),
  h('option', { value: '/' }, 'another file…'));
  select.value = b ? (listed?.name ?? b.path) : '';
  return [
    h('span', { class: 'letter' }, 'A'), h('span', { class: 'run', title: a.path }, h('b', {}, a.name), h('span', { class: 'muted' }, about(a))),
    b && h('button', { title: 'Swap: open B and compare it with A', 'aria-label': 'Swap A and B', 'data-do': 'swap', click: () => send('swap', {}) }, '⇄'),
    h('span', { class: 'letter b' }, 'B'), select, path,
  ].filter(Boolean);
}

const clearPairButton = (b, choose) => (b
  ? h('button', { class: 'plain', title: 'Stop comparing', 'aria-label': 'Clear B', 'data-do': 'clear', click: () => choose('') }, '×') : '');

const PAIR = `
.bar .run { display: flex; gap: 6px; align-items: baseline; min-width: 0; overflow: hidden; } .bar .run b { overflow: hidden; text-overflow: ellipsis; } .bar .run .muted { overflow: hidden; text-overflow: ellipsis; }
.letter { display: inline-grid; place-content: center; width: 18px; height: 18px; border-radius: 4px; font-weight: 700; font-size: 11px; flex: none; color: var(--surface); background: var(--accent); } .letter.b { background: var(--moved); }
.bar select { max-width: 330px; min-width: 150px; } .bar input { width: 260px; }
`;

// -- the link to Python -------------------------------------------------------------------------

function plain(value) {
  if (value instanceof Map) {
    return Object.fromEntries([...value].map(([key, item]) => [key, plain(item)]));
  }
  return Array.isArray(value) ? value.map(plain) : value;
}

function json(model, name) {
  const text = model.get(name);
  return text ? JSON.parse(text) : null;
}

/** Whether the user may compile; page.html marks the pages of viewers, who may not. */
const canEdit = () => document.documentElement.dataset.role !== 'viewer';

let commandNumber = 0;

/** Sends a command; returns its number, which the host's selection carries once it has answered. */
function command(model, name, more) {
  commandNumber += 1;
  const n = Date.now() * 1000 + (commandNumber % 1000);
  const busy = document.getElementById('cw-busy');
  busy?.classList.add('on');
  model.set('command', JSON.stringify({ ...more, name, n }));
  model.save_changes();
  return n;
}

/** The selection that a command implies, shown as soon as it is sent. */
const IMPLIED_SELECTION = {
  select: ({ op, kernel }) => ({ ...(op === undefined ? {} : { op, ops: [op] }), ...(kernel === undefined ? {} : { kernel }) }),
  go: ({ stage, rewrite }) => ({ stage, rewrite }),
  rewrite: ({ index }) => ({ rewrite: index }),
};

/** The selection as a component sees it: the host's, and until the host answers also the last choice
 * made here: keys are faster than any host.  A report's selection has no numbers and is immediate. */
function trackSelection(model) {
  let sentNumber = 0, pendingSelection = {};
  const hostSelection = () => plain(model.get('selection')) ?? {};
  const isWaiting = () => (hostSelection().n ?? sentNumber) < sentNumber;
  return {
    isWaiting,
    selection: () => (isWaiting() ? { ...hostSelection(), ...pendingSelection } : hostSelection()),
    select: (chosen, n) => {
      pendingSelection = isWaiting() ? { ...pendingSelection, ...chosen } : chosen;
      sentNumber = n;
    },
  };
}

// The frame of a component: its style and its root; its failures stay inside it.
function component(style, create) {
  return {
    render({ model, el }) {
      const sheet = h('style');
      sheet.textContent = BASE + style;
      const root = h('div', { class: 'root' });
      el.append(sheet, root);
      const cleanups = [];
      const { isWaiting, selection, select } = trackSelection(model);
      const selectionWatchers = [];
      const watch = (name, run) => {
        const runGuarded = () => {
          try {
            run();
          } catch (error) {
            console.error(error);
            root.replaceChildren(h('p', { class: 'broken', role: 'alert' },
              `This part of the page failed: ${error.message}. The other parts still work; reload to try again.`));
          }
        };
        const changed = name === 'selection' ? () => isWaiting() || runGuarded() : runGuarded;
        if (name === 'selection') selectionWatchers.push(runGuarded);
        model.on(`change:${name}`, changed);
        cleanups.push(() => model.off(`change:${name}`, changed));
        runGuarded();
      };
      // `alsoSelected`: other parts of the new selection, which the component marks.
      const send = (name, more, alsoSelected = {}) => {
        const n = command(model, name, more);
        const chosen = IMPLIED_SELECTION[name]?.(more);
        if (!chosen) return;
        select({ ...chosen, ...alsoSelected }, n);
        if (isWaiting()) selectionWatchers.forEach((run) => run());
      };
      const later = (cleanup) => cleanups.push(cleanup);
      create({ model, root, watch, later, send, selection });
      return () => cleanups.forEach((each) => each());
    },
  };
}

const BASE = `
:host, .root { box-sizing: border-box; }
.root { height: 100%; overflow: hidden; color: var(--text); font: 12px/1.45 var(--sans); }
.root *, .root *::before { box-sizing: border-box; }
[hidden] { display: none !important; }
button, select, input { font: inherit; color: inherit; background: var(--surface); margin: 0;
  border: 1px solid var(--line); border-radius: 4px; height: 24px; padding: 0 8px; }
button { cursor: pointer; white-space: nowrap; }
button:hover { background: var(--raised); }
button:disabled { color: var(--faint); cursor: default; background: var(--surface); }
button.primary { background: var(--accent); border-color: var(--accent); color: var(--surface); font-weight: 600; }
button.primary:hover { filter: brightness(1.08); }
button[aria-pressed=true], button[role=tab][aria-selected=true] { background: var(--accentSoft); border-color: var(--accent); }
button.plain { border: none; background: none; padding: 0 4px; }
button.plain:hover { background: var(--raised); }
a, .link { color: var(--accent); cursor: pointer; text-decoration: none; }
.link:hover, a:hover { text-decoration: underline; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: -1px; }
.mono, code { font-family: var(--mono); }
.muted { color: var(--muted); }
.faint { color: var(--faint); }
.num { text-align: right; font-variant-numeric: tabular-nums; }
.bitwise { color: var(--added); } .within { color: var(--changed); }
.failed { color: var(--bad); font-weight: 700; } .unchecked { color: var(--faint); }
.hl-k { color: var(--hl-k); } .hl-t { color: var(--hl-t); } .hl-v { color: var(--hl-v); } .hl-s { color: var(--hl-s); }
.hl-n { color: var(--hl-n); } .hl-c { color: var(--faint); } .hl-f { color: var(--hl-f); font-weight: 600; } .hl-a { color: var(--hl-a); }
button.sort { font: inherit; color: inherit; text-align: inherit; background: none; border: none; height: auto; padding: 0; width: 100%; }
button.sort:hover { background: none; color: var(--accent); } th .sort::after { content: ''; position: absolute; inset: 0; }
.menu, .menu * { box-sizing: border-box; } .menu { font: 12px/1.45 var(--sans); position: fixed; inset: auto; margin: 0; padding: 4px; min-width: 150px; max-width: 340px; background: var(--surface); color: var(--text); border: 1px solid var(--line); border-radius: 6px; box-shadow: var(--shadow, 0 4px 16px rgb(0 0 0 / 18%)); }
.menu button { display: block; width: 100%; text-align: left; border: none; background: none; overflow: hidden; text-overflow: ellipsis; } .menu button:hover, .menu button:focus-visible { background: var(--accentSoft); }
.menu p { margin: 2px 8px; color: var(--muted); } button.save { color: var(--muted); font-size: 14px; line-height: 1; padding: 0 5px; }
.broken { padding: 12px; color: var(--bad); }
::-webkit-scrollbar { width: 9px; height: 9px; }
::-webkit-scrollbar-thumb { background: var(--line); border-radius: 5px; }
::-webkit-scrollbar-corner { background: transparent; }
`;
