// The model's source with the cost of each line's ops; a click on a line selects them in all views.

function twoSource({ selection, send, remember }) {
  const group = (name, title, explained, rest) => ({ name, title, hint: explain('source', explained), ...rest });
  const linesOf = (at) => (at.lines ?? []);
  return pairTable({ selection, remember, what: {
    csv: ['Lines of both', 'lines-of-two'], order: ['us_d', -1],
    region: 'Lines of both recordings: up and down select the most expensive op of a line of A, Enter shows its code',
    filter: 'Filter by text, file or line',
    left: [{ id: 'text', title: 'line', code: true, value: (row) => row.text }, { id: 'place', title: 'place', value: (row) => row.place.split('/').pop(), tooltip: (row) => `${row.file}:${row.line}` }],
    groups: [
      group('us', 'own time', 'us', { kind: 'us' }), group('all_us', 'with calls', 'us', { kind: 'us' }), group('bytes', 'moved', 'bytes', { kind: 'B' }),
      group('import', 'ops imported', 'ops', { integer: true }), group('now', 'ops at the end', 'ops', { integer: true }),
    ],
    right: [{ id: 'line_b', title: 'line in B', none: 'none', value: (row) => (row.b ? String(row.b.line) : '') }],
    rows: (data) => data.rows, words: (row) => `${row.text} ${row.place}`,
    facts: (data) => {
      const unmatched = [['a', 'b', 'A'], ['b', 'a', 'B']].map(([one, two, letter]) => [data.rows.filter((row) => row[one] && !row[two]).length, letter]).filter(([n]) => n);
      return [h('span', {}, `${data.nodes ? `${plural(data.rows.length, 'node')} of the graphs, matched by name and kind` : `${plural(data.rows.length, 'line')}, matched by their text`}${unmatched.map(([n, letter]) => `; ${count(n)} only in ${letter}`).join('')}`)];
    },
    marks: (row) => ({ 'data-line': row.line }),
    isSelected: (row, at) => Boolean(row.a) && (linesOf(at).length ? linesOf(at).some(([file, line]) => file === row.file && line === row.a.line) : row.file === '' && (at.nodes ?? []).includes(row.a.line)),
    isSelectable: (row) => (row.a?.op ?? null) !== null,
    choose: (row) => send('select', row.a.kernel === null ? { op: row.a.op } : { op: row.a.op, kernel: row.a.kernel },
      row.file === '' ? { lines: [], nodes: [row.a.line] } : { lines: [[row.file, row.a.line]] }),
    enter: () => send('show', { view: 'code', beside: 'source' }),
  } });
}

