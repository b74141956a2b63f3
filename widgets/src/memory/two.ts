/** The maps of two recordings, one above the other, their live bytes in one picture, and what is alive at both peaks. */

import { button, h, replace } from '../shared/dom';
import { csvText, downloadMenu, type Saving, saveCanvas, saveText } from '../shared/download';
import { legend } from '../shared/figures';
import { bytes, count } from '../shared/format';
import type { Selection, Ties } from '../shared/host';
import type { Palette } from '../shared/theme';
import { LETTER_STYLE } from '../shared/two';
import { announce, type Frame, type View } from '../shared/view';
import { categoryColour } from './draw';
import { MemoryView } from './map';
import type { MemoryData, TierPlan } from './model';
import { Strip, STRIP_STYLE } from './strip';
import type { Numbers } from '../shared/wire';

/** The schema of `two` (widgets/README.md). */
export interface TwoMaps {
  a: MemoryData;
  b: MemoryData;
  names: [string, string];
  /** Keys of buffers that hold the same in A and in B. */
  first: Numbers;
  second: Numbers;
  guessed: Numbers;
  why: Numbers;
  whys: string[];
}

export const TWO_STYLE = `
${LETTER_STYLE}${STRIP_STYLE}
.cw-memory .both { display: flex; flex: 1; min-height: 0; }
.cw-memory .maps { display: flex; flex-direction: column; flex: 1; min-width: 0; }
.cw-memory .plan { display: flex; flex-direction: column; flex: 1; min-height: 0; position: relative; }
.cw-memory .plan .figures { align-items: center; gap: 0 14px; white-space: nowrap; }
.cw-memory .peaks { width: 372px; flex: none; display: flex; flex-direction: column; min-height: 0; border-left: 1px solid var(--line); background: var(--surface); }
.cw-memory .peaks header { padding: 6px 10px; border-bottom: 1px solid var(--line); color: var(--muted); display: flex; gap: 8px; align-items: start; }
.cw-memory .peaks header > div { flex: 1; min-width: 0; } .cw-memory .peaks header b { color: var(--text); font-weight: 600; }
.cw-memory .peaks .list { overflow: auto; flex: 1; min-height: 0; outline: none; } .cw-memory .peaks .list:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.cw-memory .peaks table { border-collapse: separate; border-spacing: 0; width: 100%; table-layout: fixed; font-variant-numeric: tabular-nums; }
.cw-memory .peaks th { position: sticky; top: 0; background: var(--raised); font-weight: 600; text-align: right; padding: 3px 6px; border-bottom: 1px solid var(--line); z-index: 1; }
.cw-memory .peaks th:first-child, .cw-memory .peaks td:first-child { text-align: left; padding-left: 10px; } .cw-memory .peaks th + th { width: 74px; } .cw-memory .peaks th:last-child { width: 86px; }
.cw-memory .peaks td { text-align: right; padding: 3px 6px; border-bottom: 1px solid color-mix(in srgb, var(--line) 45%, transparent); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; vertical-align: top; }
.cw-memory .peaks td div { overflow: hidden; text-overflow: ellipsis; color: var(--muted); }
.cw-memory .peaks tbody tr { cursor: pointer; } .cw-memory .peaks tbody tr:hover { background: var(--raised); } .cw-memory .peaks tbody tr.on { background: var(--accentSoft); }
.cw-memory .peaks .more { color: var(--removed); } .cw-memory .peaks .less { color: var(--added); } .cw-memory .peaks .faint { color: var(--faint); } .cw-memory .peaks .guess { font-style: italic; }
`;

/** Rows beyond this many are counted, not listed. */
const MOST = 400;

/** A row of the table: numbers of buffers, -1 where a side has none alive at its peak. */
interface Row {
  a: number;
  b: number;
  guessed: boolean;
  why: string;
}

const base = (place: string) => place.slice(Math.max(place.lastIndexOf('/'), place.lastIndexOf('\\')) + 1);

