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
const DO = { again: 'Compile…', execute: 'Execute' };
const HEALTH = 1500;
/** In windows up to this width (pixels) the inspector has no column; with less room than BESIDE
 * for the panes they are stacked. */
const SLIM = 1180;
const BESIDE = 820;
const RAIL = 262;
const INSPECTOR = 280;

export default component(STYLE, ({ model, root, watch, later, send }) => {
  const by = (id) => document.getElementById(id);
  let data = {};
  let focused = 0;
  let hits = [];
  let at = -1;

  // -- the bar ----------------------------------------------------------------------------------
  const run = h('div', { class: 'run' });
  const job = h('div', { class: 'job', hidden: true, role: 'status' });
  const presets = h('div', { class: 'group', role: 'group', 'aria-label': 'Layouts' });
  const listed = h('div', { role: 'listbox', id: 'found', 'aria-label': 'Search results' });
  const told = h('div', { class: 'told', role: 'status' });
  const found = h('div', { class: 'found', hidden: true }, listed, told);
  const input = h('input', { type: 'search', maxlength: 1000, placeholder: 'search   /', 'aria-label': 'Search ops, passes, kernels', title: SYNTAX, spellcheck: 'false',
    role: 'combobox', 'aria-controls': 'found', 'aria-expanded': 'false', 'aria-autocomplete': 'list' });
  const search = h('div', { class: 'search' }, input, found);
  const compile = h('button', { click: () => send('again', {}), title: 'Compile this model again, with other options' }, 'Compile…');
  const execute = h('button', { click: () => { if (!execute.hasAttribute('aria-disabled')) send('execute', {}); } }, 'Execute');
  const theme = h('button', { class: 'plain', title: 'Light or dark', 'aria-label': 'Switch between light and dark', click: switchTheme }, '◐');
  const help = h('button', { class: 'plain', title: 'Keys  (?)', click: () => keys.showModal() }, '?');
  // Other tabs of this browser are signed out too: they reload and show the sign-in page.
  const person = h('a', { class: 'person', href: './logout', hidden: true, click: () => cwKept.set('cw-left', String(Date.now())) });
  const onLeft = (event) => { if (event.key === 'cw-left' && !person.hidden) setTimeout(() => location.reload(), 1000); };
  window.addEventListener('storage', onLeft);
  later(() => window.removeEventListener('storage', onLeft));
  const tour = h('button', { click: () => { keys.close(); send('tour', {}); }, title: 'Walk through the views on a small sample model', 'data-do': 'tour' }, 'Take the tour');
  const keys = h('dialog', {}, h('h2', {}, 'Keys'),
    h('table', {}, KEYS.map(([key, what]) => h('tr', {}, h('td', {}, key.split('  ').map((k) => [h('kbd', {}, k), ' '])), h('td', {}, what)))),
    h('p', { class: 'muted' }, 'Keys work while the focus is not in a text field.'),
    h('form', { method: 'dialog' }, h('button', {}, 'Close'), ' ', tour));
  const views = h('dialog', { 'aria-label': 'Views', keydown: chooseByKey });
  const toast = h('div', { class: 'toast', hidden: true, role: 'alert' });
  const home = h('button', { class: 'brand', click: () => send('home', {}), title: 'Compiler Workbench: open another model or recording', 'aria-label': 'Compiler Workbench: open another model or recording' }, 'Compiler Workbench');
  root.append(home, h('span', { class: 'sep' }), run, job, h('span', { class: 'gap' }), presets, search, compile, execute, theme, help, person, keys, views, toast);

  // Unchanged parts are not rebuilt: the browser would lay out their neighbours again too.
  const known = {};
  function isNew(name, value) {
    const text = JSON.stringify(value);
    if (known[name] === text) return false;
    known[name] = text;
    return true;
  }

  // In a window too narrow for three columns, the inspector overlays the panes.
  const slim = matchMedia(`(max-width: ${SLIM}px)`);
  let drawer = false;
  const onSlim = () => { drawer = false; if (data.panes) { drawBar(); drawPanes(); } };
  slim.addEventListener('change', onSlim);
  later(() => slim.removeEventListener('change', onSlim));
  let sized = 0;
  const onSize = () => { clearTimeout(sized); sized = setTimeout(() => data.panes && drawPanes(), 60); };
  window.addEventListener('resize', onSize);
  later(() => window.removeEventListener('resize', onSize));
  const inspects = () => Boolean(data.run) && (slim.matches ? drawer : !data.fold.includes('inspector'));
  const lists = () => Boolean(data.run) && !data.fold.includes('rail');
  function toggleInspector() {
    if (!slim.matches) { send('fold', { what: 'inspector' }); return; }
    drawer = !drawer;
    drawPanes();
  }

  function drawBar() {
    const { run: facts } = data;
    root.classList.toggle('narrow', slim.matches);
    home.textContent = slim.matches && facts ? 'CW' : 'Compiler Workbench';
    for (const node of [presets, search]) node.hidden = !facts;
    const waits = Boolean(data.job?.paused); // they have no effect then, and their space is needed
    root.classList.toggle('waits', waits);
    run.hidden = waits;
    root.classList.toggle('busy', Boolean(data.job && data.user));
    person.hidden = !data.user;
    person.textContent = data.job ? data.user : `${data.user}, sign out`; // a job needs the space
    person.title = `Signed in as ${data.user}${data.viewer ? ', with read access to all runs' : ''}. Sign out`;
    for (const node of [compile, execute]) node.hidden = !facts || data.viewer || facts.fixed || facts.training || waits;
    home.disabled = Boolean(facts?.fixed); // a report has no other page
    tour.hidden = data.viewer || home.disabled;
    if (isNew('run', [facts, !data.job])) run.replaceChildren(...(facts ? [h('b', { title: facts.path }, facts.model), !data.job && h('span', { title: facts.path }, facts.detail)].filter(Boolean) : []));
    if (isNew('presets', [data.presets, data.panes])) presets.replaceChildren(...data.presets.map(([key, name, panes]) =>
      h('button', { title: `${name}  (${key})`, 'aria-pressed': String(panes.join() === data.panes.join()), click: () => send('preset', { key }) }, name)));
    job.hidden = !data.job;
    if (data.job?.paused) drawPaused(data.job.paused);
    else if (data.job) drawGoing(data.job);
    compile.disabled = Boolean(data.job);
    // aria-disabled, with the reason: a disabled button gets neither focus nor a tooltip.
    const off = data.job ? 'another job is running' : facts?.execute;
    execute.toggleAttribute('aria-disabled', Boolean(off));
    execute.title = off ? `Not available: ${off}` : 'Execute the program again and add its times to this recording';
    document.title = facts ? `${facts.model} – Compiler Workbench` : 'Compiler Workbench';
  }

  // A job reports progress often: its button is reused, so that it keeps the focus and the pointer.
  const going = {
    what: h('span', { class: 'what' }), count: h('span'), part: h('div'), track: h('div'), elapsed: h('span'),
    cancel: h('button', { click: () => send('cancel', { of: data.job?.of ?? '' }), title: 'Stop; finished stages are kept' }, 'Cancel'),
  };
  going.track.append(going.part);
  function drawGoing({ what, done, total, elapsed }) {
    going.what.textContent = what;
    going.what.title = what;
    going.count.textContent = total ? `${count(done)} of ${count(total)}` : '';
    going.track.className = `track${total ? '' : ' wait'}`;
    going.part.style.width = `${total ? (100 * done) / total : 35}%`;
    going.elapsed.textContent = `${Math.round(elapsed)} s`;
    if (going.what.parentNode !== job) job.replaceChildren(going.what, going.count, going.track, going.elapsed, data.viewer ? '' : going.cancel);
  }

  // A step-by-step compile: the next pass, and the actions for it.
  const HELD = [
    ['apply', 'Apply', 'a', 'Run this pass'], ['rewrite', 'Rewrite', 'e', 'Run this pass up to its next rewrite; the other rewrites follow'], ['skip', 'Skip', 'x', 'Skip this pass'], ['change', 'To change', 'A', 'Run until a pass changes something'],
    ['run', 'Run', 'r', 'Run to the next breakpoint (b sets one): before a pass, or in it right after the rewrite of a rule or an op'], ['finish', 'Finish', 'F', 'Run all remaining passes'],
  ];
  function drawPaused(paused) {
    const { next, at, total, to_come: rest, problem } = paused;
    if (!isNew('paused', paused) && job.querySelector('.held')) return;
    job.replaceChildren(
      h('span', { class: 'what held', title: `remaining passes: ${rest.join(', ')}` }, next.includes('+') ? 'before more of ' : 'before ', h('b', {}, next.replace(/[+].*/, '')), ` (${at} of ${total})`),
      data.viewer ? '' : h('div', { class: 'group', role: 'group', 'aria-label': 'Actions for this pass' }, HELD.map(([act, name, key, title]) =>
        h('button', { title: `${title}  (${key})`, 'data-held': act, click: () => send('held', { do: act }) }, name))),
      data.viewer ? '' : h('button', { click: () => send('cancel', { of: '' }), title: 'Stop here; finished stages are kept' }, 'Cancel'));
    if (problem) say(`${problem.what}: ${problem.where}`, problem.fix);
  }
  function say(what, fix) {
    toast.className = 'toast error';
    toast.replaceChildren(h('div', {}, what), fix && h('div', { class: 'muted' }, fix), h('button', { class: 'plain', 'aria-label': 'Close', click: () => { toast.hidden = true; } }, '×'));
    toast.hidden = false;
  }

  let shownNotice = 0;
  function drawNotice() {
    const { notice } = data;
    if (!notice || notice.n === shownNotice) return;
    shownNotice = notice.n;
    toast.className = `toast${notice.error ? ' error' : ''}`;
    toast.replaceChildren(...[h('div', {}, notice.what), notice.where && h('div', { class: 'where' }, notice.where), notice.fix && h('div', { class: 'muted' }, notice.fix),
      notice.act && !data.viewer && h('button', { 'data-do': 'act', class: 'act', click: () => { toast.hidden = true; send(notice.act.name, notice.act.data); } }, notice.act.label),
      h('button', { class: 'plain', 'aria-label': 'Close', click: () => { toast.hidden = true; } }, '×')].filter(Boolean));
    toast.hidden = false;
    clearTimeout(toast.timer);
    if (!notice.error) toast.timer = setTimeout(() => { toast.hidden = true; }, notice.act ? 15000 : 4000);
  }

  // A viewer has no buttons: the text names the editor's button instead.
  const asTold = (fix) => (data.viewer ? fix?.replace(/^Press (.+?), or: /, 'An editor can press $1; as a command: ') : fix);

  // -- panes ------------------------------------------------------------------------------------
  function drawPanes() {
    const page = by('cw');
    const panes = by('cw-panes');
    const shown = data.zoom === null ? data.panes : [data.panes[data.zoom]];
    page.classList.toggle('no-rail', !lists());
    page.classList.toggle('no-inspector', !inspects());
    page.classList.toggle('narrow', slim.matches);
    panes.classList.toggle('one', shown.length === 1);
    const free = window.innerWidth - (lists() ? railWidth : 0) - (inspects() && !slim.matches ? INSPECTOR : 0);
    panes.classList.toggle('stack', shown.length === 2 && (free < BESIDE || shown.some((name) => data.wide.includes(name))));
    for (const view of data.views) {
      const node = by(`cw-view-${view.name}`);
      const place = shown.indexOf(view.name);
      node.classList.toggle('left', place === 0);
      node.classList.toggle('right', place === 1);
      const note = node.querySelector('.cw-message');
      const message = data.messages[view.name];
      note.hidden = !message;
      note.classList.toggle('error', Boolean(message?.error));
      if (message) note.replaceChildren(h('b', {}, message.what), ...[message.where, asTold(message.fix)].filter(Boolean).map((t) => h('span', {}, t)),
        ...[!data.run?.fixed && !data.viewer && DO[message.do]].filter(Boolean).map((label) => h('button', { 'data-do': message.do, click: () => send(message.do, {}) }, label)));
    }
    if (isNew('tabs', [shown, data.panes, data.zoom, data.views, data.two, lists(), inspects()])) panes.querySelectorAll('.cw-tabs').forEach((bar, side) => {
      const current = shown[side];
      bar.hidden = current === undefined;
      const index = data.panes.indexOf(current);
      const last = side === shown.length - 1 && !panes.classList.contains('stack');
      bar.replaceChildren(...(current === undefined ? [] : [
        side === 0 ? h('button', { 'data-do': 'rail', 'aria-pressed': String(lists()), 'aria-label': 'Passes', title: `${lists() ? 'Fold' : 'Show'} the passes  ([)`, click: () => send('fold', { what: 'rail' }) }, '◧') : null,
        h('div', { class: 'tabs', role: 'tablist', 'aria-label': side ? 'Right pane' : 'Left pane' }, ...data.views.map((view) => h('button', {
          role: 'tab', 'aria-selected': String(view.name === current), 'data-view': view.name, title: `${view.title}  (g ${view.key})`,
          click: () => { focused = index; send('pane', { index, view: view.name }); },
        }, view.title))),
        h('select', { 'aria-label': 'More views', hidden: true, change: (event) => { focused = index; send('pane', { index, view: event.target.value }); } }),
        h('span', { class: 'gap' }),
        twoOf(current),
        h('button', { title: data.zoom === null ? 'Maximise  (z)' : 'Back to two panes  (z)', 'aria-label': 'Maximise this pane',
          click: () => { focused = index; zoom(); } }, data.zoom === null ? '⤢' : '⤡'),
        data.panes.length === 2 && data.zoom === null
          ? h('button', { title: 'Close this pane', 'aria-label': 'Close this pane', click: () => send('close', { index }) }, '×')
          : data.panes.length === 1 ? h('button', { title: 'Show a second pane beside this one', click: () => send('split', {}) }, '◫') : null,
        last || (side === 0 && panes.classList.contains('stack')) ? h('button', { 'data-do': 'inspector', 'aria-pressed': String(inspects()), 'aria-label': 'Inspector', title: `${inspects() ? 'Fold' : 'Show'} the inspector  (])`, click: toggleInspector }, '◨') : null,
      ]).filter(Boolean));
      fit(bar);
    });
    by('cw-start').hidden = !data.start;
    if (data.done) opened(shown);
  }

  // The controls of a view that can show two recordings: one or both, and the other recording.
  function twoOf(view) {
    const titles = data.two?.views[view];
    const { other, offered = [], on = [] } = data.two ?? {};
    if (!titles) return null; // the titles reserve the space from the start: the offers arrive later
    const both = Boolean(other) && on.includes(view);
    const named = (each) => [each.target, each.variant, each.total_ms === null ? '' : figure(each.total_ms, 'ms'), ago(each.began)].filter(Boolean).join(', ');
    const pick = h('select', { 'aria-label': other ? 'B, the other recording' : 'Show another recording beside this one', title: other ? `B: ${other}` : 'A | B: show another recording of the model beside this one', change: () => {
      if (pick.value === '/') send('show', { view: 'compare', beside: view });
      else send('compare', { with: pick.value, view });
    } },
    h('option', { value: '' }, other ? 'stop comparing' : 'A | B …'),
    other && !offered.some((each) => each.name === other) ? h('option', { value: other }, other.split('/').pop()) : null,
    offered.map((each) => h('option', { value: each.name, title: each.name }, `${each.name.split('/').pop()}  (${named(each)})`)),
    h('option', { value: '/' }, 'another recording…'));
    pick.value = other;
    return h('span', { class: 'two', role: 'group', 'aria-label': 'One recording or two' },
      other ? titles.map((title, i) => h('button', { 'data-two': ['one', 'both'][i], 'aria-pressed': String(both === Boolean(i)), title: i ? `Show both recordings; B: ${other}` : 'Show only this recording',
        click: () => send('two', { view, on: Boolean(i) }) }, title)) : null, pick);
  }

  // Tabs that do not fit move to a list behind the others; none is cut off.
  function fit(bar) {
    const tabs = [...bar.querySelectorAll('[role=tab]')];
    const more = bar.querySelector('select');
    if (!more || !bar.clientWidth) return;
    tabs.forEach((tab) => { tab.hidden = false; });
    more.hidden = true;
    if (bar.scrollWidth <= bar.clientWidth) return;
    more.hidden = false;
    more.replaceChildren(h('option', { value: '', disabled: true, selected: true }, 'more'));
    const put = [];
    for (const tab of tabs.filter((each) => each.getAttribute('aria-selected') !== 'true').reverse()) {
      if (bar.scrollWidth <= bar.clientWidth) break;
      tab.hidden = true;
      put.unshift(h('option', { value: tab.dataset.view }, tab.textContent));
    }
    more.append(...put);
  }
  const fits = new ResizeObserver((entries) => entries.forEach((entry) => fit(entry.target)));
  document.querySelectorAll('#cw-panes .cw-tabs').forEach((bar) => fits.observe(bar));
  later(() => fits.disconnect());

  // The note is removed once the views below it are drawn; then the other views' modules are fetched.
  const drawn = new Set();
  let wanted = null;
  function opened(views = wanted) {
    const note = by('cw-loading');
    if (!note || !views) return;
    wanted = views;
    const hidden = (name) => data.messages[name] || data.start;
    if (!views.every((name) => drawn.has(name) || hidden(name))) return;
    note.remove();
    setTimeout(() => window.cwModules.forEach((name) => window.cwModule(name).catch(() => {})), 800);
  }
  const onDrawn = (event) => { drawn.add(event.detail); opened(); };
  document.addEventListener('cw-drawn', onDrawn);
  later(() => document.removeEventListener('cw-drawn', onDrawn));
  const zoom = () => send('zoom', { index: data.zoom === null ? focused : null });

  // -- choosing a view by its letter ------------------------------------------------------------
  const here = () => (data.zoom !== null ? data.zoom : focused < data.panes.length ? focused : 0);
  function showIn(view) {
    views.close();
    focused = here();
    send('pane', { index: focused, view });
  }
  function openViews() {
    const now = data.panes[here()];
    const side = data.panes.length < 2 || data.zoom !== null ? '' : here() ? ' in the right pane' : ' in the left pane';
    views.replaceChildren(h('h2', {}, `Show${side}`), h('div', { class: 'views' }, data.views.map(({ name, title, key }) =>
      h('button', { 'data-view': name, 'aria-keyshortcuts': key, 'aria-pressed': String(name === now), click: () => showIn(name) }, h('kbd', {}, key), title))));
    views.showModal();
    views.querySelector(`[data-view="${now}"]`)?.focus();
  }
  function chooseByKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const list = [...views.querySelectorAll('button')];
    const by_ = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 3, ArrowUp: -3 }[event.key];
    const view = data.views.find(({ key }) => key === event.key);
    if (by_) list[list.indexOf(views.getRootNode().activeElement) + by_]?.focus();
    else if (view) showIn(view.name);
    else return;
    event.preventDefault();
  }

  // The user can resize the rail.
  const edge = by('cw-rail-edge');
  let railWidth = RAIL;
  function setRail(width) {
    railWidth = Math.round(Math.min(Math.max(width, 160), Math.min(640, window.innerWidth / 2)));
    by('cw').style.setProperty('--rail', `${railWidth}px`);
    edge.setAttribute('aria-valuenow', String(railWidth));
    cwKept.set('cw-rail', String(railWidth));
  }
  const kept = Number(cwKept.get('cw-rail'));
  if (kept) setRail(kept);
  edge.addEventListener('pointerdown', (event) => {
    edge.setPointerCapture(event.pointerId);
    const move = (e) => setRail(e.clientX);
    edge.addEventListener('pointermove', move);
    edge.addEventListener('pointerup', () => { edge.removeEventListener('pointermove', move); onSize(); }, { once: true });
  });
  edge.addEventListener('dblclick', () => setRail(RAIL));
  edge.addEventListener('keydown', (event) => {
    const by_ = { ArrowLeft: -16, ArrowRight: 16 }[event.key];
    if (by_) setRail(railWidth + by_);
  });

  const split = by('cw-split');
  const stacked = () => by('cw-panes').classList.contains('stack');
  const setSplit = (percent, rows = stacked()) => {
    const value = Math.min(85, Math.max(15, percent));
    by('cw').style.setProperty(rows ? '--stacked' : '--split', rows ? `calc((100% - 60px) * ${value / 100})` : `${value}%`);
    if (rows) by('cw').style.setProperty('--at', String(value / 100));
    if (rows === stacked()) split.setAttribute('aria-valuenow', String(Math.round(value)));
    cwKept.set(rows ? 'cw-stacked' : 'cw-split', String(value));
  };
  setSplit(Number(cwKept.get('cw-split') || 50), false);
  setSplit(Number(cwKept.get('cw-stacked') || 42), true);
  split.addEventListener('pointerdown', (event) => {
    split.setPointerCapture(event.pointerId);
    const box = by('cw-panes').getBoundingClientRect();
    const move = (e) => setSplit(stacked() ? (100 * (e.clientY - box.top - 30)) / (box.height - 60) : (100 * (e.clientX - box.left)) / box.width);
    split.addEventListener('pointermove', move);
    split.addEventListener('pointerup', () => split.removeEventListener('pointermove', move), { once: true });
  });
  split.addEventListener('keydown', (event) => {
    const by_ = { ArrowLeft: -3, ArrowRight: 3, ArrowUp: -3, ArrowDown: 3 }[event.key];
    if (by_) setSplit(Number(cwKept.get(stacked() ? 'cw-stacked' : 'cw-split')) + by_);
  });

  // -- theme ------------------------------------------------------------------------------------
  function switchTheme() {
    const next = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    document.documentElement.dataset.theme = next;
    cwKept.set('cw-theme', next);
  }

  // -- search -----------------------------------------------------------------------------------
  let searchTimer = 0;
  let asked = 0;
  let answered = '';
  let result = { hits: [], total: 0, ops: 0 };
  let entered = false; // Enter came before the answer: its first hit is opened when it arrives
  input.addEventListener('input', () => {
    clearTimeout(searchTimer);
    entered = false;
    searchTimer = setTimeout(ask, 120);
  });
  function ask() {
    clearTimeout(searchTimer);
    asked += 1;
    send('search', { text: input.value.trim(), asking: asked });
  }
  input.addEventListener('keydown', (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move && hits.length) {
      at = (at + move + hits.length) % hits.length;
      drawHits();
    } else if (event.key === 'Enter' && input.value.trim() !== answered) {
      entered = true;
      ask();
    } else if (event.key === 'Enter' && hits.length) choose(hits[Math.max(0, at)]);
    else if (event.key === 'Escape') closeSearch(true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  input.addEventListener('blur', () => { entered = false; input.setAttribute('aria-expanded', 'false'); setTimeout(() => { found.hidden = true; }, 150); });
  input.addEventListener('focus', () => drawHits());
  function closeSearch(clear) {
    found.hidden = true;
    if (clear) [input.value, answered, hits, result] = ['', '', [], { hits: [], total: 0, ops: 0 }];
    input.blur();
  }
  function choose(hit) {
    closeSearch(true);
    send('follow', { go: hit.go });
  }
  function drawHits() {
    const open = Boolean(input.value.trim()) && document.activeElement !== null;
    found.hidden = !open;
    input.setAttribute('aria-expanded', String(open));
    input.setAttribute('aria-activedescendant', open && at >= 0 ? `hit-${at}` : '');
    listed.replaceChildren(...hits.map((hit, i) => h('div', { class: `hit${i === at ? ' on' : ''}${hit.what ? '' : ' more'}`, role: 'option', id: `hit-${i}`, 'aria-selected': String(i === at), mousedown: (e) => { e.preventDefault(); choose(hit); } },
      h('span', { class: 'what' }, hit.what), h('span', { class: 'text', title: hit.text }, hit.text), hit.detail && h('span', { class: 'detail' }, hit.detail))));
    listed.hidden = !hits.length;
    listed.querySelector('.on')?.scrollIntoView({ block: 'nearest' });
    const { problem, total, hits: shown } = result;
    told.hidden = !problem && total <= shown.length && shown.length > 0;
    told.textContent = problem ? `${problem.what}. ${problem.fix ?? ''}` : shown.length ? `${count(shown.length)} of ${count(total)}` : 'nothing found in this stage';
  }
  watch('detail', () => {
    const next = json(model, 'detail');
    if (next?.asking !== asked) return;
    result = { total: next.hits.length, ops: 0, ...next };
    hits = result.hits;
    // Hits that do not fit here: the graph runs the same query and marks all of them.
    const left = result.ops - hits.filter((hit) => hit.what === 'op').length;
    if (left > 0) hits = [...hits, { what: '', text: `${count(left)} more: all ${count(result.ops)} ops in the graph`, go: { open: 'graph', state: { graph: { query: result.text } } } }];
    answered = result.text;
    at = hits.length ? 0 : -1;
    if (entered && hits.length) choose(hits[0]);
    else drawHits();
    entered = false;
  });

  // -- keys -------------------------------------------------------------------------------------
  const STEPS = { j: ['changed', 1], k: ['changed', -1], J: ['rewrite', 1], K: ['rewrite', -1], n: ['failing', 1], r: ['stop', 1], R: ['stop', -1], h: ['op', 1], H: ['op', -1] };
  const editing = (event) => {
    const target = event.composedPath()[0];
    return target instanceof HTMLElement && (target.isContentEditable || ['INPUT', 'SELECT', 'TEXTAREA'].includes(target.tagName));
  };
  function onKey(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || editing(event) || keys.open || views.open) return;
    if (!data.run || data.start) return;
    const pane = event.composedPath().find((node) => node.classList?.contains('cw-view'));
    if (pane) focused = Math.max(0, data.panes.indexOf(pane.id.replace('cw-view-', '')));
    const { key } = event;
    const held = !data.viewer && data.job?.paused && HELD.find(([, , name]) => name === key);
    if (held) send('held', { do: held[0] });
    else if (STEPS[key]) send('step', { what: STEPS[key][0], by: STEPS[key][1] });
    else if (data.presets.some(([k]) => k === key)) send('preset', { key });
    else if (key === 'b') send('stop', { what: 'here' });
    else if (key === 'B') send('stop', { what: 'op' });
    else if (key === 'g') openViews();
    else if (key === 'z') zoom();
    else if (key === '/') input.focus();
    else if (key === '?') keys.showModal();
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
  let guided = false;
  function drawTour() {
    if (!data.tour && !guided) return;
    guided = true;
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
  let lost = false;
  const lose = () => {
    if (lost) return;
    lost = true;
    const box = by('cw-lost');
    box.textContent = 'The workbench server is not responding. Start it again; this page reconnects by itself.';
    box.hidden = false;
    const wait = async () => {
      try {
        const answer = await fetch('health', { cache: 'no-store' });
        if (answer.ok) {
          location.reload();
          return;
        }
      } catch { /* still away */ }
      setTimeout(wait, HEALTH);
    };
    setTimeout(wait, 300);
  };
  const documents = globalThis.Bokeh?.documents ?? [];
  for (const each of documents) {
    each.on_event?.('connection_lost', lose);
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
    if (data.done) by('cw-busy').classList.remove('on');
  });
});
