/** The side panel of two maps: the buffers alive at both peaks, their change by passes, the arenas of other planners, and for
 * two training steps the values saved for the backward pass; A | B | B − A. */

import { button, h, replace } from '../shared/dom';
import { bytes, signed } from '../shared/format';
import type { ViewLink } from '../shared/host';
import { type OfferRow, type PlannerRow, tone } from './answers';
import type { Matched, SideIndex } from './matched';
import type { TierPlan } from './model';
import { header, Tabs } from './tabs';
import { backward, type BothSides, type Listing, passes, type PassesOfBoth, peaks, planners, type Row } from './two_rows';

export const TWO_SIDE_STYLE = `
.cw-memory .peaks { width: 372px; flex: none; display: flex; flex-direction: column; min-height: 0; border-left: 1px solid var(--line); background: var(--surface); }
.cw-memory .peaks .list { overflow: auto; flex: 1; min-height: 0; outline: none; } .cw-memory .peaks .list:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.cw-memory .peaks table { border-collapse: separate; border-spacing: 0; width: 100%; table-layout: fixed; font-variant-numeric: tabular-nums; }
.cw-memory .peaks th { position: sticky; top: 0; background: var(--raised); font-weight: 600; text-align: right; padding: 3px 6px; border-bottom: 1px solid var(--line); z-index: 1; }
.cw-memory .peaks th:first-child, .cw-memory .peaks td:first-child { text-align: left; padding-left: 10px; } .cw-memory .peaks th + th { width: 74px; } .cw-memory .peaks th:last-child { width: 86px; }
.cw-memory .peaks td { text-align: right; padding: 3px 6px; border-bottom: 1px solid color-mix(in srgb, var(--line) 45%, transparent); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; vertical-align: top; }
.cw-memory .peaks td div { overflow: hidden; text-overflow: ellipsis; color: var(--muted); }
.cw-memory .peaks td .whole { white-space: normal; overflow-wrap: anywhere; }
.cw-memory .peaks td[colspan] { white-space: normal; color: var(--muted); padding: 7px 10px; }
.cw-memory .peaks tbody tr.to { cursor: pointer; } .cw-memory .peaks tbody tr.to:hover { background: var(--raised); } .cw-memory .peaks tbody tr.on { background: var(--accentSoft); }
.cw-memory .peaks .more { color: var(--removed); } .cw-memory .peaks .less { color: var(--added); } .cw-memory .peaks .faint { color: var(--faint); } .cw-memory .peaks .guess { font-style: italic; }
`;

/** A buffer's name takes one line; the name of a pass or a planner can wrap. */
function nameOf({ name, buffers, guessed }: Row): HTMLElement {
  if (buffers) return h('span', guessed ? { class: 'guess' } : {}, `${guessed ? '≈ ' : ''}${name}`);
  const parts = name.split(/(?<=_)/).flatMap((part) => [part, h('wbr')]);
  return h('span', { class: 'whole' }, ...parts);
}

export interface Hooks {
  select(side: SideIndex, buffer: number): void;
  /** A tab was opened or closed. */
  tabChanged(): void;
  announce(text: string): void;
}

export class TwoSide {
  readonly root = h('aside', { class: 'peaks', 'aria-label': 'A beside B' });
  readonly tabs: Tabs;
  private readonly list = h('div', { class: 'list', tabindex: 0, role: 'region' });
  private matched: Matched | null = null;
  private plans: readonly [TierPlan, TierPlan] | null = null;
  private listing: Listing | null = null;
  /** The selectable rows and their elements. */
  private rows = new Map<Row, HTMLElement>();
  private selected: readonly [number, number] = [-1, -1];
  /** The name of the pass at the keyboard cursor. */
  private pass = '';
  private all = false;

  constructor(
    link: ViewLink,
    private readonly hooks: Hooks,
  ) {
    this.tabs = new Tabs(link, { root: this.root, draw: () => this.draw(), tabChanged: () => hooks.tabChanged() });
    this.list.addEventListener('keydown', (event) => this.key(event));
  }

  setData(matched: Matched): void {
    const { a, b, asks } = matched.two;
    this.matched = matched;
    this.plans = null;
    const isTraining = a.border !== undefined && b.border !== undefined;
    this.tabs.setAvailable((name) => (name === 'backward' ? isTraining : name === 'peak' || Boolean(asks)));
  }

  /** The plans of the shown tier. */
  update(plans: readonly [TierPlan, TierPlan]): void {
    this.plans = plans;
    this.draw();
  }

