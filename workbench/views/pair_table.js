// A table of matched parts of two recordings: a row each, with A | B | difference for some figures.

const PAIR_TABLE = `${PAIR}
.two { display: flex; flex-direction: column; flex: 1; min-height: 0; }
.two .bar { display: flex; flex-wrap: nowrap; align-items: center; gap: 12px; height: 32px; flex: none; padding: 0 10px; border-bottom: 1px solid var(--line); background: var(--surface); color: var(--muted); white-space: nowrap; overflow: hidden; }
.two .bar .gap { flex: 1; } .two .bar b { color: var(--text); font-weight: 600; } .two .bar input { width: 110px; }
.two .facts { display: flex; flex-wrap: nowrap; align-items: baseline; gap: 12px; padding: 0; margin: 0; border: 0; overflow: hidden; min-width: 0; } .two .facts > span { flex: none; } .two .facts > span:last-child { flex: 0 1 auto; overflow: hidden; text-overflow: ellipsis; }
.two .scroll { flex: 1; min-width: 0; min-height: 0; overflow: auto; outline: none; background: var(--surface); }
.two .scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.two table { border-collapse: separate; border-spacing: 0; width: 100%; font-variant-numeric: tabular-nums; }
.two th { position: sticky; top: 0; background: var(--raised); font-weight: 600; text-align: right; padding: 3px 6px; white-space: nowrap; border-bottom: 1px solid var(--line); z-index: 2; vertical-align: bottom; line-height: 1.3; }
.two th small { display: block; font-weight: 400; color: var(--faint); line-height: 1.1; }
.two thead tr + tr th { top: 23px; } .two th.group_ { text-align: center; border-left: 1px solid var(--line); cursor: default; } .two th.group_:hover { color: inherit; }
.two td { text-align: right; padding: 2px 6px; height: auto; line-height: inherit; white-space: nowrap; border-bottom: 1px solid color-mix(in srgb, var(--line) 45%, transparent); }
.two td.edge, .two th.edge { border-left: 1px solid var(--line); } .two th.text, .two td.text { text-align: left; }
.two th:first-child, .two td:first-child { text-align: left; position: sticky; left: 0; } .two th:first-child { z-index: 3; }
.two td:first-child { z-index: 1; background: inherit; width: 100%; max-width: 0; min-width: 150px; overflow: hidden; text-overflow: ellipsis; font-family: var(--sans); } .two td.text:not(:first-child) { max-width: 172px; overflow: hidden; text-overflow: ellipsis; }
.two td.code { font-family: var(--mono); max-width: 170px; overflow: hidden; text-overflow: ellipsis; width: auto; } .two td.code:first-child { font-family: var(--mono); width: 100%; max-width: 0; }
.two tbody tr { cursor: pointer; background: var(--surface); } .two tbody tr:hover { background: var(--raised); } .two tbody tr.on { background: var(--accentSoft); } .two tr td, .two tr:hover td, .two tr.on td { background: inherit; }
.two .less { color: var(--added); } .two .more { color: var(--removed); } .two .said { font-style: italic; color: var(--muted); }
`;

/**
 * `what`: `csv` [title, name of the file], the labels `region` and `filter`, `left` and
 * `right` columns of text ({ id, title, value(row), code }), `groups` of figures ({ name, title,
 * unit and scale, or the kind for which `columnUnit` chooses them, hint, integer, neutral: more is not worse }), the first `order`; `rows(data)`, `facts(data)` for the bar,
 * `words(row)` that the filter searches; whether a row `isSelected(row, selection)` and `isSelectable(row)`;
 * `choose(row)`; `enter()`; optionally `change(row, name)` (B − A), `isPredicted(row)`
 * and `sign(row, side, name)`: "≥" or "≈" if a figure is predicted, else "".
 */
