// The rewrites of a pass: the list, one rewrite before and after, and "why not?" for two ops.

function twoRewrites({ selection, send, remember }) {
  const group = (name, title, hint, rest) => ({ name, title, hint, ...rest });
  const integer = { integer: true, neutral: true };
  const error = (row, side) => { const found = row[side]; return !found ? '' : found.failed ? `${found.failed} failed` : found.error === null ? '' : found.error ? relative(found.error) : 'bitwise'; };
  return pairTable({ selection, remember, what: {
    csv: ['Rules of both', 'rules-of-two'], order: ['count_d', -1],
    region: 'Rules of both recordings: up and down show the pass of A, Enter the graph after it',
    filter: 'Filter by rule or pass',
    left: [{ id: 'rule', title: 'rule', code: true, value: (row) => row.rule }, { id: 'pass', title: 'pass', value: (row) => row.pass }],
    groups: [
      group('count', 'applied', 'How often the rule applied in this pass.', { unit: 'times', ...integer }), group('removed', 'ops removed', 'Ops that it removed minus those that it made, including constants and memory.', integer),
      group('us', 'time', 'Time of matching and rewriting during the compile.', { kind: 'us' }),
    ],
    right: ['a', 'b'].map((side) => ({ id: `check_${side}`, title: `${side.toUpperCase()} worst check`, value: (row) => error(row, side) })),
    rows: (data) => data.rows, words: (row) => `${row.rule} ${row.pass}`,
    facts: (data) => {
      const times = (side) => data.rows.reduce((sum, row) => sum + (row[side]?.count ?? 0), 0);
      const differing = data.rows.filter((row) => (row.a?.count ?? 0) !== (row.b?.count ?? 0)).length;
      return [h('span', {}, 'rewrites ', h('b', {}, count(times('a'))), ' | ', h('b', {}, count(times('b')))), h('span', {}, differing ? `${plural(differing, 'rule')} applied more often in one` : 'each rule applied equally often in both')];
    },
    marks: (row) => ({ 'data-rule': row.rule }),
    isSelected: (row, at) => Boolean(row.a) && row.a.stage === at.stage && (at.rule == null || at.rule === row.rule),
    isSelectable: (row) => Boolean(row.a),
    choose: (row) => send('go', { stage: row.a.stage, rewrite: row.a.first }, { rule: row.rule }),
    enter: () => send('show', { view: 'graph', beside: 'rewrites' }),
  } });
}

