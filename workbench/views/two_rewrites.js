// Rules of two recordings: how often each of a pass applied, A | B | difference.

function twoRewrites({ selection, send, remember }) {
  const group = (name, title, hint, rest) => ({ name, title, hint, ...rest });
  const whole = { whole: true, neutral: true };
  const error = (row, side) => { const found = row[side]; return !found ? '' : found.failed ? `${found.failed} failed` : found.error === null ? '' : found.error ? relative(found.error) : 'bitwise'; };
  return pairTable({ selection, remember, what: {
    csv: ['Rules of both', 'rules-of-two'], order: ['count_d', -1],
    region: 'Rules of both recordings: up and down show the pass of A, Enter the graph after it',
    filter: 'Filter by rule or pass',
    left: [{ id: 'rule', title: 'rule', code: true, value: (row) => row.rule }, { id: 'pass', title: 'pass', value: (row) => row.pass }],
    groups: [
      group('count', 'applied', 'How often the rule applied in this pass.', { unit: 'times', ...whole }), group('removed', 'ops removed', 'Ops that it took less those that it made, constants and memory among them.', whole),
      group('us', 'time', 'Matching and rewriting, while it was compiled.', { kind: 'us' }),
    ],
    right: ['a', 'b'].map((side) => ({ id: `check_${side}`, title: `${side.toUpperCase()} worst check`, value: (row) => error(row, side) })),
    rows: (data) => data.rows, words: (row) => `${row.rule} ${row.pass}`,
    facts: (data) => {
      const times = (side) => data.rows.reduce((sum, row) => sum + (row[side]?.count ?? 0), 0);
      const differing = data.rows.filter((row) => (row.a?.count ?? 0) !== (row.b?.count ?? 0)).length;
      return [h('span', {}, 'rewrites ', h('b', {}, count(times('a'))), ' | ', h('b', {}, count(times('b')))), h('span', {}, differing ? `${plural(differing, 'rule')} applied more often in one` : 'each rule applied as often in both')];
    },
    marks: (row) => ({ 'data-rule': row.rule }),
    on: (row, at) => Boolean(row.a) && row.a.stage === at.stage && (at.rule == null || at.rule === row.rule),
    can: (row) => Boolean(row.a),
    choose: (row) => send('go', { stage: row.a.stage, rewrite: row.a.first }, { rule: row.rule }),
    enter: () => send('show', { view: 'graph', beside: 'rewrites' }),
  } });
}