export class TwoMapsView implements View<TwoMaps> {
  private data_!: TwoMaps;
  private palette!: Palette;
  private readonly maps: [MemoryView, MemoryView];
  private readonly roots = [h('div', { class: 'plan', 'data-side': 'a' }), h('div', { class: 'plan', 'data-side': 'b' })] as const;
  /** Number of the partner of each buffer, by side; and the row of `first` that says so. */
  private partner: [Map<number, number>, Map<number, number>] = [new Map(), new Map()];
  private said = new Map<number, number>();
  private rows: Row[] = [];
  private selectedA = -1;
  private selectedB = -1;
  private tier = '';
  private readonly tabs = h('span', { class: 'group', role: 'tablist' });
  private readonly legend = h('span', { class: 'figure' });
  private readonly strip: Strip;
  private readonly about = h('div', {});
  private readonly body = h('tbody');
  private readonly list = h('div', { class: 'list', tabindex: 0, role: 'region', 'aria-label': 'Buffers alive at the two peaks: up and down select' });

  constructor(private readonly frame: Frame) {
    const halves = (['A', 'B'] as const).map((letter, side) => ({
      letter,
      name: '',
      tierChosen: (name: string) => this.chooseTier(name, side),
    }));
    this.halves = halves;
    this.maps = [
      new MemoryView({ root: this.roots[0], link: this.ties(0) }, halves[0]),
      new MemoryView({ root: this.roots[1], link: this.ties(1) }, halves[1]),
    ];
    this.strip = new Strip(frame.link, () => {
      if (!this.data_) return null;
      return { palette: this.palette, data: [this.data_.a, this.data_.b], plans: this.plans };
    });
    const bar = h(
      'div',
      { class: 'bar', role: 'toolbar', 'aria-label': 'Memory of both recordings' },
      this.tabs,
      button('fit', 'Both plans whole', () => this.maps.forEach((map) => map.fit())),
      button('peak', 'Go to both peaks', () => this.maps.forEach((map) => map.goToPeak())),
      this.legend,
      h('span', { class: 'gap' }),
      downloadMenu(() => [
        ['Buffers at both peaks, CSV', () => saveText('memory-of-two.csv', this.csv(), 'text/csv')],
        ['Live bytes of both, SVG', () => saveText('live-bytes-of-two.svg', this.strip.svg(), 'image/svg+xml')],
        ['Live bytes of both, PNG', () => saveCanvas('live-bytes-of-two.png', this.strip.canvas)],
        ...this.maps.map((map, side): Saving => [`Map of ${'AB'[side]}, SVG`, () => saveText(`memory-${'ab'[side]}.svg`, map.svg(), 'image/svg+xml')]),
      ]),
    );
    const heads = ['buffer', 'A', 'B', 'B − A'].map((title) => h('th', { scope: 'col' }, title));
    this.list.append(h('table', {}, h('thead', {}, h('tr', {}, ...heads)), this.body));
    const side = h('aside', { class: 'peaks', 'aria-label': 'At both peaks' }, h('header', {}, this.about), this.list);
    frame.root.append(bar, h('div', { class: 'both' }, h('div', { class: 'maps' }, ...this.roots, this.strip.root), side));
    this.listen();
    Object.assign(frame.root, { workbench: { rows: () => this.rows.length, svg: () => this.strip.svg(), csv: () => this.csv(), peaks: () => this.plans.map((plan) => plan.peak) } });
  }

  private readonly halves: { letter: string; name: string; tierChosen(name: string): void }[];

  /** What a map writes is said of A, whichever map it was. */
  private ties(side: 0 | 1): Ties {
    const { link } = this.frame;
    return {
      ask: (kind, body) => link.ask(kind, body),
      onDispose: (cleanup) => link.onDispose(cleanup),
      dict: (name) => link.dict(name),
      write: (name, value) => {
        if (name !== 'selection') return;
        const key = (value as Selection).buffer;
        this.choose(side, key === undefined ? -1 : this.numberOf(side, key));
      },
    };
  }