function pairTable({ selection, remember, what }) {
  let data = null;
  let list = [];
  let words = '';
  let order = null;
  const bar = h('div', { class: 'bar' });
  const heads = h('thead');
  const body = h('tbody');
  const scroll = h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': what.region }, h('table', {}, heads, body));
  const root = h('div', { class: 'two' }, bar, scroll);
  const saves = downloadMenu(() => [csvItem(what.csv[0], what.csv[1], sheet)]);
  const filter = h('input', { type: 'search', placeholder: 'filter', 'aria-label': what.filter, input: () => { words = filter.value; fill(); } });
  /** B − A; a side without the row counts as 0. */
  const change = what.change ?? ((row, name) => {
    const [a, b] = ['a', 'b'].map((side) => (row[side] ? row[side][name] ?? null : 0));
    return a === null || b === null ? null : b - a;
  });
  const isPredicted = what.isPredicted ?? (() => false);
  const signOf = what.sign ?? (() => '');
  const text = (each) => ({ ...each, text: true });
  const COLUMNS = [
    ...what.left.map(text),
    ...what.groups.flatMap((group) => [
      ...['a', 'b'].map((side) => ({ id: `${group.name}_${side}`, title: side.toUpperCase(), group, side, edge: side === 'a', value: (row) => row[side]?.[group.name] ?? null })),
      { id: `${group.name}_d`, title: 'B − A', group, signed: true, value: (row) => change(row, group.name) },
    ]),
    ...what.right.map((each, i) => ({ ...text(each), edge: i === 0 })),
  ];
  const currentOrder = () => (order && COLUMNS.some((each) => each.id === order[0]) ? order : what.order);

  function rows() {
    const terms = words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = what.rows(data).filter((row) => { const rowText = what.words(row).toLowerCase(); return terms.every((word) => rowText.includes(word)); });
    const [by, sign] = currentOrder();
    const column = COLUMNS.find((each) => each.id === by);
    const rank = (row) => {
      const value = column.value(row);
      return typeof value === 'number' ? (column.signed ? Math.abs(value) : value) : value ?? (column.text ? '' : -Infinity);
    };
    return [...found].sort((p, q) => (rank(p) < rank(q) ? -sign : rank(p) > rank(q) ? sign : 0));
  }

  function drawBar() {
    const side = (letter, each) => [h('span', { class: `letter ${letter}` }, letter.toUpperCase()), h('span', { class: 'run', title: each.path }, h('b', {}, each.name), h('span', {}, `${each.target}${each.measured ? '' : ', not executed'}`))];
    bar.replaceChildren(...side('a', data.a), ...side('b', data.b), h('div', { class: 'facts' }, what.facts(data)), h('span', { class: 'gap' }), filter, saves);
  }

  function cell(row, each) {
    const value = each.value(row);
    const edge = each.edge ? ' edge' : '';
    if (each.text) return h('td', { class: `text${edge}${each.code ? ' code' : ''}${value ? '' : ' faint'}`, title: each.tooltip?.(row) ?? value }, value || each.none || '–');
    if (value === null) return h('td', { class: `faint${edge}` }, '–');
    const { name, scale, integer, neutral } = each.group;
    const format = (n) => (integer ? count(n) : number(n * scale)).replace('-', '−');
    if (each.signed) return h('td', { class: `${value === 0 ? 'faint' : neutral ? '' : value < 0 ? 'less' : 'more'}${isPredicted(row) && !integer ? ' said' : ''}` }, value === 0 ? '=' : `${value > 0 ? '+' : '−'}${format(Math.abs(value))}`);
    const sign = signOf(row, each.side, name);
    const title = { '≥': 'Predicted: the minimum that the machine allows', '≈': 'Predicted, not measured' }[sign] ?? '';
    return h('td', { class: `${sign ? 'said' : ''}${edge}`, title }, `${sign && name !== 'share' ? `${sign} ` : ''}${format(value)}`);
  }

  function fill() {
    const [by, sign] = currentOrder();
    const sort = (name) => {
      order = [name, by === name ? -sign : COLUMNS.find((each) => each.id === name).text ? 1 : -1];
      remember({ order });
      fill();
    };
    const head = (each) => sortHeader({ name: each.id, title: each.title, unit: each.group?.unit ?? '', hint: each.group?.hint ?? '', kind: `${each.text ? 'text' : ''}${each.edge ? ' edge' : ''}` }, [by, sign], sort);
    keepFocus(heads, ['data-sort'], () => heads.replaceChildren(
      h('tr', {}, h('th', { class: 'group_', colspan: what.left.length }, ''), what.groups.map(({ title }) => h('th', { class: 'group_', colspan: 3, scope: 'colgroup' }, title)), h('th', { class: 'group_', colspan: what.right.length }, '')),
      h('tr', {}, COLUMNS.map(head))));
    list = rows();
    body.replaceChildren(...list.map((row, i) => h('tr', { 'data-row': i, ...(what.marks?.(row) ?? {}),
      click: () => { if (what.isSelectable(row)) what.choose(row); scroll.focus({ preventScroll: true }); } }, COLUMNS.map((each) => cell(row, each)))));
    mark();
  }

  function mark() {
    const at = selection();
    [...body.children].forEach((node, i) => {
      node.classList.toggle('on', what.isSelected(list[i], at));
      node.setAttribute('aria-selected', String(what.isSelected(list[i], at)));
    });
    body.querySelector('tr.on')?.scrollIntoView({ block: 'nearest' });
  }

  const sheet = () => [COLUMNS.map((each) => each.id), list.map((row) => COLUMNS.map((each) => each.value(row)))];

  walkRows(scroll, {
    selection, rows: () => list, isSelected: what.isSelected, isSelectable: what.isSelectable, go: what.choose, enter: what.enter,
  });

  return {
    root, mark,
    show(next) {
      data = next;
      for (const each of what.groups.filter(({ kind }) => kind)) [each.unit, each.scale] = columnUnit(each.kind, what.rows(data).flatMap((row) => [row.a?.[each.name], row.b?.[each.name]]));
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