  /** The downloads of the list. */
  csv(): string {
    return this.listing?.csv() ?? '';
  }

  count(): number {
    return this.rows.size;
  }

  // -------------------------------------------------------------- the list

  private draw(): void {
    const { matched, plans, tabs } = this;
    if (!matched || !plans || tabs.name === '') return;
    if (tabs.name === 'peak') this.show(peaks(matched, plans));
    else if (tabs.name === 'passes') void tabs.drawAnswer<PassesOfBoth>('passes', (answer) => this.showPasses(answer));
    else if (tabs.name === 'planners') void tabs.drawAnswer<BothSides<PlannerRow>>('planners', (answer) => this.show(planners(answer)));
    else if (!matched.two.asks) this.show(backward(matched, plans, null));
    else void tabs.drawAnswer<BothSides<OfferRow>>('again', (answer) => this.show(backward(matched, this.plans!, answer)), 'backward');
  }

  private showPasses(answer: PassesOfBoth): void {
    const toggle = (label: string) =>
      button(label, 'Show all passes, or those that changed a peak', () => {
        this.all = !this.all;
        this.showPasses(answer);
      });
    this.show(passes(answer, this.all, toggle));
  }

  private show(listing: Listing): void {
    this.listing = listing;
    this.rows = new Map();
    const heads = [listing.head, 'A', 'B', 'B − A'].map((title) => h('th', { scope: 'col' }, title));
    const lines = listing.lines.map((line) => (line instanceof Node ? h('tr', {}, h('td', { colspan: 4 }, line)) : this.line(line)));
    const keys = this.rows.size ? ': up and down select' : '';
    this.list.setAttribute('aria-label', `${listing.label}${keys}`);
    replace(this.list, h('table', {}, h('thead', {}, h('tr', {}, ...heads)), h('tbody', {}, ...lines)));
    replace(this.root, header(listing.description, listing.csv, listing.file), this.list);
    this.showSelected();
  }

  private line(row: Row): HTMLElement {
    const isSelectable = row.buffers !== undefined || row.stage !== undefined;
    const more: Record<string, string | (() => void)> = isSelectable ? { class: 'to', click: () => this.choose(row) } : {};
    const node = h(
      'tr',
      { ...row.marks, ...more },
      h('td', { title: row.hint }, nameOf(row), h('div', {}, row.minor)),
      ...row.cells.map(({ text, minor, tone: kind = '', hint = '' }) =>
        minor === undefined ? h('td', { class: kind, title: hint }, text) : h('td', { title: hint }, text, h('div', { class: kind }, minor)),
      ),
      h('td', { class: tone(row.difference) }, signed(row.difference, bytes)),
    );
    if (isSelectable) this.rows.set(row, node);
    return node;
  }

  // -------------------------------------------------------------- selection

  /** Marks the selected buffers of A and of B; -1: none. */
  mark(a: number, b: number): void {
    this.selected = [a, b];
    this.showSelected();
  }

  private isSelected({ buffers, name }: Row): boolean {
    return buffers ? buffers.some((number, side) => number >= 0 && number === this.selected[side]) : name === this.pass;
  }

  private showSelected(): void {
    for (const [row, node] of this.rows) {
      const on = this.isSelected(row);
      node.classList.toggle('on', on);
      node.setAttribute('aria-selected', String(on));
      if (on) node.scrollIntoView({ block: 'nearest' });
    }
  }

  /** The action of a click and of Enter. */
  private choose(row: Row): void {
    this.selectRow(row);
    if (row.stage !== undefined) this.tabs.goToStage(row.stage);
  }

  /** Arrow keys reached a row: its buffer is selected immediately, its stage needs Enter. */
  private selectRow(row: Row): void {
    if (row.buffers) {
      const [a, b] = row.buffers;
      return a >= 0 ? this.hooks.select(0, a) : this.hooks.select(1, b);
    }
    this.pass = row.name;
    this.showSelected();
    const [a, b] = row.cells;
    this.hooks.announce(`${row.name}, A ${a.text}, B ${b.text}`);
  }

  private key(event: KeyboardEvent): void {
    if (event.target !== this.list || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = [...this.rows.keys()];
    const at = rows.findIndex((row) => this.isSelected(row));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (event.key === 'Enter' && at >= 0) this.choose(rows[at]!);
    else if (to !== undefined && rows[to]) this.selectRow(rows[to]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
