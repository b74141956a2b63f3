// Numbers: which pass changed bits and by how much; the checks of a pass; statistics of values.

const STYLE = `${TWO_STYLE}${LOST_STYLE}
.root { display: flex; flex-direction: column; background: var(--surface); container: numbers / size; }
@container numbers (max-height: 340px) { .chart { display: none; } } /* the rows need the space */
.bar { display: flex; align-items: center; gap: 10px; min-height: 32px; padding: 3px 10px; border-bottom: 1px solid var(--line); color: var(--muted); flex: none; flex-wrap: wrap; }
.bar .gap { flex: 1; } .bar b { color: var(--text); font-weight: 600; } .bar input { width: 92px; }
.group { display: flex; flex-wrap: wrap; row-gap: 2px; } .group button { border-radius: 0; margin-left: -1px; }
.group button:first-child { border-radius: 4px 0 0 4px; margin-left: 0; } .group button:last-child { border-radius: 0 4px 4px 0; }
.told { padding: 8px 12px 2px; font-size: 13px; flex: none; } .told b { font-weight: 600; } .told .more { color: var(--muted); font-size: 12px; }
.told .ends { white-space: nowrap; } .told button.link { border: none; background: none; padding: 0; height: auto; font: inherit; font-weight: 600; white-space: normal; }
.chart { flex: none; padding: 0 10px 4px; border-bottom: 1px solid var(--line); overflow: hidden; }
.chart svg { display: block; } .chart text { fill: var(--faint); font: 10px var(--sans); } .chart .axis { stroke: var(--line); }
.chart .ends { fill: none; stroke: var(--accent); stroke-width: 1.6; } .chart .end { fill: var(--accent); }
.chart .local { fill: var(--surface); stroke: var(--changed); stroke-width: 1.4; } .chart .local.bad { stroke: var(--bad); fill: var(--bad); }
.chart .here { fill: var(--accentSoft); } .chart .hit { fill: transparent; cursor: pointer; outline: none; } .chart .hit:hover, .chart .hit:focus-visible { fill: var(--accent); fill-opacity: .12; } .chart .hit:focus-visible { stroke: var(--accent); stroke-width: 1.5; }
.chart .mark { font-size: 11px; text-anchor: middle; } .chart .mark.bitwise { fill: var(--added); } .chart .mark.within { fill: var(--changed); }
.chart .mark.failed { fill: var(--bad); font-weight: 700; } .chart .mark.unchecked { fill: var(--faint); }
.chart .first { stroke: var(--moved); stroke-dasharray: 3 3; } .chart .firsttext { fill: var(--moved); font-weight: 600; }
.scroll { position: relative; container: table / inline-size; flex: 1; min-height: 0; overflow: auto; outline: none; }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; background: var(--raised); font-weight: 600; text-align: right; padding: 3px 8px; white-space: nowrap; border-bottom: 1px solid var(--line); z-index: 1; }
th small { display: block; font-weight: 400; color: var(--faint); line-height: 1.1; }
th.left, td.left { text-align: left; }
td { text-align: right; padding: 2px 8px; white-space: nowrap; border-bottom: 1px solid color-mix(in srgb, var(--line) 45%, transparent); }
td.left { max-width: min(210px, 34cqw); overflow: hidden; text-overflow: ellipsis; }
tr { cursor: pointer; } tbody tr:hover { background: var(--raised); } tbody tr.on { background: var(--accentSoft); }
td .verdict { display: inline-block; width: 14px; text-align: center; margin-right: 4px; }
.nan { color: var(--bad); font-weight: 700; } .inf { color: var(--warn); font-weight: 600; }
.bins { display: block; } .bins path { fill: var(--accent); opacity: .75; } .bins line { stroke: var(--text); opacity: .5; }
.none { padding: 24px; text-align: center; color: var(--muted); }
`;
const BATCH_SIZE = 150;
// Stages with statistics; any other name is that of the last stage that is the same for all targets.
const STAGES = { import: 'as imported', integerize: 'from integers', differentiate: 'gradients' };
const CHART = { left: 42, right: 12, top: 16, plot: 76, marks: 18, names: 12 };
const ORDER = ['failed', 'within', 'unchecked', 'bitwise'];
const VERDICT_WORDS = { failed: 'failed', within: 'within tolerance', unchecked: 'not checked', bitwise: 'bitwise' };
const verdictText = (verdict) => h('b', { class: verdict === 'differs' ? 'failed' : '', 'data-verdict': verdict }, verdict.replace('_', ' '));
const lineLabel = (row) => (row.file ? `${row.file.split('/').pop()}:${row.line}` : '');
const exactText = (value) => (value === null || value === undefined ? '' : String(value));