  private side(side: 0 | 1): MemoryData {
    return side === 0 ? this.data_.a : this.data_.b;
  }

  private numberOf(side: 0 | 1, key: string | number): number {
    return Array.prototype.indexOf.call(this.side(side).buffers.key, key) as number;
  }

  private get plans(): [TierPlan, TierPlan] {
    return [this.maps[0].plan, this.maps[1].plan];
  }

  // -------------------------------------------------------------- from the host

  data(data: TwoMaps, first: boolean): void {
    this.data_ = data;
    this.halves.forEach((half, i) => (half.name = data.names[i]!));
    this.maps[0].data(data.a, first);
    this.maps[1].data(data.b, first);
    const numbers = [data.a, data.b].map(({ buffers }) => new Map(Array.from(buffers.key as ArrayLike<number>, (key, i) => [key, i])));
    this.partner = [new Map(), new Map()];
    this.said.clear();
    for (let i = 0; i < data.first.length; i++) {
      const [a, b] = [numbers[0]!.get(data.first[i]!), numbers[1]!.get(data.second[i]!)];
      if (a === undefined || b === undefined) continue;
      this.partner[0].set(a, b);
      this.partner[1].set(b, a);
      this.said.set(a, i);
    }
    const wanted = this.frame.link.dict<{ tier?: string }>('state').tier ?? this.tier;
    this.showTier(this.tierNames.includes(wanted) ? wanted : this.tierNames[0]!);
  }

  theme(palette: Palette): void {
    this.palette = palette;
    this.maps.forEach((map) => map.theme(palette));
    this.showLegend();
    this.strip.ask();
  }

  selected(selection: Selection): void {
    const { op } = this.data_.a.buffers;
    const a = selection.buffer !== undefined ? this.numberOf(0, selection.buffer) : selection.op === undefined || !op ? -1 : Array.prototype.indexOf.call(op, selection.op);
    if (a < 0 && this.selectedA < 0 && this.selectedB >= 0) return; // of B alone: the host knows nothing of it
    this.mark(a, a < 0 ? -1 : (this.partner[0].get(a) ?? -1));
  }

  state(state: Record<string, unknown>): void {
    const tier = typeof state.tier === 'string' ? state.tier : this.tierNames[0]!;
    if (this.data_ && this.tierNames.includes(tier) && tier !== this.tier) this.showTier(tier);
  }

  // -------------------------------------------------------------- tiers

  /** The tiers that both have. */
  private get tierNames(): string[] {
    const theirs = this.data_.b.tiers.map(({ name }) => name);
    const both = this.data_.a.tiers.map(({ name }) => name).filter((name) => theirs.includes(name));
    return both.length ? both : [this.data_.a.tiers[0]!.name];
  }

  private chooseTier(name: string, side: number): void {
    if (name === this.tier || !this.tierNames.includes(name)) return;
    this.showTier(name, side);
    const { tier: _, ...kept } = this.frame.link.dict<Record<string, unknown>>('state');
    this.frame.link.write('state', name === this.tierNames[0] ? kept : { ...kept, tier: name });
  }

  private showTier(name: string, from = -1): void {
    this.tier = name;
    this.maps.forEach((map, side) => {
      if (side !== from) map.state({ tier: name });
    });
    const most = Math.max(...this.plans.map((plan) => Math.max(plan.arena, plan.tier.lower_bound ?? 0)));
    this.maps.forEach((map) => map.reach(most));
    replace(
      this.tabs,
      ...this.tierNames.map((each) => {
        const tab = button(each, `Tier ${each}`, () => this.chooseTier(each, -1));
        tab.setAttribute('role', 'tab');
        tab.setAttribute('aria-selected', String(each === this.tier));
        return tab;
      }),
    );
    this.showLegend();
    this.gather();
    this.showRows();
    this.strip.ask();
  }

