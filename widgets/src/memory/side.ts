/** Beside the map: what is alive at the peak, how each pass moved it, other planners' arenas, and of a
 * training step what is saved for its backward pass. */

import { button, h, replace } from '../shared/dom';
import { csvText, saveText } from '../shared/download';
import { bytes, count, plural } from '../shared/format';
import type { Ties } from '../shared/host';
import type { MemoryData, TierPlan } from './model';

/** Rows beyond this many are counted, not listed. */
const MOST = 300;

export const SIDE_STYLE = `
.cw-memory .main { display: flex; flex: 1; min-height: 0; }
.cw-memory .side { width: 316px; flex: none; display: flex; flex-direction: column; min-height: 0;
  border-left: 1px solid var(--line); background: var(--surface); font-variant-numeric: tabular-nums; }
.cw-memory .side[hidden] { display: none; }
.cw-memory .side header { padding: 6px 10px; border-bottom: 1px solid var(--line); color: var(--muted); display: flex; gap: 8px; align-items: start; }
.cw-memory .side header > div { flex: 1; min-width: 0; }
.cw-memory .side header b { color: var(--text); font-weight: 600; }
.cw-memory .side .list { overflow-y: auto; flex: 1; min-height: 0; outline: none; }
.cw-memory .side .item { display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 0 8px; padding: 4px 10px; position: relative;
  border-bottom: 1px solid color-mix(in srgb, var(--line) 45%, transparent); }
.cw-memory .side .item.to { cursor: pointer; } .cw-memory .side .item.to:hover { background: var(--raised); }
.cw-memory .side .item.on { background: var(--accentSoft); }
.cw-memory .side .item i { position: absolute; left: 0; bottom: 0; height: 3px; background: var(--accent); opacity: .55; border-radius: 0 2px 2px 0; }
.cw-memory .side .item span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; position: relative; }
.cw-memory .side .item .minor { color: var(--muted); grid-column: 1; } .cw-memory .side .item .right { text-align: right; grid-column: 2; }
.cw-memory .side .item .more { color: var(--removed); } .cw-memory .side .item .less { color: var(--added); } .cw-memory .side .item .faint { color: var(--faint); }
.cw-memory .side p { padding: 8px 10px; margin: 0; color: var(--muted); }
`;

export const SIDES = ['peak', 'passes', 'planners', 'backward'] as const;
export type SideName = (typeof SIDES)[number] | '';
const TITLES: Record<string, [string, string]> = {
  peak: ['at peak', 'The buffers that are alive where most bytes are'],
  passes: ['by pass', 'How each pass moved the peak'],
  planners: ['planners', 'The arena that each planner needs for these buffers'],
  backward: ['backward', 'What is saved for the backward pass, and what doing some of it again costs'],
};

const MEANING =
  'The most bytes alive at once if the ops of the stage ran one by one, each result in memory of its own ' +
  'from its op through its last use. Views that move nothing have none.';

interface PassRow {
  stage: number;
  pass: string;
  bytes: number;
  op: number | null;
  changed: boolean;
}

interface PlannerRow {
  planner: string;
  bytes: number;
  bound: number;
  ms: number;
  used: boolean;
}

/** A choice of launches that are done again for the backward pass; `extra`: part of all work. */
interface OfferRow {
  held: number;
  part: number;
  extra: number;
  bound: number;
  peak: number;
  again: number;
  chosen: boolean;
}

export interface Hooks {
  select(buffer: number): void;
  shown(name: SideName): void;
}

const base = (place: string) => place.slice(Math.max(place.lastIndexOf('/'), place.lastIndexOf('\\')) + 1);

export class Side {
  readonly root = h('aside', { class: 'side', 'aria-label': 'What sets the peak' });
  readonly tabs: HTMLElement;
  name: SideName = 'peak';
  private data: MemoryData | null = null;
  private plan: TierPlan | null = null;
  private selected = -1;
  private all = false;
  private readonly answers = new Map<string, unknown>();
  private number = 0;
  private readonly buttons: HTMLButtonElement[];

  constructor(
    private readonly link: Ties,
    private readonly hooks: Hooks,
  ) {
    this.buttons = SIDES.map((name) => {
      const [title, hint] = TITLES[name]!;
      const tab = button(title, hint, () => {
        this.show(this.name === name ? '' : name);
        this.hooks.shown(this.name);
      });
      tab.dataset.side = name;
      return tab;
    });
    this.tabs = h('span', { class: 'group', role: 'group', 'aria-label': 'Beside the map' }, ...this.buttons);
    this.show('peak');
  }

  show(name: SideName): void {
    this.name = name;
    this.root.hidden = name === '';
    this.buttons.forEach((tab, i) => tab.setAttribute('aria-pressed', String(SIDES[i] === name)));
    this.draw();
  }

