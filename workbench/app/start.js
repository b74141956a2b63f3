// The start page: open by path, drop a file, the library of runs, sample models.

const STYLE = `
.root { overflow-y: auto; }
.page { max-width: 1280px; margin: 0 auto; padding: 26px 28px 40px; }
h1 { font-size: 20px; margin: 0 0 2px; font-weight: 650; } .lead { color: var(--muted); margin: 0 0 18px; font-size: 13px; } .lead .tour { margin-left: 8px; color: var(--text); }
h2 { font-size: 13px; font-weight: 600; margin: 24px 0 8px; } h2 span { font-weight: 400; color: var(--faint); margin-left: 8px; }
.drop { border: 1.5px dashed var(--line); border-radius: 8px; padding: 14px 16px; background: var(--surface); display: grid; gap: 10px; }
.drop.over { border-color: var(--accent); background: var(--accentSoft); }
.line { display: flex; gap: 8px; align-items: center; flex-wrap: wrap; }
.line input[type=text] { flex: 1; height: 30px; min-width: 280px; } .line button { height: 30px; }
.options { display: flex; gap: 16px; align-items: center; flex-wrap: wrap; color: var(--muted); } .options label { display: flex; gap: 5px; align-items: center; }
.options input[type=checkbox] { height: auto; } .options input[type=number] { width: 64px; } .options input.sizes { width: 120px; }
.samples { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 8px; }
.sample { text-align: left; height: auto; padding: 9px 12px; white-space: normal; display: flex; flex-direction: column; justify-content: flex-start; border-radius: 6px; }
.sample b { display: block; font-size: 13px; } .sample .muted { display: block; } .sample .faint { font-size: 11px; }
table { border-collapse: collapse; width: 100%; background: var(--surface); border: 1px solid var(--line); border-radius: 6px; font-variant-numeric: tabular-nums; }
th:not(.num) { text-align: left; }
th { font-weight: 600; padding: 4px 10px; color: var(--muted); border-bottom: 1px solid var(--line); background: var(--raised); }
td { padding: 3px 10px; border-bottom: 1px solid color-mix(in srgb, var(--line) 45%, transparent); white-space: nowrap; }
tbody tr { cursor: pointer; } tbody tr:hover { background: var(--raised); }
td.name { font-family: var(--mono); max-width: 340px; overflow: hidden; text-overflow: ellipsis; }
.error { border: 1px solid var(--bad); border-radius: 6px; padding: 8px 12px; margin: 0 0 14px; background: var(--surface); color: var(--text); overflow-wrap: anywhere; } /* Panel has its own dark red .error */
.error b { color: var(--bad); } .error div { color: var(--muted); }
button.plain[aria-pressed=true] { background: var(--accentSoft); color: var(--accent); }
.origin { color: var(--muted); } .origin[hidden] { display: none; } .origin button { height: auto; padding: 0; }
.upload { color: var(--muted); } progress { width: 200px; vertical-align: -2px; accent-color: var(--accent); }
`;

const REFUSED = { 403: 'you are not allowed to upload here, or the page is out of date', 413: 'the file exceeds the size limit of the server or of a proxy in front of it' };

