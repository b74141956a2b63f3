/** The code view: two or three texts with linked lines, or one text of two recordings. See widgets/README.md. */

import { button, copy, facts, h, replace } from '../shared/dom';
import { downloadMenu, saveText } from '../shared/download';
import { plural, quantity } from '../shared/format';
import { highlighted, HIGHLIGHT_STYLE, type Language } from '../shared/highlight';
import type { Selection } from '../shared/host';
import { CHARACTER, Lines, LINES_STYLE, countLines, ROW } from '../shared/lines';
import { MONO, type Palette } from '../shared/theme';
import { oneOrTwo } from '../shared/two';
import { announce, define, type Frame, type View } from '../shared/view';
import type { Numbers } from '../shared/wire';
import { TWO_STYLE, type TwoCodes, TwoCodesView } from './two';

interface PaneData {
  title: string;
  language: Language;
  text: string;
  heat?: { name: string; unit: string; values: Numbers };
}

interface Group {
  /** Line numbers from 1, one list for each pane. */
  lines: number[][];
  op?: string | number;
  label?: string;
}

/** The schema of the `data` trait (documented in widgets/README.md). */
interface CodeData {
  title?: string;
  kernel?: string | number;
  panes: PaneData[];
  groups: Group[];
  /** The first line to show in the first pane: the most expensive one. */
  hot?: number | null;
}

/** Linked lines at most this far apart count as one loop. */
const LOOP = 40;

const STYLE = `
${HIGHLIGHT_STYLE}${LINES_STYLE}
.cw-code .bar { flex-wrap: nowrap; }
.cw-code .bar .about { flex: 1; min-width: 0; overflow: hidden; text-overflow: ellipsis; }
.cw-code .panes { display: flex; flex: 1; min-height: 0; }
.cw-code .pane { display: flex; flex-direction: column; flex: 1 1 0; min-width: 80px; border-left: 1px solid var(--line); }
.cw-code .pane:first-child { border-left: none; }
.cw-code .pane > h3 { margin: 0; padding: 2px 10px; font-size: 12px; font-weight: 600; color: var(--muted);
  background: var(--surface); border-bottom: 1px solid var(--line); flex: none; display: flex; gap: 8px; }
.cw-code .pane > h3 span:last-child { margin-left: auto; font-weight: 400; }
.cw-code .panes .lines { background: var(--surface); }
.cw-code .panes .row { display: grid; grid-template-columns: 5px 40px auto 1fr; font: 12px/${ROW}px ${MONO}; white-space: pre; tab-size: 4; }
.cw-code .panes .no { text-align: right; padding-right: 10px; color: var(--faint); user-select: none; }
.cw-code .panes .row > :first-child { position: sticky; left: 0; }
.cw-code .panes .no { position: sticky; left: 5px; background: var(--surface); }
.cw-code .panes .row.hover .no { background: var(--raised); } .cw-code .panes .row.pinned .no { background: var(--accentSoft); }
.cw-code .panes .heat { width: 74px; padding: 0 6px; text-align: right; font-size: 10.5px; user-select: none; color: var(--text); }
.cw-code .panes .code { padding-right: 12px; }
.cw-code .panes .linked { cursor: pointer; }
.cw-code .panes .row.hover { background: var(--raised); }
.cw-code .panes .row.pinned { background: var(--accentSoft); }
.cw-code .panes .row.pinned .no { color: var(--accent); font-weight: 700; }
.cw-code .panes .row.hover .no::before, .cw-code .panes .row.pinned .no::before { content: '▸'; color: var(--accent); float: left; padding-left: 3px; }
.cw-code .pane[hidden], .cw-code .split[hidden] { display: none; }
.cw-code .split { width: 5px; margin: 0 -2px; z-index: 1; cursor: col-resize; flex: none; }
`;

const KEYS: [string, string][] = [
  ['hover', 'show the linked lines'],
  ['click', 'pin them and scroll the other panes to them'],
  ['j  k', 'next, previous linked line'],
  ['s', 'scroll together'],
  ['w', 'wrap long lines'],
  ['o', 'only the lines of the selected op'],
  ['c', 'copy the pane'],
  ['Esc', 'unpin'],
];

/** Alternating hues of neighbouring groups: the bars beside the lines show which lines belong together. */
const HUES = [212, 32, 160, 330, 48, 268, 190, 12];

