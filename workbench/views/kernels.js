// The kernel table: sortable, walked with the arrow keys, downloads as CSV.

const STYLE = `
.bar { display: flex; align-items: center; gap: 12px; height: 32px; padding: 0 10px; border-bottom: 1px solid var(--line); background: var(--surface); color: var(--muted); white-space: nowrap; overflow: hidden; }
.bar .gap { flex: 1; } .bar b { color: var(--text); font-weight: 600; }
.scroll { height: calc(100% - 32px); overflow: auto; outline: none; background: var(--surface); }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; background: var(--raised); font-weight: 600; text-align: right; padding: 3px 8px; cursor: pointer; white-space: nowrap; border-bottom: 1px solid var(--line); z-index: 1; }
th small { display: block; font-weight: 400; color: var(--faint); line-height: 1.1; }
th:first-child, td:first-child { text-align: left; }
th:hover { color: var(--accent); }
td { text-align: right; padding: 2px 8px; white-space: nowrap; border-bottom: 1px solid color-mix(in srgb, var(--line) 45%, transparent); }
td:first-child { font-family: var(--mono); max-width: 230px; overflow: hidden; text-overflow: ellipsis; }
tr { cursor: pointer; } tbody tr:hover { background: var(--raised); } tbody tr.on { background: var(--accentSoft); }
td.cell { position: relative; min-width: 58px; }
td.cell i { position: absolute; right: 0; top: 3px; bottom: 3px; background: var(--accent); opacity: .2; border-radius: 2px; pointer-events: none; }
td.cell span { position: relative; }
.core td { color: var(--muted); }
`;
const COLUMNS = [
  ['name', 'kernel', '', 'The compiled function'],
  ['count', 'launches', 'per execution', 'How often one execution launches it'],
  ['total_us', 'total', 'µs', 'Sum of the medians of its launches'],
  ['share', 'share', '% of time', 'Its part of the time of all kernels', 'bar'],
  ['median_us', 'median', 'µs', 'One launch: the mean over its launches of their medians'],
  ['min_us', 'min', 'µs', 'The fastest sample'],
  ['p95_us', 'p95', 'µs', '95 of 100 samples were faster'],
  ['gflops', 'GFLOP/s', '', 'Floating-point operations a second'],
  ['gbytes_per_s', 'GB/s', '', 'Compulsory bytes a second: each operand once, each result once'],
  ['percent', 'of limit', '%', "Against the lower roof of this machine: its measured arithmetic peak or its memory bandwidth", 'bar'],
  ['compile_seconds', 'compiled', 'in', 'Time to compile it; 0 where it came from the cache'],
];

// Of a GPU's kernels, as the assembler tells them.
const GPU_COLUMNS = [
  ['threads', 'threads', 'of a block', 'Threads of a block'],
  ['registers', 'registers', 'of a thread', '32-bit registers that each thread has'],
  ['shared', 'shared', 'B a block', 'Shared memory of a block, in bytes'],
  ['spilled', 'spilled', 'B a thread', 'Bytes stored and loaded because registers did not suffice'],
  ['occupancy', 'occupancy', '% of warps', 'Warps that fit a multiprocessor at once, of the most there can be', 'bar'],
];

