// The library on the start page: search, tags and notes, delete and restore, figures over time.

const RUNS_STYLE = `
.runs-head { display: flex; gap: 8px; align-items: center; flex-wrap: wrap; margin: 22px 0 8px; }
.runs-head h2 { margin: 0 4px 0 0; } .runs-head input[type=search] { flex: 1; min-width: 220px; height: 28px; }
.runs-head .button, .runs-head button { height: 28px; }
.button { border: 1px solid var(--line); border-radius: 4px; padding: 0 8px; background: var(--surface); color: var(--text); display: inline-flex; align-items: center; }
.button:hover { background: var(--raised); text-decoration: none; }
.runs th { position: relative; } .runs th:is([aria-sort=ascending], [aria-sort=descending]) button { color: var(--accent); }
.runs td { vertical-align: top; } .runs :is(th, td) { padding-inline: 8px; } .runs td.name { max-width: 0; min-width: 200px; width: 100%; }
.runs td.does { padding: 1px 4px; text-align: right; } .runs td.does > * { vertical-align: top; }
.runs .tag { font: 11px/1.5 var(--sans); height: auto; padding: 0 6px; border-radius: 9px; margin-left: 4px; background: var(--accentSoft); color: var(--accent); border: none; }
.runs .note { font: 11px/1.4 var(--sans); color: var(--muted); overflow: hidden; text-overflow: ellipsis; }
.runs [data-do=purge], .runs [data-do=discard] { min-width: 92px; } .runs [data-table=trash] td.name { max-width: 520px; }
.runs .pin { color: var(--accent); } .runs tr.edit:hover { background: none; } .runs tr.edit td { white-space: normal; cursor: default; padding: 8px 10px; }
.edit form { display: grid; grid-template-columns: auto 1fr auto; gap: 6px 10px; align-items: center; }
.edit textarea { font: inherit; color: inherit; background: var(--surface); border: 1px solid var(--line); border-radius: 4px; padding: 3px 8px; resize: vertical; }
.runs-foot { display: flex; gap: 10px; align-items: center; color: var(--muted); margin-top: 6px; } .runs-foot .gap { flex: 1; }
.runs-problem { color: var(--bad); margin: 0 0 8px; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(320px, 1fr)); gap: 10px; margin: 0 0 10px; }
.plots figure { margin: 0; border: 1px solid var(--line); border-radius: 6px; background: var(--surface); padding: 6px 8px 2px; }
.plots figcaption { display: flex; font-weight: 600; } .plots figcaption > span:first-child { flex: 1; white-space: nowrap; } .plots figcaption small { color: var(--muted); font-weight: 400; margin-left: 6px; }
.plots svg { width: 100%; aspect-ratio: 340 / 128; display: block; } .plots figcaption button.save { height: 18px; }
.plots .axis { stroke: var(--line); } .plots .tick { fill: var(--muted); font: 10px var(--sans); } .plots .line { fill: none; stroke: var(--accent); stroke-width: 1.2; opacity: .55; }
.plots circle { fill: var(--accent); cursor: pointer; } .plots circle:hover, .plots circle:focus-visible { fill: var(--removed); outline: none; }
`;
const RUN_STATUS = { finished: 'complete', recording: 'recording', interrupted: 'interrupted', '': 'not read yet' };
const SORT_KEYS = { model: 'model', target: 'target', made: 'newest', compile: 'compile', time: 'time', peak: 'peak', kernels: 'kernels', error: 'error', size: 'size', state: 'status' };
const OVER_TIME = [
  ['total_ms', 'time per execution', 'ms'], ['compile_s', 'compile time', 's'], ['peak_bytes', 'peak memory', 'B'],
  ['kernels', 'kernels', ''], ['worst_error', 'worst check error', 'relative'],
];
const HELP = 'Words, or model:  target:  device:  mode:  status:  note:  tag:  is:pinned  after:2026-05-31  before:  sort:time; - before a term excludes it';

function stamp(epochSeconds, long = false) {
  const iso = new Date(epochSeconds * 1000).toISOString();
  return long ? `${iso.slice(0, 10)} ${iso.slice(11, 16)} UTC` : iso.slice(0, 10);
}

