/** The side panel of the map: the buffers alive at the peak, its change by each pass, the arenas of other
 * planners, and for a training step the values saved for the backward pass. */

import { button, h, replace } from '../shared/dom';
import { csvText } from '../shared/download';
import { basename, bytes, count, plural } from '../shared/format';
import type { ViewLink } from '../shared/host';
import {
  passesDescription,
  plannersDescription,
  extraWork,
  gapPercent,
  recomputedLaunches,
  peakChange,
  OFFERED,
  type OfferRow,
  OUT_OF_REACH,
  type PassRow,
  passCount,
  type PlannerRow,
  provedBound,
  tone,
} from './answers';
import { aliveAtPeak, type MemoryData, savedForBackward, type TierPlan } from './model';
import { header, Tabs, TABS_STYLE } from './tabs';

/** Rows beyond this many are counted, not listed. */
const MAX_ROWS = 300;

export const SIDE_STYLE = `${TABS_STYLE}
.cw-memory .main { display: flex; flex: 1; min-height: 0; }
.cw-memory .side { width: 316px; flex: none; display: flex; flex-direction: column; min-height: 0;
  border-left: 1px solid var(--line); background: var(--surface); font-variant-numeric: tabular-nums; }
.cw-memory .side .list { overflow-y: auto; flex: 1; min-height: 0; outline: none; }
.cw-memory .side .item { display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 0 8px; padding: 4px 10px; position: relative;
  border-bottom: 1px solid color-mix(in srgb, var(--line) 45%, transparent); }
.cw-memory .side .item.to { cursor: pointer; } .cw-memory .side .item.to:hover { background: var(--raised); }
.cw-memory .side .item.on { background: var(--accentSoft); }
.cw-memory .side .item i { position: absolute; left: 0; bottom: 0; height: 3px; background: var(--accent); opacity: .55; border-radius: 0 2px 2px 0; }
.cw-memory .side .item span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; position: relative; }
.cw-memory .side .item .minor { color: var(--muted); grid-column: 1; } .cw-memory .side .item .right { text-align: right; grid-column: 2; }
.cw-memory .side .item .more { color: var(--removed); } .cw-memory .side .item .less { color: var(--added); } .cw-memory .side .item .faint { color: var(--faint); }
`;

export interface Hooks {
  select(buffer: number): void;
  /** A tab was opened or closed. */
  tabChanged(): void;
}

export class Side {
  readonly root = h('aside', { class: 'side', 'aria-label': 'What sets the peak' });
  readonly tabs: Tabs;
  private data: MemoryData | null = null;
  private plan: TierPlan | null = null;
  private selected = -1;
  private all = false;

  constructor(
    link: ViewLink,
    private readonly hooks: Hooks,
  ) {
    this.tabs = new Tabs(link, { root: this.root, draw: () => this.draw(), tabChanged: () => hooks.tabChanged() });
  }

  setData(data: MemoryData): void {
    this.data = data;
    this.tabs.setAvailable((name) => (name === 'backward' ? data.border !== undefined : name === 'peak' || Boolean(data.asks)));
  }

  update(plan: TierPlan, selected: number): void {
    if (plan === this.plan && selected === this.selected) return;
    const same = plan === this.plan;
    this.plan = plan;
    this.selected = selected;
    if (same && (this.tabs.name === 'peak' || this.tabs.name === 'backward')) this.mark();
    else if (!same) this.draw();
  }

  private draw(): void {
    const { data, plan, tabs } = this;
    if (!data || !plan || tabs.name === '') return;
    if (tabs.name === 'peak') this.drawPeak(data, plan);
    else if (tabs.name === 'passes') void tabs.drawAnswer<PassRow[]>('passes', (rows) => this.drawPasses(rows));
    else if (tabs.name === 'planners') void tabs.drawAnswer<PlannerRow[]>('planners', (rows) => this.drawPlanners(rows));
    else this.drawBackward(data, plan);
  }