/** Width before the code (pixels), without and with a column of figures. */
const CODE_MARGIN = 66;
const HEAT_MARGIN = 140;
/** A view narrower than this (pixels) shows one text at a time. */
const NARROW = 800;

class Pane {
  readonly root: HTMLElement;
  readonly lines: Lines;
  readonly text: string[];
  /** For each line (from 1) the groups it belongs to. */
  readonly groups: number[][];
  private readonly heatMax: number;
  private readonly contentWidth: string;
  /** The lines that are shown, from 1; null: all. */
  private only: number[] | null = null;

  constructor(
    readonly data: PaneData,
    readonly index: number,
    groups: Group[],
    private readonly view: CodeView,
  ) {
    this.text = data.text.split('\n');
    if (this.text[this.text.length - 1] === '') this.text.pop();
    this.groups = Array.from({ length: this.text.length + 1 }, () => []);
    groups.forEach((group, g) => {
      for (const line of group.lines[index] ?? []) this.groups[line]?.push(g);
    });
    this.heatMax = data.heat ? maximum(data.heat.values) : 0;
    this.lines = new Lines(
      (row) => this.row(row),
      () => view.scrolled(this),
    );
    this.lines.root.setAttribute('aria-label', data.title);
    this.lines.root.setAttribute('role', 'region');
    const longest = this.text.reduce((max, line) => Math.max(max, line.length), 0);
    this.contentWidth = `${Math.min(4000, longest) * CHARACTER + (data.heat ? HEAT_MARGIN : CODE_MARGIN)}px`;
    const linked = this.groups.filter((list) => list.length).length;
    this.root = h(
      'div',
      { class: 'pane' },
      h(
        'h3',
        {},
        h('span', {}, data.title),
        h('span', {}, `${plural(this.text.length, 'line')}, ${linked} linked`),
      ),
      this.lines.root,
    );
    this.listen();
  }

  /** Shows all lines, or `only` some; `wrap`: long ones in several rows. */
  show(wrap: boolean, only: number[] | null): void {
    this.only = only;
    const spacer = this.lines.root.firstElementChild as HTMLElement;
    spacer.style.width = wrap ? '100%' : this.contentWidth;
    this.lines.root.classList.toggle('wrapped', wrap);
    const available = this.lines.width - (this.data.heat ? HEAT_MARGIN : CODE_MARGIN) - CHARACTER;
    const lineCount = (index: number) => countLines(this.text[this.lineAt(index) - 1]!, available);
    this.lines.reset(only ? only.length : this.text.length, wrap && this.lines.width ? lineCount : null);
  }

  /** The line (from 1) of a row. */
  lineAt(index: number): number {
    return this.only ? this.only[index]! : index + 1;
  }

  /** Scrolls a line into view; a hidden line stays hidden. */
  reveal(line: number, fraction = 0.3, force = false): void {
    const index = this.only ? this.only.indexOf(line) : line - 1;
    if (index >= 0) this.lines.reveal(index, fraction, force);
  }

  private row(index: number): HTMLElement {
    const line = this.lineAt(index);
    const groups = this.groups[line]!;
    const bar = h('span');
    if (groups.length) bar.style.background = this.view.hue(groups[0]!);
    const code = h('span', { class: 'code' });
    code.append(highlighted(this.text[line - 1]!, this.data.language));
    const row = h(
      'div',
      { class: groups.length ? 'row linked' : 'row', 'data-line': line },
      bar,
      h('span', { class: 'no' }, String(line)),
      this.heat(line - 1),
      code,
    );
    this.view.markRow(row, this, line);
    return row;
  }

  private heat(index: number): HTMLElement {
    const { heat } = this.data;
    if (!heat) return h('span');
    const value = heat.values[index] ?? NaN;
    const cell = h('span', { class: 'heat' }, Number.isNaN(value) ? '' : quantity(value, heat.unit));
    const share = this.heatMax > 0 && !Number.isNaN(value) ? value / this.heatMax : 0;
    const percent = (share * 60).toFixed(0);
    cell.style.background = `linear-gradient(90deg, transparent ${100 - share * 100}%, color-mix(in srgb, var(--removed) ${percent}%, transparent) 0)`;
    cell.title = Number.isNaN(value) ? '' : `${heat.name}: ${quantity(value, heat.unit)}`;
    return cell;
  }