const STYLE = `${PAIR_TABLE}
.root { display: flex; flex-direction: column; background: var(--surface); }
.bar { display: flex; align-items: center; gap: 8px; min-height: 32px; padding: 0 10px; border-bottom: 1px solid var(--line); color: var(--muted); white-space: nowrap; overflow: hidden; flex: none; }
.bar .gap { flex: 1; } .bar b { color: var(--text); font-weight: 600; }
.bar select { max-width: 340px; min-width: 90px; flex: 0 1 auto; }
.bar .fact { overflow: hidden; text-overflow: ellipsis; }
.body { display: flex; flex: 1; min-height: 0; }
.body.narrow { flex-direction: column; }
.scroll { flex: 1; min-width: 0; min-height: 0; overflow: auto; outline: none; }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; min-width: 100%; }
th { position: sticky; top: 0; z-index: 2; background: var(--raised); font-weight: 600; text-align: right; padding: 2px 6px; border-bottom: 1px solid var(--line); white-space: nowrap; line-height: 1.15; cursor: help; }
th small { display: block; font-weight: 400; color: var(--faint); }
th.code, td.code { text-align: left; width: 100%; }
td { padding: 0 6px; text-align: right; white-space: nowrap; height: 18px; line-height: 18px; }
td.no { color: var(--faint); font-family: var(--mono); font-size: 11px; user-select: none; border-left: 1px solid var(--line); padding: 0 6px; }
td.code { font: 12px/18px var(--mono); white-space: pre; padding-left: 4px; }
td.code .note { color: var(--faint); font-family: var(--sans); }
tr.ops { cursor: pointer; } tr.ops:hover td { background: var(--raised); }
tr.bare td.code, tr.bare td.code span { color: var(--faint); }
tr.calls td.amount { color: var(--muted); font-style: italic; }
tr.path td.no { box-shadow: inset 3px 0 0 var(--accent); }
tr.also td { background: color-mix(in srgb, var(--accentSoft) 55%, transparent); }
tr.on td, tr.on:hover td { background: var(--accentSoft); }
tr.on td.no { color: var(--text); font-weight: 700; box-shadow: inset 3px 0 0 var(--accent); }
td.heat { position: relative; min-width: 62px; }
td.heat i { position: absolute; right: 0; top: 2px; bottom: 2px; border-radius: 2px; background: var(--accent); opacity: .28; pointer-events: none; }
tr.calls td.heat i { background: none; border: 1px solid var(--accent); opacity: .45; }
td.heat span { position: relative; }
td.check button { height: 16px; line-height: 16px; padding: 0; } td.check button:hover { background: none; text-decoration: underline; }
tr.gap td { color: var(--faint); text-align: center; height: 16px; line-height: 16px; font-size: 11px; }
.small .wide { display: none; }
.hot { width: 300px; flex: none; border-left: 1px solid var(--line); overflow-y: auto; padding-bottom: 12px; }
.narrow .hot { width: auto; max-height: 34%; border-left: none; border-bottom: 1px solid var(--line); order: -1; padding: 4px 0; display: grid; grid-template-columns: repeat(auto-fill, minmax(270px, 1fr)); align-content: start; }
.narrow .hot h3 { display: none; }
.hot h3 { font-size: 11px; font-weight: 600; color: var(--muted); margin: 0; padding: 8px 10px 3px; }
.hot .row { display: grid; grid-template-columns: 54px minmax(0, 1fr); gap: 0 8px; padding: 2px 10px; cursor: pointer; }
.hot .row:hover, .hot .row:focus-visible { background: var(--raised); } .hot .row.on { background: var(--accentSoft); }
.hot .share { grid-row: span 2; text-align: right; font-weight: 600; font-variant-numeric: tabular-nums; }
.hot .share small { display: block; font-weight: 400; color: var(--muted); }
.hot .place { color: var(--muted); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.hot .text { font: 11px/1.4 var(--mono); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.hot p { margin: 3px 10px; color: var(--faint); }
`;
const COLUMNS = columnsOf('source', 'us', 'share', ['bytes', 'wide'], ['flops', 'wide'], 'ops', 'check');
const TIME_HINT = explain('source', 'us');
/** Longer files show only the context of lines with ops. */
const LONG_FILE = 3000;
const CONTEXT_LINES = 2;