/** The Runs section: `draw(data, detail)` shows the library that the server sent. */
function runsSection(send) {
  let data = {};
  let facts = {};
  let markedRun = null; // the first of two runs to compare
  let editor = null; // {name, row}
  let searchTimer = 0;
  const search = h('input', { type: 'search', maxlength: 1000, placeholder: 'search runs: words, model:, target:, tag:, status:, is:pinned, after:, sort:time', title: HELP, 'aria-label': 'Search runs', spellcheck: 'false' });
  const title = h('h2', {}, 'Runs');
  const trend = h('button', { 'data-do': 'trend', title: 'Figures of the runs of one model and target over time', click: () => go({ shelf: facts.shelf === 'trend' ? '' : 'trend', skip: 0 }) }, 'Over time');
  const csv = h('a', { class: 'button', 'data-do': 'csv', title: 'Download all matching runs as CSV', download: 'runs.csv' }, 'CSV');
  const trash = h('button', { 'data-do': 'trash', click: () => go({ shelf: facts.shelf === 'trash' ? '' : 'trash', skip: 0 }) });
  const uploads = h('button', { 'data-do': 'uploads', title: 'Model files and inputs dropped on this page', click: () => go({ shelf: facts.shelf === 'uploads' ? '' : 'uploads', skip: 0 }) });
  const problem = h('p', { class: 'runs-problem', role: 'alert', hidden: true });
  const progress = h('span', { class: 'muted', role: 'status' });
  const body = h('div', { class: 'runs' });
  const root = h('section', { 'aria-label': 'Runs' }, h('div', { class: 'runs-head' }, title, search, progress, trend, csv, uploads, trash), problem, body);

  const go = (change, push = true) => send('runs', { find: facts.find, skip: facts.skip, shelf: facts.shelf, push, ...change });
  search.addEventListener('input', () => {
    clearTimeout(searchTimer);
    searchTimer = setTimeout(() => go({ find: search.value, skip: 0 }, false), 200);
  });
  search.addEventListener('keydown', (event) => { if (event.key === 'Enter') { clearTimeout(searchTimer); go({ find: search.value, skip: 0 }); } });

  const downloadUrl = (path, more) => `${path}?${new URLSearchParams({ ...more, token: data.token })}`;
  const open = (run) => send('open', { what: run.path });
  const openHandlers = (run) => ({ tabindex: 0, click: (event) => { if (!event.target.closest('button, a, form')) open(run); }, keydown: (event) => { if (event.key === 'Enter' && event.target === event.currentTarget) open(run); } });

  // The first press marks a recording; a press on another opens both side by side.
  function compare(button, name) {
    if (markedRun && markedRun !== name) {
      send('url', { query: new URLSearchParams({ run: markedRun, other: name, panes: 'compare' }).toString() });
      markedRun = null;
      return;
    }
    markedRun = markedRun === name ? null : name;
    button.setAttribute('aria-pressed', String(markedRun !== null));
  }

  const sorting = () => /(?:^|\s)sort:(-?)(\w+)/.exec(facts.find) ?? [null, '', 'newest'];
  function sortBy(by) {
    const [, minus, current] = sorting();
    const rest = facts.find.replace(/(?:^|\s)sort:\S+/g, '').trim();
    const next = current === by ? (minus ? by : `-${by}`) : by;
    go({ find: next === 'newest' ? rest : `${rest} sort:${next}`.trim(), skip: 0 });
  }
  function head(names) {
    const [, minus, current] = sorting();
    return h('thead', {}, h('tr', {}, names.map((name) => {
      const by = SORT_KEYS[name];
      const order = by && by === current ? ((minus === '-') !== (by === 'newest') ? 'descending' : 'ascending') : null;
      const kind = NUMBERS.includes(name) ? 'num' : '';
      if (!by) return h('th', { scope: 'col', class: kind }, name);
      return sortHeader({ name: by, title: name, hint: `Sort by ${name}`, kind }, order ? [current, order === 'ascending' ? 1 : -1] : [], sortBy);
    })));
  }
  const NUMBERS = ['compile', 'time', 'peak', 'kernels', 'error', 'size'];
  const checks = (c) => Object.entries(c ?? {}).map(([v, n]) => h('span', { class: v, title: MARK_WORDS[v] }, `${MARKS[v] ?? v} ${count(n)}  `));
  const figureOrBlank = (value, unit) => (value === null ? '' : figure(value, unit));
  const hasFailed = (run) => run.status === 'failed' || run.error || run.checks?.failed > 0;
  const state = (run) => (run.status === 'finished' && run.checks?.failed ? plural(run.checks.failed, 'failed check') : run.status === 'recording' && run.elsewhere ? 'on another machine' : RUN_STATUS[run.status] ?? run.status);
  const target = (run) => [run.target, run.mode === 'training' && (run.iterations ? `training, ${plural(run.iterations, 'iteration')}` : 'training'), run.device].filter(Boolean).join(', ');
  const small = (label, title, symbol, onClick, more = {}) => h('button', { class: 'plain faint', title, 'aria-label': label, click: onClick, ...more }, symbol);

  function row(run) {
    const cells = [
      h('td', { class: 'name' }, run.pinned && h('span', { class: 'pin', title: 'pinned' }, '● '), run.model, run.variant && h('span', { class: 'faint' }, ` ${run.variant}`), run.tags.map((tag) => h('button', { class: 'tag', title: `Runs with the tag ${tag}`, click: () => go({ find: `tag:${tag}`, skip: 0, shelf: '' }) }, tag)), run.note && h('div', { class: 'note', title: run.note }, run.note)),
      h('td', {}, target(run)), h('td', { title: stamp(run.began, true) }, ago(run.began)), h('td', { class: 'num' }, figureOrBlank(run.compile_s, 's')), h('td', { class: 'num' }, figureOrBlank(run.total_ms, 'ms')),
      h('td', { class: 'num' }, figureOrBlank(run.peak_bytes, 'B')), h('td', { class: 'num' }, run.kernels === null ? '' : count(run.kernels)), h('td', { class: 'num' }, figureOrBlank(run.worst_error, 'relative')),
      h('td', {}, checks(run.checks)), h('td', { class: 'num' }, bytes(run.size)), h('td', { class: hasFailed(run) ? 'failed' : 'muted' }, state(run)),
      h('td', { class: 'does' }, small(`Compare ${run.name}`, 'Compare: press on two runs', '⇄', (e) => compare(e.currentTarget, run.name), { 'data-do': 'compare', 'aria-pressed': String(markedRun === run.name) }),
        small(`Over time: runs of ${run.model} on ${run.target}`, 'Over time: all runs of this model on this target', '∿', () => go({ find: ['model', 'variant', 'target'].map((part) => `${part}:="${run[part].replaceAll('"', '""')}"`).join(' '), shelf: 'trend', skip: 0 })),
        h('a', { class: 'faint', title: 'Download the recording', 'aria-label': `Download ${run.name}`, href: downloadUrl('file', { run: run.name }), download: run.name.split('/').pop() }, ' ⤓ '),
        !data.viewer && [small(`${run.pinned ? 'Unpin' : 'Pin'} ${run.name}`, run.pinned ? 'Unpin' : 'Pin to the top', run.pinned ? '●' : '○', () => send('annotate', { run: run.name, pinned: !run.pinned })),
          small(`Tags and note of ${run.name}`, 'Tags and note', '✎', () => edit(run)),
          small(`Delete ${run.name}`, 'Delete; it stays in the trash for 30 days', '×', () => send('remove', { run: run.name }))])];
    return h('tr', { ...openHandlers(run), title: run.error || run.name, 'data-run': run.name }, cells);
  }

  // Edits the tags and the note of a run in a row below it, which stays while the list changes.
  function edit(run) {
    if (editor?.name === run.name) { editor = null; draw(); return; }
    const tags = h('input', { type: 'text', value: run.tags.join(' '), placeholder: 'separated by spaces', 'aria-label': 'Tags', spellcheck: 'false' });
    const note = h('textarea', { rows: 2, maxlength: 2000, 'aria-label': 'Note' });
    note.value = run.note;
    const save = (event) => { // send only the changes made here: another user may change the rest
      event?.preventDefault();
      editor = null;
      const newTags = tags.value.split(/\s+/).filter(Boolean);
      const difference = (all, some) => all.filter((tag) => !some.includes(tag));
      send('annotate', { run: run.name, tags: { add: difference(newTags, run.tags), drop: difference(run.tags, newTags) }, ...(note.value === run.note ? {} : { note: note.value }) });
      draw();
    };
    const keys = (event) => { if (event.key === 'Escape') { editor = null; draw(); } else if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) save(event); event.stopPropagation(); };
    editor = { name: run.name, row: h('tr', { class: 'edit' }, h('td', { colspan: 12 }, h('form', { submit: save, keydown: keys },
      h('span', {}, 'tags'), tags, h('button', { class: 'primary' }, 'Save'), h('span', {}, 'note'), note, h('button', { type: 'button', click: () => { editor = null; draw(); } }, 'Cancel')))) };
    draw();
    tags.focus();
  }

  function runsTable() {
    const { runs, total, known, skip, listed } = facts;
    if (!runs.length) return [h('p', { class: 'muted' }, known ? 'No runs match.' : data.viewer ? 'No runs yet. An editor can create the first.' : 'No runs yet. Open a sample model to create the first.')];
    const isUnlisted = editor && !runs.some((run) => run.name === editor.name);
    const rows = [...(isUnlisted ? [h('tr', { class: 'edit' }, h('td', { colspan: 12, class: 'muted' }, `${editor.name} (not listed here)`)), editor.row] : []), ...runs.flatMap((run) => (editor?.name === run.name ? [row(run), editor.row] : [row(run)]))];
    const foot = total > listed && h('div', { class: 'runs-foot' }, h('span', {}, `${count(skip + 1)} to ${count(skip + runs.length)} of ${count(total)}`), h('span', { class: 'gap' }),
      h('button', { disabled: skip === 0, click: () => go({ skip: Math.max(0, skip - listed) }) }, 'Previous'), h('button', { disabled: skip + runs.length >= total, click: () => go({ skip: skip + listed }) }, 'Next'));
    return [h('table', {}, head(['model', 'target', 'made', 'compile', 'time', 'peak', 'kernels', 'error', 'checks', 'size', 'state', '']), h('tbody', {}, rows)), foot].filter(Boolean);
  }

  /** A button that must be pressed twice, because its deletion is permanent. */
  function permanentDeleteButton(label, text, token, what = 'purge') {
    let isConfirming = false;
    const button = h('button', { 'data-do': what, click: () => { if (isConfirming) send(what, { token }); else setConfirming(true); }, blur: () => setConfirming(false) });
    const setConfirming = (on) => { isConfirming = on; button.textContent = on ? 'Press again' : text; button.setAttribute('aria-label', `${button.textContent}: ${label}`); button.classList.toggle('primary', on); };
    setConfirming(false);
    return button;
  }

  function uploadsTable() {
    if (!facts.uploads.length) return [h('p', { class: 'muted' }, 'No uploads.')];
    const people = facts.uploads.some((each) => each.by);
    return [h('table', { 'data-table': 'uploads' }, h('thead', {}, h('tr', {}, ['file', ...(people ? ['uploaded by'] : []), 'last used', 'size', ''].map((t) => h('th', { scope: 'col', class: t === 'size' ? 'num' : '' }, t)))),
      h('tbody', {}, facts.uploads.map((each) => h('tr', {}, h('td', { class: 'name' }, each.name), people && h('td', {}, each.by), h('td', {}, ago(each.when)), h('td', { class: 'num' }, bytes(each.size)),
        h('td', { class: 'num' }, !data.viewer && permanentDeleteButton(`${each.name}, permanently`, 'Delete', each.token, 'discard')))))),
    h('p', { class: 'muted' }, `${facts.uploaded > facts.uploads.length ? `The last ${count(facts.uploads.length)} of ${count(facts.uploaded)}. ` : ''}Uploads are deleted 30 days after their last use. Their recordings are kept, and can be compiled again from their first stage.`)];
  }

  function trashTable() {
    if (!facts.trash.length) return [h('p', { class: 'muted' }, 'The trash is empty.')];
    return [h('table', { 'data-table': 'trash' }, h('thead', {}, h('tr', {}, ['model', 'target', 'deleted', 'size', ''].map((t) => h('th', { scope: 'col', class: t === 'size' ? 'num' : '' }, t)))),
      h('tbody', {}, facts.trash.map((entry) => h('tr', { title: entry.name }, h('td', { class: 'name' }, entry.model, h('span', { class: 'faint' }, ` ${entry.name}`)), h('td', {}, entry.target), h('td', {}, ago(entry.when)), h('td', { class: 'num' }, bytes(entry.size)),
        h('td', { class: 'num' }, !data.viewer && [h('button', { 'aria-label': `Restore ${entry.name}`, click: () => send('restore', { token: entry.token }) }, 'Restore'), ' ', permanentDeleteButton(`${entry.name}, permanently`, 'Delete', entry.token)]))))),
    h('p', { class: 'muted' }, `${facts.deleted > facts.trash.length ? `The last ${count(facts.trash.length)} of ${count(facts.deleted)}. ` : ''}Deleted permanently after 30 days. `, !data.viewer && permanentDeleteButton('all of it, permanently', 'Empty the trash', ''))];
  }

  function trendTable(found) {
    if (found.groups) {
      if (!found.groups.length) return [h('p', { class: 'muted' }, 'No runs match.')];
      return [h('p', { class: 'muted' }, 'Runs of several models, sizes or targets match. Choose one:'), h('table', {}, h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'model'), h('th', { scope: 'col' }, 'sizes'), h('th', { scope: 'col' }, 'target'), h('th', { scope: 'col', class: 'num' }, 'runs'))),
        h('tbody', {}, found.groups.map(([model, sizes, on, n, query]) => { const choose = () => go({ find: query, skip: 0 }); return h('tr', { tabindex: 0, click: choose, keydown: (e) => e.key === 'Enter' && choose() }, h('td', { class: 'name' }, model), h('td', {}, sizes), h('td', {}, on), h('td', { class: 'num' }, count(n))); })))];
    }
    const { runs, total } = found;
    const plots = h('div', { class: 'plots' }, OVER_TIME.map(([key, name, unit]) => plot(runs, key, name, unit, open)).filter(Boolean));
    const columns = ['name', 'made', ...OVER_TIME.map(([, name, unit]) => (unit ? `${name} (${unit})` : name))];
    const save = () => download('runs-over-time.csv', csvText(columns, runs.map((run) => [run.name, stamp(run.began, true), ...OVER_TIME.map(([key]) => run[key])])), 'text/csv');
    return [h('p', {}, h('b', {}, `${[found.model, found.variant].filter(Boolean).join(' ')} on ${found.target}`), ` ${plural(runs.length, 'run')}${total > runs.length ? ` of ${count(total)}, the newest` : ''} `, h('button', { title: 'Download this table as CSV', click: save }, 'CSV')),
      plots, h('table', { 'data-table': 'trend' }, h('thead', {}, h('tr', {}, ['made', ...OVER_TIME.map(([, name]) => name), 'tags', 'state'].map((t, i) => h('th', { scope: 'col', class: i > 0 && i < 6 ? 'num' : '' }, t)))),
        h('tbody', {}, runs.slice(-200).reverse().map((run) => h('tr', { ...openHandlers(run), title: run.name }, h('td', {}, stamp(run.began, true)), OVER_TIME.map(([key, , unit]) => h('td', { class: 'num' }, figureOrBlank(run[key], unit))), h('td', {}, run.tags.join(' ')), h('td', { class: 'muted' }, state(run)))))),
      runs.length > 200 && h('p', { class: 'muted' }, `The table shows the newest 200 of ${count(runs.length)}; the plots and the CSV contain all.`)].filter(Boolean);
  }

  function draw() {
    const active = root.getRootNode().activeElement;
    const editorSelection = editor?.row.contains(active) && [active, active.selectionStart, active.selectionEnd];
    const focused = active && body.contains(active) && { run: active.closest('[data-run]')?.dataset.run, label: active.getAttribute('aria-label') };
    title.textContent = facts.known ? `Runs ${count(facts.known)}` : 'Runs';
    if (document.activeElement?.shadowRoot?.activeElement !== search && active !== search) search.value = facts.find;
    for (const node of [search, csv, trend]) node.hidden = !facts.known;
    csv.href = downloadUrl('runs.csv', { find: facts.find });
    trend.setAttribute('aria-pressed', String(facts.shelf === 'trend'));
    trash.hidden = !facts.deleted && facts.shelf !== 'trash';
    trash.textContent = `Trash ${count(facts.deleted)}`;
    trash.setAttribute('aria-pressed', String(facts.shelf === 'trash'));
    uploads.hidden = !facts.uploaded && facts.shelf !== 'uploads';
    uploads.textContent = `Uploads ${count(facts.uploaded)}`;
    uploads.setAttribute('aria-pressed', String(facts.shelf === 'uploads'));
    progress.replaceChildren(...(facts.pending ? [`reading ${count(facts.known - facts.pending)} of ${count(facts.known)} `, h('progress', { max: facts.known, value: facts.known - facts.pending })] : []));
    problem.hidden = !facts.problem;
    if (facts.problem) problem.textContent = `${facts.problem.what}: ${facts.problem.fix}`;
    keepFocus(body, ['data-sort'], () => body.replaceChildren(...(facts.trash ? trashTable() : facts.uploads ? uploadsTable() : facts.trend ? trendTable(facts.trend) : runsTable())));
    if (focused?.run) {
      const line = [...body.querySelectorAll('[data-run]')].find((each) => each.dataset.run === focused.run);
      const button = focused.label && [...(line?.querySelectorAll('[aria-label]') ?? [])].find((each) => each.getAttribute('aria-label') === focused.label);
      (button || line)?.focus();
    }
    if (editorSelection && body.contains(editorSelection[0])) { // the editor was moved into the new table
      const [field, from, to] = editorSelection;
      field.focus({ preventScroll: true });
      if (to !== undefined) field.setSelectionRange(from, to);
    }
  }
  return {
    root,
    draw(nextData, nextFacts) {
      data = nextData;
      if (!nextFacts) return;
      facts = nextFacts;
      readInfinite([...facts.runs, ...(facts.trend?.runs ?? [])], 'worst_error');
      draw();
    },
  };
}

