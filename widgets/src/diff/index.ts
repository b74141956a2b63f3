/** The IR diff view: the text of two stages side by side or unified. See widgets/README.md. */

import { button, copy, facts, h, replace } from '../shared/dom';
import { downloadMenu, type DownloadItem, saveText } from '../shared/download';
import { count, plural } from '../shared/format';
import { highlighted, HIGHLIGHT_STYLE, type Marks } from '../shared/highlight';
import type { Selection, ViewLink } from '../shared/host';
import { CHARACTER, Lines, LINES_STYLE, countLines, ROW } from '../shared/lines';
import { changeColour, MONO, type Palette, SIGNS } from '../shared/theme';
import { announce, define } from '../shared/view';
import { type DiffData, display, type Entry, KINDS, type Line, Rows } from './model';
import { patch, type TextKind, fetchText } from './texts';
import { Ruler, RULER_STYLE } from './ruler';
import { wordMarks } from './words';

export const DIFF_STYLE = `
${HIGHLIGHT_STYLE}${LINES_STYLE}
.cw-diff .titles { display: grid; grid-template-columns: 1fr 1fr 12px; flex: none; color: var(--muted);
  background: var(--surface); border-bottom: 1px solid var(--line); font-weight: 600; }
.cw-diff .titles span { padding: 2px 10px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.cw-diff .totals > span + span { margin-left: 8px; }
.cw-diff.unified .titles { display: flex; } .cw-diff.unified .titles span { padding-right: 0; }
.cw-diff.unified .titles span + span::before { content: '→ '; color: var(--faint); font-weight: 400; }
.cw-diff .body { display: flex; flex: 1; min-height: 0; }
.cw-diff .body:has(.lines:focus-visible) { outline: 2px solid var(--accent); outline-offset: -2px; z-index: 1; }
.cw-diff .lines:focus-visible { outline: none; }
.cw-diff .lines { margin: 2px; overflow-x: hidden; background: var(--surface); }
/* Positioned manually: laying out a thousand grids would take the browser longer than everything else. */
.cw-diff .row { contain: layout size style; font: 12px/${ROW}px ${MONO}; cursor: default; }
.cw-diff .cell { position: absolute; top: 0; left: 0; width: 50%; height: 100%; overflow: hidden;
  white-space: pre; border-left: 1px solid var(--line); box-sizing: border-box; }
.cw-diff .cell.right { left: 50%; }
.cw-diff.unified .cell { left: 0; width: 100%; }
.cw-diff .no { position: absolute; left: 0; width: 44px; text-align: right; color: var(--faint); user-select: none; }
.cw-diff .no + .no { left: 52px; }
.cw-diff .sign { position: absolute; left: 52px; width: 16px; user-select: none; font-weight: 700; text-align: center; }
.cw-diff.unified .sign { left: 104px; }
.cw-diff .code { position: absolute; left: 68px; right: 0; height: 100%; overflow: hidden; }
.cw-diff.unified .code { left: 120px; }
.cw-diff .wrapped .code > span { margin-left: 0; }
.cw-diff .code > span { margin-left: calc(-1px * var(--sx, 0)); }
.cw-diff .removed { background: color-mix(in srgb, var(--removed) 11%, var(--surface)); }
.cw-diff .added { background: color-mix(in srgb, var(--added) 11%, var(--surface)); }
.cw-diff .removed .sign { color: var(--removed); } .cw-diff .added .sign { color: var(--added); }
.cw-diff .removed .word { color: var(--text); background: color-mix(in srgb, var(--removed) 34%, var(--surface));
  border-radius: 2px; box-shadow: inset 0 -2px var(--removed); }
.cw-diff .added .word { color: var(--text); background: color-mix(in srgb, var(--added) 34%, var(--surface));
  border-radius: 2px; box-shadow: inset 0 -2px var(--added); }
.cw-diff .none { background: repeating-linear-gradient(-45deg, var(--raised) 0 4px, transparent 4px 9px); }
.cw-diff .row.selected .cell { --lit: color-mix(in srgb, var(--accent) 14%, transparent); box-shadow: inset 0 1px var(--accent), inset 0 -1px var(--accent);
  background-image: linear-gradient(var(--lit), var(--lit)); }
.cw-diff .row.current .no { color: var(--accent); font-weight: 700; }
.cw-diff .fold { display: block; width: 100%; height: 100%; padding: 0; color: var(--muted); background: var(--raised);
  text-align: center; line-height: ${ROW - 2}px; border: solid var(--line); border-width: 1px 0; border-radius: 0; }
.cw-diff .fold:hover { color: var(--accent); }
${RULER_STYLE}.cw-diff .across { height: 12px; overflow-x: auto; overflow-y: hidden; flex: none; }
.cw-diff.pick-left .cell.right, .cw-diff.pick-right .cell.left { user-select: none; }
`;

