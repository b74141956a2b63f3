// A training run: loss, time and digest of every iteration, also while it runs; two runs, and where they diverge.

const STYLE = `${PAIR}
.root { display: flex; flex-direction: column; background: var(--surface); }
.bar { display: flex; align-items: center; gap: 10px; min-height: 32px; flex: none; padding: 0 10px; border-bottom: 1px solid var(--line); color: var(--muted); white-space: nowrap; overflow: hidden; }
.bar .gap { flex: 1; } .bar .lower { min-width: 0; width: 122px; } .bar b { color: var(--text); font-weight: 600; }
.facts { display: flex; flex-wrap: wrap; height: 20px; gap: 2px 14px; overflow: hidden; min-width: 0; font-variant-numeric: tabular-nums; } .facts span { flex: none; }
.group { display: flex; flex: none; } .group button { border-radius: 0; margin-left: -1px; } .group button:first-child { border-radius: 4px 0 0 4px; margin-left: 0; } .group button:last-child { border-radius: 0 4px 4px 0; }
.state { font-weight: 600; flex: none; } .state.failed { color: var(--bad); } .state.cancelled, .state.interrupted { color: var(--warn); }
.note { flex: none; padding: 4px 12px; background: var(--page); border-bottom: 1px solid var(--line); color: var(--muted); overflow-wrap: anywhere; } .note.failed { color: var(--bad); font-weight: 400; }
.body { flex: 1; min-height: 0; display: flex; } .body.tall { flex-direction: column; }
.chart { flex: 1 1 0; min-width: 0; min-height: 0; position: relative; outline: none; user-select: none; } .body.tall .chart { flex: 1.7 1 0; }
.chart:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.chart > svg { display: block; width: 100%; height: 100%; cursor: crosshair; }
.chart text { fill: var(--muted); font: 11px var(--sans); } .chart .tick { fill: var(--faint); font-size: 10.5px; }
.chart .grid { stroke: var(--raised); } .chart .frame { fill: none; stroke: var(--line); }
.chart .line { fill: none; stroke: var(--accent); stroke-width: 1.5; stroke-linejoin: round; } .chart .line.b { stroke: var(--moved); stroke-dasharray: 5 3; } .chart .line.raw { stroke-opacity: .28; stroke-dasharray: none; stroke-width: 1; } .chart .line.apart { stroke: var(--removed); }
.chart .dot { fill: var(--accent); } .chart .dot.b { fill: var(--moved); } .chart .dot.apart { fill: var(--removed); }
.chart .above { fill: var(--warn); } .chart .same { fill: var(--added); fill-opacity: .55; } .chart .differs { fill: var(--removed); fill-opacity: .85; } .chart .split { stroke: var(--removed); stroke-dasharray: 3 3; } .chart line.spoiled { stroke: var(--bad); stroke-width: 2; } .chart text.spoiled { fill: var(--bad); font-weight: 600; }
.note button { margin-left: 8px; }
.chart .says { fill: var(--text); font-weight: 600; } .chart .cursor { stroke: var(--text); stroke-opacity: .55; } .chart .pick { fill: var(--accent); fill-opacity: .14; stroke: var(--accent); }
.tip { position: absolute; z-index: 5; pointer-events: none; background: var(--surface); border: 1px solid var(--line); border-radius: 5px; box-shadow: var(--shadow); padding: 5px 9px; white-space: nowrap; font-variant-numeric: tabular-nums; }
.tip table { border-spacing: 8px 0; margin: 0 -8px; } .tip td { text-align: right; } .tip th { text-align: left; font-weight: 400; color: var(--muted); }
.list { flex: 0 1 auto; max-width: 55%; min-width: 0; min-height: 0; display: flex; flex-direction: column; border-left: 1px solid var(--line); } .body.tall .list { flex: 1 1 0 !important; max-width: none; border-left: none; border-top: 1px solid var(--line); }
.scroll { flex: 1; min-height: 0; overflow: auto; outline: none; } .scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.rows { position: relative; } .row { display: grid; gap: 10px; padding: 0 10px; height: 22px; align-items: center; font-variant-numeric: tabular-nums; white-space: nowrap; min-width: max-content; }
.rows .row { position: absolute; left: 0; right: 0; cursor: pointer; } .rows .row:hover { background: var(--raised); } .rows .row.on { background: var(--accentSoft); }
.head { position: sticky; top: 0; z-index: 2; background: var(--raised); border-bottom: 1px solid var(--line); font-weight: 600; height: 36px; } .head small { display: block; font-weight: 400; color: var(--faint); line-height: 1.1; }
.row > * { text-align: right; overflow: hidden; text-overflow: ellipsis; } .row .left { text-align: left; }
.digest { font: 11.5px var(--mono); } .digest.differs { color: var(--removed); } .digest button { height: 18px; padding: 0 4px; }
.as-is { display: contents; }
`;
const ROW_HEIGHT = 22; // px
const MARGIN = { left: 62, right: 14, top: 10, between: 18, strip: 22, bottom: 32 };
const SMOOTHING = 0.9; // of the previous values, in the smoothed curve
const COLUMNS = ['loss', 'seconds', 'root', 'rate', 'loss_scale', 'skipped'];
// name, title and unit of the curves of the lower plot
const LOWER_PLOTS = [['seconds', 'time', 's per iteration'], ['throughput', 'throughput', 'examples / s'], ['rate', 'learning rate', 'learning rate'],
  ['loss_scale', 'loss scale', 'loss scale'], ['skipped', 'skipped updates', 'skipped updates'], ['apart', 'loss difference', '|A−B| / larger']];
