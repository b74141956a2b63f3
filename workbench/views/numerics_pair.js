// Values of two recordings: one row per value, A above B, in program order; the first that differs.
// Bundled into one module with numerics.js, whose styles it uses.

const TWO_STYLE = `${PAIR}
.two { display: flex; flex-direction: column; flex: 1; min-height: 0; }
.two .bar { color: var(--muted); } .two > .bar:first-child { flex-wrap: nowrap; } .two th, .two td { padding-left: 5px; padding-right: 5px; } .two .bar input[type=search] { width: 120px; }
.two tbody.on { background: var(--accentSoft); } .two tbody tr:hover { background: none; } .two tbody:hover:not(.on) { background: var(--raised); }
.two tbody { cursor: pointer; } .two tbody tr:first-child td { border-bottom: none; padding-bottom: 0; } .two tbody tr:last-child td { padding-top: 0; }
.two td.side { color: var(--faint); font-weight: 700; font-size: 10.5px; padding-right: 2px; } .two td.same { color: var(--faint); }
.two td.apart { font-weight: 600; } .two td[rowspan] { border-bottom: 1px solid color-mix(in srgb, var(--line) 45%, transparent) !important; vertical-align: middle; }
.two tbody.first tr:first-child td:first-child { box-shadow: inset 3px 0 var(--bad); } .two .here { color: var(--bad); font-weight: 700; }
.two td.how { color: var(--muted); white-space: normal; min-width: 84px; line-height: 1.25; } .two td.how.guessed { font-style: italic; }
.two .told .same { color: var(--added); font-weight: 600; } .two .told p { margin: 0 0 3px; }
`;
const PARTS = { import: 'as imported', integers: 'from integers', gradients: 'gradients', compiled: 'as compiled' };

/** Formats two numbers with enough digits to show that they differ. */
function formatDistinct(a, b) {
  if (a === b || a === null || b === null) return [number(a), number(b)];
  for (let digits = 3; digits < 17; digits += 1) {
    if (a.toPrecision(digits) !== b.toPrecision(digits)) return [a, b].map((v) => trimExponent(v.toPrecision(Math.min(17, digits + 1))));
  }
  return [String(a), String(b)];
}
const trimExponent = (text) => text.replace(/e\+?(-?)0*/, 'e$1');