/** The number of highlighted columns beyond the visible ones. */
const COLUMNS = 120;
/** Width before the code (pixels), side by side and in one column. */
const SPLIT_MARGIN = 68;
const UNIFIED_MARGIN = 120;

const KEYS: [string, string][] = [
  ['j  k', 'next, previous hunk'],
  ['u', 'unified or side by side'],
  ['a', 'whole module or changes only'],
  ['w', 'wrap long lines'],
  ['o', 'only the lines of the selected op'],
  ['c', 'copy this hunk as a patch'],
  ['Enter', 'select the op of this hunk'],
  ['Shift + ↑ ↓', 'select the op of the line above, below'],
  ['Tab', 'go to the folds; Enter opens one'],
];

/** The view's wording for its texts, and their downloads. */
export interface Wording {
  name: string;
  textNoun: string;
  downloads(save: (what: TextKind) => Promise<void>, same: boolean): DownloadItem[];
}

/** For the modules before and after a pass. */
const MODULES: Wording = {
  name: 'IR diff',
  textNoun: 'module',
  downloads: (save, same) =>
    same
      ? [['The module, .mlir', () => save('after')]]
      : [
          ['What the pass changed, .diff', () => save('patch')],
          ['The module after it, .mlir', () => save('after')],
          ['The module before it, .mlir', () => save('before')],
        ],
};

export class DiffView {
  private rows!: Rows;
  private entries: Entry[] = [];
  private unified = false;
  /** Syntax is highlighted up to this column; the rest is plain text. */
  private columns = COLUMNS;
  private whole = false;
  private wrap = false;
  private only = false;
  private readonly opened = new Set<number>();
  private hunk = -1;
  /** The row that was selected last, even if another has the same op. */
  private selectedRow = -1;
  private selection: Selection = {};
  private palette!: Palette;
  private marks = new Map<number, { left: Marks; right: Marks }>();
  private readonly lines: Lines;
  private readonly ruler = new Ruler((share) => this.lines.reveal(Math.floor(share * this.entries.length), 0.5, true));
  private readonly scrollbar = h('div', { class: 'across' }, h('div', { style: 'height:1px' }));
  private readonly titles = h('div', { class: 'titles' });
  private readonly totals = h('span', { class: 'figure totals' });
  private readonly hunkPosition = h('span', { class: 'figure place' });
  private readonly help = h('div', { class: 'help', hidden: true }, facts(KEYS));
  private readonly unifiedButton = button('unified', 'One column  (u)', () => this.toggle('unified'));
  private readonly wholeButton = button('whole', 'The whole text, including equal lines  (a)', () => this.toggle('whole'));
  private readonly wrapButton = button('wrap', 'Wrap long lines  (w)', () => this.toggle('wrap'));
  private readonly onlyButton = button('op only', 'Only the lines of the selected op  (o)', () => this.toggle('only'));

  private readonly copyButton = button('copy', 'Copy this hunk, or all hunks, as a patch  (c)', () =>
    void this.copyHunk(),
  );

  constructor(
    private readonly frame: { root: HTMLElement; link: ViewLink },
    wording: Wording = MODULES,
  ) {
    this.lines = new Lines(
      (index) => this.row(index),
      (first, last) => this.scrolled(first, last),
    );
    this.lines.root.setAttribute('role', 'region');
    this.lines.root.setAttribute('aria-label', `${wording.name}: j and k step through hunks, Shift with up and down through lines`);
    this.copyButton.classList.add('wide');
    this.wholeButton.append(h('span', { class: 'wide' }, ` ${wording.textNoun}`));
    const bar = h(
      'div',
      { class: 'bar', role: 'toolbar', 'aria-label': 'Diff' },
      h(
        'span',
        { class: 'group' },
        button('‹', 'Previous hunk  (k)', () => this.step(-1)),
        button('hunk ›', 'Next hunk  (j)', () => this.step(1)),
      ),
      this.hunkPosition,
      this.totals,
      h('span', { class: 'gap' }),
      h('span', { class: 'group' }, this.unifiedButton, this.wholeButton, this.wrapButton, this.onlyButton),
      this.copyButton,
      downloadMenu(() => wording.downloads((what) => this.save(what), this.rows.data.left.title === this.rows.data.right.title)),
      button('?', 'Keys  (?)', () => (this.help.hidden = !this.help.hidden)),
    );
    const body = h('div', { class: 'body' }, this.lines.root, this.ruler.canvas);
    frame.root.append(bar, this.titles, body, this.scrollbar, this.help);
    this.listen();
  }

