// What quantisation lost: the columns of its tables, and the histogram of a value in floats and from integers.

const LOST_STYLE = `
.lost { padding: 6px 2px 0; font-size: 12px; color: var(--muted); white-space: nowrap; overflow: hidden; text-overflow: ellipsis; } .lost b { color: var(--text); font-weight: 600; }
.chart .floats, .bins path.floats { fill: var(--accent); opacity: .45; } .chart .integers, .bins path.integers { fill: none; stroke: var(--text); stroke-width: 1.2; opacity: .85; }
.chart .reach { stroke: var(--moved); stroke-dasharray: 3 3; } .chart .zero { stroke: var(--text); opacity: .5; } .chart .bin { fill: transparent; }
td.module { direction: rtl; } /* cut at the start: modules differ at the end */
td.why { white-space: normal; min-width: 220px; }
`;
const LOST_COLUMNS = columnsOf('numerics', ['name', 'left'], ['module', 'left'], 'sqnr', 'cosine', 'saturated', ['both', 'left'], 'observed', 'covered', 'alone', ['line', 'left']);
const FLOATS_COLUMNS = columnsOf('numerics', ['name', 'left'], ['module', 'left'], ['reason', 'left'], ['line', 'left']);
/** Columns that are shown only if a row has this field. */
const OPTIONAL = { alone: 'alone_db', module: 'scope' };
const LOST = { top: 14, plot: 62, names: 16, side: 12 };

const decibels = (value) => (value === null || value === undefined ? '–' : Number.isFinite(value) ? value.toFixed(1) : String(value).startsWith('-') ? '−∞' : '∞');
const range = (low, high) => `${number(low)} to ${number(high)}`;

/** A path along the tops of bins, and one around them down to the base. */
function binPaths(counts, x, y, base) {
  const tops = counts.map((n, i) => `H${x(i).toFixed(1)}V${y(n).toFixed(1)}H${x(i + 1).toFixed(1)}`).join('');
  const path = `M${x(0).toFixed(1)} ${base}${tops}V${base}`;
  return { outline: path, area: `${path}Z` };
}

// Square roots: the zeros of a relu are many times the rest.
const binHeight = (row, tall) => {
  const most = Math.sqrt(Math.max(1, ...row.floats, ...row.dequantised));
  return (n) => (n ? Math.max(1, (Math.sqrt(n) / most) * tall) : 0);
};

/** Both histograms, as large as a cell. */
function smallBins(row) {
  const [w, tall] = [72, 15];
  const height = binHeight(row, tall - 1);
  const x = (i) => (i / row.floats.length) * w;
  const path = (counts) => binPaths(counts, x, (n) => tall - height(n), tall);
  return svg('svg', { class: 'bins', width: w, height: tall, role: 'img', 'aria-label': `Histogram from ${range(row.from, row.to)}` },
    svg('path', { class: 'floats', d: path(row.floats).area }), svg('path', { class: 'integers', d: path(row.dequantised).outline }));
}

/** What the parts of the picture are. */
function legend(at, wide) {
  const marks = [['in floats', svg('rect', { class: 'floats', width: 10, height: 8, y: 2 })], ['from integers', svg('path', { class: 'integers', d: 'M0 10V3H10V10' })],
    ['range of the integers', svg('line', { class: 'reach', x1: 5, x2: 5, y1: 0, y2: 11 })]];
  const starts = [0, 70, 156];
  return [...marks.map(([text, mark], i) => svg('g', { transform: `translate(${at + starts[i]} 0)` }, mark, svg('text', { x: 14, y: 9 }, text))),
    wide > 520 ? svg('text', { x: wide - at, y: 9, 'text-anchor': 'end' }, 'heights: square roots of the counts') : null];
}