function twoNumbers({ selection, send, remember }) {
  const COLUMNS = columnsOf('numerics', 'place', ['name', 'left'], ['side', 'left'], 'minimum', 'maximum', 'mean', 'nan', 'inf', 'difference', 'relative');
  const EXACT = columnsOf('numerics', 'unequal', 'apart_ulps');
  const LAST = columnsOf('numerics', ['match', 'left'], ['line', 'left']);
  const STATISTICS = new Set(['minimum', 'maximum', 'mean', 'nan', 'inf']);
  let data = null;
  let list = [];
  let drawnCount = 0;
  let words = '';
  let state = {};
  const bar = h('div', { class: 'bar' });
  const summary = h('div', { class: 'told', role: 'status' });
  const tools = h('div', { class: 'bar', role: 'toolbar', 'aria-label': 'Values of both recordings' });
  const head = h('tr');
  const table = h('table', {}, h('thead', {}, head));
  const none = h('div', { class: 'none' });
  const scroll = h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Values of both recordings: up and down select the op of A, Enter shows the graph' }, table, none);
  const root = h('div', { class: 'two' }, bar, summary, tools, scroll);
  const saves = downloadMenu(() => [csvItem('Values of both', 'numbers-of-two', sheet)]);
  const filter = h('input', { type: 'search', placeholder: 'filter', 'aria-label': 'Filter the values by name, op or line', input: () => { words = filter.value; fill(); } });

  const part = () => (data.parts.some((each) => each.name === state.part) ? state.part : data.first?.part ?? data.parts[data.parts.length - 1].name);
  const columns = () => [...COLUMNS, ...(data.exact ? EXACT : []), ...LAST];
  const isSelected = (row, at) => row.a.op !== null && (at.ops ?? []).includes(row.a.op);
  const isFirst = (row) => Boolean(data.first) && row.part === data.first.part && row.a.value === data.first.a.value;

  function setState(change) {
    state = Object.fromEntries(Object.entries({ ...state, ...change }).filter(([, value]) => value !== undefined));
    remember(state);
    fill();
  }

  function drawBar() {
    const side = (letter, each) => [h('span', { class: `letter ${letter}` }, letter.toUpperCase()), h('span', { class: 'run', title: each.path }, h('b', {}, each.name), h('span', {}, each.about))];
    bar.replaceChildren(...side('a', data.a), ...side('b', data.b), h('span', { class: 'gap' }), saves);
  }

  // -- one sentence -------------------------------------------------------------------------------

  /** The statistic with the largest difference, as text. */
  function largestDifference(row) {
    const names = ['nan', 'inf'].filter((name) => row.a[name] !== row.b[name]);
    const statistic = names[0] ?? ['minimum', 'maximum', 'mean'].filter((name) => row.a[name] !== row.b[name])
      .sort((p, q) => Math.abs((row.b[q] ?? Infinity) - (row.a[q] ?? 0)) - Math.abs((row.b[p] ?? Infinity) - (row.a[p] ?? 0)))[0];
    if (!statistic) return 'its histogram differs';
    const [a, b] = formatDistinct(row.a[statistic], row.b[statistic]);
    const label = { nan: 'NaN elements', inf: 'Inf elements', minimum: 'min', maximum: 'max', mean: 'mean' }[statistic];
    return `${label} ${a} in A, ${b} in B`;
  }

  function drawSummary() {
    const { first, outputs } = data;
    const digests = outputs.a && outputs.b;
    const outputsText = !digests ? `${['a', 'b'].filter((side) => !outputs[side]).map((side) => side.toUpperCase()).join(' and ')} ${outputs.a || outputs.b ? 'was' : 'were'} not executed: the output bits are not compared.`
      : outputs.a === outputs.b ? 'The executed outputs are bitwise equal.' : 'The executed outputs differ in bits.';
    const basis = data.exact === data.total ? 'The tensors were recorded and compared.'
      : `${data.exact ? `The recordings contain the tensors of ${count(data.exact)} of ${count(data.total)} values; of the others` : 'The recordings contain'} only statistics of the values that checking evaluated (min, max, mean, NaN, Inf, histogram), so equal rows can still differ in bits.`;
    const lost = ['a', 'b'].filter((side) => (data[side].quantised?.sqnr_db ?? null) !== null)
      .map((side) => `The outputs of ${side.toUpperCase()}, which is quantised, have a signal-to-noise ratio of ${decibels(data[side].quantised.sqnr_db)} dB. `);
    const more = h('p', { class: 'more' }, ...lost, `${outputsText} ${basis}`);
    if (!first) {
      summary.replaceChildren(h('p', {}, h('span', { class: 'same' }, data.exact === data.total ? 'Bitwise equal' : 'The same statistics'), ` in all ${plural(data.total, 'value')} that both recordings contain.`), more);
      return;
    }
    const row = first.a;
    const go = h('button', { class: 'link', 'data-first': row.op ?? '', title: 'Select it in A', click: () => choose(first) }, `${row.name} ${row.kernel ?? row.kind.replace(/^[a-z]+\./, '')}`);
    const relativeText = first.relative ? `, relative error ${relative(first.relative)} (of max abs)` : '';
    summary.replaceChildren(h('p', {}, row.kind === 'input' ? 'The runs had different inputs: ' : 'First divergence: ', go,
      h('span', { class: 'more' }, ` · ${PARTS[first.part]}${lineLabel(row) ? `, ${lineLabel(row)}` : ''} · ${largestDifference(first)}${relativeText}.`
        + ` ${count(data.differing)} of ${plural(data.total, 'value')} differ.${first.how === 'guessed' ? ' The match of these two values is guessed.' : ''}`)), more);
  }

  // -- the table ----------------------------------------------------------------------------------

  function drawTools() {
    const at = data.parts.find((each) => each.name === part());
    const only = [['a', 'A'], ['b', 'B']].filter(([side]) => at.only[side]).map(([side, letter]) => `${count(at.only[side])} only in ${letter}`);
    keepFocus(tools, ['data-part', 'data-do', 'aria-label'], () => tools.replaceChildren(...[
      h('div', { class: 'group', role: 'tablist', 'aria-label': 'Stage' }, data.parts.map((each) => h('button', {
        role: 'tab', 'data-part': each.name, 'aria-selected': String(each.name === at.name), title: `Stage ${each.stages[0]} of A, stage ${each.stages[1]} of B`,
        click: () => setState({ part: each.name }) }, `${PARTS[each.name]} (${count(each.matched)})`))),
      h('button', { 'data-do': 'differing', 'aria-pressed': String(Boolean(state.only)), title: 'Hide values that are the same on both sides', click: () => setState({ only: state.only ? undefined : true }) }, 'only differences'),
      only.length ? h('span', { title: 'Fused away, or made by passes that the other run lacks' }, only.join(', ')) : null,
      at.guessed ? h('span', { title: explain('numerics', 'match') }, `${count(at.guessed)} matched by a guess`) : null,
      h('span', { class: 'gap' }),
      data.rows.length < data.total ? h('span', { title: 'Differing values come first; for all: workbench show RUN numerics --other RUN --json' }, `${count(data.rows.length)} of ${count(data.total)} listed`) : null,
      filter,
    ].filter(Boolean)));
  }

  function rows() {
    const all = data.rows.filter((row) => row.part === part() && (!state.only || row.differs));
    const terms = words.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (row) => ['a', 'b'].flatMap((side) => [row[side].name, row[side].kind, row[side].kernel, row[side].type, lineLabel(row[side])]).concat(row.how, row.why).join(' ').toLowerCase();
    const found = terms.length ? all.filter((row) => terms.every((word) => text(row).includes(word))) : all;
    if (!state.order) return found;
    const [name, sign] = state.order;
    const rank = (row) => ({ match: row.how, line: lineLabel(row.a), name: row.a.name }[name] ?? row[name] ?? row.a[name] ?? -Infinity);
    return [...found].sort((p, q) => (rank(p) < rank(q) ? -sign : rank(p) > rank(q) ? sign : p.a.place - q.a.place));
  }

  function cells(row) {
    const spans = { rowspan: 2 };
    const top = [];
    const bottom = [];
    const addSpanning = (node) => top.push(node);
    for (const [name] of columns()) {
      if (name === 'place') addSpanning(h('td', { ...spans, class: 'faint' }, row.a.place));
      else if (name === 'name') {
        const describe = (side, letter) => `${letter}: ${side.name} ${side.kind} ${side.type}`;
        addSpanning(h('td', { ...spans, class: 'left', title: `${describe(row.a, 'A')}\n${describe(row.b, 'B')}` }, isFirst(row) ? h('span', { class: 'here', title: 'First difference in program order' }, '▸ ') : '',
          h('span', { class: 'mono' }, row.a.name), ' ', h('span', { class: 'faint' }, row.a.kernel ?? row.a.kind.replace(/^[a-z]+\./, ''))));
      } else if (name === 'side') {
        top.push(h('td', { class: 'side' }, 'A'));
        bottom.push(h('td', { class: 'side' }, 'B'));
      } else if (STATISTICS.has(name)) {
        const [a, b] = [row.a[name], row.b[name]];
        const texts = name === 'nan' || name === 'inf' ? [count(a), count(b)] : formatDistinct(a, b);
        top.push(h('td', { class: a === b ? '' : 'apart', title: a === null ? 'no element is finite' : String(a) }, texts[0]));
        bottom.push(a === b ? h('td', { class: 'same', title: String(b ?? '') }, '=') : h('td', { class: 'apart', title: b === null ? 'no element is finite' : String(b) }, texts[1]));
      } else if (name === 'match') {
        addSpanning(h('td', { ...spans, class: `left how ${row.how}`, title: `${row.how}: ${row.why}` }, row.how === 'recorded' ? row.why : `guess: ${row.why}`));
      } else if (name === 'line') addSpanning(h('td', { ...spans, class: 'left muted', title: row.a.file ? `${row.a.file}:${row.a.line}` : '' }, lineLabel(row.a)));
      else if (name === 'unequal' || name === 'apart_ulps') {
        const value = name === 'unequal' ? row.unequal : row.ulps;
        addSpanning(h('td', { ...spans }, value === null ? '–' : count(value)));
      } else {
        const value = row[name];
        addSpanning(h('td', { ...spans, class: row.differs ? 'apart' : 'same' }, !row.differs ? '=' : value === null ? 'not finite' : relative(value)));
      }
    }
    return [h('tr', {}, top), h('tr', {}, bottom)];
  }

  const body = (row, i) => h('tbody', { class: `${isSelected(row, selection()) ? 'on' : ''}${isFirst(row) ? ' first' : ''}`, 'data-row': i, 'data-differs': String(row.differs), 'data-how': row.how,
    click: () => { choose(row); scroll.focus({ preventScroll: true }); } }, cells(row));

  function choose(row) {
    if (row && row.a.op !== null) send('select', { op: row.a.op });
  }

  function drawMore(upto = drawnCount + BATCH_SIZE) {
    const end = Math.min(list.length, upto);
    const added = [];
    for (; drawnCount < end; drawnCount += 1) added.push(body(list[drawnCount], drawnCount));
    table.append(...added);
  }

  function fill() {
    drawTools();
    const [by, sign] = state.order ?? [];
    const sort = (name) => setState({ order: name === 'place' ? undefined : [name, by === name ? -sign : ['name', 'line', 'match'].includes(name) ? 1 : -1] });
    keepFocus(head, ['data-sort'], () => head.replaceChildren(...columns().map(([name, title, unit, hint, kind]) =>
      sortHeader({ name, title, unit: unit || '', hint, kind }, state.order ?? undefined, sort))));
    list = rows();
    drawnCount = 0;
    table.querySelectorAll('tbody').forEach((each) => each.remove());
    drawMore();
    scroll.scrollTop = 0;
    none.hidden = list.length > 0;
    none.textContent = words ? 'Nothing matches the filter.' : state.only ? 'No differences here.' : 'The recordings have no values of this stage in common.';
    mark();
  }

  function mark() {
    if (!data) return;
    const at = selection();
    const index = list.findIndex((row) => isSelected(row, at));
    if (index >= drawnCount) drawMore(index + BATCH_SIZE);
    table.querySelectorAll('tbody').forEach((each, i) => each.classList.toggle('on', isSelected(list[i], at)));
    table.querySelectorAll('tbody')[index]?.scrollIntoView({ block: 'nearest' });
  }

  function sheet() {
    const stats = ['minimum', 'maximum', 'mean', 'nan', 'inf'];
    const names = ['stage', 'place', 'a_name', 'b_name', 'kind', 'type', ...stats.flatMap((name) => [`a_${name}`, `b_${name}`]), 'differs', 'difference', 'relative', 'unequal', 'ulps', 'match', 'why', 'op', 'file', 'line'];
    return [names, list.map((row) => [row.part, row.a.place, row.a.name, row.b.name, row.a.kind, row.a.type,
      ...stats.flatMap((name) => [row.a[name], row.b[name]]), row.differs, row.difference, row.relative, row.unequal, row.ulps, row.how, row.why, row.a.op, row.a.file, row.a.line])];
  }

  scroll.addEventListener('scroll', () => {
    if (drawnCount < list.length && scroll.scrollTop + scroll.clientHeight > scroll.scrollHeight - 300) drawMore();
  });
  walkRows(scroll, {
    selection, rows: () => list, isSelected,
    isSelectable: (row) => row.a.op !== null, // an input of the model has no op to select
    go: choose, enter: () => send('show', { view: 'graph' }),
  });

  return {
    root, mark,
    show(next) {
      data = next;
      drawBar();
      drawSummary();
      fill();
    },
    restore(next) {
      if (JSON.stringify(next) === JSON.stringify(state)) return;
      state = next;
      if (data) fill();
    },
  };
}