  data(data: DiffData): void {
    this.rows = new Rows(data);
    this.marks.clear();
    this.opened.clear();
    this.hunk = -1;
    replace(
      this.titles,
      ...[data.left.title, data.right.title].map((title) => h('span', { title }, title)),
    );
    const { changed, added, removed } = this.rows.totals;
    replace(
      this.totals,
      ...(['added', 'removed', 'changed'] as const).map((kind) => {
        const n = { added, removed, changed }[kind];
        const part = h('span', { title: kind }, ` ${SIGNS[kind]}${count(n)}`, h('span', { class: 'wide' }, ` ${kind}`));
        part.style.color = n ? changeColour(this.palette, kind) : '';
        return part;
      }),
    );
    this.lines.toTop();
    this.show();
  }

  theme(palette: Palette): void {
    this.palette = palette;
    this.paintRuler();
  }

  selected(selection: Selection): void {
    const changed = selection.op !== this.selection.op;
    this.selection = selection;
    if (changed && this.only && this.rows) this.show();
    this.mark();
    if (!changed || selection.op === undefined || !this.rows) return;
    const row = this.rows.rowOf(selection.op);
    if (row !== undefined) this.revealRow(row);
    else if (this.rows.data.count !== undefined) void this.find(selection.op);
  }

  state(state: Record<string, unknown>): void {
    if (typeof state.unified === 'boolean') this.unified = state.unified;
    this.whole = state.whole === true;
    this.wrap = state.wrap === true;
    this.only = state.only === true;
    if (this.rows) this.show();
  }

  private async find(op: string | number): Promise<void> {
    const answer = await this.frame.link
      .request<{ row: number | null }>('find', { op })
      .catch(() => ({ row: null }));
    if (answer.row !== null && this.selection.op === op) this.revealRow(answer.row);
  }

  /** Scrolls to a row, and opens the fold around it. */
  private revealRow(row: number): void {
    let index = this.entries.findIndex(
      (entry) => entry.row === row || (entry.until && entry.row <= row && row < entry.until),
    );
    const entry = this.entries[index];
    if (entry?.until) {
      this.opened.add(entry.row);
      this.show();
      index = this.entries.findIndex((each) => each.row === row);
    }
    if (index >= 0) this.lines.reveal(index);
    this.mark();
  }

  private toggle(what: 'unified' | 'whole' | 'wrap' | 'only'): void {
    const [first] = this.lines.range();
    const row = this.entries[first]?.row ?? 0;
    this[what] = !this[what];
    this.show();
    const index = this.entries.findIndex((entry) => (entry.until ?? entry.row + 1) > row);
    this.lines.reveal(Math.max(0, index), 0, true);
    const { unified, whole, wrap, only } = this;
    const more = { ...(wrap ? { wrap } : {}), ...(only ? { only } : {}) };
    this.frame.link.write('state', { unified, whole, ...more });
  }

  private show(): void {
    const { unified, whole, wrap, only, opened } = this;
    const op = only ? (this.selection.op ?? null) : undefined;
    this.entries = display(this.rows, { unified, whole, opened, op });
    this.columns = wrap ? Infinity : this.lastVisibleColumn() + COLUMNS / 4;
    this.frame.root.classList.toggle('unified', unified);
    this.lines.root.classList.toggle('wrapped', wrap);
    const pressed = [
      [this.unifiedButton, unified], [this.wholeButton, whole], [this.wrapButton, wrap], [this.onlyButton, only],
    ] as const;
    for (const [toggle, on] of pressed) toggle.setAttribute('aria-pressed', String(on));
    this.lines.reset(this.entries.length, wrap ? (index) => this.wrappedLineCount(index) : null);
    this.paintRuler();
    this.showHunkPosition();
    this.mark();
  }