  private frame(description: (Node | string)[], rows: Node[], csv: () => string, file: string): void {
    replace(this.root, header(description, csv, file), h('div', { class: 'list', tabindex: 0, role: 'list' }, ...rows));
  }

  // -------------------------------------------------------------- at the peak

  private drawPeak(data: MemoryData, plan: TierPlan): void {
    const at = plan.peakStep;
    const alive = aliveAtPeak(data, plan);
    const rows = alive.slice(0, MAX_ROWS).map((b) => this.bufferRow(data, b, plan.peak));
    const label = data.step_label?.[at];
    this.frame(
      [
        h('b', {}, `${bytes(plan.peak)} in ${plural(alive.length, 'buffer')}`),
        ` alive at position ${count(at)}${label ? `, ${label}` : ''}${alive.length > MAX_ROWS ? `; the ${MAX_ROWS} largest` : ''}`,
      ],
      rows,
      () => buffersCsv(data, alive),
      'peak.csv',
    );
    this.mark();
  }

  private mark(): void {
    const key = this.selected < 0 ? undefined : String(this.data!.buffers.key[this.selected]);
    for (const item of this.root.querySelectorAll<HTMLElement>('[data-buffer]')) {
      item.classList.toggle('on', item.dataset.buffer === key);
    }
  }

  // -------------------------------------------------------------- by pass

  private drawPasses(rows: PassRow[]): void {
    const largest = Math.max(1, ...rows.map((row) => row.bytes));
    const visible = this.all ? rows : rows.filter((row, i) => row.changed || i === 0 || i === rows.length - 1);
    const first = rows[0]?.stage ?? 0;
    const list = visible.map((row) => {
      const { text, change } = peakChange(rows, row);
      const bar = h('i');
      bar.style.width = `${(100 * row.bytes) / largest}%`;
      return this.item(
        { 'data-stage': String(row.stage), title: `${row.pass}: ${count(row.bytes)} B alive at most` },
        () => this.tabs.goToStage(row.stage),
        bar,
        h('span', {}, `${String(row.stage).padStart(2, '0')} ${row.pass}`),
        h('span', { class: 'right' }, bytes(row.bytes)),
        h('span', { class: `minor ${tone(change)}` }, text),
      );
    });
    const hidden = rows.length - visible.length;
    if (hidden || this.all) {
      list.push(
        h('p', {}, button(this.all ? 'only changes' : `${passCount(hidden)} did not change it`, 'Show all passes, or those that changed the peak', () => {
          this.all = !this.all;
          this.drawPasses(rows);
        })),
      );
    }
    if (first) list.unshift(h('p', {}, `The previous ${plural(first, 'stage')} are not included: ${OUT_OF_REACH}.`));
    this.frame(
      passesDescription(),
      list,
      () => csvText(['stage', 'pass', 'peak_bytes'], rows.map((row) => [row.stage, row.pass, row.bytes])),
      'peak-by-pass.csv',
    );
  }

  // -------------------------------------------------------------- planners

  private drawPlanners(rows: PlannerRow[]): void {
    const largest = Math.max(1, ...rows.map((row) => row.bytes));
    const list = rows.map((row) => {
      const bar = h('i');
      bar.style.width = `${(100 * row.bytes) / largest}%`;
      const gap = gapPercent(row);
      return this.item(
        { 'data-planner': row.planner },
        null,
        bar,
        h('span', {}, `${row.planner}${row.used ? '  (this plan)' : ''}`),
        h('span', { class: 'right' }, bytes(row.bytes)),
        h('span', { class: `minor ${gap > 0 ? 'more' : 'less'}` }, gap > 0 ? `${gap.toFixed(1)} % above the bound` : 'optimal: at the bound'),
        h('span', { class: 'right faint' }, `${row.ms.toFixed(1)} ms`),
      );
    });
    this.frame(
      plannersDescription(),
      list,
      () =>
        csvText(
          ['planner', 'arena_bytes', 'bound_bytes', 'milliseconds'],
          rows.map((row) => [row.planner, row.bytes, row.bound, row.ms]),
        ),
      'planners.csv',
    );
  }