  private listen(): void {
    const { root } = this.lines;
    const lineOf = (event: Event) =>
      Number((event.target as HTMLElement).closest<HTMLElement>('[data-line]')?.dataset.line ?? 0);
    root.addEventListener('mousemove', (event) => this.view.hoverLine(this, lineOf(event)));
    root.addEventListener('mouseleave', () => this.view.hoverLine(this, 0));
    root.addEventListener('click', (event) => {
      const selection = (root.getRootNode() as Document).getSelection?.()?.toString();
      const line = lineOf(event);
      if (line && !selection) this.view.pin(this, line);
    });
  }

  /** Scrolls deeply indented code into view, in steps that keep its neighbours in place. */
  showIndented(line: number): void {
    const text = this.text[line - 1]!.replaceAll('\t', '    ');
    const indent = (text.length - text.trimStart().length) * CHARACTER;
    const { width } = this.lines;
    this.lines.root.scrollLeft = indent > width / 2 ? indent - width / 4 : 0;
  }

  mark(): void {
    this.lines.each((index, row) => this.view.markRow(row, this, this.lineAt(index)));
  }
}

/** The file extension of this text. */
function fileExtension({ title, language }: PaneData): string {
  const kernelExtensions: Record<string, string> = { PTX: '.ptx', SASS: '.sass' };
  return kernelExtensions[title] ?? { python: '.py', llvm: '.ll', mlir: '.mlir', asm: '.s', text: '.txt' }[language] ?? '.txt';
}

function maximum(values: Numbers): number {
  let largest = 0;
  for (let i = 0; i < values.length; i++) if (values[i]! > largest) largest = values[i]!;
  return largest;
}

/** The line around which the lines of these groups are densest. */
function densest(groups: readonly number[][], targets: ReadonlySet<number>): number {
  const lines = groups.flatMap((list, n) => (list.some((g) => targets.has(g)) ? [n] : []));
  let [densestLine, mostNearby] = [lines[0] ?? 1, 0];
  for (const [i, n] of lines.entries()) {
    let nearby = 0;
    while (lines[i + nearby]! < n + LOOP) nearby++;
    if (nearby > mostNearby) [densestLine, mostNearby] = [n, nearby];
  }
  return densestLine;
}

class CodeView implements View<CodeData> {
  private data_!: CodeData;
  private panes: Pane[] = [];
  private hover = new Set<number>();
  private pinned = new Set<number>();
  private pinnedAt: { pane: number; line: number } | null = null;
  private sync = false;
  private wrap = false;
  private only = false;
  private narrow = false;
  private leader: Pane | null = null;
  private dark = false;
  private readonly hidden = new Set<string>();
  private readonly body = h('div', { class: 'panes' });
  private readonly paneButtons = h('span', { class: 'group', role: 'group', 'aria-label': 'Texts' });
  private readonly title = h('span', { class: 'figure' });
  private readonly label = h('span', { class: 'figure about', 'aria-live': 'polite' });
  private readonly help = h('div', { class: 'help', hidden: true }, facts(KEYS));
  private readonly syncButton = button('scroll together', 'The other panes follow  (s)', () =>
    this.toggleSync(),
  );
  private readonly wrapButton = button('wrap', 'Wrap long lines  (w)', () => this.toggle('wrap'));
  private readonly onlyButton = button('op only', 'Only the lines of the selected op  (o)', () => this.toggle('only'));

  constructor(private readonly frame: Frame) {
    frame.root.append(
      h(
        'div',
        { class: 'bar', role: 'toolbar', 'aria-label': 'Code' },
        this.title,
        this.label,
        this.paneButtons,
        h('span', { class: 'group' }, this.wrapButton, this.onlyButton),
        this.syncButton,
        downloadMenu(() =>
          this.panes.map(({ data }) => [
            `${data.title}, ${fileExtension(data)}`,
            () => saveText(`${this.data_.title ?? 'code'}${fileExtension(data)}`, data.text),
          ]),
        ),
        button('?', 'Keys  (?)', () => (this.help.hidden = !this.help.hidden)),
      ),
      this.body,
      this.help,
    );
    frame.root.addEventListener('keydown', (event) => this.key(event));
    const observer = new ResizeObserver(() => this.resized());
    observer.observe(this.body);
    frame.link.onDispose(() => observer.disconnect());
  }

