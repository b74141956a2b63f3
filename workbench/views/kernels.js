// The kernels as a sortable table with keyboard navigation, and as a roofline.

const TWO_STYLE = PAIR_TABLE;

function twoKernels({ selection, send, remember }) {
  const hasKernel = (row, id) => id !== undefined && (row.a?.kernels ?? []).some((each) => each.id === id);
  const names = (side) => (side ? side.kernels.map((each) => each.name).join(', ') : '');
  const HINTS = { us: explain('compare', 'us') };
  const group = (name, title, rest) => ({ name, title, ...rest, hint: HINTS[name] ?? explain('kernels', name) });

  function facts(data) {
    const total = (letter) => data.kernels.reduce((sum, row) => sum + (row[letter]?.us ?? 0), 0);
    const [a, b] = [total('a'), total('b')];
    const unmatched = [['a', 'b', 'A'], ['b', 'a', 'B']].map(([one, two, letter]) => [data.kernels.filter((row) => row[one] && !row[two]).length, letter]).filter(([n]) => n);
    const matchText = !data.by_work ? 'matched by framework nodes' : data.by_nodes ? `${count(data.by_work)} of ${count(data.by_work + data.by_nodes)} launches matched by a guess: flops, bytes, order` : 'matched by a guess: flops, bytes and order';
    return [h('span', { title: 'Time of all launches of one execution, A and B' }, 'kernels ', h('b', {}, `${data.a.measured ? '' : '≥ '}${figure(a, 'us')}`), ' | ', h('b', {}, `${data.b.measured ? '' : '≥ '}${figure(b, 'us')}`)),
      h('span', {}, `${matchText}${unmatched.map(([n, letter]) => `; ${count(n)} only in ${letter}`).join('')}`)];
  }

  return pairTable({ selection, remember, what: {
    csv: ['Kernels of both', 'kernels-of-two'], order: ['us_d', -1], facts,
    region: 'Kernels of both recordings: up and down select a kernel of A, Enter shows its code',
    filter: 'Filter by computation, kernel or line',
    left: [{ id: 'title', title: 'computes', value: (row) => row.title }],
    groups: [group('us', 'all launches', { kind: 'us' }), group('count', 'launches', { integer: true }), group('median_us', 'per launch', { kind: 'us' }), group('share', 'share', { unit: '% of time', scale: 100 })],
    right: [
      { id: 'place', title: 'model line', value: (row) => baseName(row.place), tooltip: (row) => row.place },
      ...['a', 'b'].map((side) => ({ id: `kernel_${side}`, title: `${side.toUpperCase()} kernel`, code: true, none: 'none', value: (row) => names(row[side]) })),
    ],
    rows: (data) => data.kernels,
    words: (row) => [row.title, row.place, names(row.a), names(row.b)].join(' '),
    change: (row, name) => {
      const [a, b] = ['a', 'b'].map((side) => (row[side] ? row[side][name] : name === 'median_us' ? null : 0));
      return a === null || b === null ? null : b - a;
    },
    isPredicted: (row) => [row.a, row.b].some((side) => side && !side.measured),
    sign: (row, side, name) => (name === 'count' ? '' : row[side].sign),
    marks: (row) => ({ 'data-kernel': row.a?.kernels[0]?.id ?? '' }),
    isSelected: (row, at) => hasKernel(row, at.kernel),
    isSelectable: (row) => (row.a?.kernels[0]?.id ?? null) !== null,
    choose: (row) => send('select', { kernel: row.a.kernels[0].id }),
    enter: () => send('show', { view: 'code' }),
  } });
}

