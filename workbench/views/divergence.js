// The first difference of two training runs: from their receipts, and its op after a search.

const STYLE = `${PAIR}
.root { display: flex; flex-direction: column; background: var(--surface); }
.bar { display: flex; align-items: center; gap: 8px; min-height: 36px; flex: none; padding: 0 10px; border-bottom: 1px solid var(--line); white-space: nowrap; overflow: hidden; } .bar .gap { flex: 1; }
.scroll { flex: 1; min-height: 0; overflow: auto; padding: 14px 18px 24px; outline: none; }
.told { font-size: 15px; font-weight: 600; margin: 0 0 4px; } .told .differs { color: var(--removed); } .told .same { color: var(--added); }
p { margin: 0 0 8px; max-width: 860px; } h2 { font-size: 13px; font-weight: 600; margin: 18px 0 6px; }
.box { border: 1px solid var(--line); border-radius: 6px; padding: 10px 14px; margin: 12px 0; max-width: 980px; background: var(--page); }
.box.problem { border-left: 4px solid var(--warn); } .box.failed { border-left: 4px solid var(--bad); color: inherit; font-weight: 400; }
.box b { display: block; } .do { display: flex; align-items: center; gap: 10px; flex-wrap: wrap; }
.command { display: flex; gap: 6px; align-items: center; margin-top: 6px; } .command code { overflow-wrap: anywhere; background: var(--raised); padding: 2px 6px; border-radius: 4px; user-select: all; }
table { border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; } td, th { padding: 3px 14px 3px 0; text-align: left; vertical-align: top; font-weight: 400; overflow-wrap: anywhere; } th { color: var(--muted); white-space: nowrap; }
.track { width: 160px; height: 5px; background: var(--raised); border-radius: 3px; overflow: hidden; } .track div { height: 100%; width: 35%; background: var(--accent); animation: slide 1.2s ease-in-out infinite alternate; }
@keyframes slide { from { margin-left: 0; } to { margin-left: 65%; } }
.steps { display: flex; flex-wrap: wrap; gap: 4px 8px; } .steps span::after { content: '  ←'; color: var(--faint); } .steps span:last-child::after { content: ''; }
.side { margin-right: 18px; }
button.link { border: none; background: none; padding: 0; height: auto; color: var(--accent); }
`;
// Seventeen digits distinguish any two doubles; nine are enough for f32, and easier to read.
const exactNumber = (value) => (value === null ? '–' : String(Number(value.toPrecision(9)) === Math.fround(value) || Math.fround(value) === value ? Number(value.toPrecision(9)) : value));

const baseName = (path) => path.split(', ').map((each) => each.slice(Math.max(each.lastIndexOf('/'), each.lastIndexOf('\\')) + 1)).join(', ');