  /** New data: what was asked of the old is forgotten. */
  take(data: MemoryData): void {
    this.data = data;
    this.answers.clear();
    for (const tab of this.buttons) {
      const side = tab.dataset.side;
      tab.hidden = side === 'backward' ? data.border === undefined : side !== 'peak' && !data.asks;
    }
  }

  update(plan: TierPlan, selected: number): void {
    if (plan === this.plan && selected === this.selected) return;
    const same = plan === this.plan;
    this.plan = plan;
    this.selected = selected;
    if (same && (this.name === 'peak' || this.name === 'backward')) this.mark();
    else if (!same) this.draw();
  }

  private draw(): void {
    if (!this.data || !this.plan || this.name === '') return;
    if (this.name === 'peak') this.drawPeak(this.data, this.plan);
    else if (this.name === 'passes') void this.asked<PassRow>('passes', (rows) => this.drawPasses(rows));
    else if (this.name === 'planners') void this.asked<PlannerRow>('planners', (rows) => this.drawPlanners(rows));
    else this.drawBackward(this.data, this.plan);
  }

  /** Draws the rows that the host answers to `kind`, if its side (of the same name) is still open then. */
  private async asked<T>(kind: string, draw: (rows: T[]) => void, side: string = kind): Promise<void> {
    const known = this.answers.get(kind) as T[] | undefined;
    if (known) return draw(known);
    replace(this.root, h('p', { role: 'status' }, 'Working it out… (a page without the workbench behind it has no answer)'));
    try {
      const rows = await this.link.ask<T[]>(kind, {});
      this.answers.set(kind, rows);
      if (this.name === side) draw(rows);
    } catch (error) {
      if (this.name === side) replace(this.root, h('p', { role: 'alert' }, `It could not be worked out: ${(error as Error).message}`));
    }
  }

  private frame(about: (Node | string)[], rows: Node[], csv: () => string, file: string): void {
    replace(
      this.root,
      h(
        'header',
        {},
        h('div', {}, ...about),
        button('CSV', 'Download this list as CSV', () => saveText(file, csv(), 'text/csv')),
      ),
      h('div', { class: 'list', tabindex: 0, role: 'list' }, ...rows),
    );
  }

  // -------------------------------------------------------------- at the peak

