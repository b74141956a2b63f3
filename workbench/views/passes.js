// The pass rail: a list with keyboard navigation; unchanged passes are folded, except those
// with a failed check.

const STYLE = `
.head { display: flex; align-items: center; gap: 6px; height: 30px; padding: 0 10px; border-bottom: 1px solid var(--line);
  background: var(--raised); }
.head b { flex: 1; }
.root { display: flex; flex-direction: column; }
.list { flex: 1; min-height: 0; overflow-y: auto; outline: none; padding: 2px 0 20px; }
.list:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.half { padding: 7px 10px 2px; color: var(--faint); font-size: 11px; }
.pass { display: grid; grid-template-columns: 20px minmax(0, 1fr) auto 46px 14px; column-gap: 5px; align-items: baseline;
  padding: 2px 8px; cursor: pointer; border-left: 3px solid transparent; }
.pass:hover { background: var(--raised); }
.pass.on { background: var(--accentSoft); border-left-color: var(--accent); }
.pass.same { color: var(--faint); }
.pass .name { overflow-wrap: anywhere; line-height: 1.25; }
.pass .at { color: var(--faint); font-variant-numeric: tabular-nums; text-align: right; font-size: 11px; }
.delta { font-variant-numeric: tabular-nums; white-space: nowrap; text-align: right; }
.delta { color: var(--muted); } .delta.zero { color: var(--faint); } /* more or fewer ops is neither good nor bad */
.time { color: var(--muted); text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; font-size: 11px; }
.mark { text-align: center; }
.fold { color: var(--faint); padding: 1px 8px 1px 36px; cursor: pointer; font-size: 11px; }
.fold:hover { color: var(--text); }
.rewrites { margin: 0 0 4px 33px; border-left: 1px solid var(--line); }
.rewrite { display: grid; grid-template-columns: minmax(0, 1fr) auto 14px; gap: 5px; padding: 1px 8px 1px 7px; cursor: pointer; color: var(--muted); font-size: 11px; }
.rewrite:hover { background: var(--raised); }
.rewrite.on { background: var(--accentSoft); color: var(--text); }
.rewrite .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.pass .at { position: relative; } .pass .at:hover { color: var(--bad); }
.pass.stop .at::before, .rewrite.stop .name::before { content: '●'; color: var(--bad); }
.pass.stop .at { color: transparent; } .pass.stop .at::before { position: absolute; right: 1px; }
.rewrite.stop .name::before { margin-right: 4px; }
.stops { padding: 4px 8px; border-bottom: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: 4px; align-items: center; }
.stops span { display: inline-flex; align-items: center; gap: 3px; max-width: 100%; border: 1px solid var(--line); border-radius: 9px; padding: 0 2px 0 7px; font-size: 11px; }
.stops span b { font-weight: 400; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; max-width: 160px; }
.stops i { color: var(--bad); font-style: normal; } .stops button { padding: 0 4px; font-size: 11px; }
.more { padding: 2px 8px; color: var(--faint); font-size: 11px; }
`;
const WINDOW = 12;
/* What the passes of a half work on; the meaning half needs no label if it is the first. */
const HALVES = { source: 'on the ONNX graph', meaning: 'on tensor ops', implementation: 'for this target' };