  private showLegend(): void {
    if (!this.data_ || !this.palette) return;
    const { categories = [], buffers } = this.data_.a;
    const there = new Set([...this.plans[0].buffers].map((b) => buffers.category?.[b]));
    const colour = (i: number) => categoryColour(this.palette, i);
    replace(this.legend, ...legend(categories, colour, (i) => there.has(i)));
  }

  // -------------------------------------------------------------- the table

  private alive(side: 0 | 1): Set<number> {
    const plan = this.plans[side];
    const { start, end } = this.side(side).buffers;
    return new Set([...plan.buffers].filter((b) => start[b]! <= plan.peakStep && plan.peakStep < end[b]!));
  }

  private gather(): void {
    const [ones, twos] = [this.alive(0), this.alive(1)];
    const rows: Row[] = [];
    for (const a of ones) {
      const b = this.partner[0].get(a) ?? -1;
      const at = this.said.get(a);
      rows.push({
        a,
        b: twos.has(b) ? b : -1,
        guessed: at !== undefined && Boolean(this.data_.guessed[at]),
        why: at === undefined ? '' : this.data_.whys[this.data_.why[at]!]!,
      });
    }
    const taken = new Set(rows.map((row) => row.b));
    for (const b of twos) if (!taken.has(b)) rows.push({ a: -1, b, guessed: false, why: '' });
    const size = (row: Row) => Math.max(this.size(0, row.a), this.size(1, row.b));
    this.rows = rows.sort((p, q) => Math.abs(this.apart(q)) - Math.abs(this.apart(p)) || size(q) - size(p));
  }

  private size(side: 0 | 1, b: number): number {
    return b < 0 ? 0 : this.side(side).buffers.size[b]!;
  }

  private apart(row: Row): number {
    return this.size(1, row.b) - this.size(0, row.a);
  }

  private change(by: number): HTMLElement {
    return h('td', { class: by > 0 ? 'more' : by < 0 ? 'less' : 'faint' }, by === 0 ? '=' : `${by > 0 ? '+' : '−'}${bytes(Math.abs(by))}`);
  }

  private showRows(): void {
    const [a, b] = this.plans.map((plan) => plan.peak) as [number, number];
    const by = b - a;
    replace(
      this.about,
      h('b', {}, `Peak ${bytes(a)} in A, ${bytes(b)} in B`),
      by === 0 ? ': the same.' : `: ${bytes(Math.abs(by))} ${by > 0 ? 'more' : 'less'} in B${a ? ` (${by > 0 ? '+' : '−'}${((100 * Math.abs(by)) / a).toFixed(1)} %)` : ''}.`,
      ` Alive at the peaks, the largest difference first${this.rows.length > MOST ? `; ${count(MOST)} of ${count(this.rows.length)}` : ''}.`,
    );
    const none = (side: 0 | 1, row: Row) => {
      const own = side === 0 ? row.b : row.a;
      const there = own < 0 ? undefined : this.partner[side === 0 ? 1 : 0].get(own);
      const letter = side === 0 ? 'A' : 'B';
      return there === undefined
        ? h('td', { class: 'faint', title: `${letter} has no such buffer` }, 'none')
        : h('td', { class: 'faint', title: `In ${letter} it takes ${bytes(this.size(side, there))}, and is not alive at the peak` }, '–');
    };
    replace(
      this.body,
      ...this.rows.slice(0, MOST).map((row, i) => {
        const [side, at] = row.a >= 0 ? ([0, row.a] as const) : ([1, row.b] as const);
        const { buffers } = this.side(side);
        const [name, what, place] = [buffers.name[at]!, buffers.what?.[at] ?? '', buffers.place?.[at] ?? ''];
        const match = row.b >= 0 && row.a >= 0 ? `${row.guessed ? 'guessed' : 'recorded'}: ${row.why}` : '';
        return h(
          'tr',
          { 'data-row': String(i), 'data-a': row.a < 0 ? '' : String(this.data_.a.buffers.key[row.a]), click: () => this.choose(side, at) },
          h(
            'td',
            { title: [name, buffers.type?.[at] ?? '', what, place, match].filter(Boolean).join('\n') },
            h('span', row.guessed ? { class: 'guess' } : {}, `${row.guessed ? '≈ ' : ''}${name || what || 'buffer'}`),
            h('div', {}, [name ? what : '', place ? base(place) : ''].filter(Boolean).join(' · ') || (buffers.type?.[at] ?? '')),
          ),
          row.a < 0 ? none(0, row) : h('td', {}, bytes(this.size(0, row.a))),
          row.b < 0 ? none(1, row) : h('td', {}, bytes(this.size(1, row.b))),
          this.change(this.apart(row)),
        );
      }),
    );
    this.markRows();
  }