const STYLE = `${PAIR_TABLE}
.root { display: flex; flex-direction: column; background: var(--surface); }
.bar { display: flex; align-items: center; gap: 8px; min-height: 32px; padding: 0 10px; border-bottom: 1px solid var(--line); color: var(--muted); white-space: nowrap; overflow: hidden; flex: none; }
.bar .gap { flex: 1; } .bar b { color: var(--text); font-weight: 600; } .bar .title { overflow: hidden; text-overflow: ellipsis; }
.bar select { max-width: 190px; min-width: 70px; flex: 0 1 auto; }
.group { display: flex; flex: none; } .group button { border-radius: 0; margin-left: -1px; }
.group button:first-child { border-radius: 4px 0 0 4px; margin-left: 0; } .group button:last-child { border-radius: 0 4px 4px 0; }
.body { display: flex; flex: 1; min-height: 0; }
.body.narrow { flex-direction: column; }
.list { flex: 1 1 46%; min-width: 0; min-height: 0; overflow: auto; outline: none; }
.list:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; z-index: 1; background: var(--raised); font-weight: 600; text-align: left; padding: 3px 7px; white-space: nowrap; border-bottom: 1px solid var(--line); }
td { padding: 2px 7px; white-space: nowrap; border-bottom: 1px solid color-mix(in srgb, var(--line) 45%, transparent); }
th.num, td.num { text-align: right; }
td.rule { max-width: 260px; overflow: hidden; text-overflow: ellipsis; width: 100%; }
td.place { color: var(--muted); max-width: 190px; overflow: hidden; text-overflow: ellipsis; } td.name { font-family: var(--mono); max-width: 110px; overflow: hidden; text-overflow: ellipsis; }
tbody tr { cursor: pointer; } tbody tr:hover { background: var(--raised); } tbody tr.on { background: var(--accentSoft); }
.empty { padding: 18px; color: var(--muted); }
.detail { flex: 1 1 54%; min-width: 0; min-height: 0; overflow: auto; border-left: 1px solid var(--line); padding: 8px 12px 20px; outline: none; }
.narrow .detail { border-left: none; border-top: 1px solid var(--line); flex: 1 1 56%; }
.detail h3 { font-size: 12px; margin: 0 0 4px; font-weight: 600; overflow-wrap: anywhere; }
.facts { display: flex; flex-wrap: wrap; gap: 1px 18px; margin: 0 0 8px; }
.facts div { display: flex; gap: 7px; min-width: 0; }
.facts dt { color: var(--muted); flex: none; } .facts dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(230px, 1fr)); gap: 8px 14px; }
.sides > div { min-width: 0; }
.sides h4 { margin: 0 0 3px; font-size: 11px; font-weight: 600; color: var(--muted); }
.drawing { overflow: auto; max-height: 300px; border: 1px solid var(--line); border-radius: 4px; background: var(--page); margin-bottom: 6px; }
.drawing svg { display: block; margin: auto; }
.drawing .box { fill: var(--surface); stroke: var(--muted); } .old .drawing .box { stroke: var(--removed); stroke-dasharray: 4 2; } .new .drawing .box { stroke: var(--added); stroke-width: 1.5; }
.drawing .node { cursor: pointer; } .drawing .node:hover .box, .drawing .node:focus .box { fill: var(--accentSoft); } .drawing .node { outline: none; }
.drawing .kind { fill: var(--text); font: 600 11px var(--sans); } .drawing .type { fill: var(--muted); font: 10px var(--sans); } .drawing .value { fill: var(--faint); font: 10px var(--mono); paint-order: stroke; stroke: var(--page); stroke-width: 4px; stroke-linejoin: round; }
.drawing .edge { stroke: var(--muted); fill: none; } .drawing .fence { fill: none; stroke: var(--line); stroke-dasharray: 2 3; }
.ir { font: 11px/1.55 var(--mono); border: 1px solid var(--line); border-radius: 4px; background: var(--page); padding: 4px 0; overflow-x: auto; }
.ir div { white-space: pre; padding: 0 8px; cursor: pointer; } .ir div:hover { background: var(--raised); } .ir div.on { background: var(--accentSoft); }
.ir .more { color: var(--faint); cursor: default; }
.asks { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 5px 10px; align-items: center; margin-bottom: 8px; }
.asks .what { display: flex; gap: 6px; align-items: center; flex-wrap: wrap; min-width: 0; }
.asks .op { font-family: var(--mono); font-weight: 600; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; max-width: 100%; }
.asks .op small, .chip small { font: 11px var(--sans); color: var(--muted); font-weight: 400; }
.asks input { width: 230px; }
.chips { display: flex; flex-wrap: wrap; gap: 4px; }
.chip { font-family: var(--mono); height: auto; min-height: 22px; padding: 1px 7px; text-align: left; white-space: normal; }
.found { border: 1px solid var(--line); border-radius: 4px; margin-top: 3px; }
.summary { padding: 7px 9px; border-radius: 5px; background: var(--raised); margin: 8px 0; font-weight: 600; overflow-wrap: anywhere; }
.answer { border-top: 1px solid var(--line); padding: 5px 0 6px; overflow-wrap: anywhere; }
.answer.best { border-left: 3px solid var(--warn); padding-left: 8px; } .answer.fused, .answer.applied { border-left: 3px solid var(--added); padding-left: 8px; }
.answer .head { display: flex; gap: 8px; flex-wrap: wrap; align-items: baseline; }
.answer .outcome { font-weight: 600; } .outcome.fused, .outcome.applied { color: var(--added); } .outcome.refused { color: var(--warn); } .outcome.not { color: var(--faint); }
.answer .source { color: var(--faint); font-family: var(--mono); font-size: 11px; }
.quiet { color: var(--faint); margin-top: 6px; }
.bad { color: var(--bad); padding: 8px 0; }
`;
const COLUMNS = columnsOf('rewrites', ['n', 'num'], ['rule', 'rule'], ['name', 'name'], ['place', 'place'], ['before', 'num'], ['us', 'num'], 'verdict', ['note', 'place']);
const RANK = { failed: 3, within: 2, bitwise: 1, unchecked: 0 };

