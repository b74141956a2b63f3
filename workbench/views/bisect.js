// The first bad pass of a compile: the result, the program that reproduces it, and the search.

const TWO_STYLE = `${PAIR}
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(380px, 100%), 1fr)); gap: 0 24px; } .sides section { min-width: 0; }
h2.of { display: flex; gap: 8px; align-items: center; overflow-wrap: anywhere; }
`;

/** Draws the `data` of both; `drawResult` draws a result, `command` a command line. */
function pairedResults(data, drawResult, command) {
  const { two } = data;
  const side = (letter, name, content) => h('section', { 'aria-label': `Result of ${letter.toUpperCase()}` },
    h('h2', { class: 'of' }, h('span', { class: `letter ${letter}` }, letter.toUpperCase()), name), content);
  const emptySide = (text, more) => h('div', {}, h('p', { class: 'muted' }, text), more);
  const resultA = data.result ? drawResult(data.result) : emptySide('Not searched yet: press Find it.');
  const resultB = two.result ? drawResult(two.result) : two.problem ? emptySide(two.problem.what) : emptySide('Not searched yet. Open it and press Find it, or:', command(two.command));
  return [two.told && h('p', { class: 'told', role: 'status' }, two.told), h('div', { class: 'sides' }, side('a', data.name, resultA), side('b', two.name, resultB))];
}

const STYLE = `${TWO_STYLE}
.root { display: flex; flex-direction: column; background: var(--surface); }
.bar { display: flex; align-items: center; gap: 6px 12px; min-height: 36px; flex: none; padding: 5px 10px; border-bottom: 1px solid var(--line); flex-wrap: wrap; }
.bar label { display: flex; align-items: center; gap: 6px; color: var(--muted); } .bar input { color: var(--text); } .bar .tolerance { width: 70px; } .bar .inputs { width: 190px; } .bar .gap { flex: 1; }
.scroll { flex: 1; min-height: 0; overflow: auto; padding: 14px 18px 24px; outline: none; }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.told { font-size: 15px; font-weight: 600; margin: 0 0 4px; overflow-wrap: anywhere; } .told .wrong { color: var(--bad); } .told .right { color: var(--added); }
p { margin: 0 0 8px; max-width: 820px; overflow-wrap: anywhere; } h2 { font-size: 13px; font-weight: 600; margin: 18px 0 6px; }
.box { border: 1px solid var(--line); border-radius: 6px; padding: 10px 14px; margin: 0 0 14px; max-width: 980px; background: var(--page); }
.box.problem { border-left: 4px solid var(--warn); } .box.failed { border-left: 4px solid var(--bad); color: inherit; font-weight: 400; }
.box b.what { display: block; overflow-wrap: anywhere; } .do { display: flex; align-items: center; gap: 10px; flex-wrap: wrap; margin-top: 8px; }
.command { display: flex; gap: 6px; align-items: center; margin-top: 6px; } .command code { overflow-wrap: anywhere; background: var(--raised); padding: 2px 6px; border-radius: 4px; user-select: all; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; table-layout: fixed; } td, th { padding: 3px 14px 3px 0; text-align: left; vertical-align: top; font-weight: 400; overflow-wrap: anywhere; } th { color: var(--muted); width: 104px; }
.track { flex: 1; max-width: 260px; min-width: 90px; height: 5px; background: var(--raised); border-radius: 3px; overflow: hidden; } .track div { height: 100%; background: var(--accent); transition: width .3s; } .track.slide div { width: 35%; animation: slide 1.2s ease-in-out infinite alternate; }
@keyframes slide { from { margin-left: 0; } to { margin-left: 65%; } }
@media (prefers-reduced-motion: reduce) { .track.slide div { animation: none; } }
pre { margin: 4px 0; padding: 5px 8px; background: var(--surface); border: 1px solid var(--line); border-radius: 4px; overflow: auto; max-height: 320px; font: 11px/1.5 var(--mono); white-space: pre; }
pre div { white-space: pre; } .old { color: var(--removed); } .new { color: var(--added); }
button.link { border: none; background: none; padding: 0; height: auto; color: var(--accent); white-space: normal; text-align: left; overflow-wrap: anywhere; } .side { margin-right: 18px; }
`;
const DETECTED_BY = { raised: 'the pass raised', invalid: 'the verifier rejects its result', check: 'the check of one rewrite', 'end to end': 'the outputs as a whole', executed: 'machine code against its definition', 'never ends': 'the pass did not finish in time' };
const VERDICT_WORDS = { bitwise: 'kept every bit', within: 'within tolerance', unchecked: 'not checked' };
const exactNumber = (value) => (typeof value !== 'number' ? String(value ?? '–') : Math.fround(value) === value ? String(Number(value.toPrecision(9))) : String(value));
const many = (n, noun) => `${count(n)} ${noun}${n === 1 ? '' : 'es'}`;
const baseName = (path) => path.slice(Math.max(path.lastIndexOf('/'), path.lastIndexOf('\\')) + 1);

