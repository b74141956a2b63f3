// Two recordings side by side: figures, kernels matched by their computation, passes.

const STYLE = `${PAIR}
.root { display: flex; flex-direction: column; }
.bar { display: flex; align-items: center; gap: 8px; min-height: 36px; flex: none; padding: 0 10px; border-bottom: 1px solid var(--line); background: var(--surface); white-space: nowrap; overflow: hidden; }
.bar .gap { flex: 1; }
.scroll { flex: 1; min-height: 0; overflow: auto; padding: 0 14px 24px; outline: none; }
h2 { display: flex; align-items: center; gap: 8px; font-size: 13px; font-weight: 600; margin: 16px 0 6px; } h2 .faint { font-weight: 400; } h2 .gap { flex: 1; } h2 button { font-weight: 400; }
.group { display: flex; flex: none; } .group button { border-radius: 0; margin-left: -1px; } .group button:first-child { border-radius: 4px 0 0 4px; margin-left: 0; } .group button:last-child { border-radius: 0 4px 4px 0; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; background: var(--surface); }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-variant-numeric: tabular-nums; }
th { background: var(--raised); font-weight: 600; text-align: right; padding: 3px 8px; white-space: nowrap; border-bottom: 1px solid var(--line); vertical-align: bottom; }
th.to { position: relative; } th small { display: block; font-weight: 400; color: var(--faint); line-height: 1.1; }
td { text-align: right; padding: 2px 8px; white-space: nowrap; border-bottom: 1px solid color-mix(in srgb, var(--line) 45%, transparent); }
tr:last-child td { border-bottom: none; }
th.text, td.text { text-align: left; } td.name { width: 100%; max-width: 0; min-width: 130px; overflow: hidden; text-overflow: ellipsis; } td.mono { font-size: 11.5px; }
td.part { width: 50%; max-width: 0; min-width: 80px; overflow: hidden; text-overflow: ellipsis; }
tbody tr.to { cursor: pointer; } tbody tr.to:hover { background: var(--raised); } tbody tr.on { background: var(--accentSoft); }
tr.section td { background: var(--page); color: var(--muted); font-weight: 600; text-align: left; padding-top: 5px; }
.less { color: var(--added); } .more { color: var(--removed); }
.said { font-style: italic; color: var(--muted); } .guess { font-style: italic; }
.wrong { margin: 12px 0 0; padding: 6px 12px; border: 1px solid var(--bad); border-left-width: 4px; border-radius: 4px; background: var(--surface); } .wrong b { color: var(--bad); }
td small { color: var(--faint); } [data-table=figures] td small { display: block; line-height: 1.1; }
.same { color: var(--added); } .differs { color: var(--removed); font-weight: 600; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(400px, 1fr)); gap: 0 18px; align-items: start; }
.choose { max-width: 760px; margin: 30px auto; } .choose p { color: var(--muted); }
`;
const SECTIONS = { speed: 'Speed', memory: 'Memory', work: 'Work', numbers: 'Numbers' };
const baseName = (path) => path.slice(Math.max(path.lastIndexOf('/'), path.lastIndexOf('\\')) + 1);