  // -------------------------------------------------------------- rows

  /** The number of lines of an entry when long ones are wrapped. */
  private wrappedLineCount(index: number): number {
    const entry = this.entries[index]!;
    const line = entry.until ? undefined : this.rows.line(entry.row);
    if (!line) return 1;
    const available = this.unified ? this.lines.width - UNIFIED_MARGIN : this.lines.width / 2 - SPLIT_MARGIN;
    const texts = this.unified && entry.side === 'left' ? [line.left]
      : this.unified ? [line.right ?? line.left] : [line.left, line.right];
    return Math.max(...texts.map((text) => countLines(text ?? '', available - CHARACTER)));
  }

  /** The last visible column. */
  private lastVisibleColumn(): number {
    const width = this.lines.width / (this.unified ? 1 : 2);
    return Math.ceil((this.scrollbar.scrollLeft + width) / CHARACTER);
  }

  private row(index: number): HTMLElement {
    const entry = this.entries[index]!;
    if (entry.until) {
      const open = () => {
        this.opened.add(entry.row);
        this.show();
        this.lines.root.focus({ preventScroll: true });
      };
      const text = `⋯ ${plural(entry.until - entry.row, 'equal line')}`;
      return h('div', { class: 'row' }, h('button', { type: 'button', class: 'fold', click: open }, text));
    }
    const line = this.rows.line(entry.row);
    const row = h('div', { class: 'row', 'data-row': entry.row });
    if (!line) {
      row.append(h('div', { class: 'fold' }, 'loading …'));
      return row;
    }
    if (this.unified) row.append(this.cell(entry.row, line, entry.side));
    else row.append(this.cell(entry.row, line, 'left'), this.cell(entry.row, line, 'right'));
    this.markRow(row, line, entry.row);
    return row;
  }

  private cell(index: number, line: Line, side: Entry['side']): HTMLElement {
    const kind = KINDS[this.rows.kind[index]!]!;
    const left = line.left ?? null;
    const right = kind === 'equal' ? (line.right ?? left) : (line.right ?? null);
    const text = side === 'left' ? left : side === 'right' ? right : right;
    if (text === null) return h('div', { class: `cell none ${side}` });
    const tone = kind === 'equal' ? '' : side === 'left' ? 'removed' : 'added';
    const sign = tone && (kind === 'changed' && !this.unified ? SIGNS.changed : SIGNS[tone as 'added']);
    const code = h('span');
    const marks = this.changedWords(index, line, side);
    code.append(highlighted(text, this.rows.data.language ?? 'mlir', marks, this.columns));
    const number = (n: number) => h('span', { class: 'no' }, n ? String(n) : '');
    const leftNumber = side === 'right' ? 0 : this.rows.leftNumber[index]!;
    const rightNumber = side === 'left' ? 0 : this.rows.rightNumber[index]!;
    const numbers = this.unified
      ? [number(leftNumber), number(rightNumber)]
      : [number(side === 'left' ? this.rows.leftNumber[index]! : this.rows.rightNumber[index]!)];
    return h(
      'div',
      { class: `cell ${side} ${tone}` },
      ...numbers,
      h('span', { class: 'sign' }, sign),
      h('span', { class: 'code' }, code),
    );
  }

  private changedWords(index: number, line: Line, side: Entry['side']): Marks {
    if (KINDS[this.rows.kind[index]!] !== 'changed' || side === 'both') return [];
    let marks = this.marks.get(index);
    if (!marks) this.marks.set(index, (marks = wordMarks(line.left ?? '', line.right ?? '')));
    return marks[side];
  }

  private markRow(row: HTMLElement, line: Line, index: number): void {
    const { op } = this.selection;
    const chosen = op !== undefined && (line.leftKey === op || line.rightKey === op);
    row.classList.toggle('selected', chosen);
    const hunk = this.rows.hunks[this.hunk];
    row.classList.toggle('current', Boolean(hunk && hunk.from <= index && index < hunk.to));
  }

  private mark(): void {
    this.lines.each((index, row) => {
      const entry = this.entries[index];
      const line = entry && !entry.until ? this.rows.line(entry.row) : undefined;
      if (line) this.markRow(row, line, entry!.row);
    });
  }