export default component(STYLE, ({ model, root, watch, send }) => {
  let data = { rows: [] };
  let order = ['total_us', -1];
  const bar = h('div', { class: 'bar' });
  const head = h('tr');
  const body = h('tbody');
  const scroll = h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Kernels: up and down select, Enter shows the code' },
    h('table', {}, h('thead', {}, head), body));
  root.append(bar, scroll);
  const columns = () => (data.gpu ? [...COLUMNS.slice(0, -1), ...GPU_COLUMNS, COLUMNS.at(-1)] : COLUMNS);
  const rows = () => {
    const [name, sign] = order;
    const rank = (row) => row[name] ?? (typeof data.rows[0]?.[name] === 'string' ? '' : -Infinity);
    return [...data.rows].sort((a, b) => (rank(a) < rank(b) ? -sign : rank(a) > rank(b) ? sign : 0));
  };
  const chosen = () => (plain(model.get('selection')) ?? {}).kernel;

  function cell(row, [name, , unit, , kind]) {
    const value = row[name];
    if (name === 'name') return h('td', { title: row.core ? `${value}: called by other kernels` : value }, value);
    if (name === 'count') return h('td', {}, row.core ? h('span', { class: 'faint', title: 'called by other kernels, not launched' }, 'inner') : count(value));
    if (name === 'compile_seconds') return h('td', { class: 'muted' }, row.cached ? 'cached' : seconds(value));
    if (value === null) return h('td', { class: 'faint' }, '–');
    const shown = name === 'share' || name === 'occupancy' ? 100 * value : value;
    const text = h('span', {}, number(shown));
    if (kind !== 'bar') return h('td', {}, text);
    const why = name === 'occupancy' && row.occupancy_limit ? { title: `limited by ${row.occupancy_limit}` } : {};
    return h('td', { class: 'cell', ...why }, h('i', { style: { width: `${Math.min(100, shown)}%` } }), text);
  }

  function draw() {
    head.replaceChildren(...columns().map(([name, title, unit, hint]) => h('th', {
      title: hint, scope: 'col', 'aria-sort': order[0] === name ? (order[1] > 0 ? 'ascending' : 'descending') : 'none',
      click: () => { order = [name, order[0] === name ? -order[1] : name === 'name' ? 1 : -1]; draw(); },
    }, title + (order[0] === name ? (order[1] > 0 ? ' ↑' : ' ↓') : ''), h('small', {}, unit || '\u00a0'))));
    const on = chosen();
    body.replaceChildren(...rows().map((row) => h('tr', {
      class: `${row.id === on ? 'on' : ''} ${row.core ? 'core' : ''}`, 'data-kernel': row.id, 'aria-selected': String(row.id === on),
      click: () => { send('select', { kernel: row.id }); scroll.focus({ preventScroll: true }); },
    }, columns().map((column) => cell(row, column)))));
    const fact = (name, value) => h('span', {}, `${name} `, h('b', {}, value));
    bar.replaceChildren(
      fact('kernels', count(data.rows.length)),
      ...(data.measured ? [
        fact('execution', figure(data.total_ms, 'ms')), data.threads ? fact('threads', count(data.threads)) : '',
        h('span', { title: 'Measured on this machine: what "of limit" compares with' }, 'limits ', h('b', {}, `${number(data.peak_gflops)} GFLOP/s, ${number(data.dram_gbytes_per_s)} GB/s`)),
      ] : [h('span', {}, data.not_executed ? `not executed: ${data.not_executed}` : 'not measured yet: press Execute')]),
      h('span', { class: 'gap' }),
      h('button', { title: 'Download the table as CSV', click: csv }, 'CSV'));
    markInSight();
  }

  function markInSight() {
    const on = chosen();
    for (const row of body.children) row.classList.toggle('on', Number(row.dataset.kernel) === on);
    body.querySelector('tr.on')?.scrollIntoView({ block: 'nearest' });
  }

  function csv() {
    const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const names = columns().map(([name]) => name);
    const text = [names.join(','), ...rows().map((row) => names.map((n) => quote(String(row[n] ?? ''))).join(','))].join('\n');
    const link = h('a', { href: URL.createObjectURL(new Blob([text], { type: 'text/csv' })), download: 'kernels.csv' });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  scroll.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const list = rows();
    const at = list.findIndex((row) => row.id === chosen());
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: list.length - 1 }[event.key];
    if (event.key === 'Enter') send('show', { view: 'code' });
    else if (to === undefined || !list[to]) return;
    else send('select', { kernel: list[to].id });
    event.preventDefault();
    event.stopPropagation();
  });

  watch('data', () => { data = json(model, 'data') ?? data; draw(); });
  watch('selection', markInSight);
});