  private csv(): string {
    const rows = this.rows.map((row) => {
      const [side, at] = row.a >= 0 ? ([0, row.a] as const) : ([1, row.b] as const);
      const { buffers } = this.side(side);
      const match = row.a >= 0 && row.b >= 0 ? (row.guessed ? 'guessed' : 'recorded') : '';
      return [buffers.name[at]!, buffers.what?.[at], buffers.place?.[at], row.a < 0 ? '' : this.size(0, row.a), row.b < 0 ? '' : this.size(1, row.b), this.apart(row), match];
    });
    return csvText(['buffer', 'computes', 'place', 'a_bytes', 'b_bytes', 'difference_bytes', 'match'], rows);
  }

  // -------------------------------------------------------------- selection

  /** Selects a buffer of either side: what it is in A, for everybody. */
  private choose(side: 0 | 1, number: number): void {
    const a = side === 0 ? number : (this.partner[1].get(number) ?? -1);
    const b = side === 1 ? number : (this.partner[0].get(number) ?? -1);
    this.mark(a, b);
    const next: Selection = { ...this.frame.link.dict<Selection>('selection') };
    delete next.buffer;
    if (a >= 0) {
      const { buffers } = this.data_.a;
      next.buffer = buffers.key[a]!;
      next.op = buffers.op?.[a];
      delete next.scope;
    }
    const shown = side === 0 ? number : b;
    if (shown >= 0) announce(this.frame.root, `${this.side(side).buffers.name[shown]}, ${bytes(this.size(side, shown))}${a < 0 ? ', only in B' : ''}`);
    this.frame.link.write('selection', next);
  }

  private mark(a: number, b: number): void {
    [this.selectedA, this.selectedB] = [a, b];
    const key = (side: 0 | 1, number: number): Selection => (number < 0 ? {} : { buffer: this.side(side).buffers.key[number]! });
    this.maps[0].selected(key(0, a));
    this.maps[1].selected(key(1, b));
    this.markRows();
  }

  private markRows(): void {
    [...this.body.children].forEach((node, i) => {
      const row = this.rows[i]!;
      const on = (row.a >= 0 && row.a === this.selectedA) || (row.b >= 0 && row.b === this.selectedB);
      node.classList.toggle('on', on);
      node.setAttribute('aria-selected', String(on));
      if (on) node.scrollIntoView({ block: 'nearest' });
    });
  }

  private listen(): void {
    this.list.addEventListener('keydown', (event) => {
      const at = this.rows.findIndex((row) => (row.a >= 0 && row.a === this.selectedA) || (row.b >= 0 && row.b === this.selectedB));
      const last = Math.min(this.rows.length, MOST) - 1;
      const to = ({ ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: last } as Record<string, number>)[event.key];
      const row = to === undefined || to > last ? undefined : this.rows[to];
      if (!row) return;
      this.choose(row.a >= 0 ? 0 : 1, row.a >= 0 ? row.a : row.b);
      event.preventDefault();
      event.stopPropagation();
    });
  }
}