export default component(STYLE, ({ model, root, watch, send, selection }) => {
  let data = null;
  let library = [];
  let state = {};
  const bar = h('div', { class: 'bar', role: 'toolbar', 'aria-label': 'Compared recordings' });
  const scroll = h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Comparison of two recordings' });
  root.append(bar, scroll);
  const choose = (name) => send('compare', { with: name });

  // -- choosing the two recordings ----------------------------------------------------------------

  const about = (each) => `${each.model} · ${each.target}${each.measured ? '' : ', not executed'}`;
  const others = () => {
    const modelName = data.a.model;
    return otherRuns(library, data.a)
      .sort((x, y) => (y.model === modelName) - (x.model === modelName));
  };

  function drawBar() {
    const { a, b } = data;
    bar.replaceChildren(...pairBar({ a, b, library: others(), about, choose, send }),
      b && !b.measured ? h('span', { class: 'muted', title: b.not_executed ?? '' }, 'not executed') : '',
      h('span', { class: 'gap' }), clearPairButton(b, choose));
  }

  function drawChoice() {
    const list = others();
    scroll.replaceChildren(h('div', { class: 'choose' }, h('h2', {}, 'Compare this recording with another'),
      h('p', {}, list.length ? 'Choose a recording of another target, pipeline or day.'
        : 'The library contains no other recording. Compile the model again with another target or pipeline, or choose “another file…” above.'),
      list.length ? h('div', { class: 'wide' }, h('table', {},
        h('thead', {}, h('tr', {}, ['model', 'target', 'recording'].map((t) => h('th', { class: 'text', scope: 'col' }, t)), ['time', 'made'].map((t) => h('th', { scope: 'col' }, t)))),
        h('tbody', {}, list.map((each) => h('tr', { class: 'to', tabindex: 0, 'data-name': each.name, click: () => choose(each.name), keydown: (e) => e.key === 'Enter' && choose(each.name) },
          h('td', { class: 'text' }, each.model), h('td', { class: 'text' }, each.target), h('td', { class: 'text mono name', title: each.path }, each.label),
          h('td', {}, each.total_ms === null ? '–' : figure(each.total_ms, 'ms')), h('td', { class: 'muted' }, ago(each.began))))))) : null));
  }

  // -- tables -------------------------------------------------------------------------------------

  /** A sortable table. Columns: id, title, unit, value of a row (sorted by, in the CSV), cell. */
  function table(name, columns, rows, onRow, fallback) {
    const [by, sign] = state.sort?.[name] ?? fallback ?? [null, 1];
    const column = columns.find((each) => each.id === by);
    const rank = (row) => {
      const value = column.value(row);
      if (typeof value === 'number') return column.signed ? Math.abs(value) : value;
      return value ?? (column.text ? '' : -Infinity);
    };
    const sorted = column ? [...rows].sort((x, y) => (rank(x) < rank(y) ? -sign : rank(x) > rank(y) ? sign : 0)) : rows;
    const sort = (each) => {
      const next = by === each.id ? [by, -sign] : [each.id, each.text ? 1 : -1];
      remember({ sort: { ...state.sort, [name]: next } });
    };
    const node = h('div', { class: 'wide' }, h('table', { 'data-table': name },
      h('thead', {}, h('tr', {}, columns.map((each) => sortHeader(
        { name: each.id, title: each.title, unit: each.unit ?? '', hint: each.hint, kind: `to${each.text ? ' text' : ''}`, table: name }, [by, sign], () => sort(each))))),
      h('tbody', {}, sorted.map((row) => {
        const to = onRow(row);
        return h('tr', to ? { class: 'to', tabindex: 0, ...to.marks, click: to.go, keydown: (e) => { if (e.key === 'Enter') { to.go(); e.stopPropagation(); } } } : {},
          columns.map((each) => each.cell(row)));
      }))));
    const csv = h('button', { title: 'Download as CSV', click: () => download(`compare-${name}.csv`,
      csvText(columns.map((each) => `${each.title}${each.unit ? ` (${each.unit})` : ''}`), sorted.map((row) => columns.map((each) => each.value(row)))), 'text/csv') }, 'CSV');
    return [node, csv];
  }

  /** `better`: "less" or "more"; "" for neither, which is not coloured. */
  const changeCell = (a, b, text, better = 'less') => (a === null || b === null || a === undefined || b === undefined ? h('td', { class: 'faint' }, '–')
    : a === b ? h('td', { class: 'muted' }, '=') : h('td', { class: !better ? '' : (b < a) === (better === 'less') ? 'less' : 'more' }, `${b > a ? '+' : '−'}${text(Math.abs(b - a))}`));
  /** The speedup of B with its interval, marked if it is within the noise. */
  function speedupCell(value, bounds, sign = '') {
    if (value === null) return h('td', { class: 'faint' }, '–');
    const text = `${sign}${number(value)}×`;
    if (!bounds) return h('td', sign ? { class: 'said', title: 'Computed from a predicted time' } : { class: 'muted', title: 'Too few samples for an interval' }, text);
    const [low, high] = bounds;
    const range = `${number(low)} to ${number(high)}×`;
    const isNoise = low <= 1 && high >= 1;
    return h('td', { class: isNoise ? 'muted' : low > 1 ? 'less' : 'more', title: `95 % interval: ${range}${isNoise ? '. The interval contains 1: the difference is within the noise' : ''}`, 'data-noise': String(isNoise) },
      text, h('small', {}, isNoise ? ' within noise' : ` (${range})`));
  }
  const ratio = (a, b) => (a && b ? a / b : null);
  /** A predicted time may be a lower bound: a ratio that uses one is a bound too, and marked as such. */
  const isLeast = (side) => side.sign === '≥';
  const boundSign = (row) => (!row.a || !row.b || isLeast(row.a) === isLeast(row.b) || [row.a, row.b].some((side) => side.sign === '≈') ? '' : isLeast(row.b) ? '≤ ' : '≥ ');
  const isPredicted = (row) => Boolean(row.a && row.b && !(row.a.measured && row.b.measured));
  function kernelSpeedup(row) {
    return speedupCell(ratio(row.a?.us, row.b?.us), row.speedup, isPredicted(row) ? boundSign(row) || '≈ ' : '');
  }
  const difference = (a, b) => (a === null || b === null || a === undefined || b === undefined ? null : b - a);

  /** A button that opens a view with both recordings. */
  const BOTH_TITLES = { kernels: 'Kernels', memory: 'Memory', timeline: 'Timeline', numerics: 'Numbers', diff: 'IR diff' };
  const bothButton = (view) => h('button', { 'data-both': view, title: `${BOTH_TITLES[view]}: A and B`, click: () => send('follow', { go: { open: view, beside: 'compare', state: { [view]: { ab: true } } } }) }, `${BOTH_TITLES[view]} ›`);

  function drawFacts() {
    const short = (text) => (/^[0-9a-f]{40,}$/.test(text) ? text.slice(0, 12) : text);
    const csv = h('button', { title: 'Download as CSV', click: () => download('compare-facts.csv', csvText(['fact', 'A', 'B', 'equal'], data.facts.map((row) => [row.name, row.a, row.b, row.why ? 'not compared' : row.a && row.b ? row.equal : ''])), 'text/csv') }, 'CSV');
    const node = h('div', { class: 'wide' }, h('table', { 'data-table': 'facts' },
      h('thead', {}, h('tr', {}, h('th', { class: 'text' }, ''), h('th', { class: 'text' }, 'A'), h('th', { class: 'text' }, 'B'), h('th', {}, ''))),
      h('tbody', {}, data.facts.map((row) => h('tr', { 'data-fact': row.name }, h('td', { class: 'text', title: row.hint }, row.name),
        ['a', 'b'].map((side, i) => h('td', { class: `text part${row.bad?.[i] ? ' differs' : ''}`, title: row[side] }, short(row[side]) || '–')),
        h('td', {}, row.why && row.a && row.b ? h('span', { class: 'faint', title: row.why }, 'not compared') : row.a && row.b ? h('span', { class: row.equal ? 'same' : 'differs' }, row.equal ? 'equal' : 'differs') : ''))))));
    return [node, csv];
  }

  function drawFigures() {
    const intervalNote = (row, side) => { const found = row[`interval_${side}`]; return found ? h('small', { title: explain('kernels', 'interval') }, ` (${interval(found[0], found[1], row.unit)})`) : null; };
    const isWithinNoise = ({ speedup: found }) => Boolean(found) && found[0] <= 1 && found[1] >= 1;
    const show = (row, value) => (value === null ? '–' : figure(value, row.unit));
    const part = (sections) => h('div', { class: 'wide' }, h('table', { 'data-table': 'figures' },
      h('thead', {}, h('tr', {}, h('th', { class: 'text' }, ''), h('th', {}, 'A'), h('th', {}, 'B'), h('th', {}, 'difference'))),
      h('tbody', {}, sections.flatMap((section) => {
        const rows = data.figures.filter((row) => row.section === section);
        return rows.length ? [h('tr', { class: 'section' }, h('td', { colspan: 4 }, SECTIONS[section])),
          ...rows.flatMap((row) => [h('tr', { 'data-figure': row.name, title: row.a && row.b ? `${row.hint ? `${row.hint}; ` : ''}B is ${number(row.b / row.a)} times A` : row.hint }, h('td', { class: 'text' }, row.name),
            ['a', 'b'].map((side) => h('td', {}, show(row, row[side]), intervalNote(row, side))), changeCell(row.a, row.b, (value) => figure(value, row.unit), isWithinNoise(row) ? '' : row.better)),
          row.speedup === undefined || row.a === null || row.b === null ? null : h('tr', { 'data-figure': 'speedup of B' }, h('td', { class: 'text', title: explain('compare', 'ratio') }, 'speedup of B'), h('td'), h('td'), speedupCell(row.a / row.b, row.speedup))])] : [];
      }))));
    const csv = h('button', { title: 'Download as CSV', click: () => download('compare-figures.csv', csvText(['section', 'figure', 'unit', 'A', 'B', 'difference'],
      data.figures.map((row) => [row.section, row.name, row.unit, row.a, row.b, difference(row.a, row.b)])), 'text/csv') }, 'CSV');
    return [part(['speed', 'memory']), part(['work', 'numbers']), csv];
  }

  function drawKernels() {
    const launches = state.by === 'launch';
    const rows = launches ? data.launches : data.kernels;
    const names = (side) => (side ? side.kernels.map((k) => k.name).join(', ') : '');
    const kernel = (letter) => ({ id: `kernel_${letter}`, title: `${letter.toUpperCase()} kernel`, text: true, value: (row) => names(row[letter]),
      cell: (row) => (row[letter] ? h('td', { class: 'text mono name', title: names(row[letter]) }, `${names(row[letter])}${row[letter].count > 1 ? ` × ${count(row[letter].count)}` : ''}`)
        : h('td', { class: 'text faint' }, 'none')) });
    const [unit, scale] = columnUnit('us', rows.flatMap((row) => [row.a?.us, row.b?.us]));
    const timeText = (us) => number(us * scale);
    const time = (letter) => ({ id: `us_${letter}`, title: letter.toUpperCase(), unit, hint: explain('compare', 'us'), value: (row) => row[letter]?.us ?? null,
      cell: (row) => (row[letter]?.us === null || !row[letter] ? h('td', { class: 'faint' }, '–')
        : row[letter].measured ? h('td', {}, timeText(row[letter].us)) : h('td', { class: 'said', title: isLeast(row[letter]) ? 'The minimum within the machine\'s limits, not measured' : 'Predicted, not measured' }, `${row[letter].sign} ${timeText(row[letter].us)}`)) });
    const figureColumn = (letter, name, title, unit, hint, scale = 1) => ({ id: `${name}_${letter}`, title: `${letter.toUpperCase()} ${title}`, unit, hint, value: (row) => row[letter]?.[name] ?? null,
      cell: (row) => { const value = row[letter]?.[name] ?? null; return value === null ? h('td', { class: 'faint' }, '–') : h('td', { class: name === 'gflops' && !row[letter].measured ? 'said' : '' }, number(value * scale)); } });
    const hasValue = (letter, name) => rows.some((row) => (row[letter]?.[name] ?? null) !== null);
    const gpuColumns = columnsOf('kernels', 'registers', 'shared', 'spilled', ['occupancy', 100]);
    const columns = [
      { id: 'title', title: 'computes', text: true, hint: explain('compare', 'computes'), value: (row) => row.title, cell: (row) => h('td', { class: 'text name', title: row.title }, row.title) },
      { id: 'place', title: 'model line', text: true, hint: explain('compare', 'place'), value: (row) => row.place, cell: (row) => h('td', { class: 'text', title: row.place }, row.place ? baseName(row.place) : '–') },
      time('a'), time('b'),
      { id: 'difference', title: 'difference', unit, signed: true, hint: explain('compare', 'difference'), value: (row) => difference(row.a?.us, row.b?.us) ?? (row.b?.us ?? (row.a?.us ? -row.a.us : null)),
        cell: (row) => { const cell = changeCell(row.a ? row.a.us : 0, row.b ? row.b.us : 0, timeText); cell.classList.toggle('guess', isPredicted(row)); return cell; } },
      { id: 'ratio', title: 'speedup of B', unit: '95 % interval', hint: explain('compare', 'ratio'), value: (row) => ratio(row.a?.us, row.b?.us), cell: kernelSpeedup },
      ...['a', 'b'].map((letter) => figureColumn(letter, ...columnsOf('kernels', 'gflops')[0].slice(0, 4))),
      kernel('a'), kernel('b'),
      ...['a', 'b'].flatMap((letter) => gpuColumns.filter(([name]) => hasValue(letter, name)).map((each) => figureColumn(letter, ...each))),
    ];
    const on = selection().kernel;
    const [node, csv] = table('kernels', columns, rows, (row) => {
      const id = row.a?.kernels[0]?.id;
      if (id === undefined || id === null) return null;
      return { go: () => send('select', launches && row.op !== null ? { op: row.op } : { kernel: id }), marks: { 'data-kernel': id, 'aria-selected': String(id === on), class: `to${id === on ? ' on' : ''}` } };
    }, ['difference', -1]);
    const toggle = h('span', { class: 'group', role: 'group', 'aria-label': 'Rows' }, [['kernel', 'by kernel'], ['launch', 'by launch']].map(([name, title]) =>
      h('button', { 'aria-pressed': String((state.by ?? 'kernel') === name), 'data-by': name, click: () => remember({ by: name === 'kernel' ? undefined : name }) }, title)));
    const only = [['a', 'A'], ['b', 'B']].map(([letter, name]) => [rows.filter((row) => row[letter] && !row[letter === 'a' ? 'b' : 'a']).length, name]).filter(([n]) => n);
    const { by_work: matchedByWork, by_nodes: matchedByNodes } = data;
    const matched = !matchedByWork ? "matched by the framework nodes that they compute"
      : matchedByNodes ? `matched by the framework nodes that they compute, ${count(matchedByWork)} of ${count(matchedByWork + matchedByNodes)} launches by flops, bytes and order`
        : 'no nodes in common: matched by flops, bytes and order';
    return [h('h2', {}, 'Kernels', bothButton('kernels'), h('span', { class: 'faint' }, `${matched}${only.map(([n, name]) => `; ${count(n)} only in ${name}`).join('')}`
      + (launches && data.more_launches ? `; ${count(data.launches.length)} of ${count(data.launches.length + data.more_launches)} shown` : '')), h('span', { class: 'gap' }), toggle, csv), node];
  }

  function drawPasses() {
    const side = (letter, name, title, unit, format = count) => ({ id: `${name}_${letter}`, title: `${letter.toUpperCase()} ${title}`, unit, hint: { ms: explain('passes', 'time'), error: explain('compare', 'worst check error') }[name] ?? explain('passes', name), value: (row) => row[letter]?.[name] ?? null,
      cell: (row) => { const value = row[letter]?.[name] ?? null; return value === null ? h('td', { class: 'faint' }, row[letter] ? '–' : 'none') : h('td', {}, format(value)); } });
    const differenceColumn = (name, title, unit, format = count) => ({ id: `${name}_d`, title, unit, signed: true, value: (row) => difference(row.a?.[name], row.b?.[name]), cell: (row) => changeCell(row.a?.[name] ?? null, row.b?.[name] ?? null, format) });
    const error = (value) => figure(value, 'relative');
    const errors = data.passes.some((row) => (row.a?.error ?? row.b?.error ?? null) !== null);
    const columns = [
      { id: 'name', title: 'pass', text: true, value: (row) => row.name, cell: (row) => h('td', { class: 'text' }, row.name) },
      side('a', 'ops', 'ops', 'after it'), side('b', 'ops', 'ops', 'after it'), differenceColumn('ops', 'difference', 'ops'),
      side('a', 'rewrites', 'rewrites'), side('b', 'rewrites', 'rewrites'), differenceColumn('rewrites', 'difference', 'rewrites'),
      side('a', 'ms', 'time', 'ms', number), side('b', 'ms', 'time', 'ms', number), differenceColumn('ms', 'difference', 'ms', number),
      ...(errors ? [side('a', 'error', 'worst error', 'relative', error), side('b', 'error', 'worst error', 'relative', error)] : []),
    ];
    const [node, csv] = table('passes', columns, data.passes, (row) => row.a && ({ go: () => send('show', { view: 'compare', stage: row.a.index }), marks: { 'data-stage': row.a.index } }));
    const only = [['a', 'A'], ['b', 'B']].map(([letter, name]) => [data.passes.filter((row) => row[letter] && !row[letter === 'a' ? 'b' : 'a']).length, name]).filter(([n]) => n);
    return [h('h2', {}, 'Passes', bothButton('diff'), h('span', { class: 'faint' }, `matched by name${only.map(([n, name]) => `; ${count(n)} only in ${name}`).join('')}`), h('span', { class: 'gap' }), csv), node];
  }

  /** Which of the two gives wrong results: shown first, since it invalidates the comparison. */
  function verdict() {
    return ['a', 'b'].filter((side) => data[side].wrong).map((side) => h('div', { class: 'wrong', role: 'alert', 'data-wrong': side },
      h('b', {}, `${side.toUpperCase()} is wrong: `), data[side].wrong, '. Its times are not those of a correct program.'));
  }

  function draw() {
    if (!data) return;
    drawBar();
    if (!data.b) { drawChoice(); return; }
    const top = scroll.scrollTop;
    const [facts, factsCsv] = drawFacts();
    const [speed, numbers, csv] = drawFigures();
    keepFocus(scroll, ['data-sort', 'data-by'], () => scroll.replaceChildren(
      ...verdict(),
      h('div', { class: 'two' }, h('div', {}, h('h2', {}, 'Recordings', h('span', { class: 'gap' }), factsCsv), facts, h('h2', {}, 'Speed and memory', bothButton('memory'), bothButton('timeline'), h('span', { class: 'gap' }), csv), speed),
        h('div', {}, h('h2', {}, 'Work and numbers', bothButton('numerics')), numbers)),
      ...drawKernels(), ...drawPasses()));
    scroll.scrollTop = top;
  }

  function remember(more) {
    state = Object.fromEntries(Object.entries({ ...state, ...more }).filter(([, value]) => value !== undefined));
    model.set('state', state);
    model.save_changes();
    draw();
  }

  watch('state', () => {
    const next = plain(model.get('state')) ?? {};
    if (JSON.stringify(next) === JSON.stringify(state)) return;
    state = next;
    draw();
  });
  watch('detail', () => { library = json(model, 'detail')?.recordings ?? []; draw(); });
  watch('data', () => {
    data = json(model, 'data');
    readInfinite(data?.figures ?? [], 'a', 'b');
    readInfinite((data?.passes ?? []).flatMap((row) => [row.a, row.b]), 'error');
    draw();
  });
  watch('selection', () => {
    const on = selection().kernel;
    for (const row of scroll.querySelectorAll('tr[data-kernel]')) {
      row.classList.toggle('on', Number(row.dataset.kernel) === on);
      row.setAttribute('aria-selected', String(Number(row.dataset.kernel) === on));
    }
  });
});