  /** Shows one text if there is no room for several; the line breaks change then. */
  private resized(): void {
    const narrow = this.body.clientWidth > 0 && this.body.clientWidth < NARROW;
    if (narrow !== this.narrow) {
      this.narrow = narrow;
      this.showPanes();
    }
    if (this.wrap) this.showLines();
  }

  /** The lines of each pane: all, or those of the selection. */
  private showLines(): void {
    for (const pane of this.panes) {
      const lines = [...pane.text.keys()].map((i) => i + 1);
      const only = this.only
        ? lines.filter((line) => pane.groups[line]!.some((g) => this.pinned.has(g)))
        : null;
      pane.show(this.wrap, only);
    }
    this.wrapButton.setAttribute('aria-pressed', String(this.wrap));
    this.onlyButton.setAttribute('aria-pressed', String(this.only));
  }

  private toggle(what: 'wrap' | 'only'): void {
    this[what] = !this[what];
    this.showLines();
    for (const pane of this.panes) if (this.pinned.size) this.revealIn(pane, this.pinned);
    this.remember();
  }

  data(data: CodeData): void {
    this.data_ = data;
    this.hover.clear();
    this.pinned.clear();
    this.pinnedAt = null;
    this.panes = data.panes.map((pane, i) => new Pane(pane, i, data.groups, this));
    const parts = this.panes.flatMap((pane, i) =>
      i === 0 ? [pane.root] : [this.splitter(this.panes[i - 1]!, pane), pane.root],
    );
    replace(this.body, ...parts);
    this.showPanes();
    this.showLines();
    this.openAt(data.hot ?? 0);
    this.title.textContent = data.title ?? '';
    this.showLabel();
  }

  /** Scrolls the first pane to a line, the others to most of the code it became; if there
   * is none (an inlined call), to that of the nearest line. */
  private openAt(line: number): void {
    const [first, ...others] = this.panes;
    if (!first || line < 1) return;
    first.reveal(line, 0.35, true);
    if (!this.wrap) first.showIndented(line);
    for (const pane of others) {
      const paneGroups = new Set(pane.groups.flat());
      for (let distance = 0; distance <= first.groups.length; distance++) {
        const nearGroups = [line - distance, line + distance].flatMap((at) => first.groups[at] ?? []);
        const common = new Set(nearGroups.filter((group) => paneGroups.has(group)));
        if (!common.size) continue;
        pane.reveal(densest(pane.groups, common), 0.35, true);
        break;
      }
    }
  }

  theme(palette: Palette): void {
    this.dark = palette.dark;
    for (const pane of this.panes) pane.lines.refresh();
  }

  selected(selection: Selection): void {
    const ops = selection.ops ?? (selection.op === undefined ? undefined : [selection.op]);
    if (ops !== undefined) {
      const groups = this.data_.groups.flatMap((group, g) =>
        group.op !== undefined && ops.includes(group.op) ? [g] : [],
      );
      const isPinned = groups.some((g) => this.pinned.has(g));
      if (selection.ops ? !isPinned || this.pinned.size === 0 : groups.length && !isPinned) {
        this.pinned = new Set(groups);
        this.pinnedAt = null;
        if (this.only) this.showLines();
        this.mark();
        for (const pane of this.panes) this.revealIn(pane, this.pinned);
      }
      return;
    }
    const { line } = selection;
    const pane = line && this.panes[line.pane];
    if (!pane || (this.pinnedAt?.pane === line.pane && this.pinnedAt.line === line.line)) return;
    this.pinned = new Set(pane.groups[line.line] ?? []);
    this.pinnedAt = line;
    this.mark();
    for (const each of this.panes) this.revealIn(each, this.pinned);
  }

  state(state: Record<string, unknown>): void {
    const sync = state.sync === true;
    const hidden = Array.isArray(state.hidden) ? state.hidden.map(String) : [];
    const [wrap, only] = [state.wrap === true, state.only === true];
    if (wrap !== this.wrap || only !== this.only) {
      [this.wrap, this.only] = [wrap, only];
      this.showLines();
    }
    if (sync === this.sync && hidden.join() === [...this.hidden].join()) return;
    this.sync = sync;
    this.syncButton.setAttribute('aria-pressed', String(sync));
    this.hidden.clear();
    for (const title of hidden) this.hidden.add(title);
    this.showPanes();
  }