  private scrolled(first: number, last: number): void {
    if (!this.rows) return;
    let longest = 0;
    let missing = false;
    for (let i = first; i < Math.min(this.entries.length, last + 1); i++) {
      const entry = this.entries[i]!;
      if (entry.until) continue;
      const line = this.rows.line(entry.row);
      if (!line) missing = true;
      else longest = Math.max(longest, line.left?.length ?? 0, line.right?.length ?? 0);
    }
    const width = Math.min(4000, longest) * CHARACTER + 100;
    const half = this.lines.width / (this.unified ? 1 : 2);
    const inner = this.scrollbar.firstElementChild as HTMLElement;
    const contentWidth = this.lines.width + Math.max(0, width - half);
    // Only grows while scrolling down, so that the bar does not jump.
    const currentWidth = Number(inner.dataset.width ?? 0);
    if (contentWidth > currentWidth) {
      inner.dataset.width = String(contentWidth);
      inner.style.width = `${contentWidth}px`;
    }
    this.scrollbar.hidden = this.wrap || (width <= half && currentWidth <= this.lines.width);
    if (missing) void this.load(first, last);
  }

  private async load(first: number, last: number): Promise<void> {
    const low = this.entries[first]!.row;
    const high = this.entries[Math.min(this.entries.length, last) - 1]!.row + 1;
    const { rows } = this;
    for (const [from, to] of rows.missing(low, high)) {
      try {
        const page = await this.frame.link.request<{ start: number; lines: Line[] }>('lines', { from, to });
        rows.store(page.start, page.lines);
        if (rows === this.rows && this.wrap) this.show();
        else if (rows === this.rows) this.lines.refresh();
      } catch (error) {
        announce(this.frame.root, String(error));
      }
    }
  }

  // -------------------------------------------------------------- hunks

  private step(by: number): void {
    const { hunks } = this.rows;
    if (hunks.length === 0) return;
    this.hunk = this.hunk < 0 ? (by > 0 ? 0 : hunks.length - 1) : this.hunk + by;
    this.hunk = Math.min(hunks.length - 1, Math.max(0, this.hunk));
    const index = this.entries.findIndex((entry) => entry.row === hunks[this.hunk]!.from);
    this.lines.reveal(index, 0.3, true);
    this.showHunkPosition();
    this.mark();
    announce(this.frame.root, this.hunkPosition.textContent ?? '');
  }

  private showHunkPosition(): void {
    const n = this.rows.hunks.length;
    this.hunkPosition.textContent =
      n === 0 ? 'no difference' : this.hunk < 0 ? plural(n, 'hunk') : `${count(this.hunk + 1)} of ${count(n)}`;
  }

  private selectHunk(): void {
    const hunk = this.rows.hunks[this.hunk];
    if (!hunk) return;
    for (let row = hunk.from; row < hunk.to; row++) if (this.selectLine(row, 'right')) return;
  }

  /** Selects the op of the next line with a different op, starting at the selected or the first visible line. */
  private stepLine(by: number): void {
    const { entries, rows, selection } = this;
    const hasSelectedOp = (row: number) => {
      const line = rows.line(row);
      return line?.leftKey === selection.op || line?.rightKey === selection.op;
    };
    const row = selection.op === undefined ? undefined : hasSelectedOp(this.selectedRow) ? this.selectedRow : rows.rowOf(selection.op);
    let at = row === undefined ? -1 : entries.findIndex((entry) => entry.row === row && !entry.until);
    if (at < 0) {
      const [first, last] = this.lines.range();
      at = by > 0 ? first - 1 : last;
    }
    for (at += by; entries[at]; at += by) {
      const entry = entries[at]!;
      const side = entry.side === 'left' ? 'left' : 'right';
      if (entry.until || this.keyOf(entry.row, side) === selection.op) continue;
      if (!this.selectLine(entry.row, side)) continue;
      this.lines.reveal(at);
      this.mark();
      const line = rows.line(entry.row);
      announce(this.frame.root, ((side === 'left' ? line?.left : line?.right) ?? line?.left ?? '').trim());
      return;
    }
  }

  private keyOf(row: number, side: 'left' | 'right'): string | number | null {
    const line = this.rows.line(row);
    const [preferred, other] = side === 'left' ? [line?.leftKey, line?.rightKey] : [line?.rightKey, line?.leftKey];
    return preferred ?? other ?? null;
  }

