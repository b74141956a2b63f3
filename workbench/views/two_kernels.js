// Kernels of two recordings: those that compute the same in a row, A | B | difference.
// It stands in one module with kernels.js, whose look it shares.

const TWO_STYLE = `${PAIR}
.two { display: flex; flex-direction: column; flex: 1; min-height: 0; }
.two .bar input { width: 110px; } .two th.group_ { text-align: center; border-left: 1px solid var(--line); cursor: default; } .two th.group_:hover { color: inherit; }
.two th, .two td { padding-left: 6px; padding-right: 6px; } .two thead tr + tr th { top: 23px; } .two td.edge, .two th.edge { border-left: 1px solid var(--line); }
.two td:first-child { font-family: var(--sans); max-width: 200px; } .two td.kernel { font-family: var(--mono); text-align: left; max-width: 170px; overflow: hidden; text-overflow: ellipsis; }
.two .less { color: var(--added); } .two .more { color: var(--removed); } .two .said { font-style: italic; color: var(--muted); }
`;

function twoKernels({ model, send, remember }) {
  let data = null;
  let list = [];
  let words = '';
  let order = null;
  const bar = h('div', { class: 'bar' });
  const heads = h('thead');
  const body = h('tbody');
  const scroll = h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Kernels of both recordings: up and down select a kernel of A, Enter shows its code' }, h('table', {}, heads, body));
  const root = h('div', { class: 'two' }, bar, scroll);
  const saves = downloadMenu(() => [csvItem('Kernels of both', 'kernels-of-two', sheet)]);
  const filter = h('input', { type: 'search', placeholder: 'filter', 'aria-label': 'Filter by what is computed, kernel or line', input: () => { words = filter.value; fill(); } });

  const chosen = () => (plain(model.get('selection')) ?? {}).kernel;
  const has = (row, id) => id !== undefined && (row.a?.kernels ?? []).some((each) => each.id === id);
  const names = (side) => (side ? side.kernels.map((each) => each.name).join(', ') : '');
  /** B − A; what one side does not launch counts as nothing there. */
  const change = (row, name) => {
    const [a, b] = ['a', 'b'].map((side) => (row[side] ? row[side][name] : name === 'median_us' ? null : 0));
    return a === null || b === null ? null : b - a;
  };
  const guess = (row) => [row.a, row.b].some((side) => side && !side.measured);

  // name, what it is called, unit, scale of the shown figure
  const GROUPS = [['us', 'all launches', 'µs', 1], ['count', 'launches', '', 1], ['median_us', 'a launch', 'µs', 1], ['share', 'share', '% of time', 100]];
  const COLUMNS = [
    { id: 'title', title: 'computes', text: true, value: (row) => row.title },
    ...GROUPS.flatMap(([name, , unit, scale]) => [
      ...['a', 'b'].map((side) => ({ id: `${name}_${side}`, title: side.toUpperCase(), unit, name, scale, side, edge: side === 'a', value: (row) => row[side]?.[name] ?? null })),
      { id: `${name}_d`, title: 'B − A', unit, name, scale, signed: true, value: (row) => change(row, name) },
    ]),
    { id: 'place', title: 'model line', text: true, edge: true, value: (row) => row.place },
    ...['a', 'b'].map((side) => ({ id: `kernel_${side}`, title: `${side.toUpperCase()} kernel`, text: true, side, kernel: true, value: (row) => names(row[side]) })),
  ];
  const sorting = () => (order && COLUMNS.some((each) => each.id === order[0]) ? order : ['us_d', -1]);

  function rows() {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (row) => [row.title, row.place, names(row.a), names(row.b)].join(' ').toLowerCase();
    const found = data.kernels.filter((row) => wanted.every((word) => text(row).includes(word)));
    const [by, sign] = sorting();
    const column = COLUMNS.find((each) => each.id === by);
    const rank = (row) => {
      const value = column.value(row);
      return typeof value === 'number' ? (column.signed ? Math.abs(value) : value) : value ?? (column.text ? '' : -Infinity);
    };
    return [...found].sort((p, q) => (rank(p) < rank(q) ? -sign : rank(p) > rank(q) ? sign : 0));
  }

  function drawBar() {
    const side = (letter, each) => [h('span', { class: `letter ${letter}` }, letter.toUpperCase()), h('span', { class: 'run', title: each.path }, h('b', {}, each.name), h('span', {}, `${each.target}${each.measured ? '' : ', not executed'}`))];
    const total = (letter) => data.kernels.reduce((sum, row) => sum + (row[letter]?.us ?? 0), 0);
    const [a, b] = [total('a'), total('b')];
    const alone = [['a', 'b', 'A'], ['b', 'a', 'B']].map(([one, two, letter]) => [data.kernels.filter((row) => row[one] && !row[two]).length, letter]).filter(([n]) => n);
    const matched = !data.by_work ? "matched by the framework's nodes" : data.by_nodes ? `${count(data.by_work)} of ${count(data.by_work + data.by_nodes)} launches matched by a guess: flops, bytes, order` : 'matched by a guess: flops, bytes and order';
    bar.replaceChildren(...side('a', data.a), ...side('b', data.b),
      h('div', { class: 'facts' }, h('span', { title: 'Time of all launches of one execution, A and B' }, 'kernels ', h('b', {}, `${data.a.measured ? '' : '≥ '}${figure(a, 'us')}`), ' | ', h('b', {}, `${data.b.measured ? '' : '≥ '}${figure(b, 'us')}`)),
        h('span', {}, `${matched}${alone.map(([n, letter]) => `; ${count(n)} only in ${letter}`).join('')}`)),
      h('span', { class: 'gap' }), filter, saves);
  }

  function cell(row, each) {
    const value = each.value(row);
    const edge = each.edge ? ' edge' : '';
    if (each.kernel) return h('td', { class: `kernel${value ? '' : ' faint'}`, title: value }, value || 'none');
    if (each.id === 'place') return h('td', { class: `text${edge}`, title: value }, value ? base(value) : '–');
    if (each.text) return h('td', { class: 'text', title: value }, value);
    if (value === null) return h('td', { class: `faint${edge}` }, '–');
    const shown = (n) => (each.name === 'count' ? count(n) : number(n * each.scale));
    if (each.signed) return h('td', { class: `${value < 0 ? 'less' : value > 0 ? 'more' : 'faint'}${guess(row) && each.name !== 'count' ? ' said' : ''}` }, value === 0 ? '=' : `${value > 0 ? '+' : '−'}${shown(Math.abs(value))}`);
    const least = !row[each.side].measured && each.name !== 'count';
    return h('td', { class: `${least ? 'said' : ''}${edge}`, title: least ? 'Predicted: the least that the machine allows' : '' }, `${least && each.name !== 'share' ? '≥ ' : ''}${shown(value)}`);
  }

  function fill() {
    const [by, sign] = sorting();
    const sort = (name) => {
      order = [name, by === name ? -sign : COLUMNS.find((each) => each.id === name).text ? 1 : -1];
      remember({ order });
      fill();
    };
    const head = (each) => sortHeader({ name: each.id, title: each.title, unit: each.unit || '', hint: each.name ? explain(each.name === 'us' ? 'compare' : 'kernels', each.name) : '',
      kind: `${each.text ? 'text' : ''}${each.edge ? ' edge' : ''}` }, [by, sign], sort);
    keepingFocus(heads, ['data-sort'], () => heads.replaceChildren(
      h('tr', {}, h('th', { class: 'group_' }, ''), GROUPS.map(([, title]) => h('th', { class: 'group_', colspan: 3, scope: 'colgroup' }, title)), h('th', { class: 'group_', colspan: 3 }, '')),
      h('tr', {}, COLUMNS.map(head))));
    list = rows();
    body.replaceChildren(...list.map((row, i) => h('tr', { 'data-row': i, 'data-kernel': row.a?.kernels[0]?.id ?? '',
      click: () => { choose(row); scroll.focus({ preventScroll: true }); } }, COLUMNS.map((each) => cell(row, each)))));
    mark();
  }

  function mark() {
    const on = chosen();
    [...body.children].forEach((node, i) => {
      node.classList.toggle('on', has(list[i], on));
      node.setAttribute('aria-selected', String(has(list[i], on)));
    });
    body.querySelector('tr.on')?.scrollIntoView({ block: 'nearest' });
  }

  function choose(row) {
    const id = row?.a?.kernels[0]?.id;
    if (id !== undefined && id !== null) send('select', { kernel: id });
  }

  const sheet = () => [COLUMNS.map((each) => each.id), list.map((row) => COLUMNS.map((each) => each.value(row)))];

  walkRows(scroll, {
    at: () => { const on = chosen(); return list.findIndex((row) => has(row, on)); },
    places: () => list.map((row, i) => (row.a ? i : -1)).filter((i) => i >= 0),
    go: (to) => choose(list[to]), enter: () => send('show', { view: 'code' }),
  });

  return {
    root, mark,
    show(next) {
      data = next;
      drawBar();
      fill();
    },
    restore(next) {
      if (JSON.stringify(next.order ?? null) === JSON.stringify(order)) return;
      order = next.order ?? null;
      if (data) fill();
    },
  };
}