export default component(STYLE, ({ model, root, watch, later, send, selection }) => {
  let data = null;
  let file = null;
  let rows = new Map();
  let lines = new Map();
  let cursor = null;
  let drawnSignature = '';
  let height = 0;
  let mode = {};
  let units = {}; // of the columns of the shown file
  const callStack = []; // the calls that were entered
  let pendingCall = null; // the call to enter once the host has sent its target
  const bar = h('div', { class: 'bar' });
  const head = h('tr');
  const body = h('tbody');
  const scroll = h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Source: up and down select lines with ops, right enters the call of a line and left returns, Enter shows the code of its kernel, c its worst check' },
    h('table', {}, h('thead', {}, head), body));
  const hot = h('div', { class: 'hot', role: 'region', 'aria-label': 'Hottest lines' });
  const panes = h('div', { class: 'body' }, scroll, hot);
  const two = twoSource({ selection, send, remember: (both) => setMode({ both }) });
  root.append(bar, panes);

  const setMode = (change) => {
    mode = { ...mode, ...change };
    model.set('state', mode);
    model.save_changes();
  };
  const same = (a, b) => a && b && a[0] === b[0] && a[1] === b[1];
  const isHotShown = () => mode.hot ?? root.clientHeight > 600;
  const includesCalls = () => mode.calls !== false;
  const value = (row, name) => (includesCalls() ? row[`all_${name}`] : row[name]);
  const isCall = (row) => row.all_us === null ? row.flops < row.all_flops * 0.5 : row.us < row.all_us * 0.5;
  const amountOf = (name, amount) => number(amount * units[name][1]);
  const share = (row) => data.total_us ? value(row, 'us') / data.total_us : null;
  const percent = (part) => (part === null ? '–' : part === 0 ? '0' : part < 0.0005 ? '<0.1' : (100 * part).toFixed(1));

  // -- one line -----------------------------------------------------------------------------------
  function cells(row) {
    const us = value(row, 'us');
    const callHint = isCall(row) ? `Its own ops ${us === null ? 'were not timed' : `take ${figure(row.us, 'us')}`}; with everything called from here ${us === null ? '' : figure(row.all_us, 'us')}.\n` : '';
    const isBlank = !includesCalls() && isCall(row) && !row.us && !row.flops;
    const amount = (text, name, title) => h('td', { class: `amount${COLUMNS.find((c) => c[0] === name)[4] ? ' wide' : ''}`, title }, isBlank ? '' : text);
    const fraction = share(row);
    const heat = h('td', { class: 'amount heat', title: callHint + TIME_HINT },
      fraction === null || isBlank ? null : h('i', { style: { width: `${100 * fraction}%` } }), h('span', {}, isBlank ? '' : percent(fraction)));
    const opCounts = row.now === row.import ? count(row.now) : `${count(row.import)} → ${count(row.now)}`;
    const check = row.check;
    return [
      amount(us === null ? '–' : amountOf('us', us), 'us', callHint + TIME_HINT), heat,
      amount(amountOf('bytes', value(row, 'bytes')), 'bytes', `${count(value(row, 'bytes'))} B`),
      amount(amountOf('flops', value(row, 'flops')), 'flops', `${count(value(row, 'flops'))} flop`),
      h('td', { class: row.now === row.import ? 'muted' : '', title: `${plural(row.import, 'op')} at import, ${plural(row.now, 'op')} after ${data.stage_name}` }, opCounts),
      check ? h('td', { class: 'check' }, h('button', { class: `plain ${check.verdict}`, tabindex: -1, title: `${plural(check.count, 'rewrite')} of ops of this line checked: ${MARK_WORDS[check.verdict]}; the worst in ${check.pass}, rewrite ${check.rewrite}  (c)`,
        click: (event) => { event.stopPropagation(); showCheck(row); } },
      check.error ? `${MARKS[check.verdict]} ${relative(check.error)}` : MARKS[check.verdict]))
        : h('td', { class: 'faint' }, data.checked ? '' : '–'),
    ];
  }

  function lineText(row, text, state) {
    if (file.path === '') {
      return h('td', { class: 'code' }, h('span', { class: 'hl-f' }, row.kind), '  ', row.text, row.scope && h('span', { class: 'note' }, `   ${row.scope}`));
    }
    return h('td', { class: 'code' }, state === null ? [row?.text ?? ''] : highlightPython(text, state));
  }

  function tableRow(number_, row, code) {
    const node = h('tr', { class: row ? 'ops' : 'bare', 'data-line': number_ },
      row ? cells(row) : h('td', { colspan: 4, class: 'left' }), row ? null : h('td', { class: 'wide', colspan: 2 }),
      h('td', { class: 'no' }, number_), code);
    if (row) {
      node.classList.toggle('calls', isCall(row));
      // The node can be reused for the row of another stage, so its actions look the row up.
      node.addEventListener('click', () => choose(rows.get(number_)));
      if (isCall(row)) node.title = 'calls other code: Right or a double click goes there';
      node.addEventListener('dblclick', () => enterCall(rows.get(number_)));
    }
    return node;
  }

  // -- the file -----------------------------------------------------------------------------------
  function draw() {
    units = Object.fromEntries([['us', 'us'], ['bytes', 'B'], ['flops', 'flop']].map(([name, kind]) => [name, columnUnit(kind, file.rows.map((row) => value(row, name)))]));
    rows = new Map(file.rows.map((row) => [row.line, row]));
    drawHead();
    const signature = JSON.stringify([file.path, file.text, file.rows.map((r) => [r.line, r.text, r.kind, r.scope, isCall(r)])]);
    if (signature === drawnSignature) {
      for (const [number_, row] of rows) {
        const node = lines.get(number_);
        const reused = node.querySelectorAll('.no, .code');
        node.replaceChildren(...cells(row), ...reused);
      }
    } else {
      drawnSignature = signature;
      lines = new Map();
      const entries = [];
      if (file.text === null) {
        for (const row of file.rows) entries.push([row.line, tableRow(row.line, row, lineText(row, row.text, null))]);
      } else {
        entries.push(...textRows(file.text.split('\n')));
      }
      for (const [number_, node] of entries) if (number_ !== null) lines.set(number_, node);
      body.replaceChildren(...entries.map(([, node]) => node));
    }
    mark(false);
  }

  function textRows(text) {
    const state = { inside: '' };
    const numbers = [...rows.keys()];
    const folded = text.length > LONG_FILE || mode.fold === true;
    const visibleLines = folded ? linesAround(text, numbers) : new Set();
    const entries = [];
    let hidden = 0;
    const gap = (what) => entries.push([null, h('tr', { class: 'gap' }, h('td', { colspan: 8 }, what))]);
    const flush = () => {
      if (hidden) gap(`${plural(hidden, 'line')} without ops`);
      hidden = 0;
    };
    text.forEach((content, i) => {
      const number_ = i + 1;
      const row = rows.get(number_);
      if (folded && !visibleLines.has(number_)) {
        highlightPython(content, state);
        hidden += 1;
        return;
      }
      flush();
      entries.push([number_, tableRow(number_, row, lineText(row, content, state))]);
    });
    flush();
    // The file may have changed since the model was exported.
    const outside = file.rows.filter((row) => row.line < 1 || row.line > text.length);
    if (outside.length) gap(`${plural(outside.length, 'line')} with ops that are not in the recorded text`);
    for (const row of outside) entries.push([row.line, tableRow(row.line, row, lineText(row, row.text, null))]);
    return entries;
  }

  /** The context of lines with ops, and the functions and classes that contain them. */
  function linesAround(text, numbers) {
    const found = new Set();
    for (const n of numbers) {
      for (let i = Math.max(1, n - CONTEXT_LINES); i <= n + CONTEXT_LINES; i += 1) found.add(i);
      let indent = text[n - 1]?.search(/\S/) ?? 0;
      for (let i = n - 1; i > 0 && indent > 0; i -= 1) {
        const inner = text[i - 1].search(/\S/);
        if (inner < 0 || inner >= indent || !/^\s*(async |class |def )/.test(text[i - 1])) continue;
        indent = inner;
        found.add(i);
      }
    }
    return found;
  }

  function drawHead() {
    head.replaceChildren(...COLUMNS.map(([name, title, unit, hint, wide]) => h('th', { title: hint, scope: 'col', class: wide ?? '' }, title, h('small', {}, units[name]?.[0] ?? unit))),
      h('th', {}), h('th', { class: 'code', title: file.path }, file.path ? file.title : 'node', h('small', {}, file.path === '' ? 'kind, name, module' : file.text === null ? 'the recording does not contain this file' : '\u00a0')));
  }

  function drawBar() {
    const select = h('select', { title: file.path || 'The imported graph, node by node', 'aria-label': 'File',
      change: (event) => { open(data.files[Number(event.target.value)].path); setMode({ file: file.path }); scroll.focus({ preventScroll: true }); } },
    data.files.map((each, i) => h('option', { value: i, selected: each === file }, each.us === null || !data.total_us || each.path === '' ? each.title : `${each.title} · ${percent(each.us / data.total_us)} %`)));
    const toggle = (text, on, hint, change) => h('button', { 'aria-pressed': String(on), title: hint, click: change }, text);
    const unattributed = data.total_us ? data.nowhere_us / data.total_us : 0;
    keepFocus(bar, ['aria-label', 'title'], () => bar.replaceChildren(...[
      select,
      toggle('calls', includesCalls(), 'Lines that call a module include the cost of the calls; off: only that of their own ops', () => { setMode({ calls: !includesCalls() }); draw(); drawBar(); }),
      file.text && toggle('fold', mode.fold === true || file.text.split('\n').length > LONG_FILE, 'Only the context of lines with ops', () => { setMode({ fold: mode.fold !== true }); drawnSignature = ''; draw(); drawBar(); mark(true); }),
      h('span', { class: 'fact', title: TIME_HINT }, ...(data.measured ? ['kernels ', h('b', {}, figure(data.total_us, 'us')), unattributed > 0 ? `, ${percent(unattributed)} % from no line` : '']
        : [data.not_executed ? `not executed: ${data.not_executed}` : data.grows ? 'not timed yet' : 'not timed: press Execute'])),
      h('span', { class: 'gap' }),
      panes.classList.contains('narrow') && data.hottest.length ? toggle('hottest', isHotShown(), 'The lines that take longest', () => { setMode({ hot: !isHotShown() }); drawHot(); drawBar(); }) : null,
      saves,
    ].filter(Boolean)));
  }

  function drawHot() {
    hot.hidden = !data.hottest.length || (panes.classList.contains('narrow') && !isHotShown());
    const all = data.measured ? data.total_us : data.hottest.reduce((sum, each) => sum + each.flops, 0);
    hot.replaceChildren(h('h3', {}, data.measured ? 'Hottest lines' : 'Lines with the most work'),
      ...data.hottest.map((each) => {
        const go = () => { open(each.file); cursor = [each.file, each.line]; mark(true); const row = rows.get(each.line); if (row) choose(row); };
        return h('div', { class: `row${same(cursor, [each.file, each.line]) ? ' on' : ''}`, role: 'link', tabindex: 0, click: go, keydown: (event) => { if (event.key === 'Enter') { go(); event.stopPropagation(); } } },
          h('span', { class: 'share' }, data.measured ? `${percent(each.us / all)} %` : figure(each.flops, 'flop'), h('small', {}, data.measured ? figure(each.us, 'us') : '')),
          h('span', { class: 'text', title: each.text }, each.text), h('span', { class: 'place', title: each.file }, each.place));
      }));
  }

  function open(path) {
    const found = data.files.find((each) => each.path === path) ?? data.files[0];
    if (found === file) return;
    file = found;
    draw();
    drawBar();
  }

  // -- the selection ------------------------------------------------------------------------------
  function choose(row) {
    cursor = [file.path, row.line];
    if (mode.at) {
      const { at: _, ...rest } = mode;
      mode = rest;
      setMode({});
    }
    mark(false);
    scroll.focus({ preventScroll: true });
    pendingCall = null;
    const marks = file.path === '' ? { lines: [], nodes: [row.line] } : isCall(row) ? { path: [cursor], lines: [] } : { path: [], lines: [cursor] };
    if (row.op !== null) send('select', row.kernel === null ? { op: row.op } : { op: row.op, kernel: row.kernel }, marks);
  }

  const showCheck = ({ check }) => send('follow', { go: { stage: check.stage, rewrite: check.rewrite, open: 'rewrites', beside: 'source' } });

  /** Goes to the line of the most expensive op below a call; `callStack` leads back. */
  function enterCall(row) {
    const { lines: selectedLines = [] } = selection();
    pendingCall = isCall(row) && !selectedLines.length ? row : null;
    if (!isCall(row) || !selectedLines.length || same(selectedLines[0], cursor)) return;
    callStack.push(cursor);
    [cursor] = selectedLines;
    open(cursor[0]);
    mark(true);
  }

  function leaveCall() {
    if (!callStack.length) return;
    cursor = callStack.pop();
    open(cursor[0]);
    mark(true);
  }

  function mark(reveal) {
    const { lines: selectedLines = [], path = [], nodes = [], node } = selection();
    for (const each of body.querySelectorAll('tr.on, tr.path, tr.also')) each.classList.remove('on', 'path', 'also');
    const add = (location, name) => { if (location[0] === file.path) lines.get(location[1])?.classList.add(name); };
    for (const location of path) add(location, 'path');
    for (const location of selectedLines) add(location, 'also');
    if (file.path === '') for (const each of nodes) add(['', each], 'also');
    if (file.path === '' && node && cursor?.[0] !== '') add(['', node], 'on');
    if (cursor) add(cursor, 'on');
    hot.querySelectorAll('.row').forEach((each, i) => each.classList.toggle('on', same(cursor, [data.hottest[i].file, data.hottest[i].line])));
    if (reveal) body.querySelector('tr.on')?.scrollIntoView({ block: 'center' });
  }

  /** Follows the selection: the cursor stays if it was made here; else its line is shown. */
  function followSelection() {
    if (!data) return;
    if (data.two) {
      two.mark();
      return;
    }
    const { lines: selectedLines = [], path = [], node } = selection();
    if (!node) {
      if (cursor === null && data.hottest.length) {
        cursor = [data.hottest[0].file, data.hottest[0].line];
        open(cursor[0]);
        mark(true);
      } else mark(false);
      return;
    }
    const markedLines = file.path === '' ? [['', node], ...(selection().nodes ?? []).map((n) => ['', n])] : [...path, ...selectedLines];
    if (cursor && cursor[0] === file.path && markedLines.some((location) => same(location, cursor))) {
      mark(false);
      if (pendingCall) enterCall(pendingCall);
      return;
    }
    pendingCall = null;
    cursor = file.path === '' && !selectedLines.some((p) => data.files.some((f) => f.path === p[0])) ? ['', node] : selectedLines[0] ?? ['', node];
    if (file.path === '' && mode.file === '') cursor = ['', node];
    open(cursor[0]);
    mark(true);
  }

  const saves = downloadMenu(() => [
    csvItem('All lines', 'lines', table), ...(file.text ? [textItem(`The file ${file.title}`, file.path.split(/[\\/]/).pop(), () => file.text)] : []),
  ]);

  function table() {
    const names = ['file', 'line', 'node', 'own_us', 'own_bytes', 'own_flops', 'with_calls_us', 'with_calls_bytes', 'with_calls_flops', 'ops_at_import', 'ops_now', 'checked_rewrites', 'verdict', 'worst_error', 'text'];
    const lines_ = data.files.flatMap((each) => {
      const text = each.text?.split('\n');
      return each.rows.map((r) => [each.path, r.line, each.path === '' ? r.text : '', r.us, r.bytes, r.flops, r.all_us, r.all_bytes, r.all_flops, r.import, r.now,
        r.check?.count, r.check?.verdict, r.check?.error, each.path === '' ? r.kind : (text?.[r.line - 1] ?? r.text).trim()]);
    });
    return [names, lines_];
  }

  scroll.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !data) return;
    const numbers = [...lines.keys()].filter((n) => rows.has(n));
    const now = cursor?.[0] === file.path ? cursor[1] : -1;
    const next = { ArrowDown: numbers.find((n) => n > now), ArrowUp: numbers.findLast((n) => n < now), Home: numbers[0], End: numbers.at(-1) };
    const line = rows.get(now);
    if (event.key === 'Enter') send('show', { view: 'code', beside: 'source' });
    else if (event.key === 'ArrowRight' && line && isCall(line)) enterCall(line);
    else if (event.key === 'ArrowLeft' && callStack.length) leaveCall();
    else if (event.key === 'c' && line?.check) showCheck(line);
    else if (!(event.key in next)) return;
    else if (next[event.key] !== undefined) {
      choose(rows.get(next[event.key]));
      lines.get(next[event.key]).scrollIntoView({ block: 'nearest' });
    }
    event.preventDefault();
    event.stopPropagation();
  });

  const observer = new ResizeObserver(() => {
    const width = root.clientWidth;
    if (!width) return;
    panes.classList.toggle('narrow', width < 1000);
    root.classList.toggle('small', width < 720);
    if (data && !data.two) { drawHot(); drawBar(); }
    const on = body.querySelector('tr.on');
    if (on && scroll.clientHeight !== height) on.scrollIntoView({ block: 'center' });
    height = scroll.clientHeight;
  });
  observer.observe(root);
  later(() => observer.disconnect());

  watch('state', () => {
    const nextMode = plain(model.get('state')) ?? {};
    if (JSON.stringify(nextMode) === JSON.stringify(mode)) return;
    const hasMoved = nextMode.at && !same(nextMode.at, mode.at);
    mode = nextMode;
    two.restore(mode.both ?? {});
    if (data?.two) return;
    if (hasMoved) cursor = nextMode.at;
    if (data) { open(mode.file ?? file.path); drawnSignature = ''; draw(); drawBar(); drawHot(); mark(hasMoved); }
  });
  watch('data', () => {
    const nextData = json(model, 'data');
    if (!nextData) return;
    for (const each of [bar, panes]) each.hidden = Boolean(nextData.two);
    if (nextData.two) {
      data = nextData;
      root.append(two.root);
      two.show(nextData);
      return;
    }
    two.root.remove();
    const first = data === null || data.two;
    data = nextData;
    const shownPath = file?.path ?? mode.file;
    file = null;
    const text = drawnSignature;
    file = data.files.find((each) => each.path === shownPath) ?? data.files[0];
    drawnSignature = text;
    draw();
    drawHot();
    drawBar();
    if (first) followSelection();
  });
  watch('selection', followSelection);
});