export default component(STYLE + RUNS_STYLE, ({ model, root, watch, later, send }) => {
  let data = null;
  const error = h('div', { class: 'error', role: 'alert', hidden: true });
  const path = h('input', { type: 'text', maxlength: 4000, spellcheck: 'false', autocomplete: 'off', 'aria-label': 'Model or recording',
    placeholder: 'a .run, .onnx, .pt2, .keras or .mlir path, package.module:function, or a sample name' });
  const file = h('input', { type: 'file', hidden: true, accept: '.run,.onnx,.pt2,.keras,.mlir,.mlirbc,.stablehlo' });
  const upload = h('span', { class: 'upload', role: 'status' });
  const frontend = h('select', { 'aria-label': 'Frontend' }, h('option', { value: '' }, 'default frontend'), h('option', { value: 'torch' }, 'torch'), h('option', { value: 'onnx' }, 'onnx'), h('option', { value: 'onnx-passes' }, 'onnx, with its own passes'));
  const target = h('select', { 'aria-label': 'Target' });
  const width = h('input', { type: 'number', min: 0.05, max: 4, step: 0.05, placeholder: '1', 'aria-label': 'Width of a sample model' });
  const sizes = h('input', { type: 'text', class: 'sizes', maxlength: 400, spellcheck: 'false', autocomplete: 'off', placeholder: 'batch=5', 'aria-label': 'Sizes of the model' });
  const check = h('input', { type: 'checkbox' });
  const compareFramework = h('input', { type: 'checkbox' });
  const execute = h('input', { type: 'checkbox', checked: true });
  const stepByStep = h('input', { type: 'checkbox' });
  const origin = h('div', { class: 'origin', hidden: true, role: 'note' }); // the recording that is compiled again
  const samples = h('div', { class: 'samples' });
  const nearbyRecordings = h('div');
  const recorded = h('div');
  const runs = runsSection(send);
  const options = () => ({ frontend: frontend.value || null, target: target.value, width: width.value ? Number(width.value) : null, shape: sizes.value, check: check.checked, against: compareFramework.checked, execute: execute.checked, hold: stepByStep.checked });
  const open = (what) => { if (what.trim()) send('open', { what: what.trim(), ...options(), again: Boolean(data?.again) && what.trim() === data.again.what }); };

  const drop = h('section', { class: 'drop', 'aria-label': 'Open' },
    h('div', { class: 'line' }, path, h('button', { class: 'primary', click: () => open(path.value) }, 'Open'), h('button', { click: () => file.click() }, 'Choose a file…')),
    h('div', { class: 'options' }, h('span', {}, 'or drop a file, or paste a module as text.'), upload),
    origin,
    h('div', { class: 'options' }, h('span', {}, 'Compile with:'), target, frontend,
      h('label', { title: 'Build sample models narrower: multiplies their channels or features' }, 'width', width),
      h('label', { title: 'Other sizes of a sample model (batch=5, image=64), or sizes that a model file leaves open, by name or as INPUT.AXIS (x.0=5)' }, 'sizes', sizes),
      h('label', { title: 'Evaluate every rewrite before and after on real tensors; slower' }, check, 'check every rewrite'),
      h('label', { title: 'Compare each imported value with the result of torch or onnxruntime for its node; torch and ONNX models only' }, compareFramework, 'compare with the framework'),
      h('label', { title: 'Run it on example inputs and time every kernel' }, execute, 'execute and time'),
      h('label', { title: 'Pause before each pass: apply it whole or rewrite by rewrite, skip it, or run to a breakpoint' }, stepByStep, 'step by step')));
  const tour = h('button', { class: 'tour', 'data-do': 'tour', title: 'Walk through the views on a small sample model, compiled here', click: () => send('tour', {}) }, 'Take the tour');
  const editorOnly = [h('h1', {}, 'Open a model'), h('p', { class: 'lead' }, 'See every pass, every rewrite, memory, kernels and their times. ', tour), drop,
    h('h2', {}, 'Sample models', h('span', {}, 'architectures from libraries with seeded weights; nothing is downloaded')), samples]; // hidden from viewers
  const [title, lead, , catalogue] = editorOnly;
  root.append(h('div', { class: 'page' }, title, lead, error, drop, nearbyRecordings, runs.root, catalogue, samples, recorded), file);

  path.addEventListener('keydown', (event) => { if (event.key === 'Enter') open(path.value); });
  file.addEventListener('change', () => file.files[0] && uploadFile(file.files[0]));
  const dragHandler = (on) => (event) => {
    if (!data || root.closest('[hidden]') || document.getElementById('cw-start')?.hidden) return;
    event.preventDefault();
    drop.classList.toggle('over', on && !data.viewer);
  };
  const onDrop = (event) => {
    event.preventDefault();
    drop.classList.remove('over');
    const [droppedFile] = event.dataTransfer?.files ?? [];
    if (droppedFile && !data?.viewer) uploadFile(droppedFile);
  };
  // Text of several lines is a module, not a path: it is sent as a file, which can have any length.
  const onPaste = (event) => {
    const [pasteTarget] = event.composedPath(), text = event.clipboardData?.getData('text/plain') ?? '';
    if (pasteTarget !== path && pasteTarget.matches?.('input, textarea')) return;
    if (!data || data.viewer || document.getElementById('cw-start')?.hidden || !/\n\s*\S/.test(text)) return;
    event.preventDefault();
    if (/"core\.|stablehlo\.|func\.func/.test(text)) uploadFile(new File([text], 'pasted.mlir'));
    else fail({ what: 'the pasted text is not a module', where: text.trim().slice(0, 80), fix: "paste a stage's text (ops of core) or StableHLO, or one path" });
  };
  const listeners = [['dragover', dragHandler(true)], ['dragleave', dragHandler(false)], ['drop', onDrop], ['paste', onPaste]];
  for (const [name, run] of listeners) document.addEventListener(name, run);
  later(() => listeners.forEach(([name, run]) => document.removeEventListener(name, run)));

  // Asks the server first, so that a file that it has no space for is not sent.
  async function uploadFile(modelFile) {
    file.value = ''; // so that the same file can be chosen again
    const limit = data?.max_upload ?? 0;
    if (modelFile.size > limit) {
      fail({ what: `the file is larger than ${bytes(limit)}`, where: modelFile.name, fix: 'open it by its path instead' });
      return;
    }
    const url = `upload?name=${encodeURIComponent(modelFile.name)}`;
    upload.replaceChildren(modelFile.name);
    const rejection = await fetch(`${url}&size=${modelFile.size}`, { headers: { 'X-Workbench-Token': data.token } })
      .then((response) => response.json()).then((body) => body.error, () => null); // other errors are reported below
    upload.replaceChildren();
    if (rejection) {
      fail(rejection);
      return;
    }
    const request = new XMLHttpRequest();
    const bar = h('progress', { max: 1, value: 0 });
    upload.replaceChildren(`${modelFile.name} `, bar);
    request.upload.addEventListener('progress', (event) => { bar.value = event.loaded / Math.max(1, event.total); });
    request.addEventListener('load', () => {
      upload.replaceChildren();
      let reply = null;
      try { reply = JSON.parse(request.responseText); } catch { /* an error page, or one of a proxy */ }
      if (!reply?.error && (request.status !== 200 || !reply?.path)) {
        fail({ what: REFUSED[request.status] ?? `the server rejected the file (status ${request.status})`, where: modelFile.name, fix: 'reload the page and try again, or open the file by its path' });
      } else if (reply.error) fail(reply.error);
      else send('open', { what: reply.path, uploaded: true, ...options() });
    });
    request.addEventListener('error', () => { upload.replaceChildren(); fail({ what: 'the file could not be sent', where: modelFile.name, fix: 'open it by its path instead' }); });
    request.open('PUT', url);
    request.setRequestHeader('X-Workbench-Token', data.token);
    request.send(modelFile);
  }

  function fail(problem) {
    error.hidden = !problem;
    if (problem) error.replaceChildren(h('b', {}, problem.what), h('div', {}, problem.where), h('div', {}, problem.fix));
  }

  // Fills the form with the recording's options; once, so that the user's changes stay.
  let filledQuery = '';
  function fill(recording) {
    filledQuery = recording.query;
    path.value = recording.what;
    [frontend.value, width.value, sizes.value] = [recording.frontend ?? '', recording.width ?? '', recording.shape];
    [check.checked, compareFramework.checked, execute.checked] = [recording.check, recording.against, recording.execute];
    origin.hidden = false;
    origin.replaceChildren('Again as ', h('button', { class: 'plain link', 'data-do': 'back', title: 'Back to the recording', click: () => send('url', { query: recording.query }) }, recording.name), recording.words && `: ${recording.words}`, '. The new recording opens at the same pass and is compared with it.');
  }

  const parameterCount = (n) => (n >= 1e6 ? `${number(n / 1e6)} M parameters` : `${count(n)} parameters`);
  // Recordings shipped with the sample models: a table for each GPU they were recorded on.
  function recordings(all) {
    const devices = [...new Set(all.map((r) => r.device))];
    return devices.flatMap((device) => table(`Recorded on ${device || 'another machine'}`, 'with the times of every kernel; no GPU is needed to open one', all.filter((r) => r.device === device)));
  }

  /** A table of recordings to open; with file names where several have the same model. */
  function table(title, hint, rows) {
    if (!rows.length) return [];
    const files = new Set(rows.map((r) => r.model)).size < rows.length;
    const heads = ['model', ...(files ? ['recording', 'target'] : []), 'stages', 'time', 'size'];
    const openHandlers = (r) => ({ click: () => send('open', { what: r.path }), keydown: (e) => e.key === 'Enter' && send('open', { what: r.path }) });
    return [h('h2', {}, title, h('span', {}, hint)), h('table', { 'data-table': title },
      h('thead', {}, h('tr', {}, heads.map((t) => h('th', { scope: 'col', class: ['stages', 'time', 'size'].includes(t) ? 'num' : '' }, t)))),
      h('tbody', {}, rows.map((r) => h('tr', { tabindex: 0, ...openHandlers(r), title: r.error || r.path },
        h('td', { class: 'name' }, r.model), ...(files ? [h('td', { class: 'name' }, r.path.split(/[\\/]/).pop()), h('td', {}, r.target)] : []),
        h('td', { class: 'num' }, count(r.stages)), h('td', { class: 'num' }, r.total_ms === null ? '' : figure(r.total_ms, 'ms')), h('td', { class: 'num' }, bytes(r.size))))))];
  }

  watch('data', () => {
    data = json(model, 'data');
    if (!data) return;
    fail(data.error);
    for (const node of editorOnly) node.hidden = Boolean(data.viewer);
    const selectedTarget = data.again?.target ?? target.value;
    target.replaceChildren(...data.targets.map((name) => h('option', { value: name, selected: name === selectedTarget }, name)));
    if (data.again && filledQuery !== data.again.query) fill(data.again);
    if (!data.again) [filledQuery, origin.hidden] = ['', true];
    nearbyRecordings.replaceChildren(...table('Beside the opened recording', 'also offered by Compare and A | B', data.beside ?? []));
    samples.replaceChildren(...data.samples.map((s) => h('button', { class: 'sample', click: () => open(s.name) }, h('b', {}, s.name), h('span', { class: 'muted' }, s.summary),
      h('span', { class: 'faint' }, `${parameterCount(s.parameters)}, ${figure(s.flops, 'flop')}`))));
    recorded.replaceChildren(...recordings(data.recorded));
    runs.draw(data, json(model, 'detail'));
  });
  watch('detail', () => data && runs.draw(data, json(model, 'detail')));
});