const DIGEST_LENGTH = 12;

const clock = (s) => `${Math.floor(s / 3600) ? `${Math.floor(s / 3600)}:` : ''}${String(Math.floor((s % 3600) / 60)).padStart(s >= 3600 ? 2 : 1, '0')}:${String(Math.floor(s % 60)).padStart(2, '0')}`;
const tickText = (value) => (value === 0 ? '0' : Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3 ? value.toExponential(1).replace('.0e', 'e').replace('e+', 'e') : Number(value.toPrecision(6)).toLocaleString('en-US', { maximumFractionDigits: 6 }));
const fullNumber = (value) => (value === null || value === undefined ? '–' : value === 0 ? '0' : Math.abs(value) >= 1e6 || Math.abs(value) < 1e-4 ? value.toExponential(5).replace('e+', 'e') : String(Number(value.toPrecision(7))));

export default component(STYLE, ({ model, root, watch, later, send }) => {
  let data = null;
  let library = [];
  let state = {};
  let merged = { numbers: [], a: null, b: null };
  let hover = null;
  let isFollowing = true; // the table follows new rows
  const stores = { a: emptyStore(null), b: emptyStore(null) };
  const facts = h('div', { class: 'facts' });
  const tools = h('div', { class: 'bar', role: 'toolbar', 'aria-label': 'Training run' });
  const pair = h('div', { class: 'bar', role: 'toolbar', 'aria-label': 'A second run' });
  const note = h('div', { class: 'note', role: 'note', hidden: true });
  const chart = h('div', { class: 'chart', tabindex: 0, role: 'region', 'aria-label': 'Loss by iteration: left and right move the cursor, plus and minus zoom, f shows all' });
  const tip = h('div', { class: 'tip', hidden: true });
  const head = h('div', { class: 'row head', role: 'row' });
  const rows = h('div', { class: 'rows', role: 'rowgroup' });
  const scroll = h('div', { class: 'scroll', tabindex: 0, role: 'grid', 'aria-label': 'Iterations: up and down select' }, head, rows);
  const list = h('div', { class: 'list' }, scroll);
  const space = h('div', { class: 'body' }, chart, list);
  root.append(tools, pair, note, space);
  const choose = (name) => send('compare', { with: name });

  // -- the rows read of each run ----------------------------------------------------------------

  function emptyStore(run) {
    return { of: run && `${run.path} ${run.recording}`, last: 0, pendingRequest: 0, number: [], ...Object.fromEntries(COLUMNS.map((name) => [name, []])) };
  }

  function lowerBound(store, number) {
    let [low, high] = [0, store.number.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (store.number[middle] < number) low = middle + 1; else high = middle;
    }
    return low;
  }
  const index = (store, number) => { const i = lowerBound(store, number); return store.number[i] === number ? i : -1; };

  function merge(store, more) {
    more.number.forEach((number, k) => {
      const i = lowerBound(store, number);
      const replacedCount = store.number[i] === number ? 1 : 0;
      if (i === store.number.length) store.number.push(number); else store.number.splice(i, replacedCount, number);
      for (const name of COLUMNS) {
        const value = more[name] ? more[name][k] : name === 'root' ? '' : null;
        if (i === store[name].length) store[name].push(value); else store[name].splice(i, replacedCount, value);
      }
    });
  }

  const session = Math.random().toString(36).slice(2);
  const pendingRequests = new Map();
  let requestNumber = 0;
  /** Request the missing iterations; the trait holds all open requests. */
  function fetchRows() {
    for (const side of ['a', 'b']) {
      const run = data[side];
      if (stores[side].of !== (run && `${run.path} ${run.recording}`)) stores[side] = emptyStore(run);
      const store = stores[side];
      if (!run || store.last >= run.last || store.pendingRequest) continue;
      requestNumber += 1;
      store.pendingRequest = requestNumber;
      pendingRequests.set(requestNumber, { id: requestNumber, session, kind: 'rows', side, after: store.last });
    }
    model.set('request', JSON.stringify([...pendingRequests.values()]));
    model.save_changes();
  }
  watch('response', () => {
    let hasNewRows = false;
    for (const each of json(model, 'response') ?? []) {
      const request = each.session === session ? pendingRequests.get(each.id) : null;
      if (!request) continue;
      pendingRequests.delete(each.id);
      const store = stores[request.side];
      if (store.pendingRequest !== each.id) continue; // another run was chosen in the meantime
      store.pendingRequest = 0;
      if (each.error || each.value.path !== data[request.side]?.path) continue;
      merge(store, each.value);
      store.last = each.value.last;
      hasNewRows = true;
      if (each.value.more) fetchRows();
    }
    if (hasNewRows) redraw();
  });

  function gather() {
    const { a, b } = stores;
    let numbers = a.number;
    if (data.b && b.number.length) numbers = a.number.length === b.number.length && a.number.every((n, i) => n === b.number[i]) ? a.number : [...new Set([...a.number, ...b.number])].sort((x, y) => x - y);
    merged = { numbers, a, b: data.b ? b : null };
  }

  // -- figures and tools ------------------------------------------------------------------------

  const hasFigure = (name) => (name === 'seconds' ? true : name === 'throughput' ? data.a.batch > 0 : name === 'apart' ? Boolean(data.b)
    : ['a', 'b'].some((side) => data[side] && stores[side][name].some((value) => value !== null)));
  const lowerPlot = () => (state.below && hasFigure(state.below) ? state.below : data.b ? 'apart' : 'seconds');

  function drawTools() {
    const { a } = data;
    const fact = (value, name, title) => h('span', { title: title ?? '' }, h('b', {}, value), ` ${name}`);
    facts.replaceChildren(...[
      ['finished', 'recording'].includes(a.status) ? null : h('span', { class: `state ${a.status}`, title: a.message }, a.status),
      fact(count(a.done), a.wanted ? `of ${plural(a.wanted, 'iteration')}` : plural(a.done, 'iteration').replace(/^\S+ /, '')),
      a.left === null ? null : fact(clock(a.left), 'left', explain('training', 'left')),
      a.loss === null ? null : fact(number(a.loss, 4), 'loss', `${explain('training', 'loss')}\n${fullNumber(a.loss)}`),
      a.seconds ? fact(seconds(a.seconds), 'per iteration', explain('training', 'seconds')) : null,
      a.seconds && a.batch ? fact(number(a.batch / a.seconds, 3), 'examples/s', `${explain('training', 'throughput')}\nBatches of ${count(a.batch)}.`) : null,
    ].filter(Boolean));
    // Rebuilt only if something changed: a live run would close an open menu.
    const controlsState = JSON.stringify([state, data.a.path, data.b?.path, data.together !== null, library, LOWER_PLOTS.filter(([name]) => hasFigure(name)).map(([name]) => name)]);
    if (controlsState !== drawnControls) { drawnControls = controlsState; drawControls(); }
    const endMessage = a.status === 'failed' || a.status === 'interrupted' ? a.message || 'Its process ended; resume it from its last checkpoint.' : '';
    note.hidden = !(endMessage || data.refused);
    note.className = `note ${endMessage ? 'failed' : ''}`;
    const { not_finite: notFinite } = a;
    note.replaceChildren([endMessage, data.refused].filter(Boolean).join(' · '),
      notFinite?.op ? h('button', { 'data-do': 'op', title: notFinite.op, click: () => send('follow', { go: notFinite.go }) }, 'Show the op') : '');
  }

  let drawnControls = '';
  function drawControls() {
    const { a } = data;
    const toggle = (name, value, title, hint) => h('button', { 'aria-pressed': String((state[name] ?? 'linear') === value), 'data-scale': value, title: hint, click: () => remember({ [name]: value === 'linear' ? undefined : value }) }, title);
    const plotSelect = h('select', { class: 'lower', 'aria-label': 'Lower plot', title: 'The curve of the lower plot', change: () => remember({ below: plotSelect.value }) },
      LOWER_PLOTS.filter(([name]) => hasFigure(name)).map(([name, title]) => h('option', { value: name, selected: name === lowerPlot() }, title)));
    const isZoomed = state.from !== undefined;
    keepFocus(tools, ['data-scale', 'data-do', 'aria-label'], () => tools.replaceChildren(facts, h('span', { class: 'gap' }),
      isZoomed ? h('button', { title: 'Show all iterations  (double click)', click: showAll }, `${count(state.from)} to ${count(state.to)} ×`) : '',
      h('span', { class: 'group', role: 'group', 'aria-label': 'Scale of the loss' }, toggle('scale', 'linear', 'linear', 'Loss on a linear scale'), toggle('scale', 'log', 'log', 'Loss on a logarithmic scale')),
      h('button', { 'aria-pressed': String(Boolean(state.smooth)), 'data-do': 'smooth', title: `Exponential moving average, weight ${SMOOTHING}; the loss itself stays visible behind it`, click: () => remember({ smooth: state.smooth ? undefined : true }) }, 'smooth'),
      plotSelect));
    const about = (each) => `${each.model} · ${each.target}`;
    pair.replaceChildren(...(data.alone ? [] : pairBar({ a, b: data.b, library: otherRuns(library, a), about, choose, send })), // a report has no second run
      data.together ? h('button', { 'data-do': 'divergence', title: 'The first op in which the two runs differ', click: () => send('show', { view: 'divergence' }) }, 'Where do they diverge?') : '',
      clearPairButton(data.b, choose), h('span', { class: 'gap' }), saves);
  }

  const saves = downloadMenu(() => [
    csvItem('All iterations', 'training', table), csvItem('Facts of the runs', 'training-runs', runFacts),
    ...pictureItems('Plots', 'training', chart.querySelector('svg')),
  ]);

  /** Facts of the run or of both, and up to which iteration they are the same. */
  function runFacts() {
    const names = ['name', 'path', 'model', 'target', 'status', 'message', 'done', 'wanted', 'batch', 'loss', 'seconds'];
    const rows = names.map((name) => [name, data.a[name], ...(data.b ? [data.b[name]] : [])]);
    const { by, why, first, last, parts } = data.together ?? {};
    if (data.together) rows.push(['compared by', by || why, ''], ['first compared', first, ''], ['last compared', last, ''], ['differ from iteration', parts ?? '', '']);
    return [['fact', 'A', ...(data.b ? ['B'] : [])], rows];
  }

  function table() {
    const extra = ['rate', 'loss_scale', 'skipped'].filter(hasFigure);
    const columns = ['loss', 'seconds', ...extra, 'root'];
    const sides = data.b ? ['a', 'b'] : ['a'];
    const names = ['iteration', ...sides.flatMap((side) => columns.map((name) => (data.b ? `${name}_${side}` : name))), ...(data.b ? ['apart'] : [])];
    const list = merged.numbers.map((number) => [number, ...sides.flatMap((side) => {
      const i = index(stores[side], number);
      return columns.map((name) => (i < 0 ? '' : stores[side][name][i]));
    }), ...(data.b ? [index(stores.a, number) < 0 ? '' : value('a', 'apart', index(stores.a, number))] : [])]);
    return [names, list];
  }

  // -- the plots --------------------------------------------------------------------------------

  const range = () => {
    const first = merged.numbers[0] ?? 1;
    const ends = ['a', 'b'].map((side) => data[side]?.not_finite?.iteration ?? 0);
    const last = Math.max(merged.numbers[merged.numbers.length - 1] ?? 1, ...ends);
    const [from, to] = [Math.max(first, state.from ?? first), Math.min(last, state.to ?? last)];
    return from < to ? [from, to] : [first, Math.max(last, first + 1)];
  };

  function value(side, name, i) {
    const store = stores[side];
    if (name === 'throughput') return store.seconds[i] ? data[side].batch / store.seconds[i] : null;
    if (name !== 'apart') return store[name][i];
    const indexInB = index(stores.b, store.number[i]);
    if (indexInB < 0) return null;
    const [x, y] = [store.loss[i], stores.b.loss[indexInB]];
    return x === y ? 0 : Math.abs(x - y) / Math.max(Math.abs(x), Math.abs(y));
  }

  /** [number, value] pairs of a curve in the range, plus one on each side. */
  function points(side, name, [from, to]) {
    const store = stores[side];
    const end = Math.min(store.number.length, lowerBound(store, to + 1) + 1);
    const pairs = [];
    for (let i = Math.max(0, lowerBound(store, from) - 1); i < end; i += 1) pairs.push([store.number[i], value(side, name, i)]);
    return pairs;
  }

  function smoothed(side, [from, to]) {
    const store = stores[side];
    const pairs = [];
    let [mean, weight] = [0, 0];
    const end = Math.min(store.number.length, lowerBound(store, to + 1) + 1);
    for (let i = 0; i < end; i += 1) {
      mean = SMOOTHING * mean + (1 - SMOOTHING) * store.loss[i];
      weight = SMOOTHING * weight + (1 - SMOOTHING);
      if (store.number[i] >= from - 1) pairs.push([store.number[i], mean / weight]);
    }
    return pairs;
  }

  /** The path of a curve: the first, lowest, highest and last of the points in each column of pixels. */
  function path(list, x, y, isPlottable) {
    const parts = [];
    let column = null;
    let pen = 'M';
    const put = (px, py) => { parts.push(`${pen}${px.toFixed(1)} ${py.toFixed(1)}`); pen = 'L'; };
    const flush = () => {
      if (!column) return;
      for (const [px, py] of new Set([column.first, ...(column.low[2] < column.high[2] ? [column.low, column.high] : [column.high, column.low]), column.last])) put(px, py);
      column = null;
    };
    list.forEach(([number, each], i) => {
      if (!isPlottable(each)) { flush(); pen = 'M'; return; }
      const point = [x(number), y(each), i];
      const pixel = Math.floor(point[0]);
      if (column && column.pixel !== pixel) flush();
      if (!column) column = { pixel, first: point, low: point, high: point, last: point };
      if (point[1] < column.low[1]) column.low = point;
      if (point[1] > column.high[1]) column.high = point;
      column.last = point;
    });
    flush();
    return parts.join('');
  }

  function ticks(low, high, maxTicks, log) {
    if (log) {
      const values = [];
      const steps = Math.log10(high / low) > maxTicks ? [1] : Math.log10(high / low) * 3 > maxTicks ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) for (const step of steps) if (step * 10 ** power >= low && step * 10 ** power <= high) values.push(step * 10 ** power);
      return values;
    }
    const rough = (high - low) / Math.max(1, maxTicks);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
    const values = [];
    const first = Math.ceil(low / step);
    for (let i = 0; i < 100 && (first + i) * step <= high * (1 + 1e-12); i += 1) values.push((first + i) * step);
    return values;
  }

  /** The top of an axis that ignores a few long iterations (the first loads the program); Infinity: no limit needed. */
  function limitOf(lists) {
    const values = lists.flatMap((list) => list.map(([, each]) => each)).filter((each) => each !== null).sort((p, q) => p - q);
    const part = (share) => values[Math.floor((values.length - 1) * share)] ?? 0;
    const usualLimit = Math.max(2.5 * part(0.5), 1.5 * part(0.9));
    return values.length >= 4 && values[values.length - 1] > 1.5 * usualLimit ? usualLimit : Infinity;
  }

  /** One plot between `top` and `bottom`: axis and curves; values above `limit` are marked at the top. */
  function plot(picture, { top, bottom, left, right, title, curves, log, zero, x, limit = Infinity }) {
    const isPlottable = (each) => each !== null && Number.isFinite(each) && (!log || each > 0);
    let [low, high] = [Infinity, -Infinity];
    for (const { list } of curves) for (const [, each] of list) if (isPlottable(each)) { low = Math.min(low, each); high = Math.max(high, each); }
    if (zero) low = Math.min(low, 0);
    const lowest = low;
    const isClipped = high > limit;
    high = Math.min(high, limit);
    if (low > high) [low, high] = log ? [0.1, 1] : [0, 1];
    const isAllZero = zero && low === 0 && high === 0;
    if (log) { low /= 1.06; high *= 1.06; } else {
      const room = high - low || Math.abs(high) || 1;
      high += room * 0.06;
      low = lowest >= 0 ? Math.max(0, low - room * 0.06) : low - room * 0.06;
    }
    const y = log ? (each) => bottom - ((Math.log(each) - Math.log(low)) / (Math.log(high) - Math.log(low))) * (bottom - top)
      : (each) => bottom - ((each - low) / (high - low)) * (bottom - top);
    for (const tick of isAllZero ? [0] : ticks(low, high, (bottom - top) / 28, log)) {
      picture.append(svg('line', { class: 'grid', x1: left, x2: right, y1: y(tick), y2: y(tick) }), svg('text', { class: 'tick', x: left - 5, y: y(tick) + 3.5, 'text-anchor': 'end' }, tickText(tick)));
    }
    const middle = (top + bottom) / 2;
    picture.append(svg('text', { x: 11, y: middle, 'text-anchor': 'middle', transform: `rotate(-90 11 ${middle})` }, title));
    const id = `clip${Math.random().toString(36).slice(2)}`;
    picture.append(svg('clipPath', { id }, svg('rect', { x: left, y: top, width: right - left, height: bottom - top })));
    const inside = svg('g', { 'clip-path': `url(#${id})` });
    for (const { list, kind } of curves) {
      inside.append(svg('path', { class: `line ${kind}`, d: path(list, x, y, isPlottable) }));
      const drawable = list.filter(([, each]) => isPlottable(each));
      if (drawable.length === 1) inside.append(svg('circle', { class: `dot ${kind}`, cx: x(drawable[0][0]), cy: y(drawable[0][1]), r: 3 }));
    }
    if (isClipped) {
      const columns = new Set(curves.flatMap(({ list }) => list.filter(([n, each]) => each > limit && x(n) >= left && x(n) <= right).map(([n]) => Math.round(x(n)))));
      for (const px of columns) inside.append(svg('path', { class: 'above', d: `M${px - 4} ${top + 8}L${px} ${top + 1}L${px + 4} ${top + 8}Z` }, svg('title', {}, 'above the scale')));
    }
    if (isAllZero) inside.append(svg('text', { class: 'tick', x: (left + right) / 2, y: middle + 4, 'text-anchor': 'middle' }, '0 throughout'));
    picture.append(inside, svg('rect', { class: 'frame', x: left, y: top, width: right - left, height: bottom - top }));
  }

  let geometry = null; // the geometry of the plots, for the pointer
  function drawChart() {
    const [width, height] = [chart.clientWidth, chart.clientHeight];
    if (!data || width < 120 || height < 110 || !merged.numbers.length) return;
    const { left: l, right: r, top, between, strip, bottom } = MARGIN;
    const [left, right] = [l, width - r];
    const span = range();
    const x = (number_) => left + ((number_ - span[0]) / (span[1] - span[0])) * (right - left);
    const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `Loss of ${plural(merged.numbers.length, 'iteration')}` });
    const sides = data.b ? ['b', 'a'] : ['a'];
    const stripHeight = data.together ? strip : 0;
    const available = height - top - between - stripHeight - bottom;
    const split = top + available * 0.64;
    const log = state.scale === 'log';
    const curves = sides.flatMap((side) => (state.smooth
      ? [{ list: points(side, 'loss', span), kind: `${side} raw` }, { list: smoothed(side, span), kind: side }] : [{ list: points(side, 'loss', span), kind: side }]));
    plot(picture, { top, bottom: split, left, right, title: log ? 'loss, log' : 'loss', curves, log, x });
    if (stripHeight) drawStrip(picture, split + 4, left, right, x, span);
    const name = lowerPlot();
    let lowerCurves = name === 'apart' ? [{ list: points('a', 'apart', span), kind: 'apart' }] : sides.map((side) => ({ list: points(side, name, span), kind: side }));
    let title = LOWER_PLOTS.find(([each]) => each === name)[2];
    if (name === 'seconds' && (data.a.seconds ?? 1) < 1) {
      title = `m${title}`;
      lowerCurves = lowerCurves.map((each) => ({ ...each, list: each.list.map(([n, s]) => [n, s * 1e3]) }));
    }
    const limit = name === 'seconds' ? limitOf(lowerCurves.map((each) => each.list)) : Infinity;
    plot(picture, { top: split + stripHeight + between, bottom: height - bottom, left, right, title, curves: lowerCurves, log: false, zero: name !== 'rate', x, limit });
    for (const tick of ticks(span[0], span[1], (right - left) / 90, false).filter(Number.isInteger)) {
      picture.append(svg('line', { class: 'grid', x1: x(tick), x2: x(tick), y1: height - bottom, y2: height - bottom + 4 }), svg('text', { class: 'tick', x: x(tick), y: height - bottom + 14, 'text-anchor': 'middle' }, count(tick)));
    }
    picture.append(svg('text', { x: (left + right) / 2, y: height - 4, 'text-anchor': 'middle' }, 'iteration'));
    for (const side of sides) markNotFinite(picture, data[side].not_finite, { x, span, top, split, bottom: height - bottom });
    const parts = data.together?.parts;
    if (parts && parts >= span[0] && parts <= span[1]) picture.append(svg('line', { class: 'split', x1: x(parts), x2: x(parts), y1: top, y2: height - bottom }, svg('title', {}, `different from iteration ${count(parts)} on`)));
    const cursor = svg('line', { class: 'cursor', y1: top, y2: height - bottom, visibility: 'hidden' });
    const zoomArea = svg('rect', { class: 'pick', y: top, height: height - bottom - top, visibility: 'hidden' });
    picture.append(cursor, zoomArea);
    geometry = { left, right, x, span, cursor, zoomArea, number: (px) => span[0] + ((px - left) / (right - left)) * (span[1] - span[0]) };
    chart.replaceChildren(picture, tip);
    drawCursor();
  }

  /** Marks the iteration whose loss was not finite, where the run ended. */
  function markNotFinite(picture, found, { x, span, top, split, bottom }) {
    if (!found || found.iteration < span[0] || found.iteration > span[1]) return;
    const at = x(found.iteration);
    const message = `loss of iteration ${count(found.iteration)} is not finite`;
    picture.append(
      svg('line', { class: 'spoiled', x1: at, x2: at, y1: top, y2: bottom }, svg('title', {}, message)),
      svg('text', { class: 'spoiled', x: at - 6, y: (top + split) / 2, 'text-anchor': 'end', 'data-says': 'spoiled' }, message));
  }

  function stripText() {
    const { by, why, first, last, parts } = data.together;
    if (!by) return `not compared: ${why}`;
    const same = by === 'receipts' ? 'same bits' : 'equal losses';
    const more = by === 'receipts' ? '' : ` (${why}: digests are not compared)`;
    if (parts === null) return `${same} in iterations ${count(first)} to ${count(last)}${more}`;
    const then = by === 'receipts' ? 'different digests' : 'different losses';
    return parts === first ? `${then} from iteration ${count(first)} on${more}` : `${same} up to iteration ${count(parts - 1)}, then ${then}${more}`;
  }

  function drawStrip(picture, top, left, right, x, [from, to]) {
    const { by, first, last, parts } = data.together;
    const bar = (a, b, kind) => { if (b >= from && a <= to && b > a) picture.append(svg('rect', { class: kind, x: Math.max(left, x(a)), width: Math.max(2, Math.min(right, x(b)) - Math.max(left, x(a))), y: top, height: 5 })); };
    if (by) { bar(first, parts ?? last, 'same'); if (parts !== null) bar(parts, Math.max(last, parts + 0.5), 'differs'); }
    picture.append(svg('text', { class: 'says', x: left, y: top + 17, 'data-says': 'strip' }, stripText()));
  }

  function nearest(number_) {
    const { numbers } = merged;
    const i = lowerBound({ number: numbers }, number_);
    return i > 0 && (i === numbers.length || number_ - numbers[i - 1] < numbers[i] - number_) ? numbers[i - 1] : numbers[i];
  }

  function drawCursor() {
    if (!geometry) return;
    const n = hover ?? state.at;
    const inside = n !== undefined && n !== null && n >= geometry.span[0] && n <= geometry.span[1];
    geometry.cursor.setAttribute('visibility', inside ? 'visible' : 'hidden');
    tip.hidden = !inside || hover === null;
    if (!inside) return;
    geometry.cursor.setAttribute('x1', geometry.x(n));
    geometry.cursor.setAttribute('x2', geometry.x(n));
    if (tip.hidden) return;
    const found = (data.b ? ['a', 'b'] : ['a']).map((side) => [side, index(stores[side], n)]);
    const line = (title, cell) => h('tr', {}, h('th', {}, title), found.map(([side, i]) => h('td', {}, i < 0 ? '–' : cell(stores[side], i))));
    const difference = data.b && found.every(([, i]) => i >= 0) ? value('a', 'apart', found[0][1]) : null;
    tip.replaceChildren(h('table', {},
      data.b ? h('tr', {}, h('th', {}, ''), h('td', {}, 'A'), h('td', {}, 'B')) : null, h('tr', {}, h('th', {}, 'iteration'), h('td', { colspan: found.length }, h('b', {}, count(n)))),
      line('loss', (s, i) => fullNumber(s.loss[i])), difference === null ? null : h('tr', {}, h('th', {}, 'difference'), h('td', { colspan: 2 }, figure(difference, 'relative'))),
      line('time', (s, i) => seconds(s.seconds[i])),
      ...[['rate', 'learning rate'], ['loss_scale', 'loss scale'], ['skipped', 'skipped updates']].filter(([name]) => hasFigure(name)).map(([name, title]) => line(title, (s, i) => fullNumber(s[name][i]))),
      line('digest', (s, i) => h('span', { class: 'mono' }, s.root[i].slice(0, DIGEST_LENGTH) || '–'))));
    const px = geometry.x(n);
    tip.style.left = `${px + 14 + tip.offsetWidth > chart.clientWidth ? Math.max(2, px - tip.offsetWidth - 10) : px + 12}px`;
    tip.style.top = `${MARGIN.top + 6}px`;
  }

  const showAll = () => remember({ from: undefined, to: undefined });
  /** Plus shows half of the shown range, around the cursor; minus twice as much; f everything. */
  function zoomByKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !merged.numbers.length) return;
    const factor = { '+': 0.5, '-': 2 }[event.key];
    if (factor) {
      const [from, to] = range();
      const middle = Number.isInteger(state.at) && state.at >= from && state.at <= to ? state.at : (from + to) / 2;
      const [low, high] = [middle - (middle - from) * factor, middle + (to - middle) * factor].map(nearest);
      if (low <= merged.numbers[0] && high >= merged.numbers[merged.numbers.length - 1]) showAll();
      else if (high > low) remember({ from: low, to: high });
    } else if (event.key === 'f') showAll();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
  let drag = null;
  const chartX = (event) => event.clientX - chart.getBoundingClientRect().left;
  chart.addEventListener('pointermove', (event) => {
    if (!geometry) return;
    hover = nearest(geometry.number(chartX(event)));
    if (drag !== null) {
      const [a, b] = [Math.min(drag, chartX(event)), Math.max(drag, chartX(event))];
      geometry.zoomArea.setAttribute('visibility', b - a > 5 ? 'visible' : 'hidden');
      geometry.zoomArea.setAttribute('x', Math.max(geometry.left, a));
      geometry.zoomArea.setAttribute('width', Math.max(0, Math.min(geometry.right, b) - Math.max(geometry.left, a)));
    }
    drawCursor();
  });
  chart.addEventListener('pointerdown', (event) => { if (event.button === 0 && geometry) { drag = chartX(event); chart.setPointerCapture(event.pointerId); } });
  chart.addEventListener('pointerup', (event) => {
    if (drag === null || !geometry) return;
    const [a, b] = [drag, chartX(event)].sort((p, q) => p - q);
    drag = null;
    if (b - a <= 5) { select(nearest(geometry.number(b))); return; }
    const [from, to] = [a, b].map((px) => nearest(geometry.number(px)));
    if (to > from) remember({ from, to });
  });
  chart.addEventListener('pointerleave', () => { hover = null; drawCursor(); });
  chart.addEventListener('dblclick', showAll);

  // -- the table --------------------------------------------------------------------------------

  const columns = () => {
    const sides = data.b ? ['a', 'b'] : ['a'];
    const letter = (side) => (data.b ? `${side.toUpperCase()} ` : '');
    const of = (side, name, width, show) => ({ title: letter(side) + GLOSSARY.training[name][0], unit: GLOSSARY.training[name][1], hint: explain('training', name), width, cell: (n) => { const i = index(stores[side], n); return h('span', { class: i < 0 ? 'faint' : '' }, i < 0 ? '–' : show(stores[side], i)); } });
    const digest = (side) => ({ title: `${letter(side)}digest`, hint: explain('training', 'digest'), unit: data.b ? '' : 'of its receipt', width: data.b ? 66 : 104, left: true, cell: (n) => {
      const k = index(stores[side], n);
      const text = k < 0 ? '' : stores[side].root[k];
      const other = side === 'b' && text ? stores.a.root[index(stores.a, n)] : null;
      return h('span', { class: `left digest${other && other !== text ? ' differs' : ''}`, title: text && `${text}\nclick to copy` }, text ? h('button', { class: 'plain mono', 'aria-label': `Copy the digest of iteration ${n}`,
        click: (event) => { event.stopPropagation(); copy(text, event.currentTarget); } }, text.slice(0, data.b ? 8 : DIGEST_LENGTH)) : h('span', { class: 'faint' }, '–'));
    } });
    const varies = (name) => hasFigure(name) && stores.a[name].some((each) => each !== stores.a[name][0]);
    const extra = ['rate', 'loss_scale', 'skipped'].filter(varies);
    const digests = stores.a.root.some(Boolean) ? [digest('a')] : [];
    return [
      { title: `iteration ${state.order === 'last' ? '↓' : '↑'}`, unit: '', width: 78, sort: true, cell: (n) => h('span', {}, count(n)) },
      ...sides.map((side) => of(side, 'loss', data.b ? 70 : 78, (s, k) => fullNumber(s.loss[k]))),
      ...(data.b ? [{ title: 'apart', unit: 'relative', hint: explain('training', 'apart'), width: 50, cell: (n) => { const k = index(stores.a, n); const v = k < 0 ? null : value('a', 'apart', k); return h('span', { class: v ? 'differs' : 'muted' }, v === null ? '–' : figure(v, 'relative')); } }, ...sides.map(digest)] : []),
      ...sides.map((side) => of(side, 'seconds', 54, (s, k) => number(s.seconds[k] * 1e3))),
      ...(data.b ? [] : [...extra.map((name) => of('a', name, 66, (s, k) => (name === 'rate' ? number(s.rate[k], 4) : fullNumber(s[name][k])))), ...digests]),
    ];
  };

  async function copy(text, button) {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // the page may not write to the clipboard
      window.prompt('The digest', text);
      return;
    }
    const before = button.textContent;
    button.textContent = 'copied';
    setTimeout(() => { button.textContent = before; }, 900);
  }

  const numberAt = (line) => merged.numbers[state.order === 'last' ? merged.numbers.length - 1 - line : line];
  const lineOf = (n) => { const i = index({ number: merged.numbers }, n); return i < 0 ? -1 : state.order === 'last' ? merged.numbers.length - 1 - i : i; };
  let shownColumns = [];
  function drawHead() {
    shownColumns = columns();
    const grid = shownColumns.map((each) => `${each.width}px`).join(' ');
    list.style.flexBasis = `${shownColumns.reduce((sum, each) => sum + each.width + 10, 22)}px`;
    scroll.style.setProperty('--grid', grid);
    head.style.gridTemplateColumns = grid;
    const toggleOrder = () => remember({ order: state.order === 'last' ? undefined : 'last' });
    keepFocus(head, ['data-sort'], () => head.replaceChildren(...shownColumns.map((each) => h('span', { class: each.left ? 'left' : '', role: 'columnheader', title: each.hint,
      'aria-sort': each.sort ? (state.order === 'last' ? 'descending' : 'ascending') : null },
    each.sort ? h('button', { class: 'sort', 'data-sort': 'iteration', title: 'Ascending or descending order', click: toggleOrder }, each.title) : each.title, h('small', {}, each.unit || '\u00a0')))));
  }

  function drawRows() {
    const total = merged.numbers.length;
    rows.style.height = `${total * ROW_HEIGHT}px`;
    if (isFollowing && data.a.status === 'recording' && state.order !== 'last') scroll.scrollTop = scroll.scrollHeight;
    const first = Math.max(0, Math.floor(scroll.scrollTop / ROW_HEIGHT) - 8);
    const end = Math.min(total, first + Math.ceil(scroll.clientHeight / ROW_HEIGHT) + 18);
    const drawnRows = [];
    for (let line = first; line < end; line += 1) {
      const n = numberAt(line);
      drawnRows.push(h('div', { class: `row${n === state.at ? ' on' : ''}`, role: 'row', id: `iteration-${n}`, 'aria-rowindex': line + 2, 'data-iteration': n, 'aria-selected': String(n === state.at), style: { top: `${line * ROW_HEIGHT}px`, gridTemplateColumns: 'var(--grid)' },
        click: () => select(n) }, shownColumns.map((each) => h('span', { role: 'gridcell', class: 'as-is' }, each.cell(n)))));
    }
    rows.replaceChildren(...drawnRows);
    scroll.setAttribute('aria-rowcount', total + 1);
    scroll.setAttribute('aria-activedescendant', Number.isInteger(state.at) ? `iteration-${state.at}` : '');
  }

  function select(n) {
    remember({ at: n });
    const line = lineOf(n);
    if (line * ROW_HEIGHT < scroll.scrollTop) scroll.scrollTop = line * ROW_HEIGHT;
    const low = line * ROW_HEIGHT + ROW_HEIGHT + head.offsetHeight - scroll.clientHeight;
    if (low > scroll.scrollTop) scroll.scrollTop = low;
  }

  function moveByKey(event, earlier, further) {
    if (event.ctrlKey || event.metaKey || event.altKey || !merged.numbers.length || event.target.closest('.sort')) return;
    const line = lineOf(state.at);
    const to = { [earlier]: line < 0 ? 0 : line - 1, [further]: line + 1, Home: 0, End: merged.numbers.length - 1 }[event.key];
    if (to === undefined) return;
    if (to >= 0 && to < merged.numbers.length) select(numberAt(to));
    event.preventDefault();
    event.stopPropagation();
  }
  scroll.addEventListener('keydown', (event) => moveByKey(event, 'ArrowUp', 'ArrowDown'));
  chart.addEventListener('keydown', zoomByKey);
  chart.addEventListener('keydown', (event) => (state.order === 'last' ? moveByKey(event, 'ArrowRight', 'ArrowLeft') : moveByKey(event, 'ArrowLeft', 'ArrowRight')));
  const scheduleRows = perFrame(() => { if (data) drawRows(); });
  scroll.addEventListener('scroll', () => {
    isFollowing = scroll.scrollTop + scroll.clientHeight > scroll.scrollHeight - 2 * ROW_HEIGHT;
    scheduleRows();
  });

  // -- all of it --------------------------------------------------------------------------------

  const redraw = perFrame(() => {
    if (!data) return;
    gather();
    space.classList.toggle('tall', space.clientWidth < 760 && space.clientHeight > 320);
    drawTools();
    drawHead();
    drawRows();
    drawChart();
    root.dataset.iterations = String(merged.numbers.length);
  });

  function remember(more) {
    state = Object.fromEntries(Object.entries({ ...state, ...more }).filter(([, each]) => each !== undefined));
    model.set('state', state);
    model.save_changes();
    redraw();
  }

  const observer = new ResizeObserver(redraw);
  observer.observe(space);
  later(() => observer.disconnect());
  watch('state', () => {
    const next = plain(model.get('state')) ?? {};
    if (JSON.stringify(next) === JSON.stringify(state)) return;
    state = next;
    redraw();
  });
  watch('detail', () => { library = json(model, 'detail')?.recordings ?? []; redraw(); });
  watch('data', () => {
    const next = json(model, 'data');
    if (!next) return;
    data = next;
    if (data.rows) { stores.a = emptyStore(data.a); merge(stores.a, data.rows); } else fetchRows();
    redraw();
  });
});
