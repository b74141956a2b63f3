/** The maps of two recordings, one above the other, and their live bytes in one plot, with the side panel of `two_side.ts`. */

import { button, h, replace } from '../shared/dom';
import { downloadMenu, type DownloadItem, saveCanvas, saveText } from '../shared/download';
import { legend } from '../shared/figures';
import { bytes } from '../shared/format';
import type { Selection, ViewLink } from '../shared/host';
import type { Palette } from '../shared/theme';
import { LETTER_STYLE } from '../shared/two';
import { announce, type Frame, type View } from '../shared/view';
import { categoryColour } from './draw';
import { MemoryView } from './map';
import { Matched, type TwoMaps, type SideIndex } from './matched';
import type { TierPlan } from './model';
import { Strip, STRIP_STYLE } from './strip';
import { peaks } from './two_rows';
import { TWO_SIDE_STYLE, TwoSide } from './two_side';

export const TWO_STYLE = `
${LETTER_STYLE}${STRIP_STYLE}${TWO_SIDE_STYLE}
.cw-memory .both { display: flex; flex: 1; min-height: 0; }
.cw-memory .maps { display: flex; flex-direction: column; flex: 1; min-width: 0; }
.cw-memory .plan { display: flex; flex-direction: column; flex: 1; min-height: 0; position: relative; }
.cw-memory .plan .figures { align-items: center; gap: 0 14px; white-space: nowrap; }
`;

export class TwoMapsView implements View<TwoMaps> {
  private matched!: Matched;
  private palette!: Palette;
  private readonly maps: [MemoryView, MemoryView];
  private readonly roots = [h('div', { class: 'plan', 'data-side': 'a' }), h('div', { class: 'plan', 'data-side': 'b' })] as const;
  private selectedA = -1;
  private selectedB = -1;
  private tier = '';
  private readonly tabs = h('span', { class: 'group', role: 'tablist' });
  private readonly legend = h('span', { class: 'figure' });
  private readonly strip: Strip;
  private readonly side: TwoSide;

  constructor(private readonly frame: Frame) {
    const halves = (['A', 'B'] as const).map((letter, side) => ({
      letter,
      name: '',
      onTierChosen: (name: string) => this.chooseTier(name, side),
    }));
    this.halves = halves;
    this.maps = [
      new MemoryView({ root: this.roots[0], link: this.linkFor(0) }, halves[0]),
      new MemoryView({ root: this.roots[1], link: this.linkFor(1) }, halves[1]),
    ];
    this.strip = new Strip(frame.link, () => {
      if (!this.matched) return null;
      return { palette: this.palette, data: [this.two.a, this.two.b], plans: this.plans };
    });
    this.side = new TwoSide(frame.link, {
      select: (side, number) => this.choose(side, number),
      tabChanged: () => this.remember(),
      announce: (text) => announce(frame.root, text),
    });
    const bar = h(
      'div',
      { class: 'bar', role: 'toolbar', 'aria-label': 'Memory of both recordings' },
      this.tabs,
      button('fit', 'Fit both plans', () => this.maps.forEach((map) => map.fit())),
      button('peak', 'Go to both peaks', () => this.maps.forEach((map) => map.goToPeak())),
      this.legend,
      h('span', { class: 'gap' }),
      this.side.tabs.bar,
      downloadMenu(() => [
        ['Buffers at both peaks, CSV', () => saveText('memory-of-two.csv', peaks(this.matched, this.plans).csv(), 'text/csv')],
        ['Live bytes of both, SVG', () => saveText('live-bytes-of-two.svg', this.strip.svg(), 'image/svg+xml')],
        ['Live bytes of both, PNG', () => saveCanvas('live-bytes-of-two.png', this.strip.canvas)],
        ...this.maps.map((map, side): DownloadItem => [`Map of ${'AB'[side]}, SVG`, () => saveText(`memory-${'ab'[side]}.svg`, map.svg(), 'image/svg+xml')]),
      ]),
    );
    frame.root.append(bar, h('div', { class: 'both' }, h('div', { class: 'maps' }, ...this.roots, this.strip.root), this.side.root));
    Object.assign(frame.root, { workbench: { rows: () => this.side.count(), svg: () => this.strip.svg(), csv: () => this.side.csv(), peaks: () => this.plans.map((plan) => plan.peak) } });
  }

  private readonly halves: { letter: string; name: string; onTierChosen(name: string): void }[];

  /** Translates writes of either map to A. */
  private linkFor(side: SideIndex): ViewLink {
    const { link } = this.frame;
    return {
      request: (kind, body) => link.request(kind, body),
      onDispose: (cleanup) => link.onDispose(cleanup),
      dict: (name) => link.dict(name),
      write: (name, value) => {
        if (name !== 'selection') return;
        const key = (value as Selection).buffer;
        this.choose(side, key === undefined ? -1 : this.matched.bufferByKey(side, key));
      },
    };
  }

