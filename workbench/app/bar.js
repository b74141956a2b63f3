// The bar at the top, and the logic of the whole page: pane layout, keys, the URL, messages.

const STYLE = `
.root { display: flex; align-items: center; gap: 8px; padding: 0 12px; overflow: visible; white-space: nowrap; }
.brand { font-weight: 650; border: none; background: none; padding: 0 2px; font-size: 13px; }
.run { display: flex; align-items: baseline; gap: 8px; min-width: 0; overflow: hidden; }
.run b { font-size: 13px; flex: none; max-width: 260px; overflow: hidden; text-overflow: ellipsis; } .run span { color: var(--muted); overflow: hidden; text-overflow: ellipsis; }
.sep { width: 1px; height: 20px; background: var(--line); flex: none; }
.gap { flex: 1; }
.narrow { gap: 6px; padding: 0 8px; } .narrow .search input { width: 96px; } .narrow .run b { max-width: 200px; }
.group { display: flex; } .group button { border-radius: 0; margin-left: -1px; }
.group button:first-child { border-radius: 4px 0 0 4px; margin-left: 0; } .group button:last-child { border-radius: 0 4px 4px 0; }
.search { position: relative; } .search input { width: 210px; } .waits .search input { width: 84px; } .busy .search input { width: 130px; }
.person { color: var(--muted); flex: none; max-width: 150px; overflow: hidden; text-overflow: ellipsis; }
.found { position: absolute; top: 28px; right: 0; width: 460px; background: var(--surface); border: 1px solid var(--line);
  border-radius: 6px; box-shadow: var(--shadow); z-index: 60; padding: 4px; white-space: normal; }
.hit { display: grid; grid-template-columns: 58px minmax(0, 1fr); gap: 8px; padding: 3px 8px; border-radius: 4px; cursor: pointer; }
.hit:hover, .hit.on { background: var(--accentSoft); }
.hit .what { color: var(--faint); } .hit .text { font-family: var(--mono); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.hit .detail { grid-column: 2; color: var(--muted); font-size: 11px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.found [role=listbox] { max-height: 60vh; overflow-y: auto; } .found .told { padding: 4px 8px 2px; color: var(--muted); } .found [role=listbox]:not([hidden]) + .told { border-top: 1px solid var(--line); margin-top: 3px; } .hit.more { border-top: 1px solid var(--line); border-radius: 0; margin-top: 3px; padding-top: 5px; } .hit.more .text { font-family: inherit; color: var(--accent); }
.views { display: grid; grid-template-columns: repeat(3, 1fr); gap: 4px; } .views button { text-align: left; border-color: transparent; height: 28px; } .views button:focus-visible { border-color: var(--accent); } .views kbd { margin-right: 7px; }
.job { display: flex; align-items: center; gap: 8px; color: var(--muted); flex: none; }
.job .what.held { max-width: 330px; } .job .held b { color: var(--text); }
.job .what { max-width: 200px; overflow: hidden; text-overflow: ellipsis; }
.track { width: 90px; height: 5px; background: var(--raised); border-radius: 3px; overflow: hidden; flex: none; }
.track div { height: 100%; background: var(--accent); transition: width .3s; }
.track.wait div { width: 35% !important; animation: slide 1.2s ease-in-out infinite alternate; }
@keyframes slide { from { margin-left: 0; } to { margin-left: 65%; } }
dialog { border: 1px solid var(--line); border-radius: 8px; background: var(--surface); color: var(--text); box-shadow: var(--shadow); padding: 16px 20px; min-width: 380px; max-width: 560px; white-space: normal; }
dialog::backdrop { background: rgb(0 0 0 / 30%); }
dialog h2 { margin: 0 0 10px; font-size: 14px; }
dialog table { border-collapse: collapse; } dialog td { padding: 2px 14px 2px 0; vertical-align: top; }
kbd { font: 11px var(--mono); border: 1px solid var(--line); border-radius: 3px; padding: 0 5px; background: var(--raised); }
.toast { position: fixed; z-index: 70; right: 16px; bottom: 16px; max-width: 460px; background: var(--surface); border: 1px solid var(--line); border-left: 4px solid var(--accent);
  border-radius: 6px; box-shadow: var(--shadow); padding: 10px 34px 10px 14px; white-space: normal; }
.toast.error { border-left-color: var(--bad); color: var(--text); } /* Panel's own .error is dark red, also on dark */
.toast .where { color: var(--muted); overflow-wrap: anywhere; } .toast button.act { margin-top: 6px; } .toast button.plain { position: absolute; right: 6px; top: 6px; }
`;
const KEYS = [
  ['j  k', 'next, previous pass with changes'], ['J  K', 'next, previous rewrite'], ['n', 'next failed check'],
  ['b  B', 'breakpoint on the pass or the rewrite\'s rule, on the selected op'], ['r  R', 'continue to the next breakpoint, back to the previous one'],
  ['a  e  x  A  F', 'step-by-step compile: apply the pass, only its next rewrite, skip it, run until a pass changes something, finish'],
  ['h  H', 'next, previous change of the selected op'],
  ['1  2  3  4  5  0', 'Step, Speed, Memory, Numbers, Train, Overview'], ['g', 'choose a view for this pane: a list with a letter for each'], ['z', 'maximise or restore the pane'], ['/', 'search ops, passes, kernels'],
  ['[  ]', 'fold the passes, the inspector'], ['↑  ↓  Enter', 'in a list or table: previous row, next row, show it'], ['Alt ←  Alt →', 'back and forward through your selections'], ['?', 'show these keys; views have more of their own'], ['Esc', 'close, clear'],
];
const SYNTAX = 'Words match name, kind, shape, attribute, scope and source line; or kind:add shape:768 dtype:bf16 line:model.py:12 scope:layer.0 phase:backward; "two words", /regular expressions/';
/** Labels of the actions that a view's message offers. */
const ACTION_LABELS = { again: 'Compile…', execute: 'Execute' };
const HEALTH_INTERVAL = 1500;
/** In windows up to this width (pixels) the inspector has no column; with less room than BESIDE
 * for the panes they are stacked. */