  private drawPeak(data: MemoryData, plan: TierPlan): void {
    const { buffers } = data;
    const at = plan.peakStep;
    const alive = [...plan.buffers]
      .filter((b) => buffers.start[b]! <= at && at < buffers.end[b]!)
      .sort((a, b) => buffers.size[b]! - buffers.size[a]! || a - b);
    const rows = alive.slice(0, MOST).map((b) => this.bufferRow(data, b, plan.peak));
    const label = data.step_label?.[at];
    this.frame(
      [
        h('b', {}, `${bytes(plan.peak)} in ${plural(alive.length, 'buffer')}`),
        ` alive at position ${count(at)}${label ? `, ${label}` : ''}${alive.length > MOST ? `; the ${MOST} largest` : ''}`,
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
    const most = Math.max(1, ...rows.map((row) => row.bytes));
    const shown = this.all ? rows : rows.filter((row, i) => row.changed || i === 0 || i === rows.length - 1);
    const first = rows[0]?.stage ?? 0;
    const list = shown.map((row) => {
      const before = rows[row.stage - first - 1]?.bytes ?? row.bytes;
      const by = row.bytes - before;
      const bar = h('i');
      bar.style.width = `${(100 * row.bytes) / most}%`;
      return this.item(
        { 'data-stage': String(row.stage), title: `${row.pass}: ${count(row.bytes)} B alive at most` },
        () => this.send('go', { stage: row.stage }),
        bar,
        h('span', {}, `${String(row.stage).padStart(2, '0')} ${row.pass}`),
        h('span', { class: 'right' }, bytes(row.bytes)),
        h('span', { class: `minor ${by > 0 ? 'more' : by < 0 ? 'less' : 'faint'}` }, by === 0 ? (row.stage > first ? 'as before' : first ? '' : 'imported') : `${by > 0 ? '+' : '−'}${bytes(Math.abs(by))}`),
      );
    });
    const hidden = rows.length - shown.length;
    if (hidden || this.all) {
      list.push(
        h('p', {}, button(this.all ? 'only what changed' : `${plural(hidden, 'pass').replace('passs', 'passes')} left it as it was`, 'Show all passes, or those that moved the peak', () => {
          this.all = !this.all;
          this.drawPasses(rows);
        })),
      );
    }
    if (first) list.unshift(h('p', {}, `The ${plural(first, 'stage')} before are left out: so large a model takes too long to read.`));
    this.frame(
      [h('span', { title: MEANING }, h('b', {}, 'The peak after each pass'), ', ops one by one; inputs, weights, results not counted')],
      list,
      () => csvText(['stage', 'pass', 'peak_bytes'], rows.map((row) => [row.stage, row.pass, row.bytes])),
      'peak-by-pass.csv',
    );
  }

  // -------------------------------------------------------------- planners

  private drawPlanners(rows: PlannerRow[]): void {
    const most = Math.max(1, ...rows.map((row) => row.bytes));
    const list = rows.map((row) => {
      const bar = h('i');
      bar.style.width = `${(100 * row.bytes) / most}%`;
      const gap = row.bound ? 100 * (row.bytes / row.bound - 1) : 0;
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
      [h('b', {}, 'Other planners'), ' on the same buffers of the arena, just now, with little effort; no plan needs less than the bound.'],
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
    const border = data.border ?? -1;
    const saved = [...plan.buffers]
      .filter((b) => buffers.start[b]! < border && border + 1 < buffers.end[b]!)
      .sort((a, b) => buffers.size[b]! - buffers.size[a]! || a - b);
    const total = saved.reduce((sum, b) => sum + buffers.size[b]!, 0);
    const about = [
      h('b', {}, `${bytes(total)} in ${plural(saved.length, 'buffer')}`),
      ' saved for the backward pass: made before the loss, read after it',
    ];
    const rows = saved.slice(0, MOST).map((b) => this.bufferRow(data, b, total));
    const csv = () => buffersCsv(data, saved);
    const shown = (offers: OfferRow[] | null) => {
      const more = offers?.length ? [...this.offerRows(offers), h('p', {}, 'What is saved, largest first:')] : [];
      this.frame(about, [...more, ...rows], csv, 'saved-for-backward.csv');
      this.mark();
    };
    if (data.asks) void this.asked<OfferRow>('again', shown, 'backward');
    else shown(null);
  }

  private offerRows(offers: OfferRow[]): Node[] {
    const bound = offers.find((row) => row.chosen)?.bound ?? 0;
    const hint =
      'Launches of the forward pass can run a second time instead of being kept (recompute=PART). Held: the most bytes of ' +
      'forward values at any time of the backward pass. Work: predicted, of the whole step.';
    const lines = offers.map((row) => {
      const bar = h('i');
      bar.style.width = `${100 * Math.min(1, row.part)}%`;
      return this.item(
        { 'data-offer': String(row.again), class: row.chosen ? 'item on' : 'item', title: hint },
        null,
        bar,
        h('span', {}, `${bytes(row.held)} held${row.chosen ? '  (this program)' : ''}`),
        h('span', { class: 'right' }, `${(100 * row.part).toFixed(0)} %`),
        h('span', { class: 'minor' }, row.again ? `${plural(row.again, 'launch').replace('launchs', 'launches')} again` : 'nothing again'),
        h('span', { class: `right ${row.extra > 0 ? 'more' : 'faint'}` }, `+${(100 * row.extra).toFixed(1)} % work`),
      );
    });
    const proved = bound > 0 ? ` No choice within the same bytes needs less than +${(100 * bound).toFixed(1)} %.` : '';
    return [h('p', { title: hint }, `Kept, or done again.${proved}`), ...lines];
  }

  // -------------------------------------------------------------- parts

  /** A buffer with its part of ``total`` bytes, what makes it and where. */
  private bufferRow(data: MemoryData, b: number, total: number): HTMLElement {
    const { buffers } = data;
    const place = buffers.place?.[b] ?? '';
    const what = buffers.what?.[b] ?? '';
    const share = total ? (100 * buffers.size[b]!) / total : 0;
    const bar = h('i');
    bar.style.width = `${share}%`;
    return this.item(
      { 'data-buffer': String(buffers.key[b]), title: `${buffers.name[b]}\n${buffers.type?.[b] ?? ''}\n${what}\n${place}` },
      () => this.hooks.select(b),
      bar,
      h('span', {}, buffers.name[b]!),
      h('span', { class: 'right' }, bytes(buffers.size[b]!)),
      h('span', { class: 'minor' }, what || (buffers.type?.[b] ?? '')),
      h('span', { class: 'right faint' }, `${share.toFixed(1)} %`),
      place ? h('span', { class: 'minor place' }, base(place)) : null,
    );
  }

  private item(attributes: Record<string, string>, go: (() => void) | null, ...content: (Node | null)[]): HTMLElement {
    const item = h('div', { class: go ? 'item to' : 'item', role: 'listitem', ...attributes }, ...content);
    if (go) {
      item.tabIndex = 0;
      item.addEventListener('click', go);
      item.addEventListener('keydown', (event) => {
        if (event.key === 'Enter') go();
      });
    }
    return item;
  }

  private send(name: string, more: Record<string, unknown>): void {
    this.number += 1;
    this.link.write('command', JSON.stringify({ ...more, name, n: Date.now() * 1000 + (this.number % 1000) }));
  }
}

function buffersCsv({ buffers }: MemoryData, shown: number[]): string {
  const rows = shown.map((b) => [buffers.name[b]!, buffers.size[b]!, buffers.what?.[b], buffers.place?.[b]]);
  return csvText(['buffer', 'size_bytes', 'computes', 'place'], rows);
}