export default component(STYLE, ({ model, root, watch, send, selection }) => {
  const unfoldedGroups = new Set();
  let data = { stages: [] };
  let detail = { rewrites: [], total: 0, stage: -1 };
  let isUnfolded = false;
  let breakpoints = new Set();
  const list = h('div', {
    class: 'list', tabindex: 0, role: 'listbox',
    'aria-label': 'Passes: up and down go through all of them, j and k through changed passes, J and K through rewrites, n to the next failed check, b sets a breakpoint, r runs to the next',
  });
  const total = h('span', { class: 'muted', title: 'passes that changed something, out of all passes' });
  const toggle = h('button', { class: 'plain faint', title: 'Show or fold passes that changed nothing', click: () => {
    isUnfolded = !isUnfolded;
    toggle.textContent = isUnfolded ? 'fold unchanged' : 'show all';
    draw();
  } }, 'show all');
  const edit = h('button', { class: 'plain', title: 'Edit the pipeline: skip, options, order, your own passes', 'aria-label': 'Edit the pipeline', click: () => send('show', { view: 'pipeline' }) }, 'edit');
  const breakpointBar = h('div', { class: 'stops', hidden: true, role: 'group', 'aria-label': 'Breakpoints' });
  const saves = downloadMenu(() => [
    csvItem('Passes', 'passes', () => [['stage', 'pass', 'half', 'changed', 'rewrites', 'ops_after', 'ops_change', 'seconds', 'check', 'worst_error', 'summary'],
      data.stages.map((s) => [s.index, s.name, s.half, s.changed, s.rewrites, s.ops, s.change, s.seconds, s.check?.verdict, s.check?.error, s.summary])]),
    ...(detail.total ? [csvItem(`Rewrites of ${data.stages[detail.stage]?.name ?? 'the pass'}`, `rewrites-${detail.stage}`, () => [['number', 'rule', 'ops_before', 'ops_after', 'check'],
      detail.rewrites.map((each, i) => [i, each.rule, each.before, each.after, each.check])])] : []),
  ], 'Download the passes');
  root.append(h('div', { class: 'head' }, h('b', {}, 'Passes'), total, toggle, canEdit() && edit, saves), breakpointBar, list);

  // Every pass, including folded ones, which unfold when the keys reach them.
  list.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !data.stages.length) return;
    const last = data.stages.length - 1;
    const now = data.stages.findIndex((s) => s.index === selection().stage);
    const to = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    if (data.stages[to]) send('go', { stage: data.stages[to].index, rewrite: null });
    event.preventDefault();
    event.stopPropagation();
  });

  // Breakpoints on passes are shown in the list; those on rules and ops above it as well.
  function drawBreakpoints(texts) {
    breakpointBar.hidden = !texts.length;
    const chips = texts.filter((text) => !text.startsWith('pass:')).map((text) => {
      const name = text.startsWith('op:') ? `op #${text.slice(3)}` : text.slice(5);
      return h('span', { title: text }, h('i', {}, '●'), h('b', {}, name),
        h('button', { class: 'plain', title: 'Remove the breakpoint', 'aria-label': `Remove the breakpoint on ${name}`, click: () => send('stop', { text }) }, '×'));
    });
    breakpointBar.replaceChildren(...chips,
      h('button', { title: 'Previous breakpoint  (R)', click: () => send('step', { what: 'stop', by: -1 }) }, '‹'),
      h('button', { title: 'Continue to the next breakpoint  (r)', click: () => send('step', { what: 'stop', by: 1 }) }, 'next ›'));
  }

  const title = (s) =>
    `${String(s.index).padStart(2, '0')} ${s.name}\n${s.summary}\n${plural(s.rewrites, 'rewrite')}, ` +
    `${count(s.ops)} ops after it, ${seconds(s.seconds)}` + (s.check ? `\nchecks: ${checks(s.check)}` : '');
  const checks = (check) =>
    Object.entries(check.counts).map(([v, n]) => `${n} ${MARK_WORDS[v]}`).join(', ') +
    (check.error ? `; worst relative error ${relative(check.error)}` : '');

  function mark({ check, rewrites }) {
    if (!check) return h('span', { class: 'mark unchecked', title: rewrites ? MARK_WORDS.unchecked : '' }, rewrites ? MARKS.unchecked : '');
    return h('span', { class: `mark ${check.verdict}`, title: checks(check) }, MARKS[check.verdict]);
  }

  function row(stage, on) {
    const change = stage.change;
    const delta = change === null ? count(stage.ops) : change === 0 ? (stage.rewrites ? '±0' : '') :
      `${change > 0 ? '+' : '−'}${count(Math.abs(change))}`;
    const tone = change === null || change === 0 ? 'zero' : change < 0 ? 'less' : 'more';
    return h('div', {
      class: `pass${on ? ' on' : ''}${stage.changed ? '' : ' same'}${breakpoints.has(`pass:${stage.name}`) ? ' stop' : ''}`, role: 'option', id: `stage-${stage.index}`, 'aria-selected': String(on),
      title: title(stage), 'data-stage': stage.index, click: () => { send('go', { stage: stage.index, rewrite: null }); list.focus(); },
    },
    h('span', { class: 'at', title: stage.index ? 'Set or remove a breakpoint on this pass  (b)' : '', click: (event) => {
      if (!stage.index) return;
      event.stopPropagation();
      send('stop', { text: `pass:${stage.name}` });
    } }, String(stage.index).padStart(2, '0')),
    h('span', { class: 'name' }, breakable(stage.name)),
    h('span', { class: `delta ${tone}`, title: explain('passes', 'ops') }, delta),
    h('span', { class: 'time', title: explain('passes', 'time') }, stage.index ? seconds(stage.seconds) : 'ops'),
    mark(stage));
  }

  function rewrites(chosen) {
    const { rewrites: rows, total: n } = detail;
    const centre = chosen ?? 0;
    const from = Math.max(0, Math.min(centre - WINDOW / 2, rows.length - WINDOW));
    const visible = rows.slice(from, from + WINDOW);
    const box = h('div', { class: 'rewrites', role: 'group', 'aria-label': 'Rewrites' });
    if (from) box.append(h('div', { class: 'more' }, `… ${count(from)} before`));
    visible.forEach((each, i) => {
      const index = from + i;
      box.append(h('div', {
        class: `rewrite${index === chosen ? ' on' : ''}${breakpoints.has(`rule:${each.rule}`) ? ' stop' : ''}`, role: 'option', id: `rewrite-${index}`, 'aria-selected': String(index === chosen),
        title: `rewrite ${index} of ${n}: ${each.rule}\n${plural(each.before, 'op')} became ${count(each.after)}`,
        'data-rewrite': index, click: () => { send('rewrite', { index }); list.focus(); },
      },
      h('span', { class: 'name' }, each.rule),
      h('span', { class: 'faint' }, `${each.before}→${each.after}`),
      h('span', { class: `mark ${each.check}` }, MARKS[each.check] ?? '')));
    });
    if (from + WINDOW < n) box.append(h('div', { class: 'more' }, `… ${count(n - from - visible.length)} more`));
    return box;
  }

  function draw() {
    const { stage: shownStage, rewrite, stops: texts = [] } = selection();
    breakpoints = new Set(texts);
    drawBreakpoints(texts);
    const rows = [];
    let half = '';
    let folded = [];
    const flush = () => {
      if (!folded.length) return;
      const group = folded;
      folded = [];
      if (isUnfolded || unfoldedGroups.has(group[0].index) || group.some((s) => s.index === shownStage)) {
        rows.push(...group.map((s) => row(s, s.index === shownStage)));
        return;
      }
      rows.push(h('div', { class: 'fold', role: 'option', 'aria-selected': 'false', title: `${group.map((s) => s.name).join('\n')}\nThe arrow keys unfold them.`,
        click: () => { unfoldedGroups.add(group[0].index); draw(); } },
      `${plural(group.length, 'pass').replace('passs', 'passes')} changed nothing`));
    };
    for (const stage of data.stages) {
      if (stage.half !== half && stage.index && stage.half !== undefined) {
        if (HALVES[stage.half] && !(stage.half === 'meaning' && half === '') && !rows.some((r) => r.dataset?.half === stage.half)) {
          flush();
          rows.push(h('div', { class: 'half', 'data-half': stage.half }, HALVES[stage.half]));
        }
        half = stage.half;
      }
      if (!stage.changed && stage.check?.verdict !== 'failed') {
        folded.push(stage);
        continue;
      }
      flush();
      rows.push(row(stage, stage.index === shownStage));
      if (stage.index === shownStage && detail.stage === shownStage && detail.total) rows.push(rewrites(rewrite));
    }
    flush();
    list.replaceChildren(...rows);
    total.textContent = data.stages.length ? `${data.stages.filter((s) => s.changed && s.index).length} of ${data.stages.length - 1}` : '';
    const on = list.querySelector('.rewrite.on') ?? list.querySelector('.pass.on');
    on?.scrollIntoView({ block: 'nearest' });
    list.setAttribute('aria-activedescendant', on?.id ?? '');
  }

  const scheduleDraw = perFrame(draw); // a step changes all three at once
  watch('data', () => { data = json(model, 'data') ?? { stages: [] }; scheduleDraw(); });
  watch('detail', () => { detail = json(model, 'detail') ?? detail; scheduleDraw(); });
  watch('selection', scheduleDraw);
});