/** The histogram of a value in floats, that from integers over it, and the range of the integers. */
function lossPicture(row, wide) {
  const { top, plot, names, side } = LOST;
  const base = top + plot;
  const [first, last] = [Math.min(row.from, row.low), Math.max(row.to, row.high)];
  const x = (value) => side + ((value - first) / (last - first || 1)) * (wide - 2 * side);
  const edge = (i) => row.from + (i / row.floats.length) * (row.to - row.from);
  const height = binHeight(row, plot);
  const [floats, integers] = [row.floats, row.dequantised].map((counts) => binPaths(counts, (i) => x(edge(i)), (n) => base - height(n), base));
  const label = `${row.name}: histogram in floats and from integers, ${range(row.from, row.to)}; the integers cover ${range(row.low, row.high)}`;
  const texts = [[first, 'start'], [last, 'end'], ...(x(0) > side + 60 && x(0) < wide - side - 60 ? [[0, 'middle']] : [])];
  return svg('svg', { width: wide, height: base + names, viewBox: `0 0 ${wide} ${base + names}`, role: 'img', 'aria-label': label },
    ...legend(side, wide),
    svg('line', { class: 'axis', x1: side, x2: wide - side, y1: base, y2: base }),
    svg('path', { class: 'floats', d: floats.area }), svg('path', { class: 'integers', d: integers.outline }),
    first < 0 && last > 0 ? svg('line', { class: 'zero', x1: x(0), x2: x(0), y1: base, y2: base + 4 }) : null,
    ...[row.low, row.high].map((end) => svg('line', { class: 'reach', x1: x(end), x2: x(end), y1: top, y2: base })),
    ...texts.map(([value, anchor]) => svg('text', { x: x(value), y: base + 12, 'text-anchor': anchor }, number(value))),
    ...row.floats.map((n, i) => svg('rect', { class: 'bin', x: x(edge(i)), width: Math.max(1, x(edge(i + 1)) - x(edge(i))), y: top, height: plot },
      svg('title', {}, `${range(edge(i), edge(i + 1))}: ${count(n)} in floats, ${count(row.dequantised[i])} from integers`))));
}

/** The end of a module's path, which tells it from others. */
const shortScope = (scope) => (scope.split('/').length > 6 ? `…/${scope.split('/').slice(-5).join('/')}` : scope);
const inModule = (row) => (row.scope ? ` in ${shortScope(row.scope)}` : '');

/** A line about a value: what is drawn of it. */
function lossTitle(row) {
  const integers = row.integers.replace(/^.*[x<]/, '').replace('>', '');
  const rest = `, observed ${range(row.minimum, row.maximum)}, integers of ${integers} cover ${range(row.low, row.high)}`;
  return h('div', { class: 'lost', 'data-lost': row.value, title: `${row.name}${inModule(row)}${rest}` },
    h('b', { class: 'mono' }, row.name), ` ${row.kind.replace(/^[a-z]+\./, '')}${inModule(row)}: `, h('b', {}, `${decibels(row.sqnr_db)} dB`), rest);
}

/** The sentence about quantisation; `open` shows a tab. */
function lostSummary({ quantised, lost, floats }, open) {
  const to = (tab, text) => h('button', { class: 'link', 'data-do': tab, click: () => open(tab) }, text);
  if (!quantised.measured) return h('div', { class: 'more', 'data-quantised': '' }, quantised.waits ? 'What quantisation lost is measured after the passes that all targets share.'
    : 'What quantisation lost was not recorded: the compile ended before, or an older version made it.');
  return h('div', { class: 'more', 'data-quantised': '' }, `Quantised: ${plural(quantised.results, 'result')} in integers. `,
    ...(quantised.sqnr_db === null ? ['Without example inputs, what was lost is not known. '] : ['Signal-to-noise ratio of the outputs: ', h('b', {}, `${decibels(quantised.sqnr_db)} dB`), '. ']),
    ...(lost.length ? [to('lost', `Lost most: ${lost[0].name}`), `${inModule(lost[0])}, ${decibels(lost[0].sqnr_db)} dB. `] : []),
    ...(floats.length ? [to('floats', `${plural(floats.length, 'op')} left in floats`), '.'] : ['Nothing is left in floats.']));
}

const LOST_CELLS = {
  module: (row) => h('td', { class: 'left muted module', title: row.scope }, h('bdi', {}, row.scope)),
  sqnr: (row) => h('td', {}, decibels(row.sqnr_db)),
  alone: (row) => h('td', {}, decibels(row.alone_db)),
  cosine: (row) => h('td', {}, number(row.cosine, 5)),
  saturated: (row) => h('td', { class: row.saturated ? '' : 'faint' }, row.saturated ? `${number(100 * row.saturated)} %` : '0'),
  both: (row) => h('td', { class: 'left' }, smallBins(row)),
  observed: (row) => h('td', {}, range(row.minimum, row.maximum)),
  covered: (row) => h('td', {}, range(row.low, row.high)),
  reason: (row) => h('td', { class: 'left why' }, row.reason),
};