/** A plot of one figure of the runs over their dates; null if no run has the figure. */
function plot(runs, key, name, unit, open) {
  const points = runs.filter((run) => Number.isFinite(run[key]));
  if (!points.length) return null;
  const [width, height, left, right, top, bottom] = [340, 128, 56, 10, 8, 18];
  const values = points.map((run) => run[key]);
  const [minimum, maximum] = [Math.min(...values), Math.max(...values)];
  const log = minimum > 0 && maximum / minimum > 100;
  const [low, high] = log ? [Math.log10(minimum), Math.log10(maximum)] : [0, maximum || 1];
  const [first, last] = [points[0].began, points.at(-1).began];
  const x = (run) => left + (last > first ? (run.began - first) / (last - first) : 0.5) * (width - left - right);
  const y = (value) => height - bottom - (((log ? Math.log10(value) : value) - low) / (high - low || 1)) * (height - top - bottom);
  const describe = (run) => `${figure(run[key], unit)}, ${stamp(run.began, true)}, ${run.name}`;
  const ticks = (log ? [minimum, maximum] : [0, (maximum || 1) / 2, maximum || 1]).filter((tick) => unit || Number.isInteger(tick));
  const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': `${name} of ${plural(points.length, 'run')} from ${stamp(first)} to ${stamp(last)}: minimum ${figure(minimum, unit)}, maximum ${figure(maximum, unit)}` },
    ...ticks.flatMap((tick) => [svg('line', { class: 'axis', x1: left, x2: width - right, y1: y(tick), y2: y(tick) }), svg('text', { class: 'tick', x: left - 5, y: y(tick) + 3.5, 'text-anchor': 'end' }, figure(tick, unit))]),
    svg('text', { class: 'tick', x: left, y: height - 4 }, stamp(first)), last - first > 86400 && svg('text', { class: 'tick', x: width - right, y: height - 4, 'text-anchor': 'end' }, stamp(last)),
    points.length > 1 && svg('path', { class: 'line', d: points.map((run, i) => `${i ? 'L' : 'M'}${x(run).toFixed(1)} ${y(run[key]).toFixed(1)}`).join('') }),
    ...points.map((run) => svg('circle', { cx: x(run).toFixed(1), cy: y(run[key]).toFixed(1), r: points.length > 100 ? 2 : 3.5, role: 'link', 'aria-label': describe(run), click: () => open(run) }, svg('title', {}, describe(run)))));
  walkMarks(picture, [...picture.querySelectorAll('circle')], points.length - 1);
  const save = downloadMenu(() => pictureItems(name, key, picture), `Download the plot of ${name}`);
  return h('figure', { 'data-figure': key }, h('figcaption', {}, h('span', {}, name, h('small', {}, `last ${figure(values.at(-1), unit)}${log ? ', logarithmic' : ''}`)), save), picture);
}