const SLIM_WIDTH = 1180;
const SIDE_BY_SIDE_WIDTH = 820;
const RAIL_WIDTH = 262;
const INSPECTOR_WIDTH = 280;

export default component(STYLE, ({ model, root, watch, later, send }) => {
  const byId = (id) => document.getElementById(id);
  let data = {};
  let focused = 0;
  let hits = [];
  let selectedHit = -1;

  // -- the bar ----------------------------------------------------------------------------------
  const run = h('div', { class: 'run' });
  const job = h('div', { class: 'job', hidden: true, role: 'status' });
  const presets = h('div', { class: 'group', role: 'group', 'aria-label': 'Layouts' });
  const hitList = h('div', { role: 'listbox', id: 'found', 'aria-label': 'Search results' });
  const searchStatus = h('div', { class: 'told', role: 'status' });
  const searchPanel = h('div', { class: 'found', hidden: true }, hitList, searchStatus);
  const input = h('input', { type: 'search', maxlength: 1000, placeholder: 'search   /', 'aria-label': 'Search ops, passes, kernels', title: SYNTAX, spellcheck: 'false',
    role: 'combobox', 'aria-controls': 'found', 'aria-expanded': 'false', 'aria-autocomplete': 'list' });
  const search = h('div', { class: 'search' }, input, searchPanel);
  const compile = h('button', { click: () => send('again', {}), title: 'Compile this model again, with other options' }, 'Compile…');
  const execute = h('button', { click: () => { if (!execute.hasAttribute('aria-disabled')) send('execute', {}); } }, 'Execute');
  const theme = h('button', { class: 'plain', title: 'Light or dark', 'aria-label': 'Switch between light and dark', click: switchTheme }, '◐');
  const help = h('button', { class: 'plain', title: 'Keys  (?)', click: () => keysDialog.showModal() }, '?');
  // Other tabs of this browser are signed out too: they reload and show the sign-in page.
  const signOutLink = h('a', { class: 'person', href: './logout', hidden: true, click: () => cwKept.set('cw-left', String(Date.now())) });
  const onSignOut = (event) => { if (event.key === 'cw-left' && !signOutLink.hidden) setTimeout(() => location.reload(), 1000); };
  window.addEventListener('storage', onSignOut);
  later(() => window.removeEventListener('storage', onSignOut));
  const tour = h('button', { click: () => { keysDialog.close(); send('tour', {}); }, title: 'Walk through the views on a small sample model', 'data-do': 'tour' }, 'Take the tour');
  const keysDialog = h('dialog', {}, h('h2', {}, 'Keys'),
    h('table', {}, KEYS.map(([key, what]) => h('tr', {}, h('td', {}, key.split('  ').map((k) => [h('kbd', {}, k), ' '])), h('td', {}, what)))),
    h('p', { class: 'muted' }, 'Keys work while the focus is not in a text field.'),
    h('form', { method: 'dialog' }, h('button', {}, 'Close'), ' ', tour));
  const viewDialog = h('dialog', { 'aria-label': 'Views', keydown: chooseViewByKey });
  const toast = h('div', { class: 'toast', hidden: true, role: 'alert' });
  const home = h('button', { class: 'brand', click: () => send('home', {}), title: 'Compiler Workbench: open another model or recording', 'aria-label': 'Compiler Workbench: open another model or recording' }, 'Compiler Workbench');
  root.append(home, h('span', { class: 'sep' }), run, job, h('span', { class: 'gap' }), presets, search, compile, execute, theme, help, signOutLink, keysDialog, viewDialog, toast);

  // Unchanged parts are not rebuilt: the browser would lay out their neighbours again too.
  const drawnValues = {};
  function hasChanged(name, value) {
    const text = JSON.stringify(value);
    if (drawnValues[name] === text) return false;
    drawnValues[name] = text;
    return true;
  }

  // In a window too narrow for three columns, the inspector overlays the panes.
  const slim = matchMedia(`(max-width: ${SLIM_WIDTH}px)`);
  let isDrawerOpen = false;
  const onSlimChange = () => { isDrawerOpen = false; if (data.panes) { drawBar(); drawPanes(); } };
  slim.addEventListener('change', onSlimChange);
  later(() => slim.removeEventListener('change', onSlimChange));
  let resizeTimer = 0;
  const onResize = () => { clearTimeout(resizeTimer); resizeTimer = setTimeout(() => data.panes && drawPanes(), 60); };
  window.addEventListener('resize', onResize);
  later(() => window.removeEventListener('resize', onResize));
  const isInspectorShown = () => Boolean(data.run) && (slim.matches ? isDrawerOpen : !data.fold.includes('inspector'));
  const isRailShown = () => Boolean(data.run) && !data.fold.includes('rail');
  function toggleInspector() {
    if (!slim.matches) { send('fold', { what: 'inspector' }); return; }
    isDrawerOpen = !isDrawerOpen;
    drawPanes();
  }

  function drawBar() {
    const { run: facts } = data;
    root.classList.toggle('narrow', slim.matches);
    home.textContent = slim.matches && facts ? 'CW' : 'Compiler Workbench';
    for (const node of [presets, search]) node.hidden = !facts;
    const isPaused = Boolean(data.job?.paused); // they have no effect then, and their space is needed
    root.classList.toggle('waits', isPaused);
    run.hidden = isPaused;
    root.classList.toggle('busy', Boolean(data.job && data.user));
    signOutLink.hidden = !data.user;
    signOutLink.textContent = data.job ? data.user : `${data.user}, sign out`; // a job needs the space
    signOutLink.title = `Signed in as ${data.user}${data.viewer ? ', with read access to all runs' : ''}. Sign out`;
    for (const node of [compile, execute]) node.hidden = !facts || data.viewer || facts.fixed || facts.training || isPaused;
    home.disabled = Boolean(facts?.fixed); // a report has no other page
    tour.hidden = data.viewer || home.disabled;
    if (hasChanged('run', [facts, !data.job])) run.replaceChildren(...(facts ? [h('b', { title: facts.path }, facts.model), !data.job && h('span', { title: facts.path }, facts.detail)].filter(Boolean) : []));
    if (hasChanged('presets', [data.presets, data.panes])) presets.replaceChildren(...data.presets.map(([key, name, panes]) =>
      h('button', { title: `${name}  (${key})`, 'aria-pressed': String(panes.join() === data.panes.join()), click: () => send('preset', { key }) }, name)));
    job.hidden = !data.job;
    if (data.job?.paused) drawPaused(data.job.paused);
    else if (data.job) drawProgress(data.job);
    compile.disabled = Boolean(data.job);
    // aria-disabled, with the reason: a disabled button gets neither focus nor a tooltip.
    const disabledReason = data.job ? 'another job is running' : facts?.execute;
    execute.toggleAttribute('aria-disabled', Boolean(disabledReason));
    execute.title = disabledReason ? `Not available: ${disabledReason}` : 'Execute the program again and add its times to this recording';
    document.title = facts ? `${facts.model} – Compiler Workbench` : 'Compiler Workbench';
  }

  // A job reports progress often: its button is reused, so that it keeps the focus and the pointer.
  const progress = {
    what: h('span', { class: 'what' }), count: h('span'), part: h('div'), track: h('div'), elapsed: h('span'),
    cancel: h('button', { click: () => send('cancel', { of: data.job?.of ?? '' }), title: 'Stop; finished stages are kept' }, 'Cancel'),
  };
  progress.track.append(progress.part);
  function drawProgress({ what, done, total, elapsed }) {
    progress.what.textContent = what;
    progress.what.title = what;
    progress.count.textContent = total ? `${count(done)} of ${count(total)}` : '';
    progress.track.className = `track${total ? '' : ' wait'}`;
    progress.part.style.width = `${total ? (100 * done) / total : 35}%`;
    progress.elapsed.textContent = `${Math.round(elapsed)} s`;
    if (progress.what.parentNode !== job) job.replaceChildren(progress.what, progress.count, progress.track, progress.elapsed, data.viewer ? '' : progress.cancel);
  }

  // A step-by-step compile: the next pass, and the actions for it.
  const PAUSED_ACTIONS = [
    ['apply', 'Apply', 'a', 'Run this pass'], ['rewrite', 'Rewrite', 'e', 'Run this pass up to its next rewrite; the other rewrites follow'], ['skip', 'Skip', 'x', 'Skip this pass'], ['change', 'To change', 'A', 'Run until a pass changes something'],
    ['run', 'Run', 'r', 'Run to the next breakpoint (b sets one): before a pass, or in it right after the rewrite of a rule or an op'], ['finish', 'Finish', 'F', 'Run all remaining passes'],
  ];
  function drawPaused(paused) {
    const { next, at, total, to_come: rest, problem } = paused;
    if (!hasChanged('paused', paused) && job.querySelector('.held')) return;
    job.replaceChildren(
      h('span', { class: 'what held', title: `remaining passes: ${rest.join(', ')}` }, next.includes('+') ? 'before more of ' : 'before ', h('b', {}, next.replace(/[+].*/, '')), ` (${at} of ${total})`),
      data.viewer ? '' : h('div', { class: 'group', role: 'group', 'aria-label': 'Actions for this pass' }, PAUSED_ACTIONS.map(([act, name, key, title]) =>
        h('button', { title: `${title}  (${key})`, 'data-held': act, click: () => send('held', { do: act }) }, name))),
      data.viewer ? '' : h('button', { click: () => send('cancel', { of: '' }), title: 'Stop here; finished stages are kept' }, 'Cancel'));
    if (problem) showError(`${problem.what}: ${problem.where}`, problem.fix);
  }
  function showError(what, fix) {
    toast.className = 'toast error';
    toast.replaceChildren(h('div', {}, what), fix && h('div', { class: 'muted' }, fix), h('button', { class: 'plain', 'aria-label': 'Close', click: () => { toast.hidden = true; } }, '×'));
    toast.hidden = false;
  }

  let lastNotice = 0;
  function drawNotice() {
    const { notice } = data;
    if (!notice || notice.n === lastNotice) return;
    lastNotice = notice.n;
    toast.className = `toast${notice.error ? ' error' : ''}`;
    toast.replaceChildren(...[h('div', {}, notice.what), notice.where && h('div', { class: 'where' }, notice.where), notice.fix && h('div', { class: 'muted' }, notice.fix),
      notice.act && !data.viewer && h('button', { 'data-do': 'act', class: 'act', click: () => { toast.hidden = true; send(notice.act.name, notice.act.data); } }, notice.act.label),
      h('button', { class: 'plain', 'aria-label': 'Close', click: () => { toast.hidden = true; } }, '×')].filter(Boolean));
    toast.hidden = false;
    clearTimeout(toast.timer);
    if (!notice.error) toast.timer = setTimeout(() => { toast.hidden = true; }, notice.act ? 15000 : 4000);
  }

  // A viewer has no buttons: the text names the editor's button instead.
  const fixText = (fix) => (data.viewer ? fix?.replace(/^Press (.+?), or: /, 'An editor can press $1; as a command: ') : fix);

  // -- panes ------------------------------------------------------------------------------------
  function drawPanes() {
    const page = byId('cw');
    const panes = byId('cw-panes');
    const visiblePanes = data.zoom === null ? data.panes : [data.panes[data.zoom]];
    page.classList.toggle('no-rail', !isRailShown());
    page.classList.toggle('no-inspector', !isInspectorShown());
    page.classList.toggle('narrow', slim.matches);
    panes.classList.toggle('one', visiblePanes.length === 1);
    const panesWidth = window.innerWidth - (isRailShown() ? railWidth : 0) - (isInspectorShown() && !slim.matches ? INSPECTOR_WIDTH : 0);
    panes.classList.toggle('stack', visiblePanes.length === 2 && (panesWidth < SIDE_BY_SIDE_WIDTH || visiblePanes.some((name) => data.wide.includes(name))));
    for (const view of data.views) {
      const node = byId(`cw-view-${view.name}`);
      const position = visiblePanes.indexOf(view.name);
      node.classList.toggle('left', position === 0);
      node.classList.toggle('right', position === 1);
      const note = node.querySelector('.cw-message');
      const message = data.messages[view.name];
      note.hidden = !message;
      note.classList.toggle('error', Boolean(message?.error));
      if (message) note.replaceChildren(h('b', {}, message.what), ...[message.where, fixText(message.fix)].filter(Boolean).map((t) => h('span', {}, t)),
        ...[!data.run?.fixed && !data.viewer && ACTION_LABELS[message.do]].filter(Boolean).map((label) => h('button', { 'data-do': message.do, click: () => send(message.do, {}) }, label)));
    }
    if (hasChanged('tabs', [visiblePanes, data.panes, data.zoom, data.views, data.two, isRailShown(), isInspectorShown()])) panes.querySelectorAll('.cw-tabs').forEach((bar, side) => {
      const current = visiblePanes[side];
      bar.hidden = current === undefined;
      const index = data.panes.indexOf(current);
      const last = side === visiblePanes.length - 1 && !panes.classList.contains('stack');
      bar.replaceChildren(...(current === undefined ? [] : [
        side === 0 ? h('button', { 'data-do': 'rail', 'aria-pressed': String(isRailShown()), 'aria-label': 'Passes', title: `${isRailShown() ? 'Fold' : 'Show'} the passes  ([)`, click: () => send('fold', { what: 'rail' }) }, '◧') : null,
        h('div', { class: 'tabs', role: 'tablist', 'aria-label': side ? 'Right pane' : 'Left pane' }, ...data.views.map((view) => h('button', {
          role: 'tab', 'aria-selected': String(view.name === current), 'data-view': view.name, title: `${view.title}  (g ${view.key})`,
          click: () => { focused = index; send('pane', { index, view: view.name }); },
        }, view.title))),
        h('select', { 'aria-label': 'More views', hidden: true, change: (event) => { focused = index; send('pane', { index, view: event.target.value }); } }),
        h('span', { class: 'gap' }),
        pairControls(current),
        h('button', { title: data.zoom === null ? 'Maximise  (z)' : 'Back to two panes  (z)', 'aria-label': 'Maximise this pane',
          click: () => { focused = index; zoom(); } }, data.zoom === null ? '⤢' : '⤡'),
        data.panes.length === 2 && data.zoom === null
          ? h('button', { title: 'Close this pane', 'aria-label': 'Close this pane', click: () => send('close', { index }) }, '×')
          : data.panes.length === 1 ? h('button', { title: 'Show a second pane beside this one', click: () => send('split', {}) }, '◫') : null,
        last || (side === 0 && panes.classList.contains('stack')) ? h('button', { 'data-do': 'inspector', 'aria-pressed': String(isInspectorShown()), 'aria-label': 'Inspector', title: `${isInspectorShown() ? 'Fold' : 'Show'} the inspector  (])`, click: toggleInspector }, '◨') : null,
      ]).filter(Boolean));
      fitTabs(bar);
    });
    byId('cw-start').hidden = !data.start;
    if (data.done) finishLoading(visiblePanes);
  }

  // The controls of a view that can show two recordings: one or both, and the other recording.
  function pairControls(view) {
    const titles = data.two?.views[view];
    const { other, offered: candidates = [], on = [] } = data.two ?? {};
    if (!titles) return null; // the titles reserve the space from the start: the offers arrive later
    const both = Boolean(other) && on.includes(view);
    const describe = (each) => [each.target, each.variant, each.total_ms === null ? '' : figure(each.total_ms, 'ms'), ago(each.began)].filter(Boolean).join(', ');
    const pick = h('select', { 'aria-label': other ? 'B, the other recording' : 'Show another recording beside this one', title: other ? `B: ${other}` : 'A | B: show another recording of the model beside this one', change: () => {
      if (pick.value === '/') send('show', { view: 'compare', beside: view });
      else send('compare', { with: pick.value, view });
    } },
    h('option', { value: '' }, other ? 'stop comparing' : 'A | B …'),
    other && !candidates.some((each) => each.name === other) ? h('option', { value: other }, other.split('/').pop()) : null,
    candidates.map((each) => h('option', { value: each.name, title: each.name }, `${each.name.split('/').pop()}  (${describe(each)})`)),
    h('option', { value: '/' }, 'another recording…'));
    pick.value = other;
    return h('span', { class: 'two', role: 'group', 'aria-label': 'One recording or two' },
      other ? titles.map((title, i) => h('button', { 'data-two': ['one', 'both'][i], 'aria-pressed': String(both === Boolean(i)), title: i ? `Show both recordings; B: ${other}` : 'Show only this recording',
        click: () => send('two', { view, on: Boolean(i) }) }, title)) : null, pick);
  }

  // Tabs that do not fit move to a list behind the others; none is cut off.
  function fitTabs(bar) {
    const tabs = [...bar.querySelectorAll('[role=tab]')];
    const more = bar.querySelector('select');
    if (!more || !bar.clientWidth) return;
    tabs.forEach((tab) => { tab.hidden = false; });
    more.hidden = true;
    if (bar.scrollWidth <= bar.clientWidth) return;
    more.hidden = false;
    more.replaceChildren(h('option', { value: '', disabled: true, selected: true }, 'more'));
    const moreOptions = [];
    for (const tab of tabs.filter((each) => each.getAttribute('aria-selected') !== 'true').reverse()) {
      if (bar.scrollWidth <= bar.clientWidth) break;
      tab.hidden = true;
      moreOptions.unshift(h('option', { value: tab.dataset.view }, tab.textContent));
    }
    more.append(...moreOptions);
  }
  const tabObserver = new ResizeObserver((entries) => entries.forEach((entry) => fitTabs(entry.target)));
  document.querySelectorAll('#cw-panes .cw-tabs').forEach((bar) => tabObserver.observe(bar));
  later(() => tabObserver.disconnect());

  // The note is removed once the views below it are drawn; then the other views' modules are fetched.
  const drawnViews = new Set();
  let pendingViews = null;
  function finishLoading(views = pendingViews) {
    const note = byId('cw-loading');
    if (!note || !views) return;
    pendingViews = views;
    const hidden = (name) => data.messages[name] || data.start;
    if (!views.every((name) => drawnViews.has(name) || hidden(name))) return;
    note.remove();
    setTimeout(() => window.cwModules.forEach((name) => window.cwModule(name).catch(() => {})), 800);
  }
  const onViewDrawn = (event) => { drawnViews.add(event.detail); finishLoading(); };
  document.addEventListener('cw-drawn', onViewDrawn);
  later(() => document.removeEventListener('cw-drawn', onViewDrawn));
  const zoom = () => send('zoom', { index: data.zoom === null ? focused : null });

  // -- choosing a view by its letter ------------------------------------------------------------
  const activePane = () => (data.zoom !== null ? data.zoom : focused < data.panes.length ? focused : 0);
  function showInActivePane(view) {
    viewDialog.close();
    focused = activePane();
    send('pane', { index: focused, view });
  }
  function openViewDialog() {
    const currentView = data.panes[activePane()];
    const side = data.panes.length < 2 || data.zoom !== null ? '' : activePane() ? ' in the right pane' : ' in the left pane';
    viewDialog.replaceChildren(h('h2', {}, `Show${side}`), h('div', { class: 'views' }, data.views.map(({ name, title, key }) =>
      h('button', { 'data-view': name, 'aria-keyshortcuts': key, 'aria-pressed': String(name === currentView), click: () => showInActivePane(name) }, h('kbd', {}, key), title))));
    viewDialog.showModal();
    viewDialog.querySelector(`[data-view="${currentView}"]`)?.focus();
  }
  function chooseViewByKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const list = [...viewDialog.querySelectorAll('button')];
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 3, ArrowUp: -3 }[event.key];
    const view = data.views.find(({ key }) => key === event.key);
    if (step) list[list.indexOf(viewDialog.getRootNode().activeElement) + step]?.focus();
    else if (view) showInActivePane(view.name);
    else return;
    event.preventDefault();
  }

  // The user can resize the rail.
  const railEdge = byId('cw-rail-edge');
  let railWidth = RAIL_WIDTH;
  function setRailWidth(width) {
    railWidth = Math.round(Math.min(Math.max(width, 160), Math.min(640, window.innerWidth / 2)));
    byId('cw').style.setProperty('--rail', `${railWidth}px`);
    railEdge.setAttribute('aria-valuenow', String(railWidth));
    cwKept.set('cw-rail', String(railWidth));
  }
  const storedWidth = Number(cwKept.get('cw-rail'));
  if (storedWidth) setRailWidth(storedWidth);
  railEdge.addEventListener('pointerdown', (event) => {
    railEdge.setPointerCapture(event.pointerId);
    const move = (e) => setRailWidth(e.clientX);
    railEdge.addEventListener('pointermove', move);
    railEdge.addEventListener('pointerup', () => { railEdge.removeEventListener('pointermove', move); onResize(); }, { once: true });
  });
  railEdge.addEventListener('dblclick', () => setRailWidth(RAIL_WIDTH));
  railEdge.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -16, ArrowRight: 16 }[event.key];
    if (step) setRailWidth(railWidth + step);
  });

  const splitter = byId('cw-split');
  const isStacked = () => byId('cw-panes').classList.contains('stack');
  const setSplit = (percent, rows = isStacked()) => {
    const value = Math.min(85, Math.max(15, percent));
    byId('cw').style.setProperty(rows ? '--stacked' : '--split', rows ? `calc((100% - 60px) * ${value / 100})` : `${value}%`);
    if (rows) byId('cw').style.setProperty('--at', String(value / 100));
    if (rows === isStacked()) splitter.setAttribute('aria-valuenow', String(Math.round(value)));
    cwKept.set(rows ? 'cw-stacked' : 'cw-split', String(value));
  };
  setSplit(Number(cwKept.get('cw-split') || 50), false);
  setSplit(Number(cwKept.get('cw-stacked') || 42), true);
  splitter.addEventListener('pointerdown', (event) => {
    splitter.setPointerCapture(event.pointerId);
    const box = byId('cw-panes').getBoundingClientRect();
    const move = (e) => setSplit(isStacked() ? (100 * (e.clientY - box.top - 30)) / (box.height - 60) : (100 * (e.clientX - box.left)) / box.width);
    splitter.addEventListener('pointermove', move);
    splitter.addEventListener('pointerup', () => splitter.removeEventListener('pointermove', move), { once: true });
  });
  splitter.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -3, ArrowRight: 3, ArrowUp: -3, ArrowDown: 3 }[event.key];
    if (step) setSplit(Number(cwKept.get(isStacked() ? 'cw-stacked' : 'cw-split')) + step);
  });

  // -- theme ------------------------------------------------------------------------------------
  function switchTheme() {
    const next = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    document.documentElement.dataset.theme = next;
    cwKept.set('cw-theme', next);
  }

  // -- search -----------------------------------------------------------------------------------
  let searchTimer = 0;
  let searchNumber = 0;
  let answeredQuery = '';
  let result = { hits: [], total: 0, ops: 0 };
  let opensFirstHit = false; // Enter came before the answer: its first hit is opened when it arrives
  input.addEventListener('input', () => {
    clearTimeout(searchTimer);
    opensFirstHit = false;
    searchTimer = setTimeout(requestSearch, 120);
  });
  function requestSearch() {
    clearTimeout(searchTimer);
    searchNumber += 1;
    send('search', { text: input.value.trim(), asking: searchNumber });
  }
  input.addEventListener('keydown', (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move && hits.length) {
      selectedHit = (selectedHit + move + hits.length) % hits.length;
      drawHits();
    } else if (event.key === 'Enter' && input.value.trim() !== answeredQuery) {
      opensFirstHit = true;
      requestSearch();
    } else if (event.key === 'Enter' && hits.length) choose(hits[Math.max(0, selectedHit)]);
    else if (event.key === 'Escape') closeSearch(true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  input.addEventListener('blur', () => { opensFirstHit = false; input.setAttribute('aria-expanded', 'false'); setTimeout(() => { searchPanel.hidden = true; }, 150); });
  input.addEventListener('focus', () => drawHits());
  function closeSearch(clear) {
    searchPanel.hidden = true;
    if (clear) [input.value, answeredQuery, hits, result] = ['', '', [], { hits: [], total: 0, ops: 0 }];
    input.blur();
  }
  function choose(hit) {
    closeSearch(true);
    send('follow', { go: hit.go });
  }
  function drawHits() {
    const isOpen = Boolean(input.value.trim()) && document.activeElement !== null;
    searchPanel.hidden = !isOpen;
    input.setAttribute('aria-expanded', String(isOpen));
    input.setAttribute('aria-activedescendant', isOpen && selectedHit >= 0 ? `hit-${selectedHit}` : '');
    hitList.replaceChildren(...hits.map((hit, i) => h('div', { class: `hit${i === selectedHit ? ' on' : ''}${hit.what ? '' : ' more'}`, role: 'option', id: `hit-${i}`, 'aria-selected': String(i === selectedHit), mousedown: (e) => { e.preventDefault(); choose(hit); } },
      h('span', { class: 'what' }, hit.what), h('span', { class: 'text', title: hit.text }, hit.text), hit.detail && h('span', { class: 'detail' }, hit.detail))));
    hitList.hidden = !hits.length;
    hitList.querySelector('.on')?.scrollIntoView({ block: 'nearest' });
    const { problem, total, hits: resultHits } = result;
    searchStatus.hidden = !problem && total <= resultHits.length && resultHits.length > 0;
    searchStatus.textContent = problem ? `${problem.what}. ${problem.fix ?? ''}` : resultHits.length ? `${count(resultHits.length)} of ${count(total)}` : 'nothing found in this stage';
  }
  watch('detail', () => {
    const next = json(model, 'detail');
    if (next?.asking !== searchNumber) return;
    result = { total: next.hits.length, ops: 0, ...next };
    hits = result.hits;
    // Hits that do not fit here: the graph runs the same query and marks all of them.
    const remaining = result.ops - hits.filter((hit) => hit.what === 'op').length;
    if (remaining > 0) hits = [...hits, { what: '', text: `${count(remaining)} more: all ${count(result.ops)} ops in the graph`, go: { open: 'graph', state: { graph: { query: result.text } } } }];
    answeredQuery = result.text;
    selectedHit = hits.length ? 0 : -1;
    if (opensFirstHit && hits.length) choose(hits[0]);
    else drawHits();
    opensFirstHit = false;
  });

  // -- keys -------------------------------------------------------------------------------------
  const STEPS = { j: ['changed', 1], k: ['changed', -1], J: ['rewrite', 1], K: ['rewrite', -1], n: ['failing', 1], r: ['stop', 1], R: ['stop', -1], h: ['op', 1], H: ['op', -1] };
  const isEditing = (event) => {
    const target = event.composedPath()[0];
    return target instanceof HTMLElement && (target.isContentEditable || ['INPUT', 'SELECT', 'TEXTAREA'].includes(target.tagName));
  };
  function onKey(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isEditing(event) || keysDialog.open || viewDialog.open) return;
    if (!data.run || data.start) return;
    const pane = event.composedPath().find((node) => node.classList?.contains('cw-view'));
    if (pane) focused = Math.max(0, data.panes.indexOf(pane.id.replace('cw-view-', '')));
    const { key } = event;
    const pausedAction = !data.viewer && data.job?.paused && PAUSED_ACTIONS.find(([, , name]) => name === key);
    if (pausedAction) send('held', { do: pausedAction[0] });
    else if (STEPS[key]) send('step', { what: STEPS[key][0], by: STEPS[key][1] });
    else if (data.presets.some(([k]) => k === key)) send('preset', { key });
    else if (key === 'b') send('stop', { what: 'here' });
    else if (key === 'B') send('stop', { what: 'op' });
    else if (key === 'g') openViewDialog();
    else if (key === 'z') zoom();
    else if (key === '/') input.focus();
    else if (key === '?') keysDialog.showModal();
    else if (key === '[') send('fold', { what: 'rail' });
    else if (key === ']') toggleInspector();
    else if (key === 'Escape') send('select', {});
    else return;
    event.preventDefault();
  }
  document.addEventListener('keydown', onKey);
  later(() => document.removeEventListener('keydown', onKey));
  document.addEventListener('pointerdown', (event) => {
    const pane = event.composedPath().find((node) => node.classList?.contains('cw-view'));
    if (pane && data.panes) focused = Math.max(0, data.panes.indexOf(pane.id.replace('cw-view-', '')));
  });

  // -- the tour ---------------------------------------------------------------------------------
  let isTourLoaded = false;
  function drawTour() {
    if (!data.tour && !isTourLoaded) return;
    isTourLoaded = true;
    window.cwModule('tour').then((module) => module.default.take(data.tour, (query) => send('url', { query })));
  }

  // -- the URL ----------------------------------------------------------------------------------
  function drawURL() {
    const query = data.query ? `?${data.query}` : '';
    if (location.search === query || (location.search === '' && query === '')) return;
    if (data.push) history.pushState(null, '', location.pathname + query);
    else history.replaceState(null, '', location.pathname + query);
  }
  const onPop = () => send('url', { query: location.search.slice(1) });
  window.addEventListener('popstate', onPop);
  later(() => window.removeEventListener('popstate', onPop));

  // -- the server -------------------------------------------------------------------------------
  // When the connection is lost, the page waits for the server and reloads: the URL holds the state.
  let isConnectionLost = false;
  const onConnectionLost = () => {
    if (isConnectionLost) return;
    isConnectionLost = true;
    const box = byId('cw-lost');
    box.textContent = 'The workbench server is not responding. Start it again; this page reconnects by itself.';
    box.hidden = false;
    const pollServer = async () => {
      try {
        const response = await fetch('health', { cache: 'no-store' });
        if (response.ok) {
          location.reload();
          return;
        }
      } catch { /* still away */ }
      setTimeout(pollServer, HEALTH_INTERVAL);
    };
    setTimeout(pollServer, 300);
  };
  const documents = globalThis.Bokeh?.documents ?? [];
  for (const each of documents) {
    each.on_event?.('connection_lost', onConnectionLost);
  }

  // The server sends derived data only after a browser reports that it is ready.
  model.set('command', JSON.stringify({ name: 'ready', n: Date.now() }));
  model.save_changes();

  watch('data', () => {
    const next = json(model, 'data');
    if (!next) return;
    data = next;
    drawBar();
    drawPanes();
    drawURL();
    drawNotice();
    drawTour();
    if (data.done) byId('cw-busy').classList.remove('on');
  });
});