const STYLE = `${TWO_STYLE}
.root { display: flex; flex-direction: column; }
.bar { display: flex; align-items: center; gap: 12px; min-height: 32px; flex: none; padding: 0 10px; border-bottom: 1px solid var(--line); background: var(--surface); color: var(--muted); white-space: nowrap; overflow: hidden; }
.bar .gap { flex: 1; } .bar b { color: var(--text); font-weight: 600; }
.bar .facts { display: flex; flex-wrap: wrap; align-items: baseline; gap: 1px 12px; padding: 3px 0; overflow: hidden; min-width: 0; } .bar .facts > * { flex: none; } .bar .facts button { height: auto; padding: 0; } .bar .facts > span:last-child { flex: 0 1 auto; overflow: hidden; text-overflow: ellipsis; }
.group { display: flex; flex: none; } .group button { border-radius: 0; margin-left: -1px; }
.group button:first-child { border-radius: 4px 0 0 4px; margin-left: 0; } .group button:last-child { border-radius: 0 4px 4px 0; }
.why { flex: none; padding: 4px 12px; color: var(--muted); background: var(--page); border-bottom: 1px solid var(--line); }
.body { flex: 1; min-height: 0; display: flex; }
.body.tall { flex-direction: column-reverse; }
.body.tall .scroll { flex-grow: 1; }
.scroll { flex: 1.6 1 0; min-width: 0; min-height: 0; overflow: auto; outline: none; background: var(--surface); }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; background: var(--raised); font-weight: 600; text-align: right; padding: 3px 8px; white-space: nowrap; border-bottom: 1px solid var(--line); z-index: 2; vertical-align: bottom; }
th small { display: block; font-weight: 400; color: var(--faint); line-height: 1.1; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; }
th:first-child { z-index: 3; } td:first-child { z-index: 1; background: inherit; }
th.text, td.text { text-align: left; }
td { text-align: right; padding: 2px 8px; white-space: nowrap; border-bottom: 1px solid color-mix(in srgb, var(--line) 45%, transparent); }
td:first-child { font-family: var(--mono); max-width: 190px; overflow: hidden; text-overflow: ellipsis; }
tbody tr { cursor: pointer; background: var(--surface); } tbody tr:hover { background: var(--raised); } tbody tr.on { background: var(--accentSoft); }
td.cell { position: relative; min-width: 56px; padding-left: 48px; } td.cell b { position: absolute; left: 8px; top: 7px; width: 34px; height: 8px; background: var(--raised); border-radius: 2px; overflow: hidden; }
td.cell i { display: block; height: 100%; background: var(--accent); opacity: .75; border-radius: 2px; }
td.beyond i { background: var(--warn); }
td.less { color: var(--added); } td.more { color: var(--removed); }
td.bad { color: var(--bad); font-weight: 600; }
td button.link { height: auto; padding: 0; }
.core td { color: var(--muted); }
.chart { flex: 1 1 0; min-width: 0; min-height: 0; position: relative; background: var(--surface); border-left: 1px solid var(--line); }
.body.tall .chart { border-left: none; border-bottom: 1px solid var(--line); }
.chart svg { display: block; width: 100%; height: 100%; }
.chart text { fill: var(--muted); font: 11px var(--sans); }
.chart .tick { fill: var(--faint); font-size: 10.5px; }
.chart .grid { stroke: var(--raised); stroke-width: 1; } .chart .frame { fill: none; stroke: var(--line); }
.chart .roof { fill: none; stroke: var(--text); stroke-width: 1.6; } .chart .roof.cache { stroke: var(--muted); stroke-width: 1; stroke-dasharray: 4 3; }
.chart .roof.said { stroke-dasharray: 7 4; }
.chart .rooflabel { fill: var(--text); font-weight: 600; } .chart .rooflabel.cache { fill: var(--muted); font-weight: 400; }
.chart .point { fill: var(--accent); fill-opacity: .32; stroke: var(--accent); stroke-width: 1.2; cursor: pointer; }
.chart .point.memory { fill: var(--warn); stroke: var(--warn); }
.chart .point.said { fill-opacity: .08; stroke-dasharray: 3 2; }
.chart .point:hover { fill-opacity: .6; }
.chart .point.on { fill-opacity: .7; stroke: var(--text); stroke-width: 2.2; }
.chart .launch { fill: var(--text); fill-opacity: .75; stroke: var(--surface); stroke-width: .8; cursor: pointer; }
.chart .launch.on { fill: var(--accent); fill-opacity: 1; stroke: var(--text); }
.chart circle:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
.chart .to { stroke: var(--text); stroke-width: 1; stroke-dasharray: 2 2; }
.chart .name { fill: var(--text); font: 11px var(--mono); pointer-events: none; paint-order: stroke; stroke: var(--surface); stroke-width: 3px; stroke-linejoin: round; } .chart .name.on { font-weight: 700; }
.chart .none { position: absolute; inset: 0; display: grid; place-content: center; text-align: center; color: var(--muted); padding: 20px; }
.tip { position: absolute; z-index: 5; pointer-events: none; background: var(--surface); border: 1px solid var(--line); border-radius: 5px; box-shadow: var(--shadow, 0 4px 16px rgb(0 0 0 / 18%)); padding: 5px 9px; white-space: nowrap; font-variant-numeric: tabular-nums; }
.tip b { font-family: var(--mono); } .tip div { color: var(--muted); }
`;