  // -------------------------------------------------------------- for backward

  private drawBackward(data: MemoryData, plan: TierPlan): void {
    const { buffers } = data;
    const saved = savedForBackward(data, plan, data.border!);
    const total = saved.reduce((sum, b) => sum + buffers.size[b]!, 0);
    const description = [
      h('b', {}, `${bytes(total)} in ${plural(saved.length, 'buffer')}`),
      ' saved for the backward pass: written before the loss, read after it',
    ];
    const rows = saved.slice(0, MAX_ROWS).map((b) => this.bufferRow(data, b, total));
    const csv = () => buffersCsv(data, saved);
    const showOffers = (offers: OfferRow[] | null) => {
      const more = offers?.length ? [...this.offerRows(offers), h('p', {}, 'Saved values, largest first:')] : [];
      this.frame(description, [...more, ...rows], csv, 'saved-for-backward.csv');
      this.mark();
    };
    if (data.asks) void this.tabs.drawAnswer<OfferRow[]>('again', showOffers, 'backward');
    else showOffers(null);
  }

  private offerRows(offers: OfferRow[]): Node[] {
    const bound = offers.find((row) => row.chosen)?.bound ?? 0;
    const lines = offers.map((row) => {
      const bar = h('i');
      bar.style.width = `${100 * Math.min(1, row.part)}%`;
      return this.item(
        { 'data-offer': String(row.again), class: row.chosen ? 'item on' : 'item', title: OFFERED },
        null,
        bar,
        h('span', {}, `${bytes(row.held)} held${row.chosen ? '  (this program)' : ''}`),
        h('span', { class: 'right' }, `${(100 * row.part).toFixed(0)} %`),
        h('span', { class: 'minor' }, recomputedLaunches(row)),
        h('span', { class: `right ${row.extra > 0 ? 'more' : 'faint'}` }, `${extraWork(row)} work`),
      );
    });
    return [h('p', { title: OFFERED }, `Kept or recomputed. ${provedBound(bound)}`), ...lines];
  }

  // -------------------------------------------------------------- parts

  /** A buffer with its share of ``total`` bytes, its op and its place in the model. */
  private bufferRow(data: MemoryData, b: number, total: number): HTMLElement {
    const { buffers } = data;
    const location = buffers.place?.[b] ?? '';
    const what = buffers.what?.[b] ?? '';
    const share = total ? (100 * buffers.size[b]!) / total : 0;
    const bar = h('i');
    bar.style.width = `${share}%`;
    return this.item(
      { 'data-buffer': String(buffers.key[b]), title: `${buffers.name[b]}\n${buffers.type?.[b] ?? ''}\n${what}\n${location}` },
      () => this.hooks.select(b),
      bar,
      h('span', {}, buffers.name[b]!),
      h('span', { class: 'right' }, bytes(buffers.size[b]!)),
      h('span', { class: 'minor' }, what || (buffers.type?.[b] ?? '')),
      h('span', { class: 'right faint' }, `${share.toFixed(1)} %`),
      location ? h('span', { class: 'minor place' }, basename(location)) : null,
    );
  }

  private item(attributes: Record<string, string>, action: (() => void) | null, ...content: (Node | null)[]): HTMLElement {
    const item = h('div', { class: action ? 'item to' : 'item', role: 'listitem', ...attributes }, ...content);
    if (action) {
      item.tabIndex = 0;
      item.addEventListener('click', action);
      item.addEventListener('keydown', (event) => {
        if (event.key === 'Enter') action();
      });
    }
    return item;
  }
}

function buffersCsv({ buffers }: MemoryData, listed: number[]): string {
  const rows = listed.map((b) => [buffers.name[b]!, buffers.size[b]!, buffers.what?.[b], buffers.place?.[b]]);
  return csvText(['buffer', 'size_bytes', 'computes', 'place'], rows);
}
