// The overview: findings, figures, how the passes changed the model, the most expensive kernels, advice.

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

function twoOverview({ page, linkProps, send }) {
  function runs(data, badge) {
    const run = (side) => h('span', { class: 'run', title: data[side].path }, letterOf(side), h('b', {}, data[side].name), h('span', { class: 'muted' }, data[side].subtitle), badge(data[side]));
    return h('div', { class: 'runs' }, LETTERS.map(run));
  }

  /** The change from A to B: in percent, or as a factor. */
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
    const to = each.view ? linkProps(() => send('show', { view: each.view })) : {};
    const [one, two] = each.hints;
    const hint = !one || !two || one === two ? one || two : '';
    const value = (side) => h('div', { class: `value side${typeof each[side] === 'string' ? ' text' : ''}`, title: each.hints[LETTERS.indexOf(side)] }, letterOf(side),
      h('span', {}, typeof each[side] === 'string' ? each[side] : figure(each[side], each.unit)));
    return h('div', { class: `figure${each.view ? ' to' : ''}`, title: explain('overview', each.label), ...to },
      h('div', { class: 'label' }, each.label), ...LETTERS.map(value), changeOf(each), h('div', { class: 'hint' }, hint));
  }

  const sidesOf = ({ sides }) => (sides ? h('span', { class: 'sides', title: sides === 'ab' ? 'in both' : `only in ${sides.toUpperCase()}` }, [...sides].map(letterOf)) : null);

  let barAt = 0; // the pass that the Tab key reaches
  function chart(passes, plot) {
    const maximum = Math.max(1, ...passes.flatMap((p) => LETTERS.map((side) => p[side]?.ops ?? 0)));
    const { picture, left, step, top, foot, y } = plot(maximum, passes.length, `Ops after each pass of both, ${plural(passes.length, 'pass')}: the arrow keys move between them, Enter shows the graph of A`, true);
    const hits = passes.map((p, i) => {
      const opsText = (side) => (p[side] ? count(p[side].ops) : 'without this pass');
      const label = `${p.name}: A ${opsText('a')}, B ${opsText('b')} ops`;
      LETTERS.forEach((side, k) => {
        if (!p[side]) return;
        const at = y(p[side].ops);
        picture.append(svg('rect', { class: `bar ${side}`, x: left + i * step + 1.5 + k * (step - 3) / 2, width: Math.max(1, (step - 3) / 2), y: at, height: Math.max(0.5, foot - at) }));
      });
      const hit = svg('rect', { class: 'hit', x: left + i * step, width: step, y: top, height: foot - top, role: 'link', 'aria-label': label, 'data-pass': i,
        click: () => { if (p.a) send('show', { view: 'graph', stage: p.a.index }); }, focus: () => { barAt = i; } }, svg('title', {}, label));
      picture.append(hit);
      return hit;
    });
    walkMarks(picture, hits, Math.min(barAt, hits.length - 1));
    return picture;
  }

  function kernels(rows) {
    const maximum = Math.max(...rows.flatMap((row) => LETTERS.map((side) => row[side]?.us ?? 0)), 1e-9);
    const [unit, scale] = columnUnit('us', rows.flatMap((row) => [row.a?.us, row.b?.us]));
    const timeText = (us) => `${number(us * scale)} ${unit}`;
    const time = (side) => (side === null ? 'none' : side.us === null ? '–' : `${side.measured ? '' : `${side.sign} `}${timeText(side.us)}`);
    const change = ({ a, b }) => {
      const [one, two] = [a?.us ?? (a ? null : 0), b?.us ?? (b ? null : 0)];
      if (one === null || two === null) return '';
      return one === two ? '=' : `${two > one ? '+' : '−'}${timeText(Math.abs(two - one))}`;
    };
    const name = (row) => [...new Set(LETTERS.flatMap((side) => (row[side]?.kernels ?? []).map((k) => k.name)))].join(', ');
    return rows.map((row) => {
      const id = row.a?.kernels[0]?.id ?? null;
      const go = id === null ? {} : linkProps(() => send('follow', { go: { kernel: id, open: 'kernels' } }));
      return h('div', { class: 'kernel both', ...go },
        h('span', { class: 'name', title: `${row.title}\n${name(row)}${row.place ? `\n${row.place}` : ''}` }, row.title || name(row)),
        h('span', { class: 'num' }, time(row.a)), h('span', { class: 'num' }, time(row.b)), h('span', { class: 'num muted', title: 'B − A' }, change(row)),
        h('span', { class: 'shares' }, LETTERS.map((side) => h('div', { class: `share ${side}` }, h('div', { style: { width: `${(100 * (row[side]?.us ?? 0)) / maximum}%` } })))));
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

const STYLE = `${TWO_STYLE}
.page { height: 100%; overflow-y: auto; padding: 18px 22px 30px; outline: none; }
.title { display: flex; align-items: baseline; gap: 12px; flex-wrap: wrap; } .title .gap { flex: 1; }
h1 { font-size: 20px; font-weight: 650; margin: 0; overflow-wrap: anywhere; }
.status { padding: 1px 8px; border-radius: 9px; border: 1px solid var(--line); color: var(--muted); }
.status.finished { color: var(--added); border-color: currentColor; }
.status.failed, .status.interrupted, .status.wrong { color: var(--bad); border-color: currentColor; }
.status.cancelled { color: var(--warn); border-color: currentColor; }
.status.recording { color: var(--accent); border-color: currentColor; }
.progress { margin: 10px 0 0; max-width: 640px; }
.track { height: 5px; background: var(--raised); border-radius: 3px; overflow: hidden; margin-top: 4px; }
.track div { height: 100%; background: var(--accent); transition: width .3s; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(158px, 1fr)); gap: 0;
  border: 1px solid var(--line); border-radius: 6px; overflow: hidden; margin: 14px 0 18px; background: var(--surface); }
.figure { padding: 9px 12px 8px; min-width: 0; box-shadow: 1px 1px 0 0 var(--line); }
.figure.to { cursor: pointer; } .figure.to:hover { background: var(--raised); }
.figure .label { color: var(--muted); }
.figure .value { font-size: 17px; font-weight: 600; font-variant-numeric: tabular-nums; line-height: 1.35; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.figure.bad { box-shadow: 1px 1px 0 0 var(--line), inset 3px 0 0 0 var(--bad); } .figure.bad .value { color: var(--bad); }
.figure .value.text { font: 500 13px/1.75 var(--mono); }
.figure .hint { color: var(--faint); font-size: 11px; line-height: 1.35; }
h2 { font-size: 13px; font-weight: 600; margin: 18px 0 6px; }
h2 button { float: right; font-weight: 400; }
h2 span { color: var(--faint); font-weight: 400; margin-left: 6px; }
.finding { display: grid; grid-template-columns: 20px minmax(0, 1fr) auto; gap: 6px; padding: 5px 8px; border-radius: 5px; align-items: start; }
.finding .cost { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; margin-right: 4px; } .finding .cost div { color: var(--muted); font-size: 11px; }
.finding .does { display: flex; gap: 6px; align-items: center; } .finding .does .open { width: 24px; padding: 0; }
.evidence { margin: 0 8px 10px 34px; padding: 2px 0 2px 12px; border-left: 2px solid var(--line); max-width: 1000px; }
.evidence h3 { font-size: 11px; font-weight: 600; color: var(--muted); margin: 7px 0 2px; } .evidence p { margin: 1px 0; overflow-wrap: anywhere; }
.evidence pre { margin: 4px 0; padding: 5px 8px; background: var(--page); border: 1px solid var(--line); border-radius: 4px; font: 11px/1.5 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; }
.evidence .actions { display: flex; gap: 6px; align-items: baseline; flex-wrap: wrap; margin: 4px 0 6px; }
.trying { display: flex; gap: 10px; align-items: baseline; padding: 6px 12px; margin: 4px 0 8px; border-left: 4px solid var(--accent); background: var(--raised); } .trying.bad { border-left-color: var(--bad); } .trying span { flex: 1; overflow-wrap: anywhere; }
.finding .to { cursor: pointer; } .finding:has(.to):hover { background: var(--raised); }
.finding .icon { text-align: center; font-weight: 700; }
.finding[data-severity=error] .icon { color: var(--bad); } .finding[data-severity=warning] .icon { color: var(--warn); } .finding[data-severity=note] .icon { color: var(--accent); }
.finding .detail { color: var(--muted); overflow-wrap: anywhere; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(380px, 1fr)); gap: 0 32px; }
.chart { max-width: 100%; height: 150px; display: block; overflow: visible; }
.chart .bar { fill: var(--accent); opacity: .75; cursor: pointer; } .chart .bar.same { fill: var(--line); opacity: 1; }
.chart .hit { fill: transparent; cursor: pointer; outline: none; } .chart .hit:hover, .chart .hit:focus-visible { fill: var(--accent); fill-opacity: .15; } .chart .hit:focus-visible { stroke: var(--accent); }
.chart text { fill: var(--faint); font: 10px var(--sans); } .chart line { stroke: var(--line); }
.kernel { display: grid; grid-template-columns: minmax(0, 1fr) 70px 60px 110px; gap: 8px; padding: 2px 8px; cursor: pointer; align-items: center; border-radius: 4px; }
.kernel:hover { background: var(--raised); }
.kernel .name { font-family: var(--mono); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.kernel .share { height: 8px; background: var(--raised); border-radius: 2px; } .kernel .share div { height: 100%; background: var(--accent); border-radius: 2px; opacity: .75; }
.phases { display: flex; height: 12px; max-width: 900px; border-radius: 3px; overflow: hidden; margin: 4px 0 7px; }
.phases div { min-width: 2px; } .phase-rows { display: grid; grid-template-columns: 14px minmax(90px, max-content) repeat(2, minmax(90px, max-content)) minmax(120px, max-content); gap: 2px 10px; align-items: center; }
.phase-rows i { width: 5px; height: 12px; } .phase-rows .num { text-align: right; font-variant-numeric: tabular-nums; }
.forward { background: var(--phase-forward); } .loss { background: var(--phase-loss); } .recomputed { background: var(--phase-recomputed); }
.backward { background: var(--phase-backward); } .exchange { background: var(--phase-exchange); } .optimizer { background: var(--phase-optimizer); }
.foot { color: var(--faint); margin-top: 22px; font-size: 11px; }
`;
/** Time (ms) after which no compiler is assumed: a host without one does not answer. */
const ANSWER_TIMEOUT = 10000;
const SEVERITIES = ['error', 'warning', 'note'];
const ICON = { error: '✗', warning: '!', note: 'i' };
const WORDS = { finished: 'complete', recording: 'compiling', failed: 'failed', cancelled: 'cancelled', interrupted: 'interrupted' };
const CHART = { height: 150, left: 40, bottom: 18, top: 6 };

export default component(STYLE, ({ model, root, watch, later, send }) => {
  const page = h('div', { class: 'page', tabindex: 0, role: 'region', 'aria-label': 'Overview' });
  root.append(page);
  const linkProps = (run) => ({ click: run, keydown: (event) => event.key === 'Enter' && run(), tabindex: 0, role: 'link' });

  const two = twoOverview({ page, linkProps, send });

  /** Whether checks of a completed compile failed. */
  const hasFailedChecks = (data) => data.failed > 0 && data.status === 'finished';
  const statusText = (data) => (hasFailedChecks(data) ? plural(data.failed, 'failed check') : data.elsewhere ? 'being written on another machine' : data.training && data.status === 'recording' ? 'training' : WORDS[data.status] ?? data.status);

  const badge = (data) => h('span', { class: `status ${hasFailedChecks(data) ? 'wrong' : data.status}` }, statusText(data));

  function progress(data) {
    const { progress: at } = data;
    if (!at || data.status !== 'recording') return null;
    const share = at.total ? (100 * at.done) / at.total : 0;
    return h('div', { class: 'progress', role: 'status' },
      `${at.what}${at.total ? ` · ${count(at.done)} of ${count(at.total)}` : ''} · ${seconds(at.seconds)}`,
      h('div', { class: 'track' }, h('div', { style: { width: `${share}%` } })));
  }

  function figureBox(each) {
    const hasValue = each.text !== undefined ? each.text : each.value !== null;
    if (!hasValue) return null;
    const to = each.view ? linkProps(() => send('show', { view: each.view, stage: each.stage })) : {};
    return h('div', { class: `figure${each.view ? ' to' : ''}${each.bad ? ' bad' : ''}`, title: explain('overview', each.label), ...to },
      h('div', { class: 'label' }, each.label),
      h('div', { class: `value${each.text !== undefined ? ' text' : ''}` }, each.text ?? figure(each.value, each.unit)),
      h('div', { class: 'hint' }, each.hint));
  }

  // -- findings and advice ----------------------------------------------------------------------
  // Advice is requested after the rest is drawn: its evidence can need all stages of the recording.
  const session = Math.random().toString(36).slice(2);
  let requestNumber = 0;
  let shownData = null;
  let trial = null;
  let answerTimer = 0;
  const openFindings = new Set();

  function askAdvice(data) {
    if (data.advice !== null) return;
    requestNumber += 1;
    model.set('request', JSON.stringify([{ id: requestNumber, session, kind: 'advice' }]));
    model.save_changes();
  }
  watch('response', () => {
    for (const each of json(model, 'response') ?? []) {
      if (each.session !== session || each.id !== requestNumber || !shownData) continue;
      shownData.advice = each.error ? [] : each.value;
      shownData.problem = each.error ?? '';
      draw();
    }
  });

  const sorted = (all) => [...all].sort((a, b) =>
    SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) || (b.cost?.part ?? 0) - (a.cost?.part ?? 0));
  const sortedFindings = (data) => sorted([...data.findings, ...(data.advice ?? [])]);
  const costOf = ({ value, unit }) => (unit === 'part' ? `${number(100 * value)} %` : figure(value, unit));
  const isRunning = () => trial?.state === 'running';

  function startTrial(offer) {
    trial = { state: 'running', run: shownData.run };
    draw();
    send('rerun', { draft: offer.draft, compare: true });
    clearTimeout(answerTimer);
    answerTimer = setTimeout(() => {
      trial = { run: shownData.run, error: { what: 'This page cannot compile', fix: 'copy the command' } };
      draw();
    }, ANSWER_TIMEOUT);
  }

  function tryButton(offer) {
    if (!offer.draft || offer.reason || !canEdit()) return null;
    return h('button', { 'data-do': 'try', disabled: isRunning(), title: `Compile again into a new recording (${offer.words}) and compare the two`, click: () => startTrial(offer) }, isRunning() ? 'Trying …' : 'Try it');
  }

  function bisectButton(primary) {
    return canEdit() && h('button', { 'data-do': 'bisect', class: primary ? 'primary' : '', title: 'Compile again pass by pass, and find the first bad pass and rewrite', click: () => send('bisect', { beside: 'overview' }) }, 'First bad pass');
  }

  function finding(each, first) {
    const to = Object.keys(each.go).length ? linkProps(() => send('follow', { go: each.go })) : {};
    const key = `${each.hazard} ${each.title}`;
    const { cost } = each;
    const open = openFindings.has(key);
    const toggle = () => { if (!openFindings.delete(key)) openFindings.add(key); draw(); };
    const row = h('div', { class: 'finding', 'data-severity': each.severity, 'data-hazard': each.hazard },
      h('span', { class: 'icon', title: each.severity }, ICON[each.severity]),
      h('div', { class: to.role ? 'to' : '', ...to }, h('div', {}, two.sidesOf(each), each.title), h('div', { class: 'detail' }, each.detail)),
      (cost || first) && h('div', { class: 'does' },
        cost && h('div', { class: 'cost', title: cost.how }, `${cost.estimated ? '≈ ' : ''}${costOf(cost)}`, cost.of && cost.unit !== 'part' ? h('div', {}, `${number(100 * cost.part)} % ${cost.of}`) : null),
        first && bisectButton(true), each.tries.map(tryButton)[0],
        cost && h('button', { class: 'plain open', 'data-key': key, 'aria-expanded': String(open), 'aria-label': 'Evidence and what to try', title: 'Evidence and what to try', click: toggle }, open ? '▴' : '▾')));
    return cost && open ? [row, evidence(each)] : [row];
  }

  function evidence(each) {
    const { cost } = each;
    return h('div', { class: 'evidence' },
      h('h3', {}, 'Cost'), h('p', {}, `${costOf(cost)}, ${cost.estimated ? 'estimated: ' : ''}${cost.how}`),
      each.evidence.length ? h('h3', {}, 'Evidence') : null,
      each.evidence.map((fact) => h('p', {}, Object.keys(fact.go).length
        ? h('span', { class: 'link', ...linkProps(() => send('follow', { go: fact.go })) }, fact.text) : fact.text)),
      each.tries.length ? h('h3', {}, 'What to try') : null,
      each.tries.map((offer) => {
        const command = offer.command ? h('pre', { tabindex: 0, 'aria-label': 'Command' }, offer.command) : null;
        const copy = command && h('button', { 'data-do': 'copy', click: () => copyText(offer.command, copy, command) }, 'Copy command');
        return h('div', {}, h('p', {}, offer.sentence), command,
          command || offer.reason ? h('div', { class: 'actions' }, tryButton(offer), copy, offer.reason ? h('span', { class: 'muted' }, `Not available here: ${offer.reason}`) : null) : null);
      }));
  }

  function trialStatus() {
    if (isRunning()) return h('div', { class: 'trying', role: 'status' }, h('span', {}, 'Compiling again with the edit; this recording does not change. The comparison opens next.'), canEdit() && h('button', { 'data-do': 'cancel', click: () => send('cancel', { of: 'pipeline' }) }, 'Cancel'));
    if (!trial?.error || trial.run !== shownData.run) return null;
    const { error, ask } = trial;
    const message = [error.where ? `${error.where}: ` : '', error.what, error.fix ? ` – ${error.fix}` : ''].join('');
    return h('div', { class: 'trying bad', role: 'alert' }, h('span', {}, message),
      ask ? h('button', { click: () => send('show', { view: 'pipeline' }) }, 'Read it in Pipeline') : null,
      h('button', { class: 'plain', 'aria-label': 'Close', click: () => { trial = null; draw(); } }, '×'));
  }
  watch('detail', () => {
    const next = json(model, 'detail');
    if (!next) return;
    clearTimeout(answerTimer);
    trial = next.state === 'done' ? null : next;
    draw();
  });
  later(() => clearTimeout(answerTimer));

  /** Problems: known immediately, and therefore shown first. */
  function findings(data) {
    const all = sorted(data.findings);
    return [
      h('h2', {}, 'Findings', h('span', {}, all.length > 1 ? 'Most severe first' : ''), data.bisects && !all.some((each) => each.look) ? bisectButton() : null),
      ...all.flatMap((each) => finding(each, each === all.find((other) => other.look))),
      all.length ? null : h('p', { class: 'muted' }, data.status === 'recording' ? 'No problems so far.' : 'No problems found.'),
      data.more_findings ? h('p', { class: 'muted' }, `and ${count(data.more_findings)} more`) : null,
    ];
  }

  /** Costs of time, memory or precision: shown last, because it arrives later and must not move the rest. */
  function advice(data) {
    const isLoading = data.advice === null;
    const all = sorted(data.advice ?? []);
    if (data.status === 'recording') return [];
    return [
      h('h2', {}, 'Advice', h('span', {}, isLoading ? 'searching …' : all.length ? 'Most severe first, then by cost. ▾ shows evidence' : '')),
      trialStatus(),
      ...all.flatMap((each) => finding(each, false)),
      all.length || isLoading ? null : h('p', { class: 'muted' }, data.problem ? `Advice is not available: ${data.problem}` : 'No hazards found.'),
    ];
  }

  /** The frame of a chart of ops after each pass: its scale and the position of a pass.
   * `fullWidth`: as wide as the page, not half of it. */
  function plot(maximum, passes, label, fullWidth = false) {
    const { height, left, bottom, top } = CHART;
    const available = Math.max(360, page.clientWidth - 44);
    const width = Math.floor(available > 800 && !fullWidth ? (available - 32) / 2 : available);
    const foot = height - bottom;
    const y = (ops) => top + (foot - top) * (1 - ops / maximum);
    const picture = svg('svg', { class: 'chart', viewBox: `0 0 ${width} ${height}`, width, role: 'group', 'aria-label': label });
    for (const tick of [0, maximum / 2, maximum]) {
      picture.append(svg('line', { x1: left, x2: width, y1: y(tick), y2: y(tick) }),
        svg('text', { x: left - 5, y: y(tick) + 3, 'text-anchor': 'end' }, count(tick)));
    }
    return { picture, left, top, foot, width, step: (width - left) / passes, y };
  }

  let barAt = 0; // the bar that the Tab key reaches
  function chart(passes) {
    const last = passes[passes.length - 1];
    const { picture, left, step, top, foot, y } = plot(Math.max(1, ...passes.map((p) => p.ops)), passes.length,
      `Ops after each pass, from ${passes[0].ops} to ${last.ops}: the arrow keys move between them, Enter shows the graph`);
    const hits = passes.map((p, i) => {
      const go = () => send('show', { view: 'graph', stage: p.index });
      const label = `${String(p.index).padStart(2, '0')} ${p.name}: ${count(p.ops)} ops, ${seconds(p.seconds)}`;
      const hit = svg('rect', { class: 'hit', x: left + i * step, width: step, y: top, height: foot - top, role: 'link', 'aria-label': label, 'data-pass': p.index,
        click: go, focus: () => { barAt = i; } }, svg('title', {}, label));
      picture.append(svg('rect', { class: `bar${p.changed ? '' : ' same'}`, x: left + i * step + 0.5, width: Math.max(1, step - 1.5), y: y(p.ops), height: Math.max(0.5, foot - y(p.ops)) }), hit);
      return hit;
    });
    walkMarks(picture, hits, Math.min(barAt, hits.length - 1));
    return picture;
  }

  /** Adds the names of the first and the last pass below a chart. */
  function addPassNames(picture, names) {
    const { width } = picture.viewBox.baseVal;
    picture.append(svg('text', { x: CHART.left, y: CHART.height - 5 }, names[0]),
      svg('text', { x: width, y: CHART.height - 5, 'text-anchor': 'end' }, names[names.length - 1]));
    return picture;
  }

  // A training step by phase: by time if it was measured, else by launches, else by ops.
  function phases(rows) {
    const basis = ['us', 'launches', 'ops'].find((name) => rows.some((row) => row[name]));
    const total = rows.reduce((sum, row) => sum + (row[basis] ?? 0), 0);
    const [time, scale] = columnUnit('us', rows.map((row) => row.us));
    const cell = (value, unit) => h('span', { class: 'num' }, value === null ? '' : `${typeof value === 'number' ? count(value) : value} ${unit}`);
    const show = (row) => linkProps(() => send('follow', { go: { open: 'graph', stage: row.stage, state: { graph: { query: `phase:${row.phase}` } } } }));
    return [
      h('div', { class: 'phases', role: 'img', 'aria-label': rows.map((row) => `${row.phase} ${number((100 * row[basis]) / total)} %`).join(', ') },
        rows.map((row) => h('div', { class: row.phase, style: { flex: String(row[basis] ?? 0) }, title: row.phase }))),
      h('div', { class: 'phase-rows' }, rows.flatMap((row) => [
        h('i', { class: row.phase }), h('span', { class: 'link', ...show(row) }, row.phase),
        cell(row.ops, row.ops === 1 ? 'op' : 'ops'), cell(row.launches, row.launches === 1 ? 'launch' : 'launches'),
        row.us === null ? h('span') : h('span', { class: 'num' }, `${number(row.us * scale)} ${time} (${number((100 * row.us) / total)} %)`)])),
    ];
  }

  const hasTimes = (data) => data.kernels.some((k) => k.total_us !== null);

  function kernels(rows) {
    const [unit, scale] = columnUnit('us', rows.map((k) => k.total_us));
    return rows.map((k) => h('div', { class: 'kernel', ...linkProps(() => send('follow', { go: { kernel: k.id, panes: ['kernels', 'code'] } })) },
      h('span', { class: 'name', title: k.name }, k.name), h('span', { class: 'num muted' }, `${count(k.count)} ×`),
      h('span', { class: 'num' }, k.total_us === null ? '' : `${number(k.total_us * scale)} ${unit}`),
      k.share === null ? null : h('span', { class: 'share', title: k.share === null ? '' : `${number(100 * k.share)} % of the time, ${k.beyond ? explain('kernels', 'beyond') : `${number(k.percent)} % of this machine's limit`}` },
        h('div', { style: { width: `${100 * (k.share ?? 0)}%` } }))));
  }

  const findingsItem = () => csvItem('Findings', 'findings', () => [['severity', ...(shownData.two ? ['sides'] : []), 'title', 'detail', 'cost', 'unit', 'estimated', 'how', 'evidence'], sortedFindings(shownData).map((each) => [
      each.severity, ...(shownData.two ? [each.sides] : []), each.title, each.detail, each.cost?.value, each.cost?.unit, each.cost?.estimated, each.cost?.how, each.evidence?.map((fact) => fact.text).join('\n')])]);
  const saves = downloadMenu(() => {
    const { figures, passes, kernels: rows, phases: parts } = shownData;
    const picture = pictureItems('Ops after each pass', 'passes', page.querySelector('svg.chart'));
    if (shownData.two) return [...two.sheets(shownData), findingsItem(), ...picture];
    return [
      csvItem('Figures', 'figures', () => [['figure', 'value', 'unit', 'text', 'hint'], figures.map((each) => [each.label, each.value, each.unit, each.text, each.hint])]),
      findingsItem(),
      ...(passes.length > 1 ? [csvItem('Ops after each pass', 'passes', () => [['stage', 'pass', 'ops', 'changed', 'seconds'], passes.map((p) => [p.index, p.name, p.ops, p.changed, p.seconds])])] : []),
      ...picture,
      ...(rows.length ? [csvItem('Kernels', 'slowest-kernels', () => [['kernel', 'launches', 'total_us', 'share', 'percent_of_limit'], rows.map((k) => [k.name, k.count, k.total_us, k.share, k.percent])])] : []),
      ...(parts.length ? [csvItem('Phases of the step', 'phases', () => [['phase', 'ops', 'launches', 'us'], parts.map((row) => [row.phase, row.ops, row.launches, row.us])])] : []),
    ];
  });

  const section = (title, hint, what) => h('div', {}, h('h2', {}, title, hint), what);

  function singlePage(data) {
    const [what, hint] = hasTimes(data) ? ['Where the time goes', 'kernels, one execution'] : ['Kernels', data.training ? 'of one iteration' : 'not timed yet: press Execute'];
    return [
      h('div', { class: 'title' }, h('h1', {}, data.title), h('span', { class: 'muted' }, data.subtitle),
        badge(data), h('span', { class: 'gap' }), saves),
      progress(data),
      ...findings(data),
      h('div', { class: 'figures' }, data.figures.map(figureBox)),
      ...(data.phases.length ? [h('h2', {}, 'Phases of the step', h('span', {}, 'a kernel with ops of several phases counts in the one with most of them')), ...phases(data.phases)] : []),
      h('div', { class: 'two' },
        data.passes.length > 1 ? section('Ops after each pass', h('span', {}, 'grey: unchanged'), addPassNames(chart(data.passes), ['import', data.passes[data.passes.length - 1].name])) : null,
        data.kernels.length ? section(what, h('span', {}, hint), kernels(data.kernels)) : null),
      ...advice(data),
      h('div', { class: 'foot' }, data.versions),
    ];
  }

  function pairPage(data) {
    return [
      h('div', { class: 'title' }, h('h1', {}, data.title), h('span', { class: 'gap' }), saves),
      two.runs(data, badge),
      ...findings(data),
      h('div', { class: 'figures' }, data.figures.map(two.figureBox)),
      h('div', { class: 'two rows' },
        data.passes.length > 1 ? section('Ops after each pass', two.legend(), addPassNames(two.chart(data.passes, plot), ['import', data.passes[data.passes.length - 1].name])) : null,
        data.kernels.length ? section('Where the time goes', [two.legend(), h('span', {}, 'kernels with the same computation, one execution')], two.kernels(data.kernels)) : null),
      ...advice(data),
      h('div', { class: 'foot' }, data.a.versions === data.b.versions ? data.a.versions : [h('div', {}, `A: ${data.a.versions}`), h('div', {}, `B: ${data.b.versions}`)]),
    ];
  }

  // Late data (advice, a kernel's time) must not move the element under the pointer: it waits
  // while a button is down, and the page scrolls along if the pointer is below it.
  let isPressed = false;
  let isDrawPending = false;
  const onRelease = () => setTimeout(() => { // after the click
    isPressed = false;
    if (isDrawPending) draw();
  });
  page.addEventListener('pointerdown', (event) => { isPressed = event.button === 0; });
  for (const end of ['pointerup', 'pointercancel']) window.addEventListener(end, onRelease);
  later(() => ['pointerup', 'pointercancel'].forEach((end) => window.removeEventListener(end, onRelease)));
  const lowerTop = () => page.querySelector(':scope > .two')?.getBoundingClientRect().top ?? 0;

  function draw() {
    const data = shownData;
    isDrawPending = isPressed;
    if (!data || isDrawPending) return;
    const top = page.scrollTop;
    const hoveredTop = page.querySelector(':scope > .two:hover') ? lowerTop() : null;
    keepFocus(page, ['data-pass', 'data-key'], () => page.replaceChildren(...(data.two ? pairPage(data) : singlePage(data)).filter(Boolean)));
    page.scrollTop = hoveredTop === null ? top : top + lowerTop() - hoveredTop;
  }
  let width = 0;
  const observer = new ResizeObserver(() => {
    if (page.clientWidth && Math.abs(page.clientWidth - width) > 2) {
      width = page.clientWidth;
      draw();
    }
  });
  observer.observe(page);
  later(() => observer.disconnect());
  watch('data', () => {
    const data = json(model, 'data');
    if (!data) return;
    readInfinite(data.figures, 'value', 'a', 'b');
    shownData = data;
    draw();
    askAdvice(data);
  });
});