export default component(STYLE, ({ model, root, watch, send }) => {
  let data = null;
  let detail = {};
  const bar = h('div', { class: 'bar', role: 'toolbar', 'aria-label': 'Compared runs' });
  const body = h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'First difference of two training runs' });
  root.append(bar, body);
  const choose = (name) => send('compare', { with: name });
  const follow = (go) => () => send('follow', { go });
  const link = (text, go, title) => h('button', { class: 'link', title: title ?? '', click: follow(go) }, text);
  const about = (each) => `${each.model} · ${each.target}`;

  const error = (each, kind) => h('div', { class: `box ${kind}`, role: 'note' }, h('b', {}, each.what), each.where && h('div', { class: 'muted' }, each.where), each.fix && h('div', {}, each.fix));

  function receiptSummary() {
    const { part, together, compared } = data;
    if (data.problem) return [];
    if (!part) return [h('p', { class: 'told' }, h('span', { class: 'same' }, 'Bitwise equal'), ` in all ${plural(compared, 'iteration')} with receipts in both runs.`)];
    const kinds = { op: 'the result of', state: 'the state', gradient: 'the gradient of', loss: 'the loss', value: 'value' };
    const pipelineNote = data.pipelines ? [h('p', {}, 'The runs used different pipelines, whose results may differ in bits.')] : [];
    const equalBefore = together.first !== null && part.iteration > together.first ? `Bitwise equal up to iteration ${count(part.iteration - 1)}. ` : '';
    return [
      ...pipelineNote, h('p', { class: 'told' }, equalBefore, h('span', { class: 'differs' }, `Different in iteration ${count(part.iteration)}.`)),
      h('p', {}, 'The first difference in the receipts is ', h('b', { class: 'mono', style: { display: 'inline' } }, `${kinds[part.kind] ?? part.kind} ${part.name}`.trim()), part.origin ? h('span', { title: part.origin }, ` (${baseName(part.origin)})`) : '', '. ',
        !part.until ? 'It has no lasting effect: the state is the same afterwards.' : part.until === part.last ? `The state differs to the end (iteration ${count(part.last)}).`
          : `The state differs up to iteration ${count(part.until)} and is the same afterwards.`),
    ];
  }

  function command() {
    if (!data.command) return null;
    const button = h('button', { click: async () => { try { await navigator.clipboard.writeText(data.command); button.textContent = 'copied'; } catch { window.prompt('The command', data.command); } } }, 'Copy');
    return h('div', { class: 'command' }, h('code', {}, data.command), button);
  }

  function searchBox() {
    const search = detail.search?.a === data.a.path && detail.search?.b === data.b.path ? detail.search : {};
    if (search.state === 'running') {
      return h('div', { class: 'box', role: 'status' }, h('div', { class: 'do' }, h('span', {}, 'Repeating this iteration in both runs …'), h('div', { class: 'track' }, h('div')),
        canEdit() && h('button', { 'data-do': 'cancel', click: () => send('cancel', { of: 'divergence' }) }, 'Cancel')), h('div', { class: 'muted' }, 'Progress is shown in the bar above. Continues in the background.'));
    }
    const lastSearch = search.state === 'failed' && search.error ? error(search.error, 'failed') : search.state === 'cancelled' ? h('p', { class: 'muted' }, 'The search was cancelled.') : null;
    if (data.result || (!data.part && !data.problem)) return lastSearch;
    if (!data.again) return h('div', { class: 'box' }, 'The runs cannot be repeated from their folders: they were made from Python without a task. Train with fit(..., task="package.module:function"), or call core_compiler.debug.which_pass.find where they were made.');
    if (search.ask && canEdit()) return h('div', { class: 'box', 'data-result': 'ask' }, lastSearch, h('div', { class: 'do' }, h('button', { 'data-do': 'trust', click: () => send('diverge', { trust: true }) }, 'I have read this code; run it')));
    const canRun = detail.may_run && data.part;
    return h('div', {}, lastSearch, h('div', { class: 'box' }, data.part ? h('p', {}, data.pipelines ? 'Which pass and which rewrite cause the difference? The search repeats the iteration with pipelines between the two, until one rewrite is left.'
      : 'Which op differs first, and in which element? The search repeats the iteration in both runs, from the checkpoint before it.') : null,
      canRun ? h('div', { class: 'do' }, h('button', { class: 'primary', 'data-do': 'find', click: () => send('diverge', {}) }, data.pipelines ? 'Find the pass' : 'Find the op'), h('span', { class: 'muted' }, `compiles the step again${data.pipelines ? ', about ten times' : ''}, in a subprocess; or:`))
        : data.part ? h('div', { class: 'muted' }, 'On a command line:') : h('div', { class: 'muted' }, 'As a command:'), command()));
  }

  function opResult() {
    const found = data.result;
    if (!found) return null;
    const row = (title, ...cells) => h('tr', {}, h('th', { scope: 'row' }, title), h('td', {}, ...cells));
    const footer = h('div', { class: 'do' }, h('span', { class: 'muted' }, 'Kept beside the recording.'), detail.may_run && data.again ? h('button', { 'data-do': 'find', click: () => send('diverge', {}) }, 'Search again') : null);
    if ('pass' in found) return passResult(found, row, footer);
    const missing = (found.missing ?? []).map((why, i) => why && `${'AB'[i]} cannot be repeated here: ${why}. `).join('');
    const transientFaults = (found.passing ?? []).map((what, i) => what && `Repeated, ${what} of ${'AB'[i]} differs from its receipt: a transient or machine fault, which is not reproduced. `).join('');
    if (!found.op && missing) return h('div', { class: 'box', 'data-result': 'missing' }, h('b', {}, 'The op is unknown'), `${missing}${found.value} is the first that differs by the receipts.`, footer);
    if (!found.op) return h('div', { class: 'box', 'data-result': 'none' }, h('b', {}, 'No op differs'), `Repeated, every value of iteration ${count(found.iteration)} is the same in both runs; ${found.value} differs. ${transientFaults}`, footer);
    const op = found.id === null ? h('b', { class: 'mono' }, found.op)
      : h('b', { class: 'mono' }, link(found.op, { op: found.id, stage: found.stage, panes: ['divergence', 'graph'], open: 'graph', beside: 'divergence' }, 'Select this op: graph, source and IR diff follow'));
    const kernel = (name, id, other) => (!name ? '–' : other ? h('span', { class: 'mono' }, name) : id === null ? h('span', { class: 'mono' }, name) : link(name, { kernel: id, open: 'code', beside: 'divergence' }, 'Code of this kernel'));
    const [a, b] = found.numbers;
    return h('div', { class: 'box', 'data-result': 'op' }, h('table', {},
      row('first op that differs', op, found.lasting ? '' : h('span', { class: 'muted' }, '  (the state is the same afterwards)')),
      found.origin ? row('comes from', found.id === null ? h('span', { title: found.origin }, baseName(found.origin)) : link(baseName(found.origin), { op: found.id, stage: found.stage, open: 'source', beside: 'divergence' }, found.origin)) : null,
      row('iteration', count(found.iteration)),
      found.count ? row('element', h('span', { class: 'mono' }, `[${found.element.join(', ')}]`), ` of value ${found.value.split('/')[1]} of shard ${found.value.split('/')[0]}`) : null,
      found.count ? row('values', h('span', { class: 'side' }, 'A ', h('span', { class: 'mono' }, exactNumber(a))), h('span', { class: 'side' }, 'B ', h('span', { class: 'mono' }, exactNumber(b))), `${plural(found.ulps, 'ulp')} apart`) : null,
      found.count ? row('elements that differ', count(found.count)) : null,
      found.count ? row('kernels', h('span', { class: 'side' }, 'A ', kernel(found.kernels[0], found.kernel_ids[0])), 'B ', found.kernels[1] === found.kernels[0] ? h('span', { class: 'muted' }, 'the same') : kernel(found.kernels[1], found.kernel_ids[1], true)) : null,
      found.history.length ? row('made by', h('div', { class: 'steps', title: 'The rules that made the op, last one first' }, found.history.map((each) => h('span', {}, each)))) : null),
    found.count ? null : h('p', { class: 'muted' }, `Its values are unknown. ${missing || transientFaults || 'The iteration cannot be repeated here.'}`),
    footer);
  }

  // Two pipelines: the pass that causes the difference, and the rewrite in it.
  function passResult(found, row, footer) {
    const [a, b] = found.numbers;
    const rewrite = `${count(found.number)} of ${count(found.total)}: ${found.rule}`;
    return h('div', { class: 'box', 'data-result': 'pass' }, h('table', {},
      row('pass that causes it', h('b', { class: 'mono' }, found.pass || 'the order of passes')),
      row('in the runs', h('span', { class: 'side' }, `A ${found.how[0]}`), `B ${found.how[1]}`),
      found.number ? row('rewrite', found.stage === null ? h('span', { class: 'mono' }, rewrite)
        : h('span', { class: 'mono' }, link(rewrite, { stage: found.stage, rewrite: found.number - 1, open: 'rewrites', beside: 'divergence' }, 'This rewrite: before and after'))) : null,
      found.source ? row('rule defined in', h('span', { class: 'mono' }, found.source)) : null,
      found.op ? row('replaces', h('span', { class: 'mono' }, found.op), found.origin ? h('span', { title: found.origin }, ` from ${baseName(found.origin)}`) : '') : null,
      row('iteration', count(found.iteration)),
      row('first value that differs', h('span', { class: 'mono' }, found.value)),
      found.count ? row('element', h('span', { class: 'mono' }, `[${found.element.join(', ')}]`)) : null,
      found.count ? row('values', h('span', { class: 'side' }, 'A ', h('span', { class: 'mono' }, exactNumber(a))), h('span', { class: 'side' }, 'B ', h('span', { class: 'mono' }, exactNumber(b))), `${plural(found.ulps, 'ulp')} apart`) : null,
      found.count ? row('elements that differ', count(found.count)) : null),
    footer);
  }

  function runs() {
    const rows = [['folder', (run) => h('span', { title: run.folder }, baseName(run.folder) || '–')], ['iterations', (run) => `${count(run.done)}${run.wanted ? ` of ${count(run.wanted)}` : ''}`],
      ['receipts of', (run) => (run.receipts === 'off' && !run.ops_every ? 'nothing' : [run.receipts === 'gradients' ? 'state and gradients' : run.receipts === 'state' ? 'state' : '', run.ops_every ? `all values every ${plural(run.ops_every, 'iteration')}` : ''].filter(Boolean).join(', '))],
      ['injected', (run) => run.inject || 'nothing'], ['digest at the end', (run) => h('span', { class: 'mono', title: run.digest }, run.digest.slice(0, 16) || '–')]];
    return [h('h2', {}, 'The runs'), h('table', { 'data-table': 'runs' }, h('tr', {}, h('th', {}, ''), h('td', {}, h('b', {}, 'A')), h('td', {}, h('b', {}, 'B'))),
      rows.map(([name, cell]) => h('tr', {}, h('th', { scope: 'row' }, name), h('td', {}, cell(data.a)), h('td', {}, cell(data.b)))))];
  }

  const saves = downloadMenu(() => [
    ...(data.part ? [csvItem('First difference in the receipts', 'divergence', () => [['fact', 'value'], flattenFacts({ ...data.part, compared: data.compared })])] : []),
    ...(data.result ? [csvItem('Result', 'divergence-found', () => [['fact', 'value'], flattenFacts(data.result)])] : []),
    csvItem('The runs', 'divergence-runs', () => { const [a, b] = [flattenFacts(data.a), new Map(flattenFacts(data.b))]; return [['fact', 'A', 'B'], a.map(([name, value]) => [name, value, b.get(name)])]; }),
  ]);

  function draw() {
    if (!data) return;
    const { a, b } = data;
    bar.replaceChildren(...pairBar({ a, b, library: otherRuns(detail.recordings ?? [], a), about, choose, send }),
      h('span', { class: 'gap' }), b ? saves : '', clearPairButton(b, choose));
    const top = body.scrollTop;
    body.replaceChildren(...(b ? [
      ...receiptSummary(), data.problem ? error(data.problem, 'problem') : null,
      data.problem && data.together?.parts ? h('p', {}, `By the recordings, the ${data.together.by === 'receipts' ? 'digests' : 'losses'} first differ in iteration ${count(data.together.parts)}.`) : null,
      opResult(), searchBox(), ...runs(),
    ] : [
      h('p', { class: 'told' }, 'Where do two runs of the same step diverge?'), data.refused ? h('p', { class: 'failed' }, data.refused) : null,
      h('p', {}, 'Choose a second run above. Both need receipts: workbench train MODEL --folder DIR --receipts gradients -o FILE.run'),
    ]).filter(Boolean));
    body.scrollTop = top;
  }

  watch('detail', () => { detail = json(model, 'detail') ?? {}; draw(); });
  watch('data', () => { data = json(model, 'data') ?? data; draw(); });
});