export default component(STYLE, ({ model, root, watch, later, send, selection }) => {
  let data = null;
  let mode = {};
  let order = ['n', 1];
  let drawnDetail = '';
  const session = Math.random().toString(36).slice(2, 10);
  let requestNumber = 0;
  let onFound = null;
  const bar = h('div', { class: 'bar' });
  const head = h('tr');
  const rows = h('tbody');
  const none = h('p', { class: 'empty' });
  const list = h('div', { class: 'list', tabindex: 0, role: 'region', 'aria-label': 'Rewrites: up and down select, Enter shows the graph' },
    h('table', {}, h('thead', {}, head), rows), none);
  const detail = h('div', { class: 'detail', tabindex: 0, role: 'region', 'aria-label': 'The rewrite' });
  const body = h('div', { class: 'body' }, list, detail);
  const two = twoRewrites({ selection, send, remember: (both) => remember({ both }) });
  root.append(bar, body);

  const isWhyNotShown = () => Boolean(mode.why);
  const remember = (change) => {
    mode = { ...mode, ...change };
    model.set('state', mode);
    model.save_changes();
  };
  /** Asks "why not?": the question is part of the view state, so the answer arrives with the next state. */
  const askWhyNot = (why) => {
    mode = { ...mode, why };
    send('follow', { go: { state: { rewrites: mode }, open: 'rewrites' } });
    draw();
  };

  // -- the list -------------------------------------------------------------------------------------
  const checkText = (row) => (row.verdict === 'within' || row.verdict === 'failed' ? `${MARKS[row.verdict]} ${relative(row.error)}` : MARKS[row.verdict]);
  function visibleRows() {
    const [name, sign] = order;
    const rank = (row) => (name === 'verdict' ? RANK[row.verdict] * 1e6 + Math.min(1e5, row.error ?? 0) : row[name]);
    return data.rows.filter((row) => (!mode.rule || row.rule === mode.rule) && (!mode.verdict || row.verdict === mode.verdict))
      .sort((a, b) => (rank(a) < rank(b) ? -sign : rank(a) > rank(b) ? sign : a.n - b.n));
  }

  function drawList() {
    const hasNotes = data.rows.some((row) => row.note);
    const columns = COLUMNS.filter(([name]) => name !== 'note' || hasNotes);
    const sort = (name) => { order = [name, order[0] === name ? -order[1] : ['us', 'verdict'].includes(name) ? -1 : 1]; drawList(); };
    keepFocus(head, ['data-sort'], () => head.replaceChildren(...columns.map(([name, title, , hint, kind]) =>
      sortHeader({ name, title, hint, kind: kind === 'num' ? 'num' : '' }, order, sort))));
    const cell = (row, name, kind) => {
      if (name === 'before') return h('td', { class: 'num' }, `${row.before} → ${row.after}`);
      if (name === 'us') return h('td', { class: 'num' }, number(row.us));
      if (name === 'verdict') return h('td', { class: row.verdict, title: MARK_WORDS[row.verdict] }, checkText(row));
      return h('td', { class: kind, title: name === 'place' ? `${row.place} ${row.scope}` : String(row[name]) }, row[name]);
    };
    const visible = visibleRows();
    rows.replaceChildren(...visible.map((row) => h('tr', { 'data-rewrite': row.n,
      click: () => { send('rewrite', { index: row.n }); list.focus({ preventScroll: true }); } }, columns.map(([name, , kind]) => cell(row, name, kind)))));
    const passButton = (stage, text) => (stage === null ? null : h('button', { click: () => send('go', { stage, rewrite: null }) }, text));
    none.replaceChildren(...(visible.length ? [data.total > data.rows.length && !mode.rule ? `${count(data.rows.length)} of ${count(data.total)} rewrites.` : '']
      : data.total ? ['No rewrites match. ', h('button', { click: () => { remember({ rule: '', verdict: '' }); draw(); } }, 'show all')]
        : [data.stage === 0 ? 'The import has no rewrites. ' : `${data.name} has no rewrites. `, passButton(data.previous, 'previous pass with rewrites'), ' ', passButton(data.next, 'next pass with rewrites')]).filter(Boolean));
    none.hidden = !none.childNodes.length || none.textContent === '';
    mark(false);
  }

  function drawBar() {
    const select = (name, label, options) => h('select', { 'aria-label': label, title: label, change: (event) => { remember({ [name]: event.target.value }); drawList(); } },
      h('option', { value: '' }, label), options.map(([value, text]) => h('option', { value, selected: mode[name] === value }, text)));
    const verdicts = Object.keys(MARKS).map((verdict) => [verdict, data.rows.filter((row) => row.verdict === verdict).length]).filter(([, n]) => n);
    const tab = (on, text, hint, click) => h('button', { 'aria-pressed': String(on), title: hint, click }, text);
    keepFocus(bar, ['title'], () => bar.replaceChildren(...[
      h('span', { class: 'group' }, tab(!isWhyNotShown(), 'rewrites', 'The rewrites of this pass', () => askWhyNot(null)),
        tab(isWhyNotShown(), 'why not?', 'Why two ops were not fused, or a rule was not applied', () => isWhyNotShown() || askWhyNot({}))),
      h('span', { class: 'title' }, h('b', {}, data.name), ` ${plural(data.total, 'rewrite')}`),
      data.rules.length > 1 ? select('rule', 'all rules', data.rules.map(([rule, n]) => [rule, `${rule} (${count(n)})`])) : null,
      verdicts.length > 1 ? select('verdict', 'all checks', verdicts.map(([verdict, n]) => [verdict, `${MARKS[verdict]} ${MARK_WORDS[verdict]} (${count(n)})`])) : null,
      h('span', { class: 'gap' }),
      saves,
    ].filter(Boolean)));
  }

  const saves = downloadMenu(() => {
    const { detail: found } = selection();
    const [before, after] = isWhyNotShown() ? [] : ['old', 'new'].map((side) => detail.querySelector(`.${side} .drawing svg`));
    const whyAnswers = isWhyNotShown() ? selection().why?.answers ?? [] : [];
    return [
      csvItem('List', `rewrites-${data.stage}-${data.name}`, () => {
        const names = ['n', 'rule', 'name', 'place', 'scope', 'before', 'after', 'us', 'verdict', 'error', 'note'];
        return [names, visibleRows().map((row) => names.map((name) => row[name]))];
      }),
      ...pictureItems('Before', `rewrite-${data.stage}-${found?.n}-before`, before), ...pictureItems('After', `rewrite-${data.stage}-${found?.n}-after`, after),
      ...(whyAnswers.length ? [csvItem('Why not', 'why-not', () => [['stage', 'pass', 'rule', 'outcome', 'conditions_held', 'sentence', 'source'], whyAnswers.map((each) => [each.stage, each.pass, each.rule, each.outcome, each.held, each.sentence, each.source])])] : []),
    ];
  });

  function mark(reveal) {
    const { rewrite } = selection();
    for (const row of rows.children) {
      const on = Number(row.dataset.rewrite) === rewrite;
      row.classList.toggle('on', on);
      row.setAttribute('aria-selected', String(on));
      if (on && reveal) row.scrollIntoView({ block: 'nearest' });
    }
  }

  // -- one rewrite ----------------------------------------------------------------------------------
  const selectOp = (op) => () => send('select', { op });
  const linkProps = (run) => ({ click: run, keydown: (event) => { if (event.key === 'Enter') { run(); event.stopPropagation(); } }, tabindex: 0, role: 'link' });

  function drawRewrite(found) {
    const fact = (name, ...value) => h('div', {}, h('dt', {}, name), h('dd', {}, ...value));
    const numbers = found.numbers?.filter((each) => each !== null) ?? [];
    detail.replaceChildren(
      h('h3', {}, `Rewrite ${found.n} · ${found.rule}`),
      h('dl', { class: 'facts' },
        found.source && fact('rule', h('code', { title: found.source }, found.short)),
        fact('check', h('span', { class: found.verdict }, found.check)),
        found.value && fact('compared', h('code', {}, found.value), found.element?.length && found.verdict !== 'bitwise' ? ` worst at [${found.element}]` : '', numbers.length === 2 ? `: ${numbers[0]} became ${numbers[1]}` : ''),
        fact('tolerance', found.tolerance === null ? 'none: bitwise equality required' : `${found.tolerance.toExponential(1)} of max abs`),
        fact('time', figure(found.us, 'us')), found.note && fact('note', found.note),
        found.values.length && fact('values', h('code', {}, found.values.map(([a, b]) => (a === b ? a : `${a} → ${b}`)).join(', ')))),
      h('div', { class: 'sides' }, side('old', 'Before', found.old), side('new', 'After', found.new)));
    detail.scrollTop = 0;
  }

  function side(name, title, ops) {
    return h('div', { class: name }, h('h4', {}, `${title}: ${plural(ops.count, 'op')}`),
      ops.drawn.length && ops.drawn.length < 41 ? h('div', { class: 'drawing' }, drawing(ops.drawn, title)) : null,
      ops.count ? h('div', { class: 'ir' }, ops.lines.map((line) => h('div', { ...linkProps(selectOp(line.op)), 'data-op': line.op, title: line.text, style: { paddingLeft: `${8 + 14 * line.depth}px` } }, ir(line.text))),
        ops.more ? h('div', { class: 'more' }, `and ${count(ops.more)} more ops`) : null) : h('p', { class: 'quiet' }, name === 'new' ? 'No ops: removed, or already present.' : 'No ops.'));
  }

  /** Highlights MLIR; types are less prominent. */
  function ir(text) {
    const parts = text.split(/(%[\w$.-]+|"[a-z]+\.\w+"(?=\()| : \(.*$)/);
    return parts.map((part) => (part.startsWith('%') ? h('span', { class: 'hl-v' }, part) : part.startsWith('"') ? h('span', { class: 'hl-f' }, part) : part.startsWith(' : (') ? h('span', { class: 'hl-t' }, part) : part));
  }

  /** Draws ops in layers by their longest path from the inputs, values as lines. */
  function drawing(ops, title) {
    const width = 128, tall = 30, gapX = 14, gapY = 24, letter = 6.1;
    const short = (names) => names.map((each) => (each.length > 12 ? `%…${each.slice(-10)}` : each)).slice(0, 3).join(' ') + (names.length > 3 ? ' …' : '');
    const producer = new Map(ops.flatMap((op, i) => op.out.map((value) => [value, i])));
    const layer = [];
    ops.forEach((op, i) => { layer[i] = 1 + Math.max(-1, ...op.in.map((value) => layer[producer.get(value)] ?? -1)); });
    const inLayer = [];
    const column = ops.map((_, i) => { inLayer[layer[i]] = (inLayer[layer[i]] ?? 0) + 1; return inLayer[layer[i]] - 1; });
    const widest = Math.max(...inLayer.filter(Boolean));
    const fullWidth = widest * (width + gapX) + gapX;
    const x = (i) => (fullWidth - inLayer[layer[i]] * (width + gapX) + gapX) / 2 + column[i] * (width + gapX);
    const y = (i) => 22 + layer[i] * (tall + gapY);
    const bottom = 22 + inLayer.length * (tall + gapY);
    const outer = ops.map((op) => op.in.map((value, k) => [value, op.names[k]]).filter(([value]) => !producer.has(value)).map(([, name]) => name));
    const right = Math.max(fullWidth, ...ops.map((_, i) => x(i) + 2 + letter * short(outer[i]).length + gapX));
    const picture = svg('svg', { width: right, height: bottom, viewBox: `0 0 ${right} ${bottom}`, role: 'group', 'aria-label': `${title}: ${ops.map((op) => op.kind).join(', ')}` });
    const groups = new Map();
    ops.forEach((op, i) => { if (op.group !== null) groups.set(op.group, [...(groups.get(op.group) ?? []), i]); });
    for (const members of groups.values()) {
      const [left, right] = [Math.min(...members.map(x)) - 6, Math.max(...members.map(x)) + width + 6];
      const [top, lower] = [Math.min(...members.map(y)) - 6, Math.max(...members.map(y)) + tall + 6];
      picture.append(svg('rect', { class: 'fence', x: left, y: top, width: right - left, height: lower - top, rx: 6 }));
    }
    const used = new Set();
    ops.forEach((op, i) => {
      op.in.forEach((value, k) => {
        const from = producer.get(value);
        if (from === undefined) return;
        used.add(value);
        const [x1, y1, x2, y2] = [x(from) + width / 2, y(from) + tall, x(i) + (width * (k + 1)) / (op.in.length + 1), y(i)];
        picture.append(svg('path', { class: 'edge', d: `M${x1},${y1} C${x1},${y1 + 12} ${x2},${y2 - 12} ${x2},${y2}` }));
      });
    });
    ops.forEach((op, i) => {
      const run = selectOp(op.op);
      if (outer[i].length) picture.append(svg('text', { class: 'value', x: x(i) + 2, y: y(i) - 4 }, short(outer[i]), svg('title', {}, outer[i].join(' '))));
      picture.append(svg('g', { class: 'node', tabindex: 0, role: 'link', 'aria-label': `${op.name} ${op.kind}`, click: run, keydown: (event) => event.key === 'Enter' && run() },
        svg('rect', { class: 'box', x: x(i), y: y(i), width, height: tall, rx: 4 }),
        svg('text', { class: 'kind', x: x(i) + 7, y: y(i) + 12.5 }, op.kind.slice(0, 18)),
        svg('text', { class: 'type', x: x(i) + 7, y: y(i) + 24.5 }, op.type.split(',')[0].slice(0, 23)),
        svg('title', {}, `${op.name} ${op.kind}: ${op.type}`)));
      if (!op.out.some((value) => used.has(value))) picture.append(svg('text', { class: 'value', x: x(i) + width / 2, y: y(i) + tall + 12, 'text-anchor': 'middle' }, op.name.length > 18 ? `%…${op.name.slice(-16)}` : op.name));
    });
    return picture;
  }

  // -- why not? ---------------------------------------------------------------------------------------
  const opLabel = (op) => h('span', { class: 'op', title: `${op.name} ${op.kind} ${op.type} ${op.scope}` }, `${op.name} `, h('small', {}, `${op.kind} ${op.type}`));
  const opChip = (op, run) => h('button', { class: 'chip', title: `${op.type} ${op.scope}`, 'data-op': op.op, click: run }, op.feeds === undefined ? '' : op.feeds ? '↑ ' : '↓ ', `${op.name} `, h('small', {}, op.kind));

  function opFinder(hint, run) {
    const found = h('div', { class: 'chips' });
    const input = h('input', { type: 'search', placeholder: hint, 'aria-label': hint, keydown: (event) => { if (event.key === 'Enter') found.querySelector('button')?.click(); event.stopPropagation(); } });
    let timer = 0;
    input.addEventListener('input', () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        requestNumber += 1;
        onFound = (ops) => found.replaceChildren(...(ops.length ? ops.map((op) => opChip(op, () => run(op.op))) : [h('span', { class: 'quiet' }, input.value.trim() ? 'no ops found in this stage' : '')]));
        model.set('request', JSON.stringify([{ id: requestNumber, session, kind: 'find', text: input.value }]));
        model.save_changes();
      }, 150);
    });
    return [input, found];
  }

  function drawWhy(why) {
    const { a, b, rule } = why;
    const isPinned = mode.why?.a !== undefined && mode.why?.a !== null;
    const askWith = (change) => askWhyNot({ ...(a ? { a: a.op } : {}), ...(mode.why?.b !== undefined ? { b: mode.why.b } : {}), ...(rule ? { rule } : {}), ...change });
    const names = h('datalist', { id: 'rules' }, data.names.map((name) => h('option', { value: name })));
    const ruleInput = h('input', { list: 'rules', value: rule, placeholder: 'or a rule or pass', 'aria-label': 'rule', change: (event) => askWith({ b: null, rule: event.target.value.trim() }), keydown: (event) => event.stopPropagation() });
    const row = (label, ...parts) => [h('span', { class: 'muted' }, label), h('div', { class: 'what' }, ...parts)];
    const otherNeighbours = why.neighbours.filter((each) => each.op !== b?.op);
    const parts = [
      h('h3', {}, 'Why not?'),
      h('div', { class: 'asks' },
        row('this op', a ? opLabel(a) : h('span', { class: 'quiet' }, 'select one in any view, or find it:'), a ? h('button', { class: 'plain', title: 'Ask about another op', click: () => askWhyNot({}) }, '×') : opFinder('find an op', (op) => askWhyNot({ a: op }))),
        a ? row('and', b ? opLabel(b) : rule ? '' : h('span', { class: 'quiet' }, isPinned ? 'click an op in any view, choose a neighbour, or find one:' : 'choose a neighbour, or find an op:'),
          b ? h('button', { class: 'plain', title: 'Ask about another op', click: () => askWith({ b: undefined, rule: undefined }) }, '×') : rule ? '' : opFinder('find the other op', (op) => askWith({ b: op })), b ? '' : ruleInput, names,
          rule ? h('button', { class: 'plain', title: 'No rule', click: () => askWith({ rule: undefined, b: undefined }) }, '×') : '') : null,
        a && otherNeighbours.length ? row('neighbours', h('div', { class: 'chips' }, otherNeighbours.map((op) => opChip(op, () => askWith({ b: op.op, rule: undefined }))))) : null),
      why.problem ? h('p', { class: 'bad', role: 'alert' }, why.problem) : null,
      why.summary ? h('div', { class: 'summary', role: 'status' }, why.summary) : null,
      ...answers(why),
    ];
    detail.replaceChildren(...parts.filter(Boolean));
  }

  function answers(why) {
    if (!why.a || (!why.b && !why.rule) || why.problem) return [];
    if (!why.answers.length) return [h('p', { class: 'quiet' }, 'No rule of this pipeline applies to these ops.')];
    const rejected = why.answers.filter((each) => each.outcome === 'refused');
    const closest = rejected.reduce((nearest, each) => (nearest === null || each.held > nearest.held ? each : nearest), null);
    return [...why.answers.map((each) => h('div', { class: `answer ${each.outcome}${each === closest ? ' best' : ''}`, 'data-outcome': each.outcome },
      h('div', { class: 'head' }, h('span', { class: 'link', ...linkProps(() => send('follow', { go: { stage: each.stage, open: 'rewrites' } })) }, `${String(each.stage).padStart(2, '0')} ${each.pass}`),
        h('span', { class: `outcome ${each.outcome.split(' ')[0]}` }, each.outcome), h('span', { class: 'muted' }, each.rule === each.pass ? '' : each.rule)),
      h('div', {}, linkedSentence(each)), h('span', { class: 'source', title: each.source }, each.short))),
    h('p', { class: 'quiet' }, `The conditions are those of the passes, evaluated again on the result of each; evaluated in stage ${why.asked} ${why.asked_name}.`)];
  }

  /** The sentence, with the names of its ops as links. */
  function linkedSentence({ sentence, ops }) {
    const opIds = new Map(ops.filter((op) => op.op !== null && op.value).map((op) => [op.value, op.op]));
    if (!opIds.size) return [sentence];
    const escaped = [...opIds.keys()].sort((a, b) => b.length - a.length).map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
    return sentence.split(new RegExp(`(${escaped.join('|')})(?![\\w.])`)).map((part) => (opIds.has(part)
      ? h('span', { class: 'link mono', ...linkProps(() => send('follow', { go: { op: opIds.get(part), state: { rewrites: { ...mode, why: { ...mode.why, a: selection().why?.a?.op, b: selection().why?.b?.op ?? null } } } } })) }, part) : part));
  }

  // -- together -----------------------------------------------------------------------------------------
  function drawDetail() {
    const { detail: found, why } = selection();
    list.hidden = isWhyNotShown() && body.classList.contains('narrow');
    const currentDetail = JSON.stringify(isWhyNotShown() ? [why, mode.why] : found);
    if (currentDetail === drawnDetail) return;
    drawnDetail = currentDetail;
    if (isWhyNotShown()) {
      if (why) drawWhy(why);
      else detail.replaceChildren(h('p', { class: 'quiet' }, 'Asking...'));
    } else if (found) drawRewrite(found);
    else detail.replaceChildren(h('h3', {}, data.name), h('p', { class: 'muted' }, data.doc), h('p', { class: 'quiet' }, data.total ? 'Choose a rewrite to see it before and after (J and K select the next and the previous).' : ''));
  }

  function draw() {
    if (!data) return;
    drawBar();
    drawList();
    drawDetail();
  }

  walkRows(list, {
    selection, rows: () => (data ? visibleRows() : []), isSelected: (row, { rewrite }) => row.n === rewrite,
    go: (row) => send('rewrite', { index: row.n }),
    enter: () => send('show', { view: 'graph', beside: 'rewrites' }),
  });

  const observer = new ResizeObserver(() => {
    if (!root.clientWidth) return;
    body.classList.toggle('narrow', root.clientWidth < 900);
    if (data && !data.two) drawDetail();
  });
  observer.observe(root);
  later(() => observer.disconnect());

  watch('response', () => {
    for (const each of json(model, 'response') ?? []) {
      if (each.session === session && each.id === requestNumber && !each.error) onFound?.(each.value);
    }
  });
  watch('state', () => {
    const nextMode = plain(model.get('state')) ?? {};
    if (JSON.stringify(nextMode) === JSON.stringify(mode)) return;
    mode = nextMode;
    two.restore(mode.both ?? {});
    if (data?.two) return;
    drawnDetail = '';
    draw();
  });
  watch('data', () => {
    data = json(model, 'data') ?? data;
    for (const each of [bar, body]) each.hidden = Boolean(data?.two);
    if (data?.two) {
      root.append(two.root);
      two.show(data);
      return;
    }
    two.root.remove();
    readInfinite(data.rows, 'error');
    drawnDetail = '';
    draw();
    mark(true);
  });
  watch('selection', () => {
    if (!data) return;
    if (data.two) {
      two.mark();
      return;
    }
    mark(true);
    drawDetail();
  });
});