export default component(STYLE, ({ model, root, watch, send }) => {
  let data = null;
  let detail = {};
  let drawnDetail = null; // the drawn detail, without its progress
  let typedOptions = null; // the contents of the fields, until a search starts with them
  let uploadError = null; // a file that could not be sent
  const tolerance = h('input', { class: 'tolerance', type: 'text', inputmode: 'decimal', 'aria-label': 'Largest accepted error of the outputs, relative to their largest magnitude' });
  const inputs = h('input', { class: 'inputs', type: 'text', placeholder: "the model's own", 'aria-label': 'Inputs: the path of an .npz file; empty: the model\'s own', title: 'An .npz with the inputs by name, or arr_0, arr_1… in order' });
  const file = h('input', { type: 'file', hidden: true, accept: '.npz', change: () => { if (file.files[0]) sendFile(file.files[0]); file.value = ''; } });
  const searchButton = h('button', { class: 'primary', 'data-do': 'look', click: () => startSearch() });
  const bar = h('div', { class: 'bar', role: 'toolbar', 'aria-label': 'Search options' },
    h('label', { title: 'Largest accepted error of the outputs since the import' }, 'tolerance', tolerance, 'of max abs'),
    h('label', {}, 'inputs', inputs), h('button', { title: 'Send an .npz file', click: () => file.click() }, 'File…'), file, h('span', { class: 'gap' }), searchButton);
  const saves = downloadMenu(() => [csvItem('Result', 'first-bad-pass', () => [['fact', 'value'], flattenFacts(facts())])]);
  const facts = () => { // without the archive, which has its own button
    const { reduced, ...found } = data.result;
    return reduced ? { ...found, reduced: { ...reduced, download: null, lines: reduced.lines?.join('\n') } } : found;
  };
  const body = h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'First bad pass' });
  const stepName = h('b', { class: 'what' });
  const progressText = h('span', {});
  const progressBar = h('div');
  const track = h('div', { class: 'track' }, progressBar);
  root.append(bar, body);

  const canSearch = () => Boolean(detail.token); // only the page can search
  const search = () => detail.search ?? {};
  const link = (text, go, title) => h('button', { class: 'link', title: title ?? '', click: () => send('follow', { go: { beside: 'bisect', ...go } }) }, text);
  const error = (each, kind) => h('div', { class: `box ${kind}`, role: kind === 'failed' ? 'alert' : 'note' }, h('b', { class: 'what' }, each.what), each.where && h('div', { class: 'muted' }, each.where), each.fix && h('div', {}, each.fix));

  for (const field of [tolerance, inputs]) {
    field.addEventListener('input', () => { typedOptions = { tolerance: tolerance.value, inputs: inputs.value }; });
    field.addEventListener('keydown', (event) => { event.stopPropagation(); if (event.key === 'Enter' && !searchButton.disabled) startSearch(); });
  }

  function startSearch(trust = false) {
    const options = { tolerance: tolerance.value.trim() || '1e-3', inputs: inputs.value.trim() };
    typedOptions = null;
    uploadError = null;
    model.set('state', options);
    model.save_changes();
    send('bisect', { ...options, trust, again: true });
  }

  async function sendFile(inputFile) {
    uploadError = null;
    try {
      const response = await fetch(`upload?name=${encodeURIComponent(inputFile.name)}`, { method: 'PUT', body: inputFile, headers: { 'X-Workbench-Token': detail.token } });
      const answer = await response.json();
      if (answer.error) uploadError = answer.error;
      else { inputs.value = answer.path; typedOptions = { tolerance: tolerance.value, inputs: answer.path }; }
    } catch {
      uploadError = { what: 'the file could not be sent', where: inputFile.name, fix: 'enter its path instead' };
    }
    draw();
  }

  function command(text) {
    const code = h('code', {}, text);
    const button = h('button', { click: () => copyText(text, button, code) }, 'Copy');
    return h('div', { class: 'command' }, code, button);
  }

  function drawProgress() {
    const { what = 'starting', done = 0, total = 0, elapsed = 0 } = search().progress ?? {};
    stepName.textContent = what.startsWith('reduce') ? 'Found: reducing the program' : 'Running and checking each pass';
    progressText.textContent = `${what}${total ? `, ${count(done + 1 > total ? total : done + 1)} of ${count(total)} passes` : done ? `, candidate ${count(done)}` : ''} · ${elapsed} s`;
    track.className = total ? 'track' : 'track slide';
    progressBar.style.width = total ? `${(100 * done) / total}%` : '';
  }

  function searchProgress() {
    drawProgress();
    return h('div', { class: 'box', role: 'status' }, stepName,
      h('div', { class: 'do' }, progressText, track, canEdit() && h('button', { 'data-do': 'cancel', click: () => send('cancel', { of: 'bisect' }) }, 'Cancel')),
      h('div', { class: 'muted' }, 'First the passes, then the rewrites of the bad one, then the smallest program that shows the fault. Continues in the background.'));
  }

  function checkedSummary({ looked: all, worst_stage: stage }, found) {
    const counts = Object.entries(VERDICT_WORDS).filter(([name]) => all.verdicts[name]).map(([name, words]) => `${count(all.verdicts[name])} ${words}`);
    const worst = !all.worst_pass ? ['The outputs are bitwise equal to those of the import.']
      : ['The relative error of the outputs is at most ', h('b', {}, relative(all.error)), ' (of max abs), after ',
        stage === null ? all.worst_pass : link(all.worst_pass, { stage, open: 'diff' }, 'The changes of this pass'), '.'];
    const code = found ? '' : all.launches !== null ? `The machine code of ${many(all.launches, 'launch')} was checked too. ` : `Machine code was not compared: ${all.not_executed}. `;
    return h('p', {}, `${found ? `${many(all.passes, 'pass')} before it, of ${count(all.of)},` : many(all.passes, 'pass')} ${all.passes === 1 ? 'was' : 'were'} checked${counts.length ? `; rewrites: ${counts.join(', ')}` : ''}. `, code, ...worst);
  }

  function reducedProgram(each) {
    if (each.problem) return [h('h2', {}, 'Smallest program'), h('p', { class: 'muted' }, `Not available: ${each.problem}`)];
    const downloadButton = each.download && h('button', { 'data-do': 'download', click: () => {
      const content = Uint8Array.from(atob(each.download.base64), (c) => c.charCodeAt(0));
      download(each.download.name, content, 'application/octet-stream');
    } }, `Download ${each.download.name}`);
    const standaloneText = each.runs_alone ? 'python reproducer.py needs only core_compiler: it exits with 1 while the fault is present, else with 0.'
      : each.stopped === 'interrupted' ? 'Not run standalone: the search was cancelled.' : `Run standalone, it does not show the fault: ${each.says}`;
    return [
      h('h2', {}, 'Smallest program that shows the fault'),
      h('p', { class: 'muted' }, `Reduced from ${plural(each.ops_before, 'op')} to ${count(each.ops_after)}, after ${plural(each.tried, 'candidate')} in ${seconds(each.seconds)}${each.stopped ? `; stopped early (${each.stopped})` : ''}.`),
      h('pre', { tabindex: 0, 'aria-label': 'IR of the smallest program' }, each.lines.join('\n'), each.more ? `\n… ${count(each.more)} more lines` : ''),
      h('div', { class: 'do' }, downloadButton ?? h('span', { class: 'muted' }, 'Too large to be kept here; workbench reduce writes it.'), h('span', { class: each.runs_alone ? 'muted' : '' }, standaloneText)),
    ];
  }

  function result(found) {
    if (!found) return [];
    const row = (title, ...cells) => h('tr', {}, h('th', { scope: 'row' }, title), h('td', {}, ...cells));
    const setup = h('p', { class: 'muted' }, `${found.model} for ${found.target}, on ${found.inputs ? baseName(found.inputs) : found.stood_in ? 'seeded values' : "the model's own inputs"}${found.stood_in ? ` (${found.stood_in})` : ''}; tolerance ${relative(found.tolerance)} (of max abs). Kept beside the recording.`, found === data.result ? saves : null);
    if (found.first_bad_pass === null) {
      return [h('div', { class: 'box', 'data-result': 'none' }, h('p', { class: 'told' }, h('span', { class: 'right' }, 'No fault found.')), checkedSummary(found, false), setup)];
    }
    const step = found.first_bad_rewrite;
    const target = found.there !== null && { stage: found.there, ...(found.op === null ? {} : { op: found.op }) };
    const rule = step && (step.rule === null ? `after ${plural(step.number, 'rewrite')}` : `${step.number}: ${step.rule}`);
    const [right, wrong] = found.numbers ?? [];
    return [h('div', { class: 'box', 'data-result': 'pass' },
      h('p', { class: 'told' }, h('span', { class: 'wrong' }, found.first_bad_pass), ' is the first bad pass'),
      h('p', {}, found.note),
      h('table', {},
        row('pass', target ? link(`${String(found.stage).padStart(2, '0')} ${found.first_bad_pass}`, { ...target, open: 'diff' }, 'The changes of this pass') : found.first_bad_pass, h('span', { class: 'muted' }, `  seen by: ${DETECTED_BY[found.how] ?? found.how}`)),
        step ? row('rewrite', h('span', { class: 'mono' }, found.rewrite === null ? rule : link(rule, { stage: found.there, rewrite: found.rewrite, open: 'rewrites' }, 'This rewrite: before and after')),
          step.note ? h('span', { class: 'muted' }, `  ${step.note}`) : '') : null,
        step?.source ? row('rule defined in', h('span', { class: 'mono' }, step.source)) : null,
        step && step.old.length + step.new.length ? row('before, after', h('pre', { tabindex: 0, 'aria-label': 'The ops before and after' }, step.old.slice(0, 12).map((line) => h('div', { class: 'old' }, `- ${line}`)), step.new.slice(0, 12).map((line) => h('div', { class: 'new' }, `+ ${line}`)))) : null,
        found.value ? row('worst value', h('span', { class: 'mono' }, `${found.value}${found.index.length ? ` [${found.index.join(', ')}]` : ''}`), found.error === null || found.error === 'nan' ? '' : `  relative error ${relative(found.error)} (of max abs)`) : null,
        found.numbers ? row('values', h('span', { class: 'side' }, 'before ', h('span', { class: 'mono' }, exactNumber(right))), h('span', { class: 'side' }, 'after ', h('span', { class: 'mono' }, exactNumber(wrong))),
          `${relative(found.absolute)} apart`, found.ulps === null ? '' : `, ${plural(found.ulps, 'ulp')}`) : null,
        found.model_lines.length ? row('model line', ...found.model_lines.slice(0, 4).flatMap((line, i) => [i ? ', ' : '', target && found.op !== null ? link(baseName(line), { ...target, open: 'source' }, line) : h('span', { title: line }, baseName(line))])) : null,
      ),
      ...(found.reduced ? reducedProgram(found.reduced) : [h('h2', {}, 'Smallest program'), h('p', { class: 'muted' }, search().state === 'running' ? 'Searching …' : 'The search did not finish; search again.')]),
      h('h2', {}, 'Checked without a fault'), checkedSummary(found, true), setup)];
  }

  function searchStatus() {
    const { state, error: failure, ask } = search();
    if (state === 'running') return [searchProgress()];
    if (state === 'failed' && failure) {
      return [error(failure, 'failed'), ask && canEdit() ? h('div', { class: 'do', style: { margin: '0 0 14px' } }, h('button', { 'data-do': 'trust', click: () => startSearch(true) }, 'Run this code'), h('button', { click: () => send('show', { view: 'pipeline' }) }, 'Read it in Pipeline')) : null];
    }
    return state === 'cancelled' ? [h('p', { class: 'muted', role: 'status' }, 'The search was cancelled; its results so far are kept.')] : [];
  }

  function intro() {
    if (data.result || data.problem || search().state === 'running') return [];
    return [
      h('p', { class: 'told' }, 'Which pass is the first bad one?'),
      h('p', {}, 'Compiles the model again, one pass at a time. The verifier, the check of every rewrite and the outputs show whether a pass is correct. In the first bad one, the search finds the rewrite and reduces the program.'),
      data.itself ? h('p', { class: 'muted' }, data.itself) : null,
      data.recorded.length ? h('p', {}, 'Checks that failed during the recording, in ', data.recorded.slice(0, 6).flatMap((each, i) => [i ? ', ' : '', link(each.name, { stage: each.stage, open: 'numerics' }), ` (${count(each.failed)})`]), '.') : null,
    ];
  }

  function draw() {
    if (!data) return;
    if (!canSearch() || data.problem) bar.remove();
    else if (!bar.isConnected) root.prepend(bar);
    if (typedOptions === null && root.getRootNode().activeElement !== tolerance) tolerance.value = data.tolerance;
    if (typedOptions === null && root.getRootNode().activeElement !== inputs) inputs.value = data.inputs;
    inputs.placeholder = data.itself ? 'seeded values' : "the model's own";
    searchButton.textContent = data.result ? 'Search again' : 'Find it';
    searchButton.disabled = search().state === 'running' || Boolean(data.problem) || data.live;
    searchButton.className = searchButton.disabled ? '' : 'primary';
    const top = body.scrollTop;
    body.replaceChildren(...[
      ...(uploadError ? [error(uploadError, 'failed')] : []), ...searchStatus(), ...(data.problem ? [error(data.problem, 'problem')] : []), ...intro(), ...(data.two ? pairedResults(data, result, command) : result(data.result)),
      ...(canSearch() || data.problem ? [] : [h('p', { class: 'muted' }, data.result ? 'To search again:' : 'This page cannot compile. As a command:'), command(data.command)]),
    ].flat().filter(Boolean));
    body.scrollTop = top;
  }

  watch('detail', () => {
    detail = json(model, 'detail') ?? {};
    const { progress, ...rest } = search();
    const currentDetail = JSON.stringify({ ...detail, search: rest });
    if (currentDetail === drawnDetail && rest.state === 'running') drawProgress();
    else { drawnDetail = currentDetail; draw(); }
  });
  watch('data', () => { data = json(model, 'data') ?? data; draw(); });
});
