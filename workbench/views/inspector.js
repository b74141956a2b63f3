// The inspector: sections of facts, links and code about what is selected.

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
.ops { margin: 1px 10px; }
.ops .name { color: var(--muted); }
.ops div { font: 11px/1.5 var(--mono); white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
`;

export default component(STYLE, ({ model, root, watch, send }) => {
  const title = h('b');
  const body = h('div', { class: 'body', tabindex: 0, role: 'region', 'aria-label': 'Inspector' });
  root.append(h('div', { class: 'head' }, title), body);
  const go = (row) => () => send('follow', { go: row.go });

  const DRAW = {
    text: (row) => h('p', {}, row.text),
    fact: (row) => h('div', { class: 'fact' }, h('span', { class: 'name', title: [row.name, explain('inspector', row.name)].filter(Boolean).join('\n') }, row.name),
      row.go ? h('span', { class: 'value link', role: 'link', tabindex: 0, click: go(row) }, row.text) : h('span', { class: 'value' }, row.text)),
    link: (row) => h('div', { class: 'row' }, h('span', { class: 'link mono', role: 'link', tabindex: 0, click: go(row) }, row.text),
      row.detail && h('span', { class: 'detail' }, row.detail)),
    code: (row) => h('div', {}, h('div', { class: 'place mono' }, h('span', { class: 'link', role: 'link', tabindex: 0, title: `${row.path}: show it in the source`, click: go(row) }, row.place)),
      row.lines.length > 0 && h('pre', {}, row.lines.map((line, i) => h('span', { class: `line${row.first + i === row.line ? ' on' : ''}` },
        h('span', { class: 'no' }, row.first + i), line)))),
    ops: (row) => h('div', { class: 'ops' }, h('span', { class: 'name' }, row.name), row.lines.map((line) =>
      h('div', { class: 'link', role: 'link', tabindex: 0, title: line.text, click: go(line) }, line.text)),
    row.more ? h('span', { class: 'faint' }, `and ${count(row.more)} more`) : null),
  };
  body.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && event.target.getAttribute('role') === 'link') event.target.click();
  });

  watch('data', () => {
    const data = json(model, 'data');
    if (!data) return;
    title.textContent = data.title;
    title.title = data.title;
    body.replaceChildren(...data.sections.map((section) =>
      h('section', {}, h('h3', {}, section.title), section.rows.map((row) => DRAW[row.kind](row)))));
    body.scrollTop = 0;
  });
});