// `columns` selects those that a recording has.
const [NAME, COUNT, PLACE, COMPILED] = columnsOf('kernels', 'name', 'count', ['place', 'text'], 'compile_seconds');
const MEASURED = columnsOf('kernels', 'total_us', ['share', 'bar'], 'predicted_us', 'ratio', ['percent', 'bar'], 'gflops', 'gbytes_per_s');
const BEFORE = columnsOf('kernels', 'before_us', 'change');
const ONE_LAUNCH = columnsOf('kernels', 'median_us', 'min_us', 'p95_us');
const PREDICTED = columnsOf('kernels', 'predicted_us', ['predicted_share', 'bar']);
const WORK = columnsOf('kernels', 'intensity', 'flops', 'bytes');
const BOUND = columnsOf('kernels', ['bound', 'text']);
// Of GPU kernels: the assembler's figures, the first three of which are visible next to the
// roofline, and the launch configuration.
const GPU = columnsOf('kernels', 'registers', 'spilled', ['occupancy', 'bar'], 'grid', 'threads', 'shared');
const SCALE = { share: 100, predicted_share: 100, occupancy: 100 };
// Columns of one kind share a unit, which is chosen for their largest number.
const UNIT_GROUPS = [['us', ['total_us', 'before_us', 'predicted_us']], ['us', ['median_us', 'min_us', 'p95_us']], ['flop', ['flops']], ['B', ['bytes']]];
const MODES = [['table', 'Table'], ['roofline', 'Roofline'], ['both', 'Both']];
const INTEGER_COLUMNS = new Set(['threads', 'registers', 'shared', 'spilled']);
const TEXT_COLUMNS = new Set(['name', 'place', 'bound']);
const LAUNCH_RADIUS = 2.6; // px
const MARGIN = { left: 58, right: 14, top: 12, bottom: 34 };

const perSecond = (giga, unit) => (giga >= 1e3 ? `${number(giga / 1e3)} T${unit}/s` : `${number(giga)} G${unit}/s`);
const baseName = (path) => path.slice(Math.max(path.lastIndexOf('/'), path.lastIndexOf('\\')) + 1);