// name, title, unit, tooltip, alignment
const CHECK_COLUMNS = columnsOf('numerics', ['rewrite', 'left'], 'error', 'ulps', 'tolerance', 'absolute', ['value', 'left'], 'old', 'new', ['line', 'left']);
const FRAMEWORK_COLUMNS = columnsOf('numerics', 'place', ['name', 'left'], ['node', 'left'], 'apart', 'apart_absolute', 'apart_one', 'theirs', 'ours', ['element', 'left'], ['line', 'left']);
const VALUE_COLUMNS = columnsOf('numerics', 'place', ['name', 'left'], ['bins', 'left'], 'minimum', 'maximum', 'mean', 'largest', 'nan', 'inf', ['line', 'left']);

export default component(STYLE, ({ model, root, watch, later, send, selection }) => {
  let data = null;
  let list = [];
  let drawnCount = 0;
  let width = 0;
  const viewState = { tab: '', order: null, stage: null, words: '', both: {} };
  const bar = h('div', { class: 'bar', role: 'toolbar', 'aria-label': 'Numbers' });
  const summary = h('div', { class: 'told' });
  const chart = h('div', { class: 'chart' });
  const tools = h('div', { class: 'bar', role: 'toolbar', 'aria-label': 'Table' });
  const head = h('tr');
  const body = h('tbody');
  const none = h('div', { class: 'none' });
  const scroll = h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Table: up and down select, Enter shows the rewrite or the op' },
    h('table', {}, h('thead', {}, head), body), none);
  const two = twoNumbers({ selection, send, remember: (both) => setViewState({ both }) });
  root.append(bar, summary, chart, tools, scroll);
  const filter = h('input', { type: 'search', placeholder: 'filter', 'aria-label': 'Filter the table by name, op or line', input: () => { viewState.words = filter.value; fill(); } });

  const saves = downloadMenu(() => [csvItem({ checks: `Checks of ${data.name}`, values: 'Values', beside: data.framework ? `Values beside ${framework()}` : '', lost: 'What quantisation lost', floats: 'Left in floats' }[tab()], tab(), table), csvItem('Errors after each pass', 'errors', passes),
    ...pictureItems(drawn() ? `Histogram of ${drawn().name}` : 'Errors after each pass', drawn() ? 'histogram' : 'errors', chart.querySelector('svg'))]);

  const tab = () => {
    const available = { checks: true, values: true, beside: Boolean(data.framework), lost: Boolean(data.quantised?.measured), floats: data.floats_total > 0 };
    if (available[viewState.tab]) return viewState.tab;
    return ['checks', 'lost', 'values', 'beside'].find((name) => data[`${name}_total`]) ?? 'values';
  };
  const columns = () => ({ checks: CHECK_COLUMNS, values: VALUE_COLUMNS, beside: FRAMEWORK_COLUMNS, lost: LOST_COLUMNS, floats: FLOATS_COLUMNS })[tab()].filter(([name]) => !OPTIONAL[name] || data[tab()].some((row) => row[OPTIONAL[name]]));
  /** The quantised value whose histogram is drawn: the selected one, else the first. */
  const drawn = () => (tab() === 'lost' ? list.find((row) => isSelected(row, selection())) ?? list[0] : undefined);
  const framework = () => data.framework.name;
  // Values with NaN or Inf come first: their stage is shown unless the user chose one.
  const worstStage = () => (data.values[0]?.nan || data.values[0]?.inf ? data.values[0].stage : data.value_stages[0]?.[0]);
  const shownStage = () => (data.value_stages.some(([s]) => s === viewState.stage) ? viewState.stage : worstStage());

  function setViewState(change) {
    Object.assign(viewState, change);
    const state = {};
    if (viewState.tab) state.tab = viewState.tab;
    if (viewState.order) state.order = viewState.order;
    if (viewState.stage !== null) state.stage = viewState.stage;
    if (Object.keys(viewState.both).length) state.both = viewState.both;
    model.set('state', state);
    model.save_changes();
    if (!data.two) fill();
  }

  // -- over all passes --------------------------------------------------------------------------
  function drawBar() {
    const checked = ORDER.some((v) => data.counts[v]);
    bar.replaceChildren(
      ...ORDER.filter((v) => data.counts[v]).map((v) => h('span', { title: `${MARK_WORDS[v]}, in all passes` },
        h('span', { class: v }, MARKS[v]), ' ', h('b', {}, count(data.counts[v])), ` ${VERDICT_WORDS[v]}`)),
      checked ? '' : 'no rewrite was checked',
      ...[['nan', 'NaN'], ['inf', 'Inf']].filter(([name]) => data.bad[name]).map(([name, what]) => h('button', {
        class: 'plain', 'data-bad': name, title: `Values with such elements. ${explain('numerics', name)}`,
        click: () => setViewState({ tab: 'values', order: [name, -1], stage: worstStage() }),
      }, h('span', { class: name }, count(data.bad[name])), ` with ${what}`)),
      data.peer ? h('span', { title: explain('numerics', 'peer') },
        `against ${data.peer.name} `, verdictText(data.peer.verdict), ', ', h('b', {}, relative(data.peer.error)), data.peer.ulp === null ? '' : `, ${count(data.peer.ulp)} ulps`,
        data.peer.integers.length ? `, other integers at ${data.peer.integers.join(', ')}` : '') : '',
      h('span', { class: 'gap' }),
      canEdit() ? h('button', { 'data-do': 'bisect', title: 'Compile again pass by pass, and find the first bad pass and rewrite', click: () => send('bisect', { beside: 'numerics' }) }, 'First bad pass') : '',
      saves);
  }

  function drawSummary() {
    const { first, counts } = data;
    const endToEnd = data.passes.filter((p) => p.accumulated !== null);
    const end = endToEnd.length ? endToEnd[endToEnd.length - 1].accumulated : null;
    const go = (pass) => ({ class: 'link', 'data-first': pass.index, click: () => send('go', { stage: pass.index, rewrite: null }) });
    const alike = data.quantised ? ', apart from their rounding to integers' : '';
    const more = end === null ? '' : end === 0 ? `${first && first.verdicts.failed ? 'On the recorded inputs, the' : 'The'} outputs are bitwise equal to those of the import${alike}.` : `End-to-end relative error of the outputs${alike}: ${relative(end)} (of max abs).`;
    if (first) {
      const bad = first.verdicts.failed;
      summary.replaceChildren('First pass that changed bits: ', h('button', go(first), first.name),
        h('span', { class: 'more' }, ` · ${bad ? `${plural(bad, 'check')} failed` : `${plural(first.verdicts.within, 'check')} within tolerance`}, worst relative error ${relative(first.worst)} (of max abs). ${more}`));
    } else if (ORDER.some((v) => counts[v])) {
      summary.replaceChildren(h('b', {}, `Every pass ${counts.unchecked ? 'that was checked ' : data.grows ? 'so far ' : ''}kept every bit.`), h('span', { class: 'more' }, ` ${more}`));
    } else summary.replaceChildren(h('b', {}, 'No rewrite was checked.'), h('span', { class: 'more' }, ' Compile with “check every rewrite” to evaluate each on real tensors.'));
    if (data.quantised) summary.append(lostSummary(data, (name) => setViewState({ tab: name, order: null })));
    // A fault of the import comes before what the passes kept of it.
    if (data.framework) summary[data.framework.verdict === 'differs' ? 'prepend' : 'append'](...frameworkSummary());
  }

  /** One sentence that compares the import itself with the framework. */
  function frameworkSummary() {
    const { name, values, same, worst, integers, verdict, beyond } = data.framework;
    const to = (node, op, after = '') => h('span', { class: 'ends' }, h('button', { class: 'link', 'data-do': 'beside', title: `Select it, and list the values that differ from ${name}`, click: () => { setViewState({ tab: 'beside', order: null }); if (op !== null) send('select', { op }); } }, node), after);
    const details = same === values ? [' All have the same bits.'] : [` ${count(same)} with the same bits`,
      ...(worst ? [`, worst relative error ${relative(worst.error)} (of max abs) at `, to(worst.node, worst.op, integers.length ? ',' : '.')] : [integers.length ? ',' : '.']),
      ...(integers.length ? [' other integers at ', to(integers[0], null, integers.length > 1 ? '' : '.'), integers.length > 1 ? ` and ${count(integers.length - 1)} more.` : ''] : [])];
    return [h('div', { class: 'more', 'data-framework': name }, `Against ${name}: `, verdictText(verdict), `, ${plural(values, 'value')} of the import compared.`, ...details),
      ...beyond.map((line) => h('div', { class: 'more', 'data-beyond': name }, line))];
  }

  function errorChart() {
    const { left, right, top, plot, marks, names } = CHART;
    const wide = Math.max(300, root.clientWidth - 20);
    const height = top + plot + marks + names;
    const step = (wide - left - right) / Math.max(1, data.passes.length);
    const x = (i) => left + (i + 0.5) * step;
    const positive = data.passes.flatMap((p) => [p.worst, p.accumulated]).filter((v) => v > 0 && Number.isFinite(v));
    const high = Math.ceil(Math.log10(Math.max(1e-6, ...positive) * 1.5));
    const low = Math.min(high - 3, Math.floor(Math.log10(Math.min(1e-7, ...positive))));
    const zero = top + plot - 4;
    const y = (v) => (!(v > 0) ? zero : Number.isFinite(v) ? Math.max(top, zero - 10 - ((Math.log10(v) - low) / (high - low)) * (plot - 14)) : top);
    const picture = svg('svg', { width: wide, height, viewBox: `0 0 ${wide} ${height}`, role: 'group', 'aria-label': 'Errors after each pass: left and right go from pass to pass, Enter shows one' });
    const shownIndex = data.passes.findIndex((p) => p.index === data.stage);
    if (shownIndex >= 0) picture.append(svg('rect', { class: 'here', x: x(shownIndex) - step / 2, width: step, y: top, height: plot + marks }));
    for (let e = high; e > low; e -= Math.max(1, Math.round((high - low) / 4))) {
      picture.append(svg('line', { class: 'axis', x1: left, x2: wide - right, y1: y(10 ** e), y2: y(10 ** e) }), svg('text', { x: left - 5, y: y(10 ** e) + 3, 'text-anchor': 'end' }, `1e${e}`));
    }
    picture.append(svg('line', { class: 'axis', x1: left, x2: wide - right, y1: zero, y2: zero }), svg('text', { x: left - 5, y: zero + 3, 'text-anchor': 'end' }, '0'));
    if (data.first) {
      const at = x(data.passes.findIndex((p) => p.index === data.first.index)) - step / 2;
      const flips = at > wide * 0.7;
      picture.append(svg('line', { class: 'first', x1: at, x2: at, y1: 4, y2: top + plot }), svg('text', { class: 'firsttext', x: flips ? at - 5 : at + 5, y: 11, 'text-anchor': flips ? 'end' : 'start' }, `first divergence: ${data.first.name}`));
    }
    const endToEnd = data.passes.map((p, i) => [i, p.accumulated]).filter(([, v]) => v !== null);
    if (endToEnd.length) {
      let path = `M${left} ${zero}`;
      for (const [i, v] of endToEnd) path += `H${x(i).toFixed(1)}V${y(v).toFixed(1)}`;
      picture.append(svg('path', { class: 'ends', d: `${path}H${wide - right}` }));
      for (const [i, v] of endToEnd) picture.append(svg('circle', { class: 'end', cx: x(i), cy: y(v), r: 2.6 }));
    }
    data.passes.forEach((p, i) => {
      const worst = ORDER.find((v) => p.verdicts[v] && !(v === 'unchecked' && p.verdicts.bitwise));
      if (p.worst > 0) picture.append(svg('circle', { class: `local${p.verdicts.failed ? ' bad' : ''}`, cx: x(i), cy: y(p.worst), r: 3 }));
      if (worst) picture.append(svg('text', { class: `mark ${worst}`, x: x(i), y: top + plot + 13 }, MARKS[worst]));
    });
    picture.append(...[
      svg('text', { x: left, y: height - 2 }, 'import'),
      wide < 620 ? null : svg('text', { x: wide - right, y: height - 2, 'text-anchor': 'end' }, data.passes[data.passes.length - 1]?.name ?? ''),
      svg('text', { x: wide < 620 ? wide - right : wide / 2, y: height - 2, 'text-anchor': wide < 620 ? 'end' : 'middle' }, '— outputs compared with the import, ○ worst single check'),
    ].filter(Boolean));
    const hitAreas = data.passes.map((p, i) => {
      const counts = ORDER.filter((v) => p.verdicts[v]).map((v) => `${count(p.verdicts[v])} ${VERDICT_WORDS[v]}`).join(', ');
      const label = [`${String(p.index).padStart(2, '0')} ${p.name}: ${counts || 'nothing to check'}`, p.worst ? `worst relative error ${relative(p.worst)} (of max abs)` : '',
        p.accumulated === null ? '' : `outputs compared with the import ${relative(p.accumulated)}`].filter(Boolean).join('\n');
      return svg('rect', { class: 'hit', x: x(i) - step / 2, width: step, y: top, height: plot + marks, role: 'link', 'aria-label': label, 'data-stage': p.index,
        click: () => send('go', { stage: p.index, rewrite: null }) }, svg('title', {}, label));
    });
    picture.append(...hitAreas);
    walkMarks(picture, hitAreas, Math.max(0, shownIndex));
    return picture;
  }

  // -- the table --------------------------------------------------------------------------------
  function drawTools() {
    const button = (name, text, title) => h('button', { role: 'tab', 'data-tab': name, title, 'aria-selected': String(tab() === name), click: () => setViewState({ tab: name, order: null }) }, text);
    const countOf = (n, total) => (n < total ? `${count(n)} of ${count(total)}` : count(total));
    const total = data[`${tab()}_total`];
    const sent = data[tab()].length;
    keepFocus(tools, ['data-tab', 'data-values', 'aria-label'], () => tools.replaceChildren(...[
      h('div', { class: 'group', role: 'tablist' },
        button('checks', `Checks of ${data.name} (${countOf(data.checks.length, data.checks_total)})`, 'Each rewrite of the shown pass, evaluated on real tensors before and after'),
        button('values', `Values (${countOf(data.values.length, data.values_total)})`, 'Statistics of each value of the network on the example inputs'),
        data.framework ? button('beside', `Against ${framework()} (${countOf(data.beside.length, data.beside_total)})`, `Each value of the import next to the result of ${framework()} for its node, on the same inputs`) : null,
        data.quantised?.measured ? button('lost', `What quantisation lost (${countOf(data.lost.length, data.lost_total)})`, 'Each value that became integers, next to the same value in floats, worst first') : null,
        data.floats_total ? button('floats', `Left in floats (${countOf(data.floats.length, data.floats_total)})`, 'Ops that still compute floats, and why') : null),
      tab() === 'values' && data.value_stages.length > 1 ? h('div', { class: 'group' }, data.value_stages.map(([s, name], i) =>
        h('button', { 'aria-pressed': String(s === shownStage()), 'data-values': s, title: `Values of stage ${s}, ${name}`, click: () => setViewState({ stage: s }) }, STAGES[name] ?? 'as compiled'))) : null,
      h('span', { class: 'gap' }),
      sent < total ? h('span', { title: 'The most severe rows; for all: workbench numerics --json' }, `${count(sent)} of ${count(total)} listed`) : null,
      tab() === 'beside' && data.framework.left_out ? h('span', { title: 'Not tensors, or of a different form there' }, `${count(data.framework.left_out)} not compared`) : null,
      tab() === 'values' && data.values_left ? h('span', { title: 'Checking inspects a limited number of values' }, `${count(data.values_left)} not inspected`) : null,
      filter,
    ].filter(Boolean)));
  }

  function rows() {
    const words = viewState.words.toLowerCase().split(/\s+/).filter(Boolean);
    const all = tab() === 'checks' ? data.checks.map((row, index) => ({ ...row, place: index })) : tab() === 'values' ? data.values.filter((row) => row.stage === shownStage()) : data[tab()];
    const text = (row) => [row.name, row.value, row.reason, row.rule, row.kind, row.kernel, row.type, row.scope, row.verdict, row.node, lineLabel(row)].join(' ').toLowerCase();
    const found = words.length ? all.filter((row) => words.every((w) => text(row).includes(w))) : all;
    if (!viewState.order) return found;
    const [name, sign] = viewState.order;
    const fieldOf = { apart: 'error', apart_absolute: 'absolute', apart_one: 'ulps', sqnr: 'sqnr_db', alone: 'alone_db', module: 'scope' };
    const widths = { bins: ['minimum', 'maximum'], both: ['from', 'to'], observed: ['minimum', 'maximum'], covered: ['low', 'high'] };
    const rank = (row) => (widths[name] ? row[widths[name][1]] - row[widths[name][0]] : fieldOf[name] ? row[fieldOf[name]] ?? Infinity : name === 'line' ? lineLabel(row) : row[name]);
    const missingRank = found.some((row) => typeof rank(row) === 'string') ? '' : -Infinity;
    return [...found].sort((a, b) => {
      const [p, q] = [rank(a) ?? missingRank, rank(b) ?? missingRank];
      return p < q ? -sign : p > q ? sign : a.place - b.place;
    });
  }

  function bins(row) {
    if (!row.bins) return '';
    const [w, tall] = [72, 15];
    const heights = [...row.bins].map((c) => parseInt(c, 36) / 35);
    const step = w / heights.length;
    const path = heights.map((v, i) => (v ? `M${(i * step).toFixed(1)} ${tall}v${(-v * tall).toFixed(1)}h${Math.max(1, step - 0.4).toFixed(1)}V${tall}Z` : '')).join('');
    const zero = row.minimum < 0 && row.maximum > 0 ? (-row.minimum / (row.maximum - row.minimum)) * w : null;
    return svg('svg', { class: 'bins', width: w, height: tall, role: 'img', 'aria-label': `Histogram from ${number(row.minimum)} to ${number(row.maximum)}` },
      svg('path', { d: path }), zero === null ? null : svg('line', { x1: zero, x2: zero, y1: 0, y2: tall }));
  }

  function cell(row, [name, , , , side]) {
    const left = side === 'left' ? { class: 'left' } : {};
    if (LOST_CELLS[name]) return LOST_CELLS[name](row);
    if (name === 'rewrite') {
      const what = row.rewrite === null ? row.note || row.kind : row.rule;
      return h('td', { ...left, title: `${MARK_WORDS[row.verdict]}: ${what}${row.note && row.rewrite !== null ? `\n${row.note}` : ''}` },
        h('span', { class: `verdict ${row.verdict}` }, MARKS[row.verdict]), row.rewrite === null ? '' : h('span', { class: 'faint' }, `${row.rewrite} `), what);
    }
    if (name === 'error') return h('td', { class: row.verdict === 'failed' ? 'failed' : '' }, row.verdict === 'unchecked' ? '–' : relative(row.error));
    if (name === 'tolerance') return h('td', { class: 'muted' }, row.tolerance === null ? 'bits' : relative(row.tolerance));
    if (name === 'absolute') return h('td', {}, relative(row.absolute));
    if (name === 'ulps') return h('td', {}, row.ulps === null ? '–' : count(row.ulps));
    if (name === 'value') return h('td', { class: 'left mono', title: `${row.value ?? ''} ${row.type}` }, row.value ?? '', row.element.length ? h('span', { class: 'faint' }, ` [${row.element.join(', ')}]`) : '');
    if (name === 'apart') return h('td', row.same ? { class: 'muted', title: 'Every bit is the same' } : {}, row.same ? 'same bits' : relative(row.error));
    if (name === 'apart_absolute') return h('td', {}, row.same ? '' : relative(row.absolute));
    if (name === 'apart_one') return h('td', {}, row.same ? '' : row.ulps === null ? '–' : count(row.ulps));
    if (name === 'node') return h('td', { class: 'left mono muted', title: row.node }, row.node);
    if (name === 'element') return h('td', { class: 'left mono faint' }, row.element.length ? `[${row.element.join(', ')}]` : '');
    if (name === 'theirs' || name === 'ours') return h('td', { class: 'mono' }, exactText(row[name]));
    if (name === 'old' || name === 'new') return h('td', { class: 'mono' }, exactText(row[name]));
    if (name === 'line') return h('td', { class: 'left muted', title: row.file ? `${row.file}:${row.line}` : '' }, lineLabel(row));
    if (name === 'place') return h('td', { class: 'faint' }, row.place);
    if (name === 'name') return h('td', { class: 'left', title: `${row.name}: ${row.kind} ${row.type}\n${row.scope}` }, 
      row.nan ? [h('span', { class: 'nan' }, 'NaN'), ' '] : row.inf ? [h('span', { class: 'inf' }, 'Inf'), ' '] : '',
      h('span', { class: 'mono' }, row.name), ' ', h('span', { class: 'faint' }, row.kernel ?? row.kind.replace(/^[a-z]+\./, '')));
    if (name === 'bins') return h('td', left, bins(row));
    if (name === 'nan' || name === 'inf') return h('td', { class: row[name] ? name : 'faint', title: row[name] && row.first_bad ? 'first in program order' : '' }, row[name] ? `${row.first_bad ? '▸ ' : ''}${count(row[name])}` : '0');
    return h('td', {}, number(row[name]));
  }

  const isSelected = (row, at) => (tab() === 'checks' && row.rewrite !== null ? row.rewrite === at.rewrite : row.op !== null && (at.ops ?? []).includes(row.op));

  function line(row, i) {
    const at = selection();
    return h('tr', { class: isSelected(row, at) ? 'on' : '', 'data-row': i, 'data-verdict': row.verdict, 'aria-selected': String(isSelected(row, at)), click: () => { choose(row); scroll.focus({ preventScroll: true }); } },
      columns().map((column) => cell(row, column)));
  }

  // An input of the model has no op to select.
  const isSelectable = (row) => row.op !== null || (tab() === 'checks' && row.rewrite !== null);

  function choose(row) {
    if (tab() === 'checks' && row.rewrite !== null) send('rewrite', row.op === null ? { index: row.rewrite } : { index: row.rewrite, op: row.op });
    else if (row.op !== null) send('select', { op: row.op });
  }

  function drawMore(upto = drawnCount + BATCH_SIZE) {
    const end = Math.min(list.length, upto);
    const added = [];
    for (; drawnCount < end; drawnCount += 1) added.push(line(list[drawnCount], drawnCount));
    body.append(...added);
  }

  function fill() {
    drawTools();
    const order = viewState.order ?? [];
    const sort = (name) => setViewState({ order: [name, order[0] === name ? -order[1] : ['sqnr', 'alone', 'cosine', 'reason', 'module', 'name', 'line', 'place', 'value', 'minimum', 'rewrite', 'node', 'element'].includes(name) ? 1 : -1] });
    keepFocus(head, ['data-sort'], () => head.replaceChildren(...columns().map(([name, title, unit, hint, kind]) =>
      sortHeader({ name, title, unit: unit || '', hint, kind }, order, sort))));
    list = rows();
    drawnCount = 0;
    body.replaceChildren();
    drawMore();
    scroll.scrollTop = 0;
    redraw();
    none.hidden = list.length > 0;
    const emptyText = tab() === 'lost' ? (data.quantised.sqnr_db === null ? 'Without example inputs, what was lost is not known.' : 'No value became integers.') : tab() === 'checks'
      ? `${data.name} has no checked rewrites. ${data.first ? 'Choose a marked pass above.' : ''}`
      : 'No values were inspected. Compile with “check every rewrite” to measure each value of the network on the example inputs.';
    none.textContent = viewState.words ? 'Nothing matches the filter.' : emptyText;
    mark();
  }

  function mark() {
    if (!data) return;
    if (data.two) {
      two.mark();
      return;
    }
    const at = selection();
    if (tab() === 'lost') redraw();
    const index = list.findIndex((row) => isSelected(row, at));
    if (index >= drawnCount) drawMore(index + BATCH_SIZE);
    [...body.children].forEach((node, i) => {
      node.classList.toggle('on', isSelected(list[i], at));
      node.setAttribute('aria-selected', String(isSelected(list[i], at)));
    });
    if (index >= 0) scrollToRow(body.children[index]);
  }

  // Scrolls vertically only, because a row is wider than its table.
  function scrollToRow(row) {
    const top = row.offsetTop - head.offsetHeight;
    if (scroll.scrollTop > top) scroll.scrollTop = top;
    const bottom = row.offsetTop + row.offsetHeight - scroll.clientHeight;
    if (scroll.scrollTop < bottom) scroll.scrollTop = bottom;
  }

  function table() {
    const names = tab() === 'lost'
      ? ['place', 'stage', 'name', 'kind', 'type', 'integers', 'sqnr_db', 'cosine', 'saturated', 'minimum', 'maximum', 'low', 'high', 'alone_db', 'op', 'scope', 'file', 'line']
      : tab() === 'floats' ? ['place', 'name', 'kind', 'type', 'reason', 'op', 'scope', 'file', 'line']
      : tab() === 'beside'
      ? ['place', 'node', 'name', 'kind', 'type', 'same', 'error', 'absolute', 'ulps', 'element', 'theirs', 'ours', 'op', 'scope', 'file', 'line']
      : tab() === 'checks'
      ? ['rewrite', 'rule', 'verdict', 'error', 'tolerance', 'absolute', 'ulps', 'value', 'element', 'old', 'new', 'type', 'op', 'kind', 'file', 'line', 'note']
      : ['stage', 'place', 'name', 'kind', 'type', 'minimum', 'maximum', 'mean', 'largest', 'nan', 'inf', 'op', 'scope', 'file', 'line'];
    return [names, list.map((row) => names.map((name) => row[name]))];
  }

  const passes = () => [['stage', 'pass', ...ORDER, 'worst', 'outputs_against_import'],
    data.passes.map((p) => [p.index, p.name, ...ORDER.map((v) => p.verdicts[v] ?? 0), p.worst, p.accumulated])];

  scroll.addEventListener('scroll', () => {
    if (drawnCount < list.length && scroll.scrollTop + scroll.clientHeight > scroll.scrollHeight - 300) drawMore();
  });
  walkRows(scroll, {
    selection, rows: () => list, isSelected, isSelectable, go: choose,
    enter: () => send('show', { view: tab() === 'checks' ? 'diff' : 'graph' }),
  });

  const redraw = () => {
    width = root.clientWidth;
    const row = drawn();
    keepFocus(chart, ['data-stage'], () => chart.replaceChildren(...(row ? [lossTitle(row), lossPicture(row, Math.max(300, width - 20))] : [errorChart()])));
  };
  const observer = new ResizeObserver(() => {
    if (data && !data.two && root.clientWidth && Math.abs(root.clientWidth - width) > 2) redraw();
  });
  observer.observe(root);
  later(() => observer.disconnect());
  watch('data', () => {
    data = json(model, 'data') ?? data;
    if (!data) return;
    if (!data.two) readInfinite([...data.passes, data.first, data.peer, ...data.checks, ...data.beside, ...data.lost, data.quantised], 'worst', 'accumulated', 'error', 'absolute', 'sqnr_db', 'alone_db');
    for (const each of [bar, summary, chart, tools, scroll]) each.hidden = Boolean(data.two);
    if (data.two) {
      root.append(two.root);
      two.show(data);
      return;
    }
    two.root.remove();
    drawBar();
    drawSummary();
    fill();
  });
  watch('state', () => {
    const state = plain(model.get('state')) ?? {};
    viewState.both = state.both ?? {};
    two.restore(viewState.both);
    const next = { tab: state.tab ?? '', order: state.order ?? null, stage: state.stage ?? null };
    if (JSON.stringify(next) === JSON.stringify({ tab: viewState.tab, order: viewState.order, stage: viewState.stage })) return;
    Object.assign(viewState, next);
    if (data && !data.two) fill();
  });
  watch('selection', mark);
});