  private selectLine(row: number, side: 'left' | 'right'): boolean {
    const key = this.keyOf(row, side);
    if (key === null) return false;
    this.selectedRow = row;
    const { scope: _scope, ...others } = this.frame.link.dict<Selection>('selection');
    this.selection = { ...others, op: key };
    this.frame.link.write('selection', this.selection);
    this.mark();
    return true;
  }

  private async copyHunk(): Promise<void> {
    const { root, link } = this.frame;
    const hunks = this.hunk >= 0 ? [this.rows.hunks[this.hunk]!] : this.rows.hunks;
    try {
      await copy(await patch(link, this.rows, hunks), root);
      announce(root, `copied ${plural(hunks.length, 'hunk')}`);
    } catch (error) {
      announce(root, String(error));
    }
  }

  private async save(what: TextKind): Promise<void> {
    const { file, text } = await fetchText(this.frame.link, what);
    saveText(file, text);
  }

  // -------------------------------------------------------------- input

  private listen(): void {
    const { root } = this.lines;
    root.addEventListener('mousedown', (event) => {
      const cell = (event.target as HTMLElement).closest?.('.cell');
      const left = cell?.classList.contains('left') ?? false;
      this.frame.root.classList.toggle('pick-left', cell !== null && left);
      this.frame.root.classList.toggle('pick-right', cell !== null && !left);
    });
    root.addEventListener('click', (event) => {
      const target = event.target as HTMLElement;
      const row = target.closest<HTMLElement>('[data-row]')?.dataset.row;
      const selecting = (root.getRootNode() as Document).getSelection?.()?.toString();
      if (row === undefined || selecting) return;
      this.selectLine(Number(row), target.closest('.cell.left') ? 'left' : 'right');
      const at = this.rows.hunks.findIndex((hunk) => hunk.from <= +row && +row < hunk.to);
      if (at >= 0) this.hunk = at;
      this.showHunkPosition();
      this.mark();
    });
    root.addEventListener(
      'wheel',
      (event) => {
        const dx = event.shiftKey ? event.deltaY : event.deltaX;
        if (dx === 0 || this.scrollbar.hidden) return;
        this.scrollbar.scrollLeft += dx;
        event.preventDefault();
      },
      { passive: false },
    );
    this.scrollbar.addEventListener('scroll', () => {
      root.style.setProperty('--sx', String(this.scrollbar.scrollLeft));
      if (this.wrap || this.lastVisibleColumn() <= this.columns) return;
      this.columns = this.lastVisibleColumn() + COLUMNS;
      this.lines.refresh();
    });
    let width = 0;
    const observer = new ResizeObserver(() => {
      if (this.wrap && this.rows && this.lines.width !== width) this.show(); // the line breaks change
      width = this.lines.width;
      this.ruler.fit();
      this.paintRuler();
    });
    observer.observe(root);
    this.frame.link.onDispose(() => observer.disconnect());
    this.frame.root.addEventListener('keydown', (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const actions: Record<string, () => void> = {
        j: () => this.step(1),
        k: () => this.step(-1),
        u: () => this.toggle('unified'),
        a: () => this.toggle('whole'),
        w: () => this.toggle('wrap'),
        o: () => this.toggle('only'),
        c: () => void this.copyHunk(),
        Enter: () => this.selectHunk(),
        'Shift ArrowDown': () => this.stepLine(1),
        'Shift ArrowUp': () => this.stepLine(-1),
        '?': () => (this.help.hidden = !this.help.hidden),
        Escape: () => (this.help.hidden = true),
      };
      const inButton = (event.composedPath()[0] as HTMLElement).tagName === 'BUTTON';
      const shift = event.shiftKey && event.key.startsWith('Arrow') ? 'Shift ' : '';
      const action = actions[shift + event.key];
      if (!action || (inButton && event.key === 'Enter')) return;
      action();
      event.preventDefault();
      event.stopPropagation();
    });
  }

  private paintRuler(): void {
    if (this.rows) this.ruler.paint(this.rows, this.entries, this.palette);
  }
}

export default define<DiffData>('diff', DIFF_STYLE, (frame) => {
  const view = new DiffView(frame);
  return {
    data: (data) => view.data(data),
    theme: (palette) => view.theme(palette),
    selected: (selection) => view.selected(selection),
    state: (state) => view.state(state),
  };
});