export default component(STYLE, ({ model, root, watch, later, send, selection }) => {
  let data = { rows: [] };
  let order = null;
  let units = {};
  let mode = 'both';
  let showInner = false;
  const bar = h('div', { class: 'bar' });
  const head = h('tr');
  const body = h('tbody');
  const scroll = h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Kernels: up and down select, Enter or c shows the code, l selects the op of the model\'s line' },
    h('table', {}, h('thead', {}, head), body));
  const chart = h('div', { class: 'chart', role: 'region', 'aria-label': 'Roofline' });
  const tip = h('div', { class: 'tip', hidden: true });
  const space = h('div', { class: 'body' }, scroll, chart);
  const note = h('div', { class: 'why', role: 'note', hidden: true });
  let both = {};
  const two = twoKernels({ selection, send, remember: (next) => { both = next; remember(); } });
  root.append(bar, note, space);
  const saves = downloadMenu(() => [csvItem('Table', 'kernels', table), ...pictureItems('Roofline', 'roofline', !chart.hidden && chart.querySelector('svg'))]);
  const isPredicted = () => !data.measured;
  const columns = () => {
    const times = data.measured ? MEASURED : data.roofs || data.forecast ? PREDICTED : [];
    const before = data.measured && data.executions.length > 1 ? BEFORE : [];
    const bound = data.roofs || data.forecast ? BOUND : [];
    const boundFirst = data.forecast && !data.measured;
    return [NAME, ...times.slice(0, 2), ...(boundFirst ? bound : []), ...before, ...(data.gpu ? GPU.slice(0, 3) : []), PLACE, ...times.slice(2), COUNT, ...(data.gpu ? GPU.slice(3) : []),
      WORK[0], ...(boundFirst ? [] : bound), ...WORK.slice(1), ...(data.measured ? ONE_LAUNCH : []), COMPILED];
  };
  const sorting = () => (order && columns().some(([name]) => name === order[0]) ? order : [data.measured ? 'total_us' : data.roofs || data.forecast ? 'predicted_us' : 'flops', -1]);
  const rows = () => {
    const [name, sign] = sorting();
    const rank = (row) => row[name] ?? (TEXT_COLUMNS.has(name) ? '' : -Infinity);
    return data.rows.filter((row) => showInner || !row.core).sort((a, b) => (rank(a) < rank(b) ? -sign : rank(a) > rank(b) ? sign : 0));
  };
  const innerKernels = () => data.rows.filter((row) => row.core);
  const selectedKernel = () => selection().kernel;
  const scaledValue = (row, name) => (row[name] === null ? null : row[name] * (units[name]?.[1] ?? SCALE[name] ?? 1));

  function cell(row, [name, , , , kind]) {
    const value = row[name];
    if (name === 'name') return h('td', { title: row.core ? `${value}: called by other kernels` : value }, value);
    if (name === 'count') return h('td', {}, row.core ? h('span', { class: 'faint', title: 'called by other kernels, not launched' }, 'inner') : count(value));
    if (name === 'compile_seconds') return h('td', { class: 'muted' }, row.cached ? 'cached' : seconds(value));
    if (value === null) return h('td', { class: `faint${kind === 'text' ? ' text' : ''}` }, '–');
    if (name === 'place') return h('td', { class: 'text', title: value }, h('button', { class: 'plain link', tabindex: -1, title: `${value}: select its op  (l)`, click: (event) => { event.stopPropagation(); send('select', { op: row.op }); } }, baseName(value)));
    if (name === 'bound') return h('td', { class: 'text', title: row.needs ?? '' }, value);
    if (kind === 'text') return h('td', { class: 'text' }, value);
    if (name === 'change') return h('td', { class: value < 0 ? 'less' : value > 0 ? 'more' : '' }, `${value > 0 ? '+' : '−'}${number(Math.abs(value))}`);
    if (name === 'grid') return h('td', {}, row.grid_least === value ? count(value) : `${count(row.grid_least)}–${count(value)}`);
    const text = h('span', {}, INTEGER_COLUMNS.has(name) ? count(value) : number(scaledValue(row, name)));
    if (kind !== 'bar') return h('td', { class: name === 'spilled' && value > 0 ? 'bad' : '' }, text);
    if (name === 'percent' && row.beyond) return h('td', { class: 'cell beyond', title: `${number(value)} % of it. ${explain('kernels', 'beyond')}` }, h('b', {}, h('i', { style: { width: '100%' } })), h('span', {}, '> 100'));
    const tooltip = name === 'occupancy' && row.occupancy_limit ? { title: `limited by ${row.occupancy_limit}` } : {};
    return h('td', { class: 'cell', ...tooltip }, h('b', {}, h('i', { style: { width: `${Math.min(100, scaledValue(row, name))}%` } })), text);
  }

  function draw() {
    units = Object.fromEntries(UNIT_GROUPS.flatMap(([kind, names]) => {
      const unit = columnUnit(kind, data.rows.flatMap((row) => names.map((name) => row[name])));
      return names.map((name) => [name, unit]);
    }));
    drawBar();
    const [by, sign] = sorting();
    const sort = (name) => { order = [name, by === name ? -sign : TEXT_COLUMNS.has(name) ? 1 : -1]; remember(); draw(); };
    keepFocus(head, ['data-sort'], () => head.replaceChildren(...columns().map(([name, title, unit, hint, kind]) =>
      sortHeader({ name, title, unit: units[name] ? unit.replace(/^\S+/, units[name][0]) : unit || '', hint, kind: kind === 'text' ? 'text' : '' }, [by, sign], sort))));
    const on = selectedKernel();
    body.replaceChildren(...rows().map((row) => h('tr', {
      class: `${row.id === on ? 'on' : ''} ${row.core ? 'core' : ''}`, 'data-kernel': row.id, 'aria-selected': String(row.id === on),
      click: () => { send('select', { kernel: row.id }); scroll.focus({ preventScroll: true }); },
    }, columns().map((column) => cell(row, column)))));
    arrange();
    markSelected();
  }

  function drawBar() {
    const fact = (name, value, title) => h('span', { title }, `${name} `, h('b', {}, value));
    const { roofs } = data;
    const limits = roofs && `${perSecond(roofs.gflops, 'FLOP')}, ${perSecond(roofs.gbytes_per_s, 'B')}`;
    const predicted = data.rows.reduce((sum, row) => sum + (row.predicted_us ?? 0), 0);
    const aboveLimits = data.rows.filter((row) => row.beyond).length;
    note.hidden = !data.not_executed && !aboveLimits;
    note.textContent = data.not_executed ? `not executed: ${data.not_executed}` : `${plural(aboveLimits, 'kernel')} ${aboveLimits === 1 ? 'is' : 'are'} above the measured limits: the limits were measured while the machine was busy, and are measured again at the next execution.`;
    keepFocus(bar, ['data-mode'], () => bar.replaceChildren(
      h('div', { class: 'group', role: 'group', 'aria-label': 'Show' }, MODES.map(([name, title]) => h('button', {
        'data-mode': name, 'aria-pressed': String(mode === name), click: () => { mode = name; remember(); draw(); } }, title))),
      h('div', { class: 'facts' },
        fact('kernels', count(data.rows.length - innerKernels().length), explain('overview', 'kernels')),
        innerKernels().length ? h('button', { class: 'plain link', 'data-do': 'inner', 'aria-pressed': String(showInner), title: 'Functions called by kernels; they are not launched, so they have no times of their own', click: () => { showInner = !showInner; remember(); draw(); } }, `${showInner ? 'hide' : 'show'} ${plural(innerKernels().length, 'inner function')}`) : '',
        ...(data.measured ? [
          ...executionFacts(), data.threads ? fact('threads', count(data.threads)) : '',
          roofs ? fact('limits', limits, `${explain('kernels', 'limits')}\n${roofs.name}`) : '',
        ] : [
          data.not_executed ? '' : h('span', {}, 'not measured yet: press Execute'),
          roofs ? fact('predicted', `${figure(predicted, 'us')} on ${roofs.name}`, explain('kernels', 'predicted_us')) : '',
          roofs ? fact('its limits', limits, explain('kernels', 'limits')) : '',
        ])),
      h('span', { class: 'gap' }),
      saves));
  }

  /** The time of an execution, the part of it spent in kernels, and the previous executions. */
  function executionFacts() {
    const [latest, previous] = data.executions;
    const fact = (name, value, title) => h('span', { title, 'data-fact': name }, `${name} `, h('b', {}, value));
    const kernelTime = data.rows.reduce((sum, row) => sum + (row.total_us ?? 0), 0) / 1e3;
    const gaps = data.total_ms - kernelTime;
    const range = latest?.low_ms == null ? '' : ` (${interval(latest.low_ms, latest.high_ms, 'ms')})`;
    return [
      fact('execution', `${figure(data.total_ms, 'ms')}${range}`, `${explain('kernels', 'execution')}\n${explain('kernels', 'interval')}`),
      previous && previous.median_ms !== null ? fact('before', figure(previous.median_ms, 'ms'), data.executions.slice(1).map((each) => `${ago(each.began)}: ${figure(each.median_ms, 'ms')}${each.low_ms === null ? '' : ` (${interval(each.low_ms, each.high_ms, 'ms')})`}`).join('\n')) : '',
      gaps > 0 ? fact('in kernels', figure(kernelTime, 'ms'), explain('kernels', 'inside')) : '',
      gaps > 0 ? fact('launch gaps', figure(gaps, 'ms'), explain('kernels', 'gaps')) : '',
    ];
  }

  function arrange() {
    scroll.hidden = mode === 'roofline';
    chart.hidden = mode === 'table';
    space.classList.toggle('tall', mode === 'both' && root.clientHeight > 620);
    drawChart();
  }

  function markSelected() {
    const on = selectedKernel();
    for (const row of body.children) {
      row.classList.toggle('on', Number(row.dataset.kernel) === on);
      row.setAttribute('aria-selected', String(Number(row.dataset.kernel) === on));
    }
    body.querySelector('tr.on')?.scrollIntoView({ block: 'nearest' });
  }

  function table() {
    const names = columns().map(([name]) => name);
    return [names, rows().map((row) => names.map((name) => row[name]))];
  }

  // -- the roofline -------------------------------------------------------------------------------

  const rate = (flops, us) => flops / us / 1e3;
  const points = () => data.rows.filter((row) => row.flops && row.bytes && (row.total_us ?? row.predicted_us)).map((row) => ({
    row, x: row.intensity, y: rate(row.flops, row.total_us ?? row.predicted_us), share: row.share ?? row.predicted_share ?? 0,
  })).sort((a, b) => b.share - a.share);

  function drawChart() {
    tip.hidden = true;
    if (chart.hidden || !chart.clientWidth) return;
    const list = points();
    const { roofs } = data;
    if (!roofs || !list.length) {
      chart.replaceChildren(h('div', { class: 'none' }, h('b', {}, 'No roofline'),
        h('span', {}, !roofs ? 'The limits of this machine were not measured: press Execute.' : 'No kernel performs arithmetic.')));
      return;
    }
    const [width, height] = [chart.clientWidth, chart.clientHeight];
    const on = selectedKernel();
    const launchMarks = launchPoints(on);
    const all = [...list, ...launchMarks];
    const ridge = roofs.gflops / roofs.gbytes_per_s;
    const span = (values, minimum) => {
      let [low, high] = [Math.log10(Math.min(...values)) - 0.25, Math.log10(Math.max(...values)) + 0.25];
      if (high - low < minimum) [low, high] = [low - (minimum - high + low) / 2, high + (minimum - high + low) / 2];
      return [low, high];
    };
    const xs = span([...all.map((p) => p.x), ridge], 2);
    const ys = span([...all.map((p) => p.y), roofs.gflops * 1.4], 1.5);
    const { left, right, top, bottom } = MARGIN;
    const x = (value) => left + ((Math.log10(value) - xs[0]) / (xs[1] - xs[0])) * (width - left - right);
    const y = (value) => height - bottom - ((Math.log10(value) - ys[0]) / (ys[1] - ys[0])) * (height - top - bottom);
    const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': `Roofline of ${plural(list.length, 'kernel')}: arrow keys move between the marks, slowest first, the launches of the selected kernel after it; Enter selects, c shows the code` });
    const clip = `clip${Math.random().toString(36).slice(2)}`;
    picture.append(svg('clipPath', { id: clip }, svg('rect', { x: left, y: top, width: Math.max(0, width - left - right), height: Math.max(0, height - top - bottom) })));
    drawAxis(picture, xs, (at) => [x(at), top, x(at), height - bottom], (at) => [x(at), height - bottom + 14, 'middle'], width / 90);
    drawAxis(picture, ys, (at) => [left, y(at), width - right, y(at)], (at) => [left - 6, y(at) + 4, 'end'], height / 45);
    picture.append(
      svg('rect', { class: 'frame', x: left, y: top, width: Math.max(0, width - left - right), height: Math.max(0, height - top - bottom) }),
      svg('text', { x: left + (width - left - right) / 2, y: height - 5, 'text-anchor': 'middle' }, 'flop / byte'),
      svg('text', { x: 12, y: top + (height - top - bottom) / 2, 'text-anchor': 'middle', transform: `rotate(-90 12 ${top + (height - top - bottom) / 2})` }, isPredicted() ? 'GFLOP/s, predicted' : 'GFLOP/s'));
    const inside = svg('g', { 'clip-path': `url(#${clip})` });
    picture.append(inside);
    const [from, to] = xs.map((log) => 10 ** log);
    const roof = (bandwidth, kind) => inside.append(svg('path', { class: `roof ${kind}${roofs.measured ? '' : ' said'}`,
      d: `M${x(from)},${y(from * bandwidth)} L${x(roofs.gflops / bandwidth)},${y(roofs.gflops)} L${x(Math.max(to, roofs.gflops / bandwidth))},${y(roofs.gflops)}` }));
    if (roofs.cache_gbytes_per_s > roofs.gbytes_per_s) roof(roofs.cache_gbytes_per_s, 'cache');
    roof(roofs.gbytes_per_s, '');
    const radius = (share) => 3.5 + 15 * Math.sqrt(share);
    const discs = [...list.map((p) => [x(p.x), y(p.y), radius(p.share)]), ...launchMarks.map((p) => [x(p.x), y(p.y), LAUNCH_RADIUS])]
      .map(([cx, cy, r]) => [cx - r, cy - r, cx + r, cy + r]);
    const occupied = [];
    drawRoofLabels(inside, roofs, { x, y, xs, ys, width, height }, discs, occupied);
    const { op } = selection();
    const mark = (p, name, more) => {
      const [cx, cy] = [x(p.x), y(p.y)];
      const node = svg('circle', { cx, cy, 'data-mark': name, role: 'button', 'aria-label': [p.row.name, ...describeMark(p)].join(', '), ...more,
        focus: () => node.matches(':focus-visible') && showTip(p, cx, cy), blur: hideTip, pointerleave: hideTip,
        pointermove: ({ clientX, clientY }) => { const { left, top } = chart.getBoundingClientRect(); showTip(p, clientX - left, clientY - top); } });
      inside.append(node);
      return node;
    };
    const kernels = list.map((p) => mark(p, `kernel ${p.row.id}`, { class: `point ${p.row.bound ?? ''}${isPredicted() ? ' said' : ''}${p.row.id === on ? ' on' : ''}`, r: radius(p.share),
      'data-kernel': p.row.id, 'aria-pressed': String(p.row.id === on), click: () => send('select', { kernel: p.row.id }) }));
    const launches = launchMarks.map((p, i) => mark(p, `launch ${i}`, { class: `launch${p.op === op ? ' on' : ''}`, r: p.op === op ? 2 * LAUNCH_RADIUS : LAUNCH_RADIUS, 'data-op': p.op, 'aria-pressed': String(p.op === op), click: () => send('select', { op: p.op }) }));
    const at = list.findIndex((p) => p.row.id === on);
    walkMarks(picture, [...kernels.slice(0, at + 1), ...launches, ...kernels.slice(at + 1)], Math.max(0, at));
    const selected = list.find((p) => p.row.id === on);
    if (selected && selected.row.ratio) {
      const limit = selected.y * selected.row.ratio;
      inside.append(svg('line', { class: 'to', x1: x(selected.x), x2: x(selected.x), y1: y(selected.y) - radius(selected.share), y2: y(limit) }));
    }
    labelKernels(inside, list, on, { x, y, radius, right: width - right }, discs, occupied);
    keepFocus(chart, ['data-mark'], () => chart.replaceChildren(picture, tip));
  }

  function drawAxis(picture, [low, high], line, label, room) {
    const steps = high - low > room ? [1] : (high - low) * 3 > room ? [1, 3] : [1, 2, 5];
    for (let power = Math.floor(low); power <= Math.ceil(high); power++) {
      for (const step of steps) {
        const at = step * 10 ** power;
        if (Math.log10(at) < low || Math.log10(at) > high) continue;
        const [x1, y1, x2, y2] = line(at);
        const [tx, ty, anchor] = label(at);
        picture.append(svg('line', { class: 'grid', x1, y1, x2, y2 }), svg('text', { class: 'tick', x: tx, y: ty, 'text-anchor': anchor }, at >= 1 ? count(at) : String(Number(at.toPrecision(1)))));
      }
    }
  }

  function drawRoofLabels(inside, roofs, { x, y, xs, ys, width, height }, discs, occupied) {
    const { left, right, top } = MARGIN;
    const peak = perSecond(roofs.gflops, 'FLOP');
    const start = width - right - 6 - 7.2 * peak.length;
    const highest = Math.min(y(roofs.gflops), ...discs.filter(([, , to]) => to > start).map(([, disc]) => disc));
    const above = Math.max(top + 12, highest - 6);
    inside.append(svg('text', { class: 'rooflabel', x: width - right - 6, y: above, 'text-anchor': 'end' }, peak));
    occupied.push([start, above - 11, width, above + 2]);
    const slope = Math.atan2((height - top - MARGIN.bottom) / (ys[1] - ys[0]), (width - left - right) / (xs[1] - xs[0]));
    const labelRoof = (bandwidth, where, kind) => {
      const start = Math.max(xs[0], ys[0] - Math.log10(bandwidth)) + 0.08;
      const [px, py] = [x(10 ** start), y(bandwidth * 10 ** start)];
      const rate = perSecond(bandwidth, 'B');
      const text = [`${rate} from ${where}`, `${rate} ${where}`, rate].find((each) => py - 14 - 6.6 * each.length * Math.sin(slope) > top);
      if (!text || px > x(roofs.gflops / bandwidth) - 40) return;
      inside.append(svg('text', { class: `rooflabel ${kind}`, x: px, y: py - 5, transform: `rotate(${(-slope * 180) / Math.PI} ${px} ${py})` }, text));
      for (let at = 0; at < 6.6 * text.length; at += 10) {
        const [lx, ly] = [px + at * Math.cos(slope), py - at * Math.sin(slope)];
        occupied.push([lx - 6, ly - 18, lx + 14, ly + 4]);
      }
    };
    labelRoof(roofs.gbytes_per_s, 'memory', '');
    if (roofs.cache_gbytes_per_s > roofs.gbytes_per_s) labelRoof(roofs.cache_gbytes_per_s, 'cache', 'cache');
  }

  /** Labels the most expensive kernels where a label fits and covers no kernel; the selected one always. */
  function labelKernels(inside, list, on, { x, y, radius, right }, discs, occupied) {
    const labelled = [...list].sort((a, b) => (b.row.id === on) - (a.row.id === on) || b.share - a.share).slice(0, 12);
    for (const p of labelled) {
      const labelWidth = 6.7 * p.row.name.length;
      const [px, py, r] = [x(p.x), y(p.y), radius(p.share)];
      const candidates = [[px + r + 4, py + 4], [px - r - 4 - labelWidth, py + 4], [px - labelWidth / 2, py + r + 13], [px - labelWidth / 2, py - r - 5]];
      const isClearOf = (boxes) => ([left, low]) => !boxes.some(([a, b, c, d]) => left < c && left + labelWidth > a && low - 10 < d && low + 2 > b);
      const inFrame = candidates.filter(([left]) => left > MARGIN.left && left + labelWidth < right).filter(isClearOf(occupied));
      const position = inFrame.find(isClearOf(discs)) ?? (p.row.id === on ? inFrame[0] ?? candidates[0] : null);
      if (!position) continue;
      occupied.push([position[0], position[1] - 10, position[0] + labelWidth, position[1] + 2]);
      inside.append(svg('text', { class: `name${p.row.id === on ? ' on' : ''}`, x: position[0], y: position[1] }, p.row.name));
    }
  }

  function launchPoints(kernel) {
    const { launches } = data;
    if (!launches || kernel === undefined) return [];
    const row = data.rows.find((each) => each.id === kernel);
    const found = launches.kernel.flatMap((id, i) => (id === kernel && launches.us[i] > 0 && launches.bytes[i] > 0
      ? [{ row, op: launches.op[i], us: launches.us[i], x: launches.flops[i] / launches.bytes[i], y: rate(launches.flops[i], launches.us[i]) }] : []));
    return found.length > 1 ? found.sort((a, b) => b.us - a.us) : [];
  }

  /** The description of a mark, in lines. */
  function describeMark(p) {
    const { row } = p;
    const timeLines = p.us !== undefined
      ? [`one of ${count(row.count)} launches`, `${figure(p.us, 'us')}${isPredicted() ? ' predicted' : ''}`]
      : [`${plural(row.count, 'launch').replace(/launchs$/, 'launches')}${row.place ? `, ${baseName(row.place)}` : ''}`,
        isPredicted() ? `${figure(row.predicted_us, 'us')} predicted, ${number(100 * (row.predicted_share ?? 0))} % of the time`
          : `${figure(row.total_us, 'us')}, ${number(100 * (row.share ?? 0))} % of the time`,
        isPredicted() || !row.ratio ? '' : `${number(row.ratio)} × the predicted ${figure(row.predicted_us, 'us')}`];
    return [...timeLines.filter(Boolean), `${number(p.y)} GFLOP/s at ${number(p.x)} flop/B${row.bound ? `, bound by ${row.bound}` : ''}`];
  }

  function showTip(p, px, py) {
    tip.replaceChildren(h('b', {}, p.row.name), ...describeMark(p).map((line) => h('div', {}, line)));
    tip.hidden = false;
    const [wide, high] = [chart.clientWidth, chart.clientHeight];
    tip.style.left = `${Math.max(4, px + 14 + tip.offsetWidth > wide ? px - tip.offsetWidth - 10 : px + 14)}px`;
    tip.style.top = `${Math.max(4, py + 14 + tip.offsetHeight > high ? py - tip.offsetHeight - 10 : py + 14)}px`;
  }

  const hideTip = () => { tip.hidden = true; };

  // -- keys and state -----------------------------------------------------------------------------

  const code = () => send('show', { view: 'code' });
  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('.sort')) return; // Enter and Space sort
    const row = data.rows.find(({ id }) => id === selectedKernel());
    if (event.key === 'c') code();
    else if (event.key === 'l' && row?.op !== undefined && row.place) send('select', { op: row.op });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
  for (const part of [scroll, chart]) {
    walkRows(part, { selection, rows, isSelected: (row, { kernel }) => row.id === kernel, go: (row) => send('select', { kernel: row.id }), enter: code });
    part.addEventListener('keydown', onKey);
  }

  function remember() {
    model.set('state', { ...(mode === 'both' ? {} : { mode }), ...(showInner ? { inner: true } : {}), ...(order ? { order } : {}), ...(Object.keys(both).length ? { both } : {}) });
    model.save_changes();
  }

  const resized = perFrame(() => data.rows?.length && arrange());
  const observer = new ResizeObserver(resized);
  observer.observe(root);
  later(() => observer.disconnect());
  watch('state', () => {
    const state = plain(model.get('state')) ?? {};
    both = state.both ?? {};
    two.restore(both);
    const next = MODES.some(([name]) => name === state.mode) ? state.mode : 'both';
    const nextOrder = Array.isArray(state.order) && state.order.length === 2 ? state.order : null;
    if (next === mode && showInner === Boolean(state.inner) && JSON.stringify(nextOrder) === JSON.stringify(order)) return;
    [mode, order, showInner] = [next, nextOrder, Boolean(state.inner)];
    if (data.rows?.length) draw();
  });
  watch('data', () => {
    data = json(model, 'data') ?? data;
    for (const row of data.rows ?? []) row.change = row.before_us && row.total_us ? 100 * (row.total_us / row.before_us - 1) : null;
    for (const each of [bar, space]) each.hidden = Boolean(data.two);
    if (data.two) {
      note.hidden = true;
      root.append(two.root);
      two.show(data);
    } else {
      two.root.remove();
      draw();
    }
  });
  watch('selection', () => {
    if (data.two) two.mark();
    else {
      markSelected();
      drawChart();
    }
  });
});