  private remember(): void {
    const hidden = [...this.hidden];
    const { sync: _sync, hidden: _hidden, wrap: _wrap, only: _only, ...rest } = this.frame.link.dict<Record<string, unknown>>('state');
    const flags = Object.entries({ sync: this.sync, wrap: this.wrap, only: this.only }).filter(([, on]) => on);
    this.frame.link.write('state', { ...rest, ...Object.fromEntries(flags), ...(hidden.length ? { hidden } : {}) });
  }

  /** The panes that are not hidden, only the first if there is room for one; all if none would
   * be left. */
  private showPanes(): void {
    const chosen = this.panes.filter((pane) => !this.hidden.has(pane.data.title));
    const visible = this.narrow ? (chosen.length ? chosen : this.panes).slice(0, 1) : chosen;
    const all = visible.length === 0;
    let hasVisibleBefore = false;
    for (const part of this.body.children) {
      const pane = this.panes.find((each) => each.root === part);
      if (!pane) continue;
      pane.root.hidden = !all && !visible.includes(pane);
      const splitter = pane.root.previousElementSibling as HTMLElement | null;
      if (splitter) splitter.hidden = pane.root.hidden || !hasVisibleBefore;
      hasVisibleBefore ||= !pane.root.hidden;
    }
    replace(
      this.paneButtons,
      ...(this.panes.length < 2 ? [] : this.panes).map(({ root, data: { title } }) => {
        const toggle = button(title, `Show or hide: ${title}`, () => this.togglePane(title));
        toggle.setAttribute('aria-pressed', String(!root.hidden));
        return toggle;
      }),
    );
  }

  private togglePane(title: string): void {
    const visible = this.panes.filter((pane) => !pane.root.hidden);
    if (this.narrow) {
      // One text at a time: this one.
      for (const { data } of this.panes) {
        if (data.title === title) this.hidden.delete(data.title);
        else this.hidden.add(data.title);
      }
    } else {
      if (!this.hidden.has(title) && visible.length === 1) return;
      if (!this.hidden.delete(title)) this.hidden.add(title);
    }
    this.showPanes();
    if (this.wrap) this.showLines(); // a hidden pane had no width
    this.remember();
    for (const pane of this.panes) if (this.pinned.size) this.revealIn(pane, this.pinned);
  }

  hue(group: number): string {
    const hue = HUES[group % HUES.length]!;
    return this.dark ? `hsl(${hue} 45% 48%)` : `hsl(${hue} 55% 66%)`;
  }

  markRow(row: HTMLElement, pane: Pane, line: number): void {
    const groups = pane.groups[line]!;
    row.classList.toggle('hover', groups.some((g) => this.hover.has(g)));
    row.classList.toggle('pinned', groups.some((g) => this.pinned.has(g)));
  }

  private mark(): void {
    for (const pane of this.panes) pane.mark();
    this.showLabel();
  }

  private showLabel(): void {
    const active = this.pinned.size ? this.pinned : this.hover;
    const names = [...new Set([...active].map((g) => this.data_.groups[g]!.label).filter(Boolean))];
    const counts = this.panes.map(
      (pane) => pane.groups.filter((list) => list.some((g) => active.has(g))).length,
    );
    this.label.textContent = active.size ? [`${counts.join(' ↔ ')} lines`, ...names.slice(0, 3)].join('   ') : '';
    this.label.title = names.join('\n');
  }

  hoverLine(pane: Pane, line: number): void {
    this.leader = pane;
    const groups = line ? pane.groups[line]! : [];
    if (groups.length === this.hover.size && groups.every((g) => this.hover.has(g))) return;
    this.hover = new Set(groups);
    this.mark();
  }

  pin(pane: Pane, line: number): void {
    const groups = pane.groups[line]!;
    this.pinned = new Set(groups);
    this.pinnedAt = { pane: pane.index, line };
    this.mark();
    for (const other of this.panes) if (other !== pane) this.revealIn(other, this.pinned);
    const next: Selection = { ...this.frame.link.dict<Selection>('selection') };
    next.line = this.pinnedAt;
    if (this.data_.kernel !== undefined) next.kernel = this.data_.kernel;
    const op = groups.map((g) => this.data_.groups[g]!.op).find((key) => key !== undefined);
    if (op !== undefined) {
      next.op = op;
      delete next.scope;
    }
    this.frame.link.write('selection', next);
    announce(this.frame.root, this.label.textContent ?? '');
  }

