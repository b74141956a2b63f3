// Kernels of two recordings: those that compute the same in a row, A | B | difference.

const TWO_STYLE = PAIR_TABLE;

function twoKernels({ selection, send, remember }) {
  const has = (row, id) => id !== undefined && (row.a?.kernels ?? []).some((each) => each.id === id);
  const names = (side) => (side ? side.kernels.map((each) => each.name).join(', ') : '');
  const HINTS = { us: explain('compare', 'us') };
  const group = (name, title, rest) => ({ name, title, ...rest, hint: HINTS[name] ?? explain('kernels', name) });

  function facts(data) {
    const total = (letter) => data.kernels.reduce((sum, row) => sum + (row[letter]?.us ?? 0), 0);
    const [a, b] = [total('a'), total('b')];
    const alone = [['a', 'b', 'A'], ['b', 'a', 'B']].map(([one, two, letter]) => [data.kernels.filter((row) => row[one] && !row[two]).length, letter]).filter(([n]) => n);
    const matched = !data.by_work ? "matched by the framework's nodes" : data.by_nodes ? `${count(data.by_work)} of ${count(data.by_work + data.by_nodes)} launches matched by a guess: flops, bytes, order` : 'matched by a guess: flops, bytes and order';
    return [h('span', { title: 'Time of all launches of one execution, A and B' }, 'kernels ', h('b', {}, `${data.a.measured ? '' : '≥ '}${figure(a, 'us')}`), ' | ', h('b', {}, `${data.b.measured ? '' : '≥ '}${figure(b, 'us')}`)),
      h('span', {}, `${matched}${alone.map(([n, letter]) => `; ${count(n)} only in ${letter}`).join('')}`)];
  }

  return pairTable({ selection, remember, what: {
    csv: ['Kernels of both', 'kernels-of-two'], order: ['us_d', -1], facts,
    region: 'Kernels of both recordings: up and down select a kernel of A, Enter shows its code',
    filter: 'Filter by what is computed, kernel or line',
    left: [{ id: 'title', title: 'computes', value: (row) => row.title }],
    groups: [group('us', 'all launches', { kind: 'us' }), group('count', 'launches', { whole: true }), group('median_us', 'a launch', { kind: 'us' }), group('share', 'share', { unit: '% of time', scale: 100 })],
    right: [
      { id: 'place', title: 'model line', value: (row) => base(row.place), whole: (row) => row.place },
      ...['a', 'b'].map((side) => ({ id: `kernel_${side}`, title: `${side.toUpperCase()} kernel`, code: true, none: 'none', value: (row) => names(row[side]) })),
    ],
    rows: (data) => data.kernels,
    words: (row) => [row.title, row.place, names(row.a), names(row.b)].join(' '),
    change: (row, name) => {
      const [a, b] = ['a', 'b'].map((side) => (row[side] ? row[side][name] : name === 'median_us' ? null : 0));
      return a === null || b === null ? null : b - a;
    },
    guess: (row) => [row.a, row.b].some((side) => side && !side.measured),
    least: (row, side, name) => !row[side].measured && name !== 'count',
    marks: (row) => ({ 'data-kernel': row.a?.kernels[0]?.id ?? '' }),
    on: (row, at) => has(row, at.kernel),
    can: (row) => (row.a?.kernels[0]?.id ?? null) !== null,
    choose: (row) => send('select', { kernel: row.a.kernels[0].id }),
    enter: () => send('show', { view: 'code' }),
  } });
}
