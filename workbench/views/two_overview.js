// What the overview draws of two recordings instead of one: figures A and B, the passes of both in
// one chart, kernels that compute the same. It stands in one module with overview.js.

const TWO_STYLE = `${PAIR}
.runs { display: flex; flex-wrap: wrap; gap: 4px 26px; margin-top: 4px; } .runs .run { display: flex; gap: 7px; align-items: baseline; min-width: 0; } .runs .run b { overflow-wrap: anywhere; } .letter { align-self: center; }
.figure .value.side { display: flex; align-items: center; gap: 7px; font-size: 15px; } .figure .value.side .letter, .finding .letter, .legend .letter { width: 15px; height: 15px; font-size: 10px; }
.figure .value.side span:nth-child(2) { overflow: hidden; text-overflow: ellipsis; } .figure .value.side.text { font: 500 12px/1.75 var(--mono); }
.figure .change { font-size: 11.5px; line-height: 1.5; color: var(--muted); font-variant-numeric: tabular-nums; } .change.better { color: var(--added); } .change.worse { color: var(--removed); }
.finding .sides { display: inline-flex; gap: 3px; margin-right: 7px; vertical-align: -2px; }
.chart .bar.b { fill: var(--moved); } .legend { display: inline-flex; gap: 5px; align-items: center; margin-left: 8px; vertical-align: -2px; }
.two.rows { display: block; } .kernel.both { grid-template-columns: minmax(0, 1fr) 72px 72px 72px 200px; }
.kernel.both .shares { display: grid; gap: 2px; } .kernel.both .share { height: 5px; } .kernel.both .share.b div { background: var(--moved); }
`;
const LETTERS = ['a', 'b'];
const letterOf = (side) => h('span', { class: `letter ${side}` }, side.toUpperCase());

