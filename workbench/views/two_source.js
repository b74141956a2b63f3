// Lines of the model in two recordings: what each costs, A | B | difference.

function twoSource({ selection, send, remember }) {
  const group = (name, title, explained, rest) => ({ name, title, hint: explain('source', explained), ...rest });
  const places = (at) => (at.lines ?? []);
  return pairTable({ selection, remember, what: {
    csv: ['Lines of both', 'lines-of-two'], order: ['us_d', -1],
    region: 'Lines of both recordings: up and down select the most expensive op of a line of A, Enter shows its code',
    filter: 'Filter by text, file or line',
    left: [{ id: 'text', title: 'line', code: true, value: (row) => row.text }, { id: 'place', title: 'place', value: (row) => row.place.split('/').pop(), whole: (row) => `${row.file}:${row.line}` }],
    groups: [
      group('us', 'own time', 'us', { kind: 'us' }), group('all_us', 'with calls', 'us', { kind: 'us' }), group('bytes', 'moved', 'bytes', { kind: 'B' }),
      group('import', 'ops imported', 'ops', { whole: true }), group('now', 'ops at the end', 'ops', { whole: true }),
    ],
    right: [{ id: 'line_b', title: 'line in B', none: 'none', value: (row) => (row.b ? String(row.b.line) : '') }],
    rows: (data) => data.rows, words: (row) => `${row.text} ${row.place}`,
    facts: (data) => {
      const alone = [['a', 'b', 'A'], ['b', 'a', 'B']].map(([one, two, letter]) => [data.rows.filter((row) => row[one] && !row[two]).length, letter]).filter(([n]) => n);
      return [h('span', {}, `${data.nodes ? `${plural(data.rows.length, 'node')} of the graphs, the same by name and kind` : `${plural(data.rows.length, 'line')}, the same by their text`}${alone.map(([n, letter]) => `; ${count(n)} only in ${letter}`).join('')}`)];
    },
    marks: (row) => ({ 'data-line': row.line }),
    on: (row, at) => Boolean(row.a) && (places(at).length ? places(at).some(([file, line]) => file === row.file && line === row.a.line) : row.file === '' && (at.nodes ?? []).includes(row.a.line)),
    can: (row) => (row.a?.op ?? null) !== null,
    choose: (row) => send('select', row.a.kernel === null ? { op: row.a.op } : { op: row.a.op, kernel: row.a.kernel },
      row.file === '' ? { lines: [], nodes: [row.a.line] } : { lines: [[row.file, row.a.line]] }),
    enter: () => send('show', { view: 'code', beside: 'source' }),
  } });
}
