// The pipeline as a list: what each pass did, and all of its settings.  Each edit is a request to
// Python, which answers with the edited list, or with the reason for a rejection.

const STYLE = `
.root { display: flex; flex-direction: column; background: var(--surface); container: pipeline / inline-size; }
.bar { display: flex; align-items: center; gap: 8px; min-height: 34px; padding: 4px 10px; border-bottom: 1px solid var(--line); flex: none; flex-wrap: wrap; color: var(--muted); }
.bar b { color: var(--text); font-weight: 600; } .bar .gap { flex: 1; } .bar label { display: flex; align-items: center; gap: 4px; white-space: nowrap; }
.bar input[type=text] { width: 52px; } input[type=checkbox] { height: auto; margin: 0; accent-color: var(--accent); }
.check { width: 13px; height: 13px; border: 1px solid var(--faint); border-radius: 3px; text-align: center; line-height: 12px; font-size: 11px; cursor: pointer; background: var(--surface); }
.check.on { background: var(--accent); border-color: var(--accent); } .check.on::after { content: '✓'; color: var(--surface); font-weight: 700; } .check.fixed { opacity: .45; cursor: default; }
.told { padding: 5px 12px; flex: none; border-bottom: 1px solid var(--line); color: var(--muted); overflow-wrap: anywhere; }
.told b { color: var(--text); font-weight: 600; } .told.edited { background: var(--accentSoft); } .told .chip { margin-left: 8px; }
.note { display: flex; gap: 10px; align-items: baseline; padding: 6px 12px; flex: none; border-bottom: 1px solid var(--line); border-left: 4px solid var(--bad); background: var(--raised); }
.note.soft { border-left-color: var(--accent); } .note .text { flex: 1; overflow-wrap: anywhere; } .note .where { font-family: var(--mono); } .note .fix { color: var(--muted); }
.body { flex: 1; min-height: 0; display: grid; grid-template-columns: minmax(0, 1fr) minmax(290px, 40%); }
.list { overflow-y: auto; outline: none; padding-bottom: 16px; border-right: 1px solid var(--line); }
.list:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.body.writes { grid-template-columns: minmax(0, 1fr) minmax(290px, 50%); }
.side { overflow-y: auto; padding: 8px 12px 20px; }
.row, .heads { display: grid; grid-template-columns: 14px 18px minmax(90px, 1fr) auto 40px 48px 54px 14px; column-gap: 6px; align-items: center; padding: 1px 8px 1px 4px; border-left: 3px solid transparent; }
.two .row, .two .heads { grid-template-columns: 14px 18px minmax(90px, 1fr) auto 34px 34px 40px 40px 54px 54px 64px 18px 16px; column-gap: 5px; }
.body.pair { grid-template-columns: minmax(0, 1fr) minmax(250px, 30%); } .body.pair.writes { grid-template-columns: minmax(0, 1fr) minmax(290px, 45%); }
.two .heads .over { text-align: center; white-space: nowrap; border-bottom: 1px solid var(--line); margin-left: 6px; } .row.only { cursor: default; }
.two .row > :nth-last-child(-n+2), .two .heads > :nth-last-child(-n+2) { text-align: right; } .row .num { white-space: nowrap; }
.heads { position: sticky; top: 0; z-index: 2; background: var(--raised); color: var(--muted); border-bottom: 1px solid var(--line); padding-top: 3px; padding-bottom: 3px; font-size: 11px; }
.row { cursor: pointer; min-height: 22px; } .row:hover { background: var(--raised); } .row.on { background: var(--accentSoft); border-left-color: var(--accent); }
.row.skipped .name { text-decoration: line-through; color: var(--faint); } .row.same { color: var(--muted); } .row.locked, .row.locked * { color: var(--faint); } .row.bad .name { color: var(--bad); font-weight: 600; }
.row.drop { box-shadow: inset 0 2px 0 var(--accent); } .row .grip { color: var(--faint); cursor: grab; text-align: center; } .row.locked .grip { visibility: hidden; }
.name { line-height: 1.25; overflow-wrap: anywhere; }
.tags { display: flex; gap: 3px; justify-content: flex-end; } .tag { font-size: 10px; line-height: 15px; border-radius: 3px; padding: 0 4px; background: var(--accentSoft); color: var(--accent); white-space: nowrap; }
.tag.bad { background: none; border: 1px solid var(--bad); color: var(--bad); line-height: 13px; } .row.on .tag { background: var(--surface); }
.less { color: var(--added); } .more { color: var(--removed); }
.half { padding: 8px 10px 2px 8px; color: var(--faint); font-size: 11px; }
.side h3 { margin: 0; font-size: 13px; overflow-wrap: anywhere; } .side h4 { margin: 14px 0 4px; font-size: 12px; } .side p { margin: 3px 0; color: var(--muted); }
.facts { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: 2px 12px; margin: 6px 0; } .facts dt { color: var(--muted); } .facts dd { margin: 0; overflow-wrap: anywhere; }
.form { display: grid; grid-template-columns: auto minmax(92px, 1fr) minmax(0, auto); gap: 5px 8px; align-items: center; } .form label { overflow-wrap: break-word; } .form small { color: var(--faint); } .form input, .form select { min-width: 0; width: 100%; }
.form input[type=checkbox] { width: auto; justify-self: start; }
.body.pair .form { grid-template-columns: auto minmax(92px, 1fr); } .body.pair .form small { grid-column: 1 / -1; margin: -3px 0 3px; }
.actions { display: flex; flex-wrap: wrap; gap: 6px; margin-top: 10px; } .actions select { width: 158px; }
textarea { width: 100%; min-height: 250px; resize: vertical; font: 12px/1.45 var(--mono); color: var(--text); background: var(--page); border: 1px solid var(--line); border-radius: 4px; padding: 6px 8px; tab-size: 4; white-space: pre; overflow: auto; }
.problem { color: var(--bad); padding: 2px 0; overflow-wrap: anywhere; }
details { flex: none; border-top: 1px solid var(--line); max-height: 45%; overflow: auto; } summary { padding: 5px 12px; cursor: pointer; color: var(--muted); position: sticky; top: 0; background: var(--surface); }
details .text { display: grid; grid-template-columns: minmax(0, 1fr) auto; align-items: start; background: var(--page); } details pre { margin: 0; padding: 6px 12px 10px; font: 12px/1.5 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; background: var(--page); }
details .copies { display: flex; gap: 4px; padding: 4px 8px; order: 2; }
@container pipeline (max-width: 640px) { .body { display: block; overflow-y: auto; } .list { border-right: none; border-bottom: 1px solid var(--line); overflow: visible; } .side { overflow: visible; }
  .heads { position: static; } }
@container pipeline (max-width: 800px) { .body.pair { display: block; overflow-y: auto; } .pair .list { border-right: none; border-bottom: 1px solid var(--line); overflow: visible; } .pair .side { overflow: visible; }
  .pair .heads { position: static; } }
`;
const HALVES = {
  source: ['ONNX graph', 'before the import; values may change within stated tolerances'],
  meaning: ['Target-independent', 'the same for every target; values may change within stated tolerances'],
  implementation: ['Target-specific', 'for this target; every bit is kept'],
};
const ANSWER_TIMEOUT = 10000;