  private revealIn(pane: Pane, groups: ReadonlySet<number>): void {
    const line = pane.groups.findIndex((list) => list.some((g) => groups.has(g)));
    if (line <= 0) return;
    pane.reveal(line);
    if (!this.wrap) pane.showIndented(line);
  }

  /** When scrolling together, the other panes follow the line in the middle of this one. */
  scrolled(pane: Pane): void {
    if (!this.sync || pane !== this.leader) return;
    const [first, last] = pane.lines.range();
    const middle = pane.lineAt(Math.floor((first + last) / 2));
    for (let distance = 0; distance < last - first; distance++) {
      for (const line of [middle - distance, middle + distance]) {
        const groups = pane.groups[line];
        if (!groups?.length) continue;
        const targets = new Set(groups);
        for (const other of this.panes) {
          if (other === pane) continue;
          const target = other.groups.findIndex((list) => list.some((g) => targets.has(g)));
          const share = (line - 1 - first) / Math.max(1, last - first);
          if (target > 0) other.reveal(target, share, true);
        }
        return;
      }
    }
  }

  private toggleSync(): void {
    this.sync = !this.sync;
    this.syncButton.setAttribute('aria-pressed', String(this.sync));
    this.remember();
  }

  private splitter(left: Pane, right: Pane): HTMLElement {
    const bar = h('div', {
      class: 'split',
      role: 'separator',
      'aria-orientation': 'vertical',
      'aria-label': `Width of ${left.data.title}: left and right`,
      'aria-valuenow': 50,
      tabindex: 0,
    });
    /** Ready to move the border by pixels. */
    const startMove = () => {
      const [a, b] = [left.root.offsetWidth, right.root.offsetWidth];
      for (const pane of this.panes) {
        if (pane !== left && pane !== right) pane.root.style.flex = `${pane.root.offsetWidth} 1 0`;
      }
      return (offset: number) => {
        const by = Math.min(b - 80, Math.max(80 - a, offset));
        left.root.style.flex = `${a + by} 1 0`;
        right.root.style.flex = `${b - by} 1 0`;
        bar.setAttribute('aria-valuenow', String(Math.round((100 * (a + by)) / (a + b))));
      };
    };
    bar.addEventListener('keydown', (event) => {
      const by = { ArrowLeft: -24, ArrowRight: 24 }[event.key];
      if (by === undefined) return;
      startMove()(by);
      event.preventDefault();
      event.stopPropagation();
    });
    bar.addEventListener('pointerdown', (event) => {
      bar.setPointerCapture(event.pointerId);
      const moveBy = startMove();
      const move = (next: PointerEvent) => moveBy(next.clientX - event.clientX);
      bar.addEventListener('pointermove', move);
      bar.addEventListener('pointerup', () => bar.removeEventListener('pointermove', move), {
        once: true,
      });
    });
    return bar;
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const focus = event.composedPath()[0] as HTMLElement;
    const pane = this.panes.find((each) => each.lines.root === focus);
    const actions: Record<string, () => void> = {
      s: () => this.toggleSync(),
      j: () => this.stepLine(pane ?? this.panes[0]!, 1),
      k: () => this.stepLine(pane ?? this.panes[0]!, -1),
      w: () => this.toggle('wrap'),
      o: () => this.toggle('only'),
      c: () => pane && void copy(pane.data.text, this.frame.root),
      '?': () => (this.help.hidden = !this.help.hidden),
      Escape: () => {
        this.help.hidden = true;
        this.pinned = new Set();
        this.pinnedAt = null;
        this.mark();
      },
    };
    const action = actions[event.key];
    if (!action) return;
    action();
    event.preventDefault();
    event.stopPropagation();
  }

  private stepLine(pane: Pane, by: number): void {
    let line = this.pinnedAt?.pane === pane.index ? this.pinnedAt.line : by > 0 ? 0 : pane.text.length + 1;
    do line += by;
    while (line > 0 && line <= pane.text.length && pane.groups[line]!.length === 0);
    if (line < 1 || line > pane.text.length) return;
    this.pin(pane, line);
    pane.reveal(line);
  }
}

export default define<CodeData | { two: TwoCodes }>('code', STYLE + TWO_STYLE, (frame) =>
  oneOrTwo<CodeData, TwoCodes>(
    frame,
    () => new CodeView(frame),
    () => new TwoCodesView(frame),
  ),
);
