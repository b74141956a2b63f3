// The inspector: sections of facts, links and code about the selection.

const STYLE = `
.head { height: 30px; padding: 0 10px; border-bottom: 1px solid var(--line); background: var(--raised); display: flex; align-items: center; gap: 6px; }
.head b { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-family: var(--mono); font-weight: 600; flex: 1; }
.body { height: calc(100% - 30px); overflow-y: auto; padding-bottom: 20px; outline: none; }
h3 { font-size: 11px; font-weight: 600; color: var(--muted); margin: 0; padding: 9px 10px 3px; }
section + section h3 { border-top: 1px solid var(--line); margin-top: 7px; }
.fact { display: grid; grid-template-columns: 84px minmax(0, 1fr); gap: 8px; padding: 1px 10px; }
.fact .name { color: var(--muted); overflow: hidden; text-overflow: ellipsis; }
.fact .value { overflow-wrap: anywhere; font-family: var(--mono); font-size: 11px; }
p { margin: 2px 10px; color: var(--muted); overflow-wrap: anywhere; }
.row { padding: 1px 10px; overflow-wrap: anywhere; }
.row .detail { color: var(--muted); display: block; overflow-wrap: anywhere; }
.place { padding: 2px 10px; color: var(--muted); }
pre { margin: 2px 10px 4px; padding: 3px 0; background: var(--page); border: 1px solid var(--line); border-radius: 4px; overflow-x: auto;
  font: 11px/1.5 var(--mono); }
pre .line { display: block; padding: 0 6px; white-space: pre; }
pre .line.on { background: var(--accentSoft); }
pre .no { color: var(--faint); display: inline-block; width: 34px; user-select: none; }
.timeline { margin: 2px 10px 4px; } .timeline svg { display: block; width: 100%; height: auto; overflow: visible; }
.timeline text { font: 9px var(--sans); fill: var(--muted); } .timeline .axis { stroke: var(--line); } .timeline .here { fill: var(--accentSoft); }
.timeline .life { stroke: var(--accent); stroke-width: 3; stroke-linecap: round; } .timeline .other { stroke: var(--muted); stroke-opacity: .45; stroke-width: 1.5; stroke-dasharray: 2 2; }
.timeline .mark { cursor: pointer; outline: none; } .timeline .mark .hit { fill: transparent; } .timeline .mark .sign { stroke: var(--surface); stroke-width: 1; fill: var(--muted); }
.timeline .mark:hover .hit, .timeline .mark:focus-visible .hit { fill: var(--accentSoft); stroke: var(--accent); stroke-width: 1.5; }
.timeline .source .sign, .timeline .imported .sign, .timeline .created .sign { fill: var(--accent); } .timeline .rewritten .sign { fill: var(--changed); } .timeline .fused .sign { fill: var(--moved); }
.timeline .kernel .sign, .timeline .buffer .sign, .timeline .code .sign { fill: var(--added); } .timeline .removed .sign { fill: var(--removed); } .timeline .gradient .sign, .timeline .forward .sign { fill: var(--warn); }
.timeline .said { min-height: 31px; margin: 1px 0 0; font-size: 11px; line-height: 1.4; color: var(--muted); overflow: hidden; display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; }
.ops { margin: 1px 10px; }
.ops .name { color: var(--muted); }
.ops div { font: 11px/1.5 var(--mono); white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
`;

// A strip of the passes with lanes for the op's origin, the op itself, what it became, and its gradients.
const LANES = [['from', 'from'], ['op', 'op'], ['became', 'became'], ['gradient', 'grad.']];
const MARK_PATHS = {
  source: 'M-3.5 -4h7v8h-7z', imported: 'M0 -4.5a4.5 4.5 0 1 0 .01 0z', created: 'M0 -4.5a4.5 4.5 0 1 0 .01 0z', rewritten: 'M0 -5L5 0L0 5L-5 0z', fused: 'M-4 -4h8v8h-8z',
  kernel: 'M-5 4L0 -5L5 4z', buffer: 'M-5 -3h10v6h-10z', code: 'M-4 -5h5l3 3v7h-8z', removed: 'M-4 -2.5L-2.5 -4L0 -1.5L2.5 -4L4 -2.5L1.5 0L4 2.5L2.5 4L0 1.5L-2.5 4L-4 2.5L-1.5 0z', gradient: 'M-5 -4L5 -4L0 5z', forward: 'M-5 4L5 4L0 -5z',
};
const MARK_WIDTH = 13; // the width of a mark
const STRIP = { width: 280, left: 42, right: 8, top: 10, lane: 17, axis: 13 };
const HINT = 'Each mark is a link: ← → move along the marks, ↑ ↓ to another lane, Enter follows.';