function twoOverview({ page, press, send }) {
  function runs(data, badge) {
    const run = (side) => h('span', { class: 'run', title: data[side].path }, letterOf(side), h('b', {}, data[side].name), h('span', { class: 'muted' }, data[side].subtitle), badge(data[side]));
    return h('div', { class: 'runs' }, LETTERS.map(run));
  }

  /** B beside A: in percent, or how many times as much. */
  function changeOf({ a, b, less }) {
    if (a === null || b === null) return h('div', { class: 'change' }, `only in ${a === null ? 'B' : 'A'}`);
    if (a === b) return h('div', { class: 'change' }, 'the same');
    if (typeof a !== 'number' || typeof b !== 'number') return h('div', { class: 'change' }, 'differs');
    const kind = !less ? '' : b < a ? ' better' : ' worse';
    const part = a ? b / a - 1 : NaN;
    const words = !Number.isFinite(part) ? 'B is larger' : Math.abs(part) <= 1 ? `${part < 0 ? '−' : '+'}${number(100 * Math.abs(part))} %` : `${number(b / a)} ×`;
    return h('div', { class: `change${kind}`, title: 'B compared with A' }, words);
  }

  function figureBox(each) {
    const to = each.view ? press(() => send('show', { view: each.view })) : {};
    const [one, two] = each.hints;
    const hint = !one || !two || one === two ? one || two : '';
    const value = (side) => h('div', { class: `value side${typeof each[side] === 'string' ? ' text' : ''}`, title: each.hints[LETTERS.indexOf(side)] }, letterOf(side),
      h('span', {}, typeof each[side] === 'string' ? each[side] : figure(each[side], each.unit)));
    return h('div', { class: `figure${each.view ? ' to' : ''}`, title: explain('overview', each.label), ...to },
      h('div', { class: 'label' }, each.label), ...LETTERS.map(value), changeOf(each), h('div', { class: 'hint' }, hint));
  }

  const sidesOf = ({ sides }) => (sides ? h('span', { class: 'sides', title: sides === 'ab' ? 'in both' : `only in ${sides.toUpperCase()}` }, [...sides].map(letterOf)) : null);

  let barAt = 0; // which pass the Tab key comes to
  function chart(passes, plot) {
    const most = Math.max(1, ...passes.flatMap((p) => LETTERS.map((side) => p[side]?.ops ?? 0)));
    const { picture, left, step, top, foot, y } = plot(most, passes.length, `Ops after each pass of both, ${plural(passes.length, 'pass')}: the arrow keys go along them, Enter shows the graph of A`, true);
    const hits = passes.map((p, i) => {
      const of = (side) => (p[side] ? count(p[side].ops) : 'no such pass');
      const said = `${p.name}: A ${of('a')}, B ${of('b')} ops`;
      LETTERS.forEach((side, k) => {
        if (!p[side]) return;
        const at = y(p[side].ops);
        picture.append(svg('rect', { class: `bar ${side}`, x: left + i * step + 1.5 + k * (step - 3) / 2, width: Math.max(1, (step - 3) / 2), y: at, height: Math.max(0.5, foot - at) }));
      });
      const hit = svg('rect', { class: 'hit', x: left + i * step, width: step, y: top, height: foot - top, role: 'link', 'aria-label': said, 'data-pass': i,
        click: () => { if (p.a) send('show', { view: 'graph', stage: p.a.index }); }, focus: () => { barAt = i; } }, svg('title', {}, said));
      picture.append(hit);
      return hit;
    });
    walked(picture, hits, Math.min(barAt, hits.length - 1));
    return picture;
  }

  function kernels(rows) {
    const most = Math.max(...rows.flatMap((row) => LETTERS.map((side) => row[side]?.us ?? 0)), 1e-9);
    const [unit, scale] = columnUnit('us', rows.flatMap((row) => [row.a?.us, row.b?.us]));
    const told = (us) => `${number(us * scale)} ${unit}`;
    const time = (side) => (side === null ? 'none' : side.us === null ? '–' : `${side.measured ? '' : '≥ '}${told(side.us)}`);
    const change = ({ a, b }) => {
      const [one, two] = [a?.us ?? (a ? null : 0), b?.us ?? (b ? null : 0)];
      if (one === null || two === null) return '';
      return one === two ? '=' : `${two > one ? '+' : '−'}${told(Math.abs(two - one))}`;
    };
    const name = (row) => [...new Set(LETTERS.flatMap((side) => (row[side]?.kernels ?? []).map((k) => k.name)))].join(', ');
    return rows.map((row) => {
      const id = row.a?.kernels[0]?.id ?? null;
      const go = id === null ? {} : press(() => send('follow', { go: { kernel: id, open: 'kernels' } }));
      return h('div', { class: 'kernel both', ...go },
        h('span', { class: 'name', title: `${row.title}\n${name(row)}${row.place ? `\n${row.place}` : ''}` }, row.title || name(row)),
        h('span', { class: 'num' }, time(row.a)), h('span', { class: 'num' }, time(row.b)), h('span', { class: 'num muted', title: 'B − A' }, change(row)),
        h('span', { class: 'shares' }, LETTERS.map((side) => h('div', { class: `share ${side}` }, h('div', { style: { width: `${(100 * (row[side]?.us ?? 0)) / most}%` } })))));
    });
  }

  const legend = () => h('span', { class: 'legend' }, ...LETTERS.map(letterOf));
  const sheets = (data) => [
    csvItem('Figures of both', 'figures-of-two', () => [['figure', 'a', 'b', 'unit', 'hint_a', 'hint_b'], data.figures.map((each) => [each.label, each.a, each.b, each.unit, ...each.hints])]),
    csvItem('Ops after each pass of both', 'passes-of-two', () => [['pass', 'stage_a', 'ops_a', 'stage_b', 'ops_b'], data.passes.map((p) => [p.name, p.a?.index, p.a?.ops, p.b?.index, p.b?.ops])]),
    ...(data.kernels.length ? [csvItem('Kernels of both', 'slowest-kernels-of-two', () => [['computes', 'us_a', 'us_b', 'measured_a', 'measured_b'], data.kernels.map((row) => [row.title, row.a?.us, row.b?.us, row.a?.measured, row.b?.measured])])] : []),
  ];
  return { runs, figureBox, sidesOf, chart, kernels, legend, sheets };
}