export default component(STYLE, ({ model, root, watch, later, send, selection }) => {
  let data = null;
  let pipeline = null;
  let rejection = null;
  let compileStatus = null;
  let isTrusted = false;
  let selectedLabel = '';
  let dragged = '';
  let answerTimer = 0;
  let textFormat = 'command';
  const undoStack = [];
  const session = Math.random().toString(36).slice(2);
  const pendingRequests = new Map();
  let requestNumber = 0;
  let requestQueue = Promise.resolve();

  const bar = h('div', { class: 'bar', role: 'toolbar', 'aria-label': 'Pipeline' });
  const summary = h('div', { class: 'told' });
  const note = h('div', { class: 'note', role: 'alert', hidden: true });
  const list = h('div', { class: 'list', tabindex: 0, role: 'listbox',
    'aria-label': 'Passes in order: up and down select, Space skips or restores, Alt with up or down moves, Enter edits, Insert adds your own pass, Delete resets' });
  const facts = h('div');
  const editor = h('div');
  const more = h('div');
  const side = h('div', { class: 'side', role: 'region', 'aria-label': 'The selected pass' }, facts, editor, more);
  const editText = h('details', {}, h('summary', {}, 'The edit as text'));
  const body = h('div', { class: 'body' }, list, side);
  root.append(bar, summary, note, body, editText);

  // -- asking Python ----------------------------------------------------------------------------
  function sendRequest(done) {
    const sent = requestQueue.then(() => new Promise((resolve) => {
      requestNumber += 1;
      pendingRequests.set(requestNumber, resolve);
      clearTimeout(answerTimer);
      answerTimer = setTimeout(() => { // a late answer still counts
        rejection = { what: 'No answer yet', where: '', fix: 'a report cannot answer: edit the pipeline on the workbench page or in a notebook' };
        drawNote();
      }, ANSWER_TIMEOUT);
      model.set('request', JSON.stringify([{ id: requestNumber, session, draft: pipeline.draft, done }]));
      model.save_changes();
    }));
    requestQueue = sent.then(() => {}, () => {});
    return sent;
  }
  watch('response', () => {
    for (const each of json(model, 'response') ?? []) {
      if (each.session !== session || !pendingRequests.has(each.id)) continue;
      const answer = pendingRequests.get(each.id);
      pendingRequests.delete(each.id);
      if (!pendingRequests.size) clearTimeout(answerTimer);
      answer(each.error ? { failed: each.error } : each.value);
    }
  });

  /** Apply an edit to the draft; the previous draft can be restored. */
  async function applyEdit(done, { keep = true } = {}) {
    const before = pipeline.draft;
    const position = pipeline.rows.findIndex((row) => row.label === selectedLabel);
    const answer = await sendRequest(done);
    if (answer.failed) {
      rejection = { what: answer.failed, where: 'this part of the page', fix: 'reload to try again' };
      drawNote();
      return;
    }
    rejection = answer.refused ?? null;
    if (!rejection && compileStatus?.state !== 'running') compileStatus = null;
    if (keep && !rejection && JSON.stringify(before) !== JSON.stringify(answer.draft)) undoStack.push(before);
    pipeline = answer;
    if (done.do === 'insert' && !rejection) selectedLabel = pipeline.rows[Math.min(position + 1, pipeline.rows.length - 1)]?.label ?? selectedLabel;
    else if (!pipeline.rows.some((row) => row.label === selectedLabel)) selectedLabel = pipeline.rows[Math.max(0, Math.min(position, pipeline.rows.length - 1))]?.label ?? '';
    remember();
    draw();
  }

  function remember() {
    model.set('state', pipeline.edited ? { of: data.name, draft: pipeline.draft } : {});
    model.save_changes();
  }

  function undo() {
    const before = undoStack.pop();
    if (!before) return;
    pipeline = { ...pipeline, draft: before };
    applyEdit({ do: 'show' }, { keep: false });
  }

  // -- above the list ---------------------------------------------------------------------------
  const isRunning = () => compileStatus?.state === 'running';
  const isReadOnly = () => Boolean(data.fixed) || !canEdit();
  const problems = () => pipeline.rows.filter((row) => row.own && row.problem && !row.skipped);

  function drawBar() {
    const { draft } = pipeline;
    const toggle = (name, title, label) => h('label', { title }, h('input', { type: 'checkbox', name, checked: draft[name], disabled: isReadOnly(), change: (event) => applyEdit({ do: 'set', [name]: event.target.checked }) }), label);
    const invalid = problems();
    const blockedReason = isReadOnly() ? data.fixed : isRunning() ? 'a compile is running' : invalid.length ? `${invalid[0].label}: ${invalid[0].problem}` : '';
    bar.replaceChildren(
      h('b', { title: `${data.model} for ${data.target}` }, 'Pipeline'),
      h('span', { class: 'gap' }),
      ...(isReadOnly() ? [] : [
        toggle('check', 'Evaluate every rewrite before and after on real tensors', 'check'),
        toggle('execute', 'Execute the program and time every launch', 'execute'),
        h('label', { title: 'A pass that takes longer is stopped and named; empty: no limit' }, 'at most', h('input', { type: 'text', name: 'timeout', inputmode: 'decimal', 'aria-label': 'Time limit per pass, in seconds', value: draft.timeout ?? '', placeholder: 'any', change: (event) => applyEdit({ do: 'set', timeout: event.target.value }) }), 's per pass'),
        h('button', { disabled: !undoStack.length, title: 'Undo the last change  (Ctrl Z)', click: undo }, 'Undo'),
        h('button', { disabled: !pipeline.edited, 'data-do': 'undo', title: 'Restore the pipeline of this recording', click: () => applyEdit({ do: 'undo' }) }, 'Undo all'),
        pipeline.plain || !data.made_with ? null : h('button', { 'data-do': 'plain', title: `The unedited pipeline of ${data.target}`, click: () => applyEdit({ do: 'undo', plain: true }) }, 'Unedited'),
        isRunning() ? h('button', { 'data-do': 'cancel', title: 'Stop the compile; finished stages are kept', click: () => send('cancel', { of: 'pipeline' }) }, 'Cancel') : null,
        h('button', { class: 'primary', 'data-do': 'run', disabled: Boolean(blockedReason), title: blockedReason || 'Compile again with this pipeline into a new recording, and compare the two', click: () => run() }, isRunning() ? 'Running …' : 'Run'),
        h('button', { 'data-do': 'step', disabled: Boolean(blockedReason), title: blockedReason || 'Compile again with this pipeline and pause before each pass: apply it, skip it, or run to a breakpoint', click: () => run(true) }, 'Step'),
      ]).filter(Boolean), saves);
  }

  const saves = downloadMenu(() => [csvItem('Passes', 'pipeline', () => {
    const sides = data.other ? [['', data.did], ['_b', data.other.did]] : [['', data.did]];
    const names = ['stage', 'rewrites', 'ops', 'change', 'seconds'];
    const timeDifference = (label) => (data.other ? [addedTime(data.did[label], data.other.did[label])] : []);
    return [['pass', 'half', 'skipped', 'options', 'limit', 'twice', ...sides.flatMap(([end]) => [...names, 'check'].map((name) => name + end)), ...(data.other ? ['seconds_b_minus_a'] : [])],
      pipeline.rows.map((row) => [row.label, row.half, row.skipped, row.options.filter((each) => each.set).map((each) => `${each.name}=${each.text}`).join(' '), row.limit, row.repeat,
        ...sides.flatMap(([, did]) => [...names.map((name) => did[row.label]?.[name]), did[row.label]?.check?.verdict]), ...timeDifference(row.label)])];
  }), ...(isReadOnly() ? [] : [textItem('The edit as Python', 'edit.py', () => pipeline.python), textItem('The edit as a command', 'edit.sh', () => pipeline.command)])]);

  let wasStepByStep = false;
  function run(stepByStep = false) {
    wasStepByStep = stepByStep;
    compileStatus = { state: 'running', run: data.name };
    rejection = null;
    draw();
    send('rerun', { draft: pipeline.draft, trust: isTrusted, hold: stepByStep });
    clearTimeout(answerTimer);
    answerTimer = setTimeout(() => { // a notebook or a report cannot compile
      compileStatus = null;
      rejection = { what: 'This page cannot compile', where: '', fix: 'copy the Python or the command below' };
      editText.open = true;
      draw();
    }, ANSWER_TIMEOUT);
  }

  function drawSummary() {
    const { draft } = pipeline;
    summary.classList.toggle('edited', pipeline.edited);
    const otherEdit = data.other ? [h('div', {}, 'B, ', h('b', {}, data.other.name), ...(data.other.made_with ? [', was made with: ', h('b', {}, data.other.made_with)] : [', was made without edits.']))] : [];
    const thisEdit = data.made_with ? ['This recording was made with: ', h('b', {}, data.made_with)] : ['This recording was made without edits.'];
    const startChip = draft.start ? h('button', { class: 'chip', title: 'Begin with the first pass again', click: () => applyEdit({ do: 'start', label: '' }) }, `begins with ${draft.start}  ×`) : null;
    const itself = data.itself && !data.fixed ? h('div', {}, data.itself) : '';
    summary.replaceChildren(...(pipeline.edited ? ['The next compile: ', h('b', {}, pipeline.words || 'no edits')] : thisEdit), startChip ?? '',
      ...(draft.start ? [h('div', {}, 'The passes before it do not change. They run again: the compiler is deterministic, and the model and kernels come from the cache.')] : []), ...otherEdit, itself);
  }

  function drawNote() {
    const notes = [];
    const addNote = (error, extra = [], soft = false) => notes.push([soft, h('span', { class: 'text' },
      error.where ? h('span', { class: 'where' }, `${error.where}: `) : '', error.what, error.fix ? h('span', { class: 'fix' }, ` – ${error.fix}`) : ''), ...extra]);
    if (rejection) addNote(rejection);
    else if (isRunning()) addNote({ what: 'Compiling again with the edited pipeline; this recording does not change.' }, [], true);
    else if (compileStatus?.error && compileStatus.run === data.name) {
      const { kept } = compileStatus;
      const extra = [];
      if (kept?.stages) extra.push(h('button', { 'data-do': 'kept', title: 'Open the incomplete recording', click: () => send('open', { what: kept.name }) }, `Open the ${plural(kept.stages, 'finished stage')}`));
      if (compileStatus.ask && canEdit()) extra.push(h('button', { 'data-do': 'trust', click: () => { isTrusted = true; run(wasStepByStep); } }, 'I have read this code; run it'));
      addNote(compileStatus.error, extra);
    } else if (data.fixed) addNote({ what: `This pipeline cannot be edited here: ${data.fixed}` }, [], true);
    else if (data.status === 'failed' && data.message) addNote({ what: `This compile failed: ${data.message}` });
    else if (!canEdit()) addNote({ what: 'Read-only: editors can change this pipeline and compile again.' }, [], true);
    note.hidden = !notes.length;
    if (!notes.length) return;
    const [[soft, ...parts]] = notes;
    note.classList.toggle('soft', soft);
    note.replaceChildren(...parts, rejection ? h('button', { class: 'plain', 'aria-label': 'Close', click: () => { rejection = null; drawNote(); } }, '×') : '');
  }

  // -- the list ---------------------------------------------------------------------------------
  const failingPass = () => (compileStatus?.error?.where ?? (data.status === 'failed' ? data.message : '')).match(/^pass ([\w#+]+)/)?.[1] ?? '';

  function mark(check) {
    const counts = check && Object.entries(check.counts).map(([v, n]) => `${n} ${MARK_WORDS[v]}`).join(', ');
    return h('span', { class: check?.verdict ?? 'faint', title: check ? counts + (check.error ? `; worst relative error ${relative(check.error)}` : '') : '' }, check ? MARKS[check.verdict] : '');
  }

  function tags(row) {
    const found = [];
    if (row.ours) found.push(h('span', { class: 'tag', title: row.summary }, 'inserted'));
    else if (row.own) found.push(row.problem ? h('span', { class: 'tag bad', title: row.problem }, 'own ✗') : h('span', { class: 'tag', title: 'inserted; its own code' }, 'own'));
    if (row.limit !== null) found.push(h('span', { class: 'tag', title: `stops after ${row.limit} rewrites` }, `≤ ${row.limit}`));
    if (row.cuts) found.push(h('span', { class: 'tag', title: `split into steps of ${row.cuts} rewrites and the rest, each a stage` }, `÷ ${row.cuts}`));
    if (row.repeat) found.push(h('span', { class: 'tag', title: 'runs twice in a row' }, '× 2'));
    const set = row.options.filter((option) => option.set);
    if (set.length) found.push(h('span', { class: 'tag', title: set.map((o) => `${o.name} = ${o.text}`).join('\n') }, set.map((o) => o.name).join(', ')));
    return h('span', { class: 'tags' }, found);
  }

  function drawRow(row) {
    const did = data.did[row.label];
    const locked = row.locked || isReadOnly();
    return h('div', {
      class: `row${row.label === selectedLabel ? ' on' : ''}${row.skipped ? ' skipped' : ''}${locked ? ' locked' : ''}${did?.changed || row.changed || row.own ? '' : ' same'}${row.label === failingPass() ? ' bad' : ''}`,
      role: 'option', id: `pass-${row.label}`, 'aria-selected': String(row.label === selectedLabel), 'aria-checked': String(!row.skipped), 'data-label': row.label, draggable: locked ? null : 'true',
      title: `${row.label}\n${row.summary}${row.locked && pipeline.draft.start ? '\ncannot change: the compile begins after it' : ''}`,
      click: () => choose(row.label, true),
      dragstart: (event) => { dragged = row.label; event.dataTransfer.setData('text/plain', row.label); event.dataTransfer.effectAllowed = 'move'; },
      dragover: (event) => { if (dragged) { event.preventDefault(); event.currentTarget.classList.add('drop'); } },
      dragleave: (event) => event.currentTarget.classList.remove('drop'),
      drop: (event) => { event.preventDefault(); event.currentTarget.classList.remove('drop'); if (dragged && dragged !== row.label) { selectedLabel = dragged; applyEdit({ do: 'move', label: dragged, before: row.label }); } dragged = ''; },
      dragend: () => { dragged = ''; },
    },
    h('span', { class: 'grip', title: locked ? '' : 'drag, or Alt with up and down' }, '⠿'),
    // For the mouse: keys cannot reach the parts of an option, which is checked itself.
    h('span', { class: `check${row.skipped ? '' : ' on'}${row.mandatory || locked ? ' fixed' : ''}`, 'aria-hidden': 'true', title: row.mandatory ? 'required' : row.skipped ? 'skipped; click to restore' : 'runs; click to skip',
      click: (event) => { event.stopPropagation(); if (row.mandatory || locked) return; selectedLabel = row.label; list.focus(); applyEdit({ do: 'skip', label: row.label, on: !row.skipped }); } }),
    h('span', { class: 'name' }, breakable(row.label)), tags(row), ...figures(row.label));
  }

  const signed = (by, format) => (by === 0 ? '' : `${by > 0 ? '+' : '−'}${format(Math.abs(by))}`);
  const tone = (by) => (!by ? 'faint' : by < 0 ? 'less' : 'more');
  /** B − A of the time of a pass; 0 for a recording without it. */
  const addedTime = (did, other) => (did || other ? (other?.seconds ?? 0) - (did?.seconds ?? 0) : null);

  /** The figures of a pass, here and in the other recording: the cells below the heads. */
  function figures(label) {
    const sides = [data.did[label], ...(data.other ? [data.other.did[label]] : [])];
    const cell = (kind, text, title = '') => h('span', { class: `num ${kind}`, title }, text);
    const difference = data.other ? addedTime(...sides) : null;
    return [
      ...sides.map((each) => cell(tone(each?.change), each ? signed(each.change, count) : '', each ? `${count(each.ops)} ops after it` : '')),
      ...sides.map((each) => cell('', each?.rewrites ? count(each.rewrites) : '')),
      ...sides.map((each) => cell('muted', each ? seconds(each.seconds) : '')),
      ...(difference === null ? [data.other ? cell('', '') : null] : [cell(tone(difference), difference === 0 ? '=' : signed(difference, seconds))]),
      ...sides.map((each) => mark(each?.check)),
    ];
  }

  /** The heads of those cells; with two recordings a second line labels A, B and B − A. */
  function heads() {
    const blanks = (count_ = 1) => Array.from({ length: count_ }, () => h('span'));
    const what = ['ops', 'rewrites', 'time', 'check'];
    const headLabel = (name) => (name === 'check' ? '✓' : name);
    const head = (name, text, title) => h('span', { class: name === 'check' ? '' : 'num', title }, text);
    if (!data.other) return [h('div', { class: 'heads', role: 'presentation' }, blanks(2), h('span', {}, 'pass'), blanks(), what.map((name) => head(name, headLabel(name), explain('passes', name))))];
    const b = `B is ${data.other.name}${data.other.made_with ? `, made with: ${data.other.made_with}` : ''}`;
    const wide = { ops: 2, rewrites: 2, time: 3, check: 2 };
    return [h('div', { class: 'heads', role: 'presentation' },
      h('span', { style: { gridColumn: 'span 4' } }), what.map((name) => h('span', { class: 'over', style: { gridColumn: `span ${wide[name]}` }, title: explain('passes', name) }, headLabel(name))),
      blanks(2), h('span', {}, 'pass'), blanks(),
      what.flatMap((name) => [
        head(name, 'A', `A is ${data.name}. ${explain('passes', name)}`), head(name, 'B', `${b}. ${explain('passes', name)}`),
        name === 'time' ? head(name, 'B − A', 'How much longer the pass takes in B; a pass of only one recording counts fully') : null,
      ]))];
  }

  function drawList() {
    const top = list.scrollTop;
    list.classList.toggle('two', Boolean(data.other));
    body.classList.toggle('pair', Boolean(data.other));
    const rows = heads();
    let half = '';
    for (const row of pipeline.rows) {
      if (row.half !== half) {
        half = row.half;
        const [name, what] = HALVES[half] ?? [half, ''];
        rows.push(h('div', { class: 'half', role: 'presentation' }, `${name}: ${what.replace('this target', data.target)}`));
      }
      rows.push(drawRow(row));
    }
    const only = Object.keys(data.other?.did ?? {}).filter((label) => !pipeline.rows.some((row) => row.label === label));
    if (only.length) rows.push(h('div', { class: 'half', role: 'presentation' }, 'Only in B'));
    for (const label of only) rows.push(h('div', { class: 'row only', role: 'presentation', title: `${label}\nonly in ${data.other.name}` }, h('span'), h('span'), h('span', { class: 'name' }, breakable(label)), h('span'), figures(label)));
    list.replaceChildren(...rows);
    list.setAttribute('aria-activedescendant', `pass-${selectedLabel}`);
    list.scrollTop = top;
  }

  function choose(label, follow) {
    selectedLabel = label;
    const stage = data.did[label]?.stage;
    if (follow && stage !== undefined && stage !== selection().stage) send('go', { stage, rewrite: null });
    drawList();
    drawSide();
    list.querySelector('.row.on')?.scrollIntoView({ block: 'nearest' });
  }

  list.addEventListener('keydown', (event) => {
    if (event.composedPath()[0] !== list) return;
    const at = pipeline.rows.findIndex((row) => row.label === selectedLabel);
    const row = pipeline.rows[at];
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const isEditable = row && !isReadOnly();
    if (by && event.altKey && isEditable) applyEdit({ do: 'move', label: row.label, by }).then(() => list.querySelector('.row.on')?.scrollIntoView({ block: 'nearest' }));
    else if (by && !event.altKey) choose(pipeline.rows[Math.max(0, Math.min(pipeline.rows.length - 1, at + by))].label, true);
    else if (event.key === ' ' && isEditable && !row.mandatory) applyEdit({ do: 'skip', label: row.label, on: !row.skipped });
    else if (event.key === 'Enter' && row) side.querySelector('.form input, .form select, textarea')?.focus();
    else if (event.key === 'Delete' && isEditable) applyEdit({ do: 'remove', label: row.label });
    else if (event.key === 'Insert' && isEditable) applyEdit({ do: 'insert', label: row.label });
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  root.addEventListener('keydown', (event) => {
    const isTyping = ['INPUT', 'TEXTAREA'].includes(event.composedPath()[0].tagName) && event.composedPath()[0].type !== 'checkbox';
    if ((event.ctrlKey || event.metaKey) && event.key === 'z' && !isTyping) {
      undo();
      event.preventDefault();
    }
  });

  // -- the selected pass ------------------------------------------------------------------------
  function option(row, each) {
    const send_ = (value) => applyEdit({ do: 'option', label: row.label, option: each.name, text: value });
    const disabled = row.locked || isReadOnly();
    const id = `option-${each.name}`;
    const common = { id, name: each.name, disabled, 'data-option': each.name };
    let field;
    if (each.choices.length) field = h('select', { ...common, change: (event) => send_(event.target.value) }, each.choices.map((c) => h('option', { value: c, selected: c === each.text }, c)));
    else if (each.type === 'bool') field = h('input', { ...common, type: 'checkbox', checked: each.text === 'True', change: (event) => send_(event.target.checked ? 'true' : 'false') });
    else field = h('input', { ...common, type: 'text', value: each.text, change: (event) => send_(event.target.value) });
    return [h('label', { for: id }, each.name), field, h('small', {}, `${each.type}${each.default === '' ? '' : `, default ${each.default.length > 14 ? '…' : each.default}`}`)];
  }

  function drawSide() {
    const row = pipeline.rows.find((each) => each.label === selectedLabel);
    body.classList.toggle('writes', Boolean(row?.own && !row.ours));
    if (!row) {
      facts.replaceChildren(h('p', {}, 'Select a pass.'));
      editor.replaceChildren();
      more.replaceChildren();
      return;
    }
    const did = data.did[row.label];
    const otherDid = data.other?.did[row.label];
    const disabled = row.locked || isReadOnly();
    // For a user's own pass, whose class is not loaded here, the recording knows.
    const values = (each, recorded) => (each.own && !each.ours ? recorded?.values : each.exact ? 'bit-exact' : each.tolerance ? `may change: ${each.tolerance}` : 'may change');
    const pair = (name, value) => (value && value.length ? [h('dt', {}, name), h('dd', {}, Array.isArray(value) ? value.join(', ') : value)] : []);
    facts.replaceChildren(h('h3', {}, row.label), h('p', {}, row.summary),
      h('dl', { class: 'facts' },
        ...pair('phase', (HALVES[row.half]?.[0] ?? row.half).replace(/^T/, 't')), ...pair('values', values(row, did)),
        ...pair('runs', row.mandatory ? 'always: required' : row.skipped ? 'skipped' : row.repeat ? 'twice in a row' : row.cuts ? 'in steps' : 'yes'),
        ...pair('needs', row.requires), ...pair('ensures', row.ensures), ...pair('invalidates', row.ends),
        ...pair('did', did ? `${plural(did.rewrites, 'rewrite')} in ${seconds(did.seconds)}, ${count(did.ops)} ops after it` : 'not in this recording'),
        ...(data.other ? pair('in B', otherDid ? `${plural(otherDid.rewrites, 'rewrite')} in ${seconds(otherDid.seconds)}, ${count(otherDid.ops)} ops after it` : `not in ${data.other.name}`) : [])));
    drawEditor(row);
    const form = [];
    for (const each of row.options) form.push(...option(row, each));
    form.push(h('label', { for: 'limit' }, 'stop after'), h('input', { id: 'limit', type: 'text', inputmode: 'numeric', value: row.limit ?? '', placeholder: 'no limit', disabled: disabled || row.mandatory, 'data-option': 'limit',
      title: row.mandatory ? 'a required pass runs completely' : '', change: (event) => applyEdit({ do: 'limit', label: row.label, text: event.target.value }) }), h('small', {}, 'rewrites'));
    form.push(h('label', { for: 'cuts' }, 'split into steps of'), h('input', { id: 'cuts', type: 'text', value: row.cuts, placeholder: 'one step', disabled: disabled || row.mandatory, 'data-option': 'cuts',
      title: row.mandatory ? 'a required pass runs in one step' : 'Rewrites per step, each recorded as a stage: 1,1,5 or 20x1; the rest follow', change: (event) => applyEdit({ do: 'cut', label: row.label, text: event.target.value }) }), h('small', {}, 'rewrites each'));
    form.push(h('label', { for: 'repeat' }, 'run twice'), h('input', { id: 'repeat', type: 'checkbox', checked: row.repeat, disabled, 'data-option': 'repeat', change: (event) => applyEdit({ do: 'repeat', label: row.label, on: event.target.checked }) }), h('small', {}, 'in a row'));
    const button = (name, title, done, off = disabled) => h('button', { 'data-do': done.do + (done.by ?? '') + (done.pass ? `-${done.pass}` : ''), title, disabled: off, click: () => applyEdit({ label: row.label, ...done }) }, name);
    more.replaceChildren(h('h4', {}, 'Options'), h('div', { class: 'form' }, form),
      h('div', { class: 'actions' },
        button('↑', 'Earlier  (Alt up)', { do: 'move', by: -1 }), button('↓', 'Later  (Alt down)', { do: 'move', by: 1 }),
        button('Insert your own pass after', 'Your own pass, in Python  (Insert)', { do: 'insert' }, isReadOnly()),
        builtInPassMenu(row),
        button('Begin here', 'The next compile starts at this pass; the passes before it are reused unchanged', { do: 'start' }, isReadOnly() || !did || pipeline.draft.start === row.label),
        button(row.own ? 'Remove' : 'Reset', row.own ? 'Remove the pass  (Delete)' : 'Reset all settings of the pass  (Delete)', { do: 'remove' }, disabled || !row.set)),
      ...(pipeline.target.length && !isReadOnly() ? [h('h4', {}, `Options of the target ${data.target}`), h('div', { class: 'form' }, pipeline.target.flatMap((each) => [
        h('label', { for: `target-${each.name}` }, each.name),
        targetField(each),
        h('small', { title: each.what }, each.what)]))] : []));
  }

  // Built-in passes that are not in this pipeline: a list, because there are many.
  function builtInPassMenu(row) {
    if (!pipeline.optional?.length || isReadOnly()) return null;
    const insert = (event) => applyEdit({ label: row.label, do: 'insert', pass: event.target.value });
    return h('select', { 'data-do': 'insert-ours', 'aria-label': 'Insert a built-in pass after this one', change: insert },
      h('option', { value: '', disabled: true, selected: true }, 'Insert a built-in pass …'), pipeline.optional.map((each) => h('option', { value: each.name, title: each.summary }, `${each.name}: ${each.summary}`)));
  }

  function targetField(each) {
    const common = { id: `target-${each.name}`, 'data-target': each.name, change: (event) => applyEdit({ do: 'target', option: each.name, text: event.target.value }) };
    if (!each.choices.length) return h('input', { ...common, type: 'text', value: each.text, placeholder: 'default' });
    return h('select', common, [h('option', { value: '', selected: !each.text }, 'default'), ...each.choices.map((c) => h('option', { value: c, selected: c === each.text }, c))]);
  }

  // The text of a pass is kept while the user types: only its messages are redrawn.
  const codeEditor = { key: '', area: null, source: null, problem: null, save: null };
  function drawEditor(row) {
    if (!row.own || row.ours) {
      codeEditor.key = '';
      editor.replaceChildren();
      return;
    }
    const key = `${data.name} ${pipeline.rows.indexOf(row)}`;
    const focused = root.getRootNode().activeElement;
    if (codeEditor.key !== key) {
      codeEditor.key = key;
      let timer = 0;
      const type = () => { clearTimeout(timer); timer = setTimeout(() => applyEdit({ do: 'code', label: selectedLabel, code: codeEditor.area.value }), 400); };
      codeEditor.area = h('textarea', { maxlength: 200_001, spellcheck: 'false', autocomplete: 'off', 'aria-label': 'Code of the pass; Escape leaves the text', input: type, blur: () => { clearTimeout(timer); if (codeEditor.area.value !== codeEditor.known) applyEdit({ do: 'code', label: selectedLabel, code: codeEditor.area.value }); },
        keydown: (event) => {
          if (event.key === 'Escape') { list.focus(); event.stopPropagation(); }
          if (event.key === 'Tab' && !event.shiftKey && !event.ctrlKey) { event.preventDefault(); codeEditor.area.setRangeText('    ', codeEditor.area.selectionStart, codeEditor.area.selectionEnd, 'end'); type(); }
        } });
      codeEditor.source = h('input', { type: 'text', placeholder: 'FILE.py:Class or package.module:Class', 'aria-label': 'File or module of the pass', style: { width: '100%' }, change: (event) => applyEdit(event.target.value.trim() ? { do: 'code', label: selectedLabel, source: event.target.value } : { do: 'code', label: selectedLabel, code: codeEditor.area.value }) });
      codeEditor.problem = h('div', { class: 'problem', role: 'status' });
      codeEditor.save = h('button', { title: 'Save the code as a file, for the command line', click: () => download(pipeline.rows.find((r) => r.label === selectedLabel)?.file || 'own_pass.py', codeEditor.area.value, 'text/x-python') }, 'Save as file');
      editor.replaceChildren(h('h4', {}, 'Code: a class derived from Pass'), codeEditor.area, codeEditor.problem,
        h('div', { class: 'actions' }, codeEditor.save), h('p', {}, 'or from a file or module, read when the compile runs:'), codeEditor.source);
    }
    codeEditor.known = row.code;
    if (focused !== codeEditor.area) codeEditor.area.value = row.code || codeEditor.area.value;
    if (focused !== codeEditor.source) codeEditor.source.value = row.source;
    codeEditor.area.disabled = row.locked || Boolean(row.source);
    codeEditor.source.disabled = row.locked;
    const line = Number(row.problem ? row.problem.match(/^line (\d+)/)?.[1] : row.label === failingPass() && compileStatus?.error?.what.match(new RegExp(`\\b${row.file.replace('.', '\\.')}:(\\d+)`))?.[1]);
    codeEditor.problem.replaceChildren(row.problem || (line ? compileStatus.error.what : ''),
      ...(line ? [' ', h('button', { class: 'plain link', 'data-do': 'line', click: () => showLine(line) }, `go to line ${line}`)] : []));
  }

  function showLine(line) {
    const lines = codeEditor.area.value.split('\n');
    const from = lines.slice(0, line - 1).join('\n').length + (line > 1 ? 1 : 0);
    codeEditor.area.focus();
    codeEditor.area.setSelectionRange(from, from + (lines[line - 1] ?? '').length);
    codeEditor.area.scrollTop = Math.max(0, (line - 4) * 17.4);
  }

  // -- as text ----------------------------------------------------------------------------------
  function drawText() {
    editText.hidden = isReadOnly();
    const content = textFormat === 'command' ? pipeline.command : pipeline.python;
    const state = { inside: '' };
    const lines = content.split('\n').flatMap((line) => [textFormat === 'python' ? h('span', {}, highlightPython(line, state)) : line, '\n']);
    const copy = h('button', { 'data-do': 'copy', title: 'Copy the text', click: () => copyText(content, copy, editText.querySelector('pre')) }, 'Copy');
    const tab = (name, label) => h('button', { 'aria-pressed': String(textFormat === name), 'data-text': name, click: () => { textFormat = name; drawText(); } }, label);
    const neededFiles = pipeline.rows.filter((row) => row.own && !row.source).map((row) => row.file);
    editText.replaceChildren(h('summary', {}, 'The edit as text', neededFiles.length ? h('span', { class: 'faint' }, ` – needs ${neededFiles.join(', ')}: save it as a file`) : ''),
      h('div', { class: 'text' }, h('div', { class: 'copies' }, tab('command', 'Command'), tab('python', 'Python'), copy), h('pre', { tabindex: 0, 'aria-label': 'The edit as text' }, lines.slice(0, -1))));
  }

  // -- all --------------------------------------------------------------------------------------
  function draw() {
    keepFocus(root, ['data-option', 'data-target', 'data-do', 'name'], () => {
      drawBar();
      drawSummary();
      drawNote();
      drawList();
      drawSide();
      drawText();
    });
  }

  watch('data', () => {
    const next = json(model, 'data');
    if (!next) return;
    const isOtherRun = !data || data.name !== next.name;
    data = next;
    if (isOtherRun || !pipeline.edited) {
      pipeline = data.shown;
      if (isOtherRun) { undoStack.length = 0; rejection = null; isTrusted = false; codeEditor.key = ''; }
      const stored = plain(model.get('state')) ?? {};
      if (isOtherRun && stored.of === data.name && stored.draft && !isReadOnly()) {
        pipeline = { ...pipeline, draft: stored.draft };
        applyEdit({ do: 'show' }, { keep: false });
      }
    }
    const stage = selection().stage;
    const stageLabel = Object.keys(data.did).find((label) => data.did[label].stage === stage);
    if (!pipeline.rows.some((row) => row.label === selectedLabel)) selectedLabel = stageLabel ?? pipeline.rows[0]?.label ?? '';
    draw();
  });
  watch('selection', () => {
    if (!data) return;
    const stage = selection().stage;
    const label = Object.keys(data.did).find((name) => data.did[name].stage === stage)?.replace(/\+$/, '');
    if (label && data.did[selectedLabel]?.stage !== stage && pipeline.rows.some((row) => row.label === label)) choose(label, false);
  });
  watch('detail', () => {
    const next = json(model, 'detail');
    if (!next || !data) return;
    clearTimeout(answerTimer);
    rejection = null;
    compileStatus = next.state === 'done' ? null : next;
    if (compileStatus?.error) {
      const failed = failingPass();
      if (pipeline.rows.some((row) => row.label === failed)) selectedLabel = failed;
    }
    draw();
  });
  later(() => clearTimeout(answerTimer));
});
