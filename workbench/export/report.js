// Replaces the server in a report: holds the state of the page and feeds each component from the data
// compressed in this file.  Commands follow the rules of workbench/ui/navigation.py.

const boot = JSON.parse(document.getElementById('boot').textContent);

// -- the data in the file -----------------------------------------------------------------------

const NO_BYTES = new DataView(new ArrayBuffer(0));
const chunks = new Map();

/** Text and bytes of a chunk; null if the report does not contain it. */
function chunk(name) {
  if (!chunks.has(name)) chunks.set(name, unpack(name));
  return chunks.get(name);
}

async function unpack(name) {
  const node = document.querySelector(`[data-chunk="${CSS.escape(name)}"]`);
  if (!node) return null;
  const compressed = Uint8Array.from(atob(node.textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  const bytes = await new Response(stream).arrayBuffer();
  const length = new DataView(bytes).getUint32(0, true);
  const text = new TextDecoder().decode(new Uint8Array(bytes, 4, length));
  // Typed arrays need their own alignment: the bytes after the text are copied to a new buffer.
  return { text, blob: new DataView(bytes.slice(4 + length)) };
}

async function readJson(name) {
  const found = await chunk(name);
  return found === null ? null : JSON.parse(found.text);
}

/** The data derived for a selected op; null if it cannot be selected in a report. */
async function opFacts(op) {
  const position = boot.ops.indexOf(op);
  if (position < 0) return null;
  return (await readJson(`ops/${Math.floor(position / boot.block)}`))[op] ?? null;
}

// -- components ---------------------------------------------------------------------------------

const modules = new Map();
const elementText = (selector) => document.querySelector(selector)?.textContent;

function load(name) {
  if (!modules.has(name)) {
    const plain = elementText(`script[data-plain="${name}"]`);
    const source = plain === undefined ? elementText(`script[data-module="${name}"]`) : elementText('script[data-module="shared"]') + plain;
    const url = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
    modules.set(name, import(url).then((module) => module.default));
  }
  return modules.get(name);
}

class Model {
  constructor(name) {
    this.name = name;
    this.values = { data: '', detail: '', blob: NO_BYTES, selection: {}, state: {}, theme: 'auto', request: '', response: '', command: '' };
    this.listeners = new Map();
    this.changed = new Set();
  }

  get(name) { return this.values[name]; }

  set(name, value) {
    this.values[name] = value;
    this.changed.add(name);
    this.fire(name);
  }

  save_changes() {
    const changed = [...this.changed];
    this.changed.clear();
    for (const name of changed) handleMessage(this, name, this.values[name]);
  }

  receive(values) {
    for (const [name, value] of Object.entries(values)) this.values[name] = value;
    for (const name of Object.keys(values)) this.fire(name);
  }

  fire(name) { for (const each of [...(this.listeners.get(`change:${name}`) ?? [])]) each(); }

  on(event, each) { this.listeners.set(event, [...(this.listeners.get(event) ?? []), each]); }

  off(event, each) { this.listeners.set(event, (this.listeners.get(event) ?? []).filter((one) => one !== each)); }
}

const MODULE_OF = { rail: 'passes' };
const components = new Map();

/** The model of a component, drawn when it first has something to show. */
function component(name) {
  if (!components.has(name)) {
    const model = new Model(name);
    const container = document.querySelector(`[data-component="${name}"]`);
    const root = document.createElement('div');
    root.style.height = '100%';
    container.style.height = '100%';
    container.attachShadow({ mode: 'open' }).append(root);
    const drawn = load(MODULE_OF[name] ?? name).then((module) => module.render({ model, el: root }));
    components.set(name, { model, drawn });
  }
  return components.get(name).model;
}

// -- the state ----------------------------------------------------------------------------------

let state = {
  stage: null, rewrite: null, op: null, kernel: null, buffer: null, scope: '',
  panes: ['overview'], zoom: null, fold: [], stops: [], views: {},
};
const STAGES = boot.rail.stages;
let notice = null;
let generation = 0;

const stageNumber = (stage) => (stage === null ? boot.first : Math.max(0, Math.min(STAGES.length - 1, stage)));
const indexOrNull = (value) => (Number.isInteger(value) && value >= 0 ? value : null);
const select = (chosen) => ({ ...state, op: null, kernel: null, buffer: null, scope: '', ...chosen });
const leaveOverview = (next, panes) => (next.panes.join() === 'overview' ? { ...next, panes: panes?.length ? panes : ['graph', 'diff'], zoom: null } : next);
const shownViews = new Set(boot.views.map((view) => view.name));
const knownPanes = (panes) => (panes ?? []).filter((name) => shownViews.has(name)).slice(0, 2);

class NavigationError extends Error {}

async function rewriteAt(next, index) {
  const stage = stageNumber(next.stage);
  const step = (await readJson(`stage/${stage}`))?.rewrites[index];
  if (!step) return leaveOverview(next);
  return { ...leaveOverview(next), op: step.op, kernel: null, buffer: null, scope: '', stage, rewrite: index };
}

const NOT_IN_REPORT = 'Not available in a report: open the recording in the workbench.';

/** The next breakpoint: its stage, and a rewrite or -1. */
async function nextBreakpoint(forward, at) {
  if (!state.stops.length) throw new NavigationError('No breakpoints: b sets one on the pass or rule.');
  const from = state.rewrite ?? -1;
  const after = (stage, number) => (stage - at || number - from) * forward > 0;
  const order = STAGES.filter((each) => (each.index - at) * forward >= 0);
  for (const { index, name } of forward > 0 ? order : order.reverse()) {
    const { detail } = (await readJson(`stage/${index}`)) ?? { detail: { rewrites: [] } };
    const rules = detail.rewrites.flatMap((row, number) => (state.stops.includes(`rule:${row.rule}`) ? [number] : []));
    const matches = [...(state.stops.includes(`pass:${name}`) ? [-1] : []), ...rules].filter((number) => after(index, number));
    if (matches.length) return [index, matches.at(forward > 0 ? 0 : -1)];
  }
  throw new NavigationError(`No breakpoint ${forward > 0 ? 'after' : 'before'} this point.`);
}

/** Toggles a breakpoint on the shown rewrite's rule or the shown pass, or the one named by `text`. */
async function toggleBreakpoint({ text, what }) {
  const stage = stageNumber(state.stage);
  if (what === 'op') throw new NavigationError(NOT_IN_REPORT);
  const row = state.rewrite === null ? null : (await readJson(`stage/${stage}`))?.detail.rewrites[state.rewrite];
  const breakpoint = text ?? (row ? `rule:${row.rule}` : `pass:${STAGES[stage].name}`);
  const remaining = state.stops.filter((each) => each !== breakpoint);
  return { ...state, stops: remaining.length < state.stops.length ? remaining : [...remaining, breakpoint] };
}

async function step({ what, by }) {
  const forward = by === -1 ? -1 : 1;
  const at = stageNumber(state.stage);
  if (what === 'op') throw new NavigationError(NOT_IN_REPORT);
  if (what === 'stop') {
    const [stage, number] = await nextBreakpoint(forward, at);
    return number < 0 ? leaveOverview({ ...state, stage, rewrite: null }) : rewriteAt({ ...state, stage }, number);
  }
  if (what === 'rewrite') {
    let stage = at;
    let index = state.rewrite === null ? (forward > 0 ? 0 : -1) : state.rewrite + forward;
    while (index < 0 || index >= STAGES[stage].rewrites) {
      stage += forward;
      if (!STAGES[stage]) throw new NavigationError('No more rewrites.');
      index = forward > 0 ? 0 : STAGES[stage].rewrites - 1;
    }
    return rewriteAt({ ...state, stage }, index);
  }
  if (what === 'failing') {
    const from = state.stage === null ? 0 : at;
    for (const each of STAGES.slice(from)) {
      if (each.check?.verdict !== 'failed') continue;
      const { detail } = await readJson(`stage/${each.index}`);
      const failed = detail.rewrites.flatMap((row, i) => (row.check === 'failed' ? [i] : []));
      if (each.check.counts.failed > failed.length) failed.unshift(-1); // a check of the stage itself
      const current = each.index > from ? -2 : state.rewrite ?? -1;
      const found = failed.find((number) => number > current);
      if (found === undefined) continue;
      const target = { ...state, stage: each.index };
      return found < 0 ? leaveOverview({ ...target, rewrite: null }) : rewriteAt(target, found);
    }
    throw new NavigationError('No failed check after this one.');
  }
  if (state.stage === null && state.panes.join() === 'overview') return leaveOverview({ ...state, stage: at });
  const changedStages = STAGES.filter((each) => each.changed && (forward > 0 ? each.index > at : each.index < at));
  if (!changedStages.length) throw new NavigationError(forward > 0 ? 'No later pass changed anything.' : 'This is the import.');
  return leaveOverview({ ...state, stage: changedStages.at(forward > 0 ? 0 : -1).index, rewrite: null });
}

/** `view` in a pane: beside the view `beside`, or the first one (the overview: alone). */
function withViewOpened(from, view, beside) {
  if (from.panes.includes(view)) return { ...from, zoom: null };
  const besidePanes = from.panes.filter((name) => name === beside);
  const keptPanes = besidePanes.length ? besidePanes : from.panes.filter((name) => name !== 'overview');
  return { ...from, panes: [...keptPanes.slice(0, 1), view], zoom: null };
}

async function follow({ go: link }) {
  let next = state;
  if (!link) return next;
  const chosen = {};
  for (const name of ['op', 'kernel', 'buffer']) if (indexOrNull(link[name]) !== null) chosen[name] = link[name];
  if (Object.keys(chosen).length) next = select(chosen);
  if (indexOrNull(link.stage) !== null) next = { ...next, stage: link.before ? Math.max(0, link.stage - 1) : link.stage, rewrite: null };
  if (link.state) next = { ...next, views: { ...next.views, ...link.state } };
  if (shownViews.has(link.open)) next = withViewOpened(next, link.open, link.beside);
  if (indexOrNull(link.rewrite) !== null) next = await rewriteAt(next, link.rewrite);
  const panes = knownPanes(link.panes);
  if (panes.length && !panes.some((name) => next.panes.includes(name))) return { ...next, panes, zoom: null };
  return leaveOverview(next, panes);
}

const MOVES = {
  go: ({ stage, rewrite }) => ({ ...state, ...(stage === undefined ? {} : { stage: indexOrNull(stage) }), rewrite: rewrite === undefined ? state.rewrite : indexOrNull(rewrite) }),
  select: (command) => {
    const chosen = {};
    for (const name of ['op', 'kernel', 'buffer']) if (indexOrNull(command[name]) !== null) chosen[name] = command[name];
    return { ...select(chosen), rewrite: Object.keys(chosen).length ? state.rewrite : null };
  },
  follow,
  step,
  stop: toggleBreakpoint,
  rewrite: ({ index }) => rewriteAt(state, index),
  show: ({ view, stage }) => {
    if (!shownViews.has(view)) return state;
    const next = indexOrNull(stage) === null ? state : { ...state, stage, rewrite: null };
    if (next.panes.includes(view)) return { ...next, zoom: null };
    const preset = boot.presets.find(([, , panes]) => panes.includes(view));
    return { ...next, panes: preset ? preset[2] : [view], zoom: null };
  },
  bisect: ({ beside }) => withViewOpened(state, 'bisect', beside), // the kept result, and the command that searches
  preset: ({ key }) => {
    const found = boot.presets.find(([name]) => name === key);
    return found ? { ...state, panes: found[2], zoom: null } : state;
  },
  pane: ({ view, index }) => {
    if (!shownViews.has(view) || !state.panes[index]) return state;
    const panes = [...state.panes];
    const other = panes.indexOf(view);
    if (other >= 0) panes[other] = panes[index];
    panes[index] = view;
    return { ...state, panes };
  },
  split: () => ({ ...state, panes: [state.panes[0], ['diff', 'graph'].find((name) => !state.panes.includes(name))], zoom: null }),
  close: ({ index }) => ({ ...state, panes: state.panes.length > 1 ? state.panes.filter((_, i) => i !== index) : state.panes, zoom: null }),
  zoom: ({ index }) => ({ ...state, zoom: indexOrNull(index) !== null && index < state.panes.length ? index : null }),
  fold: ({ what }) => ({ ...state, fold: state.fold.includes(what) ? state.fold.filter((name) => name !== what) : [...state.fold, what] }),
};

/** Handles a message of a component: a command, a selection, a state or a request. */
async function handleMessage(model, trait, value) {
  if (trait === 'command') {
    const command = JSON.parse(value);
    if (command.name === 'ready') return; // no server waits for it
    if (command.name === 'search') await search(command);
    else if (MOVES[command.name]) await move(() => MOVES[command.name](command));
    else showNotice(NOT_IN_REPORT);
  } else if (trait === 'selection') {
    const chosen = value ?? {};
    await move(() => {
      if (model.name === 'graph' && typeof chosen.scope === 'string' && chosen.op === undefined) return { ...state, op: null, kernel: null, buffer: null, scope: chosen.scope };
      const parts = model.name === 'graph' || model.name === 'diff' ? ['op'] : model.name === 'memory' && chosen.buffer !== undefined ? ['buffer', 'kernel'] : ['op', 'buffer', 'kernel'];
      return select(Object.fromEntries(parts.filter((part) => indexOrNull(chosen[part]) !== null).map((part) => [part, chosen[part]])));
    });
  } else if (trait === 'state') {
    state = { ...state, views: { ...state.views, [model.name]: value } };
    sentValues.set(`${model.name}.state`, JSON.stringify(value));
  } else if (trait === 'request') {
    await answerRequests(model, JSON.parse(value || '[]'));
  }
}

async function move(computeState) {
  try {
    state = await computeState();
  } catch (error) {
    if (!(error instanceof NavigationError)) throw error;
    showNotice(error.message);
    return;
  }
  await show();
}

function showNotice(what) {
  notice = { what, error: false, n: Date.now() + Math.random() };
  showBar();
}

// -- requests -----------------------------------------------------------------------------------

const answeredRequests = new Set();

async function answerRequests(model, requests) {
  const answers = [];
  for (const request of requests) {
    const identity = `${model.name} ${request.session} ${request.id}`;
    if (answeredRequests.has(identity)) continue;
    answeredRequests.add(identity);
    const reply = { id: request.id, session: request.session };
    try {
      answers.push({ ...reply, value: await computeAnswer(model.name, request) });
    } catch (error) {
      answers.push({ ...reply, error: error.message });
    }
  }
  if (answers.length) model.receive({ response: JSON.stringify(answers) });
}

async function computeAnswer(view, request) {
  if (view === 'diff') {
    const lines = await readJson(`lines/${stageNumber(state.stage)}`);
    if (request.kind === 'find') {
      const row = lines.findIndex((line) => line.rightKey === request.op || line.leftKey === request.op);
      return { row: row < 0 ? null : row };
    }
    if (request.kind === 'text') return textOf(lines, request.what);
    return { start: request.from, lines: lines.slice(request.from, request.to) };
  }
  if (view === 'memory' && boot.peaks[request.kind]) return boot.peaks[request.kind];
  throw new Error('not available in a report: open the recording in the workbench');
}

const CONTEXT_LINES = 3;

/** A module's text, or the patch between two, from the rows of a diff, as workbench/views/diff.py makes them. */
function textOf(rows, what) {
  const stage = stageNumber(state.stage);
  const stageFileName = (at) => `${String(at).padStart(2, '0')}_${STAGES[at].name}`;
  const [old, now] = [Math.max(0, stage - 1), stage].map(stageFileName);
  const sides = rows.map(({ left = null, right, kind }) => [left, right === undefined && kind === 'equal' ? left : right ?? null]);
  if (rows.some(({ cut }) => cut)) throw new Error('the longest lines are cut in this report: open the recording in the workbench');
  if (what === 'patch') return { file: `${now}.diff`, lines: patch(sides, `${old}.mlir`, `${now}.mlir`), next: null };
  const side = what === 'before' ? 0 : 1;
  return { file: `${[old, now][side]}.mlir`, lines: sides.map((row) => row[side]).filter((line) => line !== null), next: null };
}

/** The same as `patch` of core_compiler/ir/unified.py. */
function patch(sides, before, after) {
  const changed = sides.flatMap(([left, right], i) => (left === right ? [] : [i]));
  const output = changed.length ? [before, after].map((name, i) => `${'-+'[i].repeat(3)} ${name.replace(/[^\w.+-]+/g, '_')}`) : [];
  for (let at = 0, end = 0; at < changed.length; at = end) {
    for (end = at + 1; end < changed.length && changed[end] - changed[end - 1] <= 2 * CONTEXT_LINES + 1;) end += 1;
    const first = Math.max(0, changed[at] - CONTEXT_LINES);
    const hunk = sides.slice(first, changed[end - 1] + CONTEXT_LINES + 1);
    const [from, to] = [0, 1].map((side) => {
      const isPresent = (row) => row[side] !== null;
      const lines = hunk.filter(isPresent).length;
      return `${sides.slice(0, first).filter(isPresent).length + (lines ? 1 : 0)},${lines}`;
    });
    output.push(`@@ -${from} +${to} @@`);
    let added = [];
    const flush = () => { output.push(...added); added = []; };
    for (const [left, right] of hunk) {
      if (left === right) { flush(); output.push(` ${left}`); continue; }
      if (left !== null) output.push(`-${left}`);
      if (right !== null) added.push(`+${right}`);
    }
    flush();
  }
  return output;
}

const MAX_HITS = 40;

let searching = new AbortController();

/** Searches the shown stage with the graph's own search. */
async function search({ text: query, asking: requestNumber }) {
  searching.abort();
  searching = new AbortController();
  const { signal } = searching;
  const results = { text: query, asking: requestNumber, hits: [] };
  const { find, searchNames } = await load('graph');
  const data = await chunk(`graph/${stageNumber(state.stage)}`);
  try {
    const passes = (await searchNames(STAGES.map((each) => each.name), query, signal)).map((i) => STAGES[i])
      .map((each) => ({ what: 'pass', text: `${String(each.index).padStart(2, '0')} ${each.name}`, detail: each.summary, go: { stage: each.index } }));
    const kernels = (await searchNames(boot.named.map(([, name]) => name), query, signal))
      .map((i) => ({ what: 'kernel', text: boot.named[i][1], go: { kernel: boot.named[i][0], panes: ['kernels', 'code'] } }));
    const others = [...passes.slice(0, MAX_HITS / 4), ...kernels.slice(0, MAX_HITS / 4)];
    const { ops, hits } = data ? await find(data.text, data.blob, query, MAX_HITS - others.length, signal) : { ops: 0, hits: [] };
    results.hits = [...others, ...hits.map(({ key, ...hit }) => ({ what: 'op', ...hit, go: { op: key } }))];
    Object.assign(results, { ops, total: passes.length + kernels.length + ops });
  } catch (error) { // an incomplete expression while it is typed, or one that takes too long
    results.problem = { what: error.message, fix: error.fix };
  }
  component('bar').receive({ detail: JSON.stringify(results) });
  showBar();
}

// -- showing ------------------------------------------------------------------------------------

const sentValues = new Map();

async function show() {
  generation += 1;
  const thisGeneration = generation;
  const stage = stageNumber(state.stage);
  showBar(false);
  const at = await readJson(`stage/${stage}`);
  const anchor = state.op ?? (state.kernel !== null ? boot.kernels[state.kernel] : state.buffer !== null ? boot.buffers[state.buffer] : null);
  const chosen = anchor === null || anchor === undefined ? null : await opFacts(anchor);
  if (thisGeneration !== generation) return;
  const kernel = state.kernel ?? chosen?.kernel ?? null;
  const buffer = state.buffer ?? chosen?.buffer ?? null;
  const opAtStage = chosen?.at.filter(([first]) => first <= stage).at(-1)?.[1] ?? [null, null];
  const detail = at.rewrites[state.rewrite] ?? null;
  set('rail', { data: JSON.stringify(boot.rail), detail: JSON.stringify(at.detail), selection: { stage, rewrite: state.rewrite, stops: state.stops } });
  const messages = {};
  const panes = state.zoom === null ? state.panes : [state.panes[state.zoom]];
  for (const name of panes) {
    const key = boot.per_stage.includes(name) ? `${name}/${stage}` : boot.per_kernel.includes(name) ? `${name}/${kernel ?? boot.kernel}` : name;
    const found = await chunk(key);
    if (thisGeneration !== generation) return;
    if (found === null) {
      messages[name] = boot.messages[key] ?? { what: 'Not included, to keep this report small.', fix: 'Open the recording in the workbench, or make the report with a larger --max-size.' };
      continue;
    }
    set(name, { data: found.text, blob: found.blob }, key);
    const marks = {
      graph: () => (opAtStage[1] ? { scope: opAtStage[1] } : opAtStage[0] !== null ? { op: opAtStage[0] } : state.scope ? { scope: state.scope } : {}),
      diff: () => (opAtStage[0] === null ? {} : { op: opAtStage[0] }),
      rewrites: () => (detail ? { rewrite: state.rewrite, detail: detail.detail } : {}),
      pipeline: () => ({ stage }),
      memory: () => (buffer === null ? {} : { buffer }),
      kernels: () => (kernel === null ? {} : { kernel, ...(state.op === null ? {} : { op: state.op }) }),
    }[name];
    const selection = marks ? marks() : { ...chosen?.marks[name], ...(name === 'numerics' ? { rewrite: state.rewrite } : {}) };
    if (name === 'code') selection.kernel = kernel ?? boot.kernel;
    const viewState = name === 'diff' ? { unified: panes.length > 1, ...state.views.diff } : state.views[name] ?? {};
    set(name, { selection, state: viewState });
  }
  const pass = at.inspector.sections.at(-1);
  const isMissing = state.op !== null && chosen && opAtStage[0] === null;
  const sections = chosen ? (isMissing ? [{ title: 'Selection', rows: [{ kind: 'text', text: 'This op does not exist at this stage.' }] }, ...chosen.sections.filter((s) => s.title !== 'Op')] : chosen.sections) : [];
  set('inspector', { data: JSON.stringify({ title: chosen?.title ?? (detail ? 'Rewrite' : 'Pass'), sections: [...(detail?.sections ?? []), ...sections, pass] }) });
  showBar(true, messages);
  document.getElementById('cw-loading')?.remove();
  keepInAddress(stage);
}

/** Sets the changed traits of a component. */
function set(name, values, key = null) {
  const model = component(name);
  const changed = {};
  for (const [trait, value] of Object.entries(values)) {
    const encoded = trait === 'blob' || (trait === 'data' && key !== null) ? key : JSON.stringify(value);
    if (sentValues.get(`${name}.${trait}`) === encoded) continue;
    sentValues.set(`${name}.${trait}`, encoded);
    changed[trait] = value;
  }
  if (Object.keys(changed).length) model.receive(changed);
}

let lastMessages = {};
function showBar(done = true, messages = lastMessages) {
  lastMessages = messages;
  const left = boot.left_out.length ? ` · without the code of ${boot.left_out.length} kernels` : '';
  component('bar').receive({
    data: JSON.stringify({
      run: { ...boot.run, detail: boot.run.detail + left }, start: false, query: '', push: false, done,
      panes: state.panes, zoom: state.zoom, fold: state.fold, views: boot.views, presets: boot.presets,
      wide: boot.wide, messages, notice, job: null,
    }),
  });
}

// -- the address: a link to the same view state ----------------------------------------------------

function keepInAddress(stage) {
  const parts = { stage: state.stage === null ? null : stage, rewrite: state.rewrite, op: state.op, kernel: state.kernel, buffer: state.buffer, panes: state.panes.join(), stops: state.stops.length ? JSON.stringify(state.stops) : null };
  const query = new URLSearchParams(Object.entries(parts).filter(([, part]) => part !== null && part !== 'overview'));
  const hash = query.toString();
  if (hash === location.hash.slice(1)) return;
  try {
    history.replaceState(null, '', `${location.href.split('#')[0]}#${hash}`);
  } catch { /* an embedding page can forbid this: then there is no link */ }
}

function fromAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (/^\d+$/.test(parts.get(name) ?? '') ? Number(parts.get(name)) : null);
  const panes = knownPanes((parts.get('panes') ?? '').split(','));
  for (const name of ['stage', 'rewrite', 'op', 'kernel', 'buffer']) state[name] = number(name);
  if (panes.length) state.panes = panes;
  try {
    state.stops = JSON.parse(parts.get('stops') ?? '[]').filter((text) => typeof text === 'string');
  } catch {
    state.stops = []; // an address can contain anything
  }
}

fromAddress();
window.addEventListener('hashchange', () => { fromAddress(); show(); });
await show();
document.body.dataset.ready = 'yes';