  private get two(): TwoMaps {
    return this.matched.two;
  }

  private get plans(): [TierPlan, TierPlan] {
    return [this.maps[0].plan, this.maps[1].plan];
  }

  // -------------------------------------------------------------- updates from the host

  data(data: TwoMaps, first: boolean): void {
    this.matched = new Matched(data);
    [this.selectedA, this.selectedB] = [-1, -1];
    this.halves.forEach((half, i) => (half.name = data.names[i]!));
    this.maps[0].data(data.a, first);
    this.maps[1].data(data.b, first);
    this.side.setData(this.matched);
    const savedTier = this.frame.link.dict<{ tier?: string }>('state').tier ?? this.tier;
    this.showTier(this.tierNames.includes(savedTier) ? savedTier : this.tierNames[0]!);
  }

  theme(palette: Palette): void {
    this.palette = palette;
    this.maps.forEach((map) => map.theme(palette));
    this.showLegend();
    this.strip.requestFrame();
  }

  selected(selection: Selection): void {
    const { op } = this.two.a.buffers;
    const a = selection.buffer !== undefined ? this.matched.bufferByKey(0, selection.buffer) : selection.op === undefined || !op ? -1 : Array.prototype.indexOf.call(op, selection.op);
    if (a < 0 && this.selectedA < 0 && this.selectedB >= 0) return; // only in B: the host does not know it
    if (a >= 0 && a === this.selectedA) return; // already selected, possibly through B
    this.mark(a, this.matched.partner(0, a), 0);
  }

  state(state: Record<string, unknown>): void {
    if (!this.matched) return;
    this.side.tabs.restore(state);
    const tier = typeof state.tier === 'string' ? state.tier : this.tierNames[0]!;
    if (this.tierNames.includes(tier) && tier !== this.tier) this.showTier(tier);
  }

  // -------------------------------------------------------------- tiers

  /** The common tiers. */
  private get tierNames(): string[] {
    const tiersOfB = this.two.b.tiers.map(({ name }) => name);
    const common = this.two.a.tiers.map(({ name }) => name).filter((name) => tiersOfB.includes(name));
    return common.length ? common : [this.two.a.tiers[0]!.name];
  }

  private chooseTier(name: string, side: number): void {
    if (name === this.tier || !this.tierNames.includes(name)) return;
    this.showTier(name, side);
    this.remember();
  }

  private remember(): void {
    const tier = this.tier === this.tierNames[0] ? {} : { tier: this.tier };
    this.frame.link.write('state', { ...tier, ...this.side.tabs.savedState });
  }

  private showTier(name: string, from = -1): void {
    this.tier = name;
    this.maps.forEach((map, side) => {
      if (side !== from) map.state({ tier: name });
    });
    const needed = Math.max(...this.plans.map((plan) => Math.max(plan.arena, plan.tier.lower_bound ?? 0)));
    this.maps.forEach((map) => map.showUpTo(needed));
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
    this.side.update(this.plans);
    this.strip.requestFrame();
  }

  private showLegend(): void {
    if (!this.matched || !this.palette) return;
    const { categories = [], buffers } = this.two.a;
    const present = new Set([...this.plans[0].buffers].map((b) => buffers.category?.[b]));
    const colour = (i: number) => categoryColour(this.palette, i);
    replace(this.legend, ...legend(categories, colour, (i) => present.has(i)));
  }

  // -------------------------------------------------------------- selection

  /** Selects a buffer of either side; other views get its partner in A. */
  private choose(side: SideIndex, number: number): void {
    const { matched } = this;
    const a = side === 0 ? number : matched.partner(1, number);
    const b = side === 1 ? number : matched.partner(0, number);
    this.mark(a, b, side);
    const next: Selection = { ...this.frame.link.dict<Selection>('selection') };
    delete next.buffer;
    if (a >= 0) {
      const { buffers } = this.two.a;
      next.buffer = buffers.key[a]!;
      next.op = buffers.op?.[a];
      delete next.scope;
    }
    const selected = side === 0 ? number : b;
    if (selected >= 0) announce(this.frame.root, `${matched.side(side).buffers.name[selected]}, ${bytes(matched.size(side, selected))}${a < 0 ? ', only in B' : ''}`);
    this.frame.link.write('selection', next);
  }

  /** `lead`: the side of the chosen buffer; its partner is shown if it is in the same tier. */
  private mark(a: number, b: number, lead: SideIndex): void {
    [this.selectedA, this.selectedB] = [a, b];
    const { matched } = this;
    const tier = matched.tier(lead, lead === 0 ? a : b);
    ([a, b] as const).forEach((number, side) => {
      const isVisible = number >= 0 && matched.tier(side as SideIndex, number) === tier;
      this.maps[side]!.selected(isVisible ? { buffer: matched.side(side as SideIndex).buffers.key[number]! } : {});
    });
    this.side.mark(a, b);
  }
}