/** `row`: the marks of `workbench op --json`; `follow` opens the target of a mark; `focusAt`: the position of the mark to focus. */
function timeline(row, follow, focusAt) {
  const { width, left, right, top, lane, axis } = STRIP;
  const lanes = LANES.filter(([name]) => name === 'op' || row.marks.some((mark) => mark.lane === name));
  const low = row.marks.some((mark) => mark.at < 0) ? -1 : 0;
  const high = Math.max(row.stages - 1, ...row.marks.map((mark) => mark.at));
  // Passes with marks are wide enough for one; the others share the rest of the width.
  const markedStages = [...new Set([0, ...row.marks.map((mark) => mark.at)])];
  const widthPerMark = (width - left - right) / Math.max(markedStages.length, 1);
  const markedWidth = Math.min(MARK_WIDTH, widthPerMark * 0.9);
  const otherWidth = (width - left - right - markedWidth * markedStages.length) / Math.max(1, high - low + 1 - markedStages.length);
  const edges = [left];
  for (let at = low; at <= high; at += 1) edges.push(edges[edges.length - 1] + (markedStages.includes(at) ? markedWidth : otherWidth));
  const x = (at) => (edges[Math.min(Math.max(at, low), high) - low] + edges[Math.min(Math.max(at, low), high) - low + 1]) / 2;
  const y = (name) => top + lane * (lanes.findIndex(([each]) => each === name) + 0.5);
  const bottom = top + lane * lanes.length;
  const caption = h('p', { class: 'said', 'aria-hidden': 'true' }, HINT);
  const picture = svg('svg', { viewBox: `0 0 ${width} ${bottom + axis}`, role: 'toolbar', 'aria-label': `History of the op across ${row.stages} stages. ${HINT}` });
  picture.append(svg('rect', { class: 'here', x: x(row.shown) - 3, width: 6, y: top - 4, height: bottom - top + 8 }, svg('title', {}, `the shown stage, ${row.shown}`)));
  for (const [name, title] of lanes) picture.append(svg('line', { class: 'axis', x1: left, x2: width - right, y1: y(name), y2: y(name) }), svg('text', { x: 0, y: y(name) + 3 }, title));
  let nextFree = 0;
  for (const at of markedStages.filter((each) => each >= 0 && each < row.stages).sort((a, b) => a - b)) {
    if (x(at) < nextFree) continue;
    picture.append(svg('text', { x: x(at), y: bottom + 10, 'text-anchor': 'middle' }, String(at)));
    nextFree = x(at) + 14;
  }
  if (high >= row.stages) picture.append(svg('line', { class: 'axis', x1: edges[row.stages - low], x2: edges[row.stages - low], y1: top - 4, y2: bottom + 2 }), svg('text', { x: (edges[row.stages - low] + edges[edges.length - 1]) / 2, y: bottom + 10, 'text-anchor': 'middle' }, 'end'));
  for (const [name] of lanes) {
    const positions = row.marks.filter((mark) => mark.lane === name).map((mark) => mark.at);
    if (name === 'op' && row.first !== null) picture.append(svg('line', { class: 'life', x1: x(row.first), x2: x(row.last === null ? row.stages - 1 : row.last + 1), y1: y(name), y2: y(name) }));
    else if (positions.length && name !== 'gradient') picture.append(svg('line', { class: 'other', x1: x(Math.min(...positions)), x2: x(name === 'from' && row.first !== null ? Math.max(row.first, ...positions) : Math.max(...positions)), y1: y(name), y2: y(name) }));
  }
  const nodes = row.marks.map((mark) => {
    const go = () => follow(mark);
    return svg('g', { class: `mark ${mark.what}`, 'data-what': mark.what, 'data-at': mark.at, 'data-lane': mark.lane, transform: `translate(${x(mark.at).toFixed(1)} ${y(mark.lane)})`, role: 'link', tabindex: -1, 'aria-label': mark.text,
      click: go, focus: () => { caption.textContent = mark.text; nodes.forEach((node, i) => node.setAttribute('tabindex', row.marks[i] === mark ? 0 : -1)); }, blur: () => { caption.textContent = HINT; },
      // The text is shown below, and is the accessible name; the tooltip exists only during hover.
      mouseenter: (event) => { caption.textContent = mark.text; event.currentTarget.append(svg('title', {}, mark.text)); },
      mouseleave: (event) => { caption.textContent = HINT; event.currentTarget.querySelector('title')?.remove(); } },
    svg('circle', { class: 'hit', r: Math.max(3, Math.min(7, markedWidth / 2)) }), svg('path', { class: 'sign', d: MARK_PATHS[mark.what] ?? MARK_PATHS.rewritten }));
  });
  picture.append(...nodes);
  const order = row.marks.map((_, i) => i).sort((a, b) => row.marks[a].at - row.marks[b].at || a - b);
  const firstOpMark = Math.max(0, row.marks.findIndex((mark) => mark.lane === 'op'));
  nodes[firstOpMark]?.setAttribute('tabindex', 0);
  picture.addEventListener('keydown', (event) => {
    const now = nodes.indexOf(event.target.closest('.mark'));
    if (now < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    let to = null;
    const along = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const across = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (along) to = order[order.indexOf(now) + along];
    else if (across) {
      const names = lanes.map(([name]) => name).filter((name) => row.marks.some((mark) => mark.lane === name));
      const targetLane = names[names.indexOf(row.marks[now].lane) + across];
      const distance = (i) => Math.abs(row.marks[i].at - row.marks[now].at);
      to = order.filter((i) => row.marks[i].lane === targetLane).sort((a, b) => distance(a) - distance(b))[0];
    } else if (event.key === 'Home') [to] = order;
    else if (event.key === 'End') to = order[order.length - 1];
    else if (event.key === 'Enter' || event.key === ' ') follow(row.marks[now]);
    else return;
    nodes[to]?.focus();
    event.preventDefault();
    event.stopPropagation();
  });
  if (focusAt !== null && nodes.length) {
    const distance = (i) => Math.abs(row.marks[i].at - focusAt);
    const [to] = [...order].sort((a, b) => distance(a) - distance(b) || (row.marks[b].lane === 'op') - (row.marks[a].lane === 'op'));
    requestAnimationFrame(() => nodes[to].focus());
  }
  return h('div', { class: 'timeline' }, picture, caption, row.more ? h('span', { class: 'faint' }, `${count(row.more)} marks in between are left out`) : null);
}

export default component(STYLE, ({ model, root, watch, send }) => {
  const title = h('b');
  const body = h('div', { class: 'body', tabindex: 0, role: 'region', 'aria-label': 'Inspector' });
  let data = null;
  const facts = () => [['section', 'name', 'value', 'detail'], data.sections.flatMap((section) => section.rows.flatMap((row) => ({
    text: () => [[section.title, '', row.text]], fact: () => [[section.title, row.name, row.text]], link: () => [[section.title, '', row.text, row.detail]],
    code: () => [[section.title, row.place, row.lines.join('\n')]], ops: () => row.lines.map((line) => [section.title, row.name, line.text]), timeline: () => [],
  }[row.kind]())))];
  const history = () => data.sections.flatMap((section) => section.rows).find((row) => row.kind === 'timeline');
  const saves = downloadMenu(() => [
    csvItem('Inspector', 'inspector', facts),
    ...(history() ? [csvItem('History of the op', 'history', () => [['stage', 'lane', 'what', 'text'], history().marks.map((mark) => [mark.at, mark.lane, mark.what, mark.text])]),
      ...pictureItems('History of the op', 'history', body.querySelector('.timeline svg'))] : []),
  ], 'Download the inspector');
  root.append(h('div', { class: 'head' }, title, saves), body);
  const followRow = (row) => () => send('follow', { go: row.go });

  let focusedPosition = null; // the focused position in the strip when it led to another op
  const DRAW = {
    timeline: (row) => timeline(row, (mark) => {
      focusedPosition = root.getRootNode().activeElement?.closest?.('.mark') ? mark.at : null;
      send('follow', { go: mark.go });
    }, focusedPosition),
    text: (row) => h('p', {}, row.text),
    fact: (row) => h('div', { class: 'fact' }, h('span', { class: 'name', title: [row.name, explain('inspector', row.name)].filter(Boolean).join('\n') }, row.name),
      row.go ? h('span', { class: 'value link', role: 'link', tabindex: 0, click: followRow(row) }, row.text) : h('span', { class: 'value' }, row.text)),
    link: (row) => h('div', { class: 'row' }, h('span', { class: 'link mono', role: 'link', tabindex: 0, click: followRow(row) }, row.text),
      row.detail && h('span', { class: 'detail' }, row.detail)),
    code: (row) => h('div', {}, h('div', { class: 'place mono' }, h('span', { class: 'link', role: 'link', tabindex: 0, title: `${row.path}: show in Source`, click: followRow(row) }, row.place)),
      row.lines.length > 0 && h('pre', { tabindex: 0, 'aria-label': `Lines of ${row.path}` }, row.lines.map((line, i) => h('span', { class: `line${row.first + i === row.line ? ' on' : ''}` },
        h('span', { class: 'no' }, row.first + i), line)))),
    ops: (row) => h('div', { class: 'ops' }, h('span', { class: 'name' }, row.name), row.lines.map((line) =>
      h('div', { class: 'link', role: 'link', tabindex: 0, title: line.text, click: followRow(line) }, line.text)),
    row.more ? h('span', { class: 'faint' }, `and ${count(row.more)} more`) : null),
  };
  body.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && event.target.getAttribute('role') === 'link') event.target.click();
  });

  watch('data', () => {
    const next = json(model, 'data');
    if (!next) return;
    data = next;
    title.textContent = data.title;
    title.title = data.title;
    body.replaceChildren(...data.sections.map((section) =>
      h('section', {}, h('h3', {}, section.title), section.rows.map((row) => DRAW[row.kind](row)))));
    focusedPosition = null;
    body.scrollTop = 0;
  });
});
