/** The memory map: the addresses and lifetimes of buffers. See widgets/README.md. */

import { centreRange, clampRange, type Range, zoomRange } from '../shared/axis';
import { button, facts, h, replace } from '../shared/dom';
import { downloadMenu, saveCanvas, saveText } from '../shared/download';
import { figure, FIGURES_STYLE, legend, sideName } from '../shared/figures';
import { bytes, count } from '../shared/format';
import { listenTo, panDistance, zoomFactor } from '../shared/gestures';
import type { Selection, ViewLink } from '../shared/host';
import type { Pen } from '../shared/pen';
import { type Painter, Stage, STAGE_STYLE } from '../shared/stage';
import type { Palette } from '../shared/theme';
import { announce } from '../shared/view';
import { areas, bufferAt, categoryColour, draw, rectangle, Scales, type Window } from './draw';
import { bufferFacts } from './facts';
import { csv, makePlans, type MemoryData, type TierPlan } from './model';
import { Side, SIDE_STYLE } from './side';

export const MAP_STYLE = SIDE_STYLE + STAGE_STYLE + FIGURES_STYLE;

const KEYS: [string, string][] = [
  ['click', 'select the buffer and its op'],
  ['← →', 'previous, next buffer in the program'],
  ['↑ ↓', 'buffer above, below in memory'],
  ['i', 'facts of the selected buffer'],
  ['+ −', 'zoom (Ctrl + wheel; over an axis: that axis)'],
  ['w s  W S', 'zoom in the program, in memory'],
  ['a d', 'pan left, right (also drag, wheel)'],
  ['PgUp PgDn', 'pan up, down in memory'],
  ['f', 'whole plan'],
  ['p', 'go to the peak'],
  ['t', 'next memory tier'],
  ['Esc', 'clear'],
];

const addressRange = ({ low, high }: Window): Range => ({ from: low, to: high });

/** One of two maps: without a toolbar and a side panel. */
export interface Half {
  /** `A` or `B`, and the recording. */
  letter: string;
  name: string;
  /** Called with the name of a chosen tier. */
  onTierChosen(name: string): void;
}

export class MemoryView implements Painter {
  private data_!: MemoryData;
  private plans: TierPlan[] = [];
  private tier = 0;
  private window: Window = { from: 0, to: 1, low: 0, high: 1 };
  private palette!: Palette;
  private selected_ = -1;
  private hover = -1;
  /** Whether the facts of the selection are shown next to it. */
  private factsVisible = false;
  private byKey = new Map<string | number, number>();
  private readonly stage: Stage;
  private readonly tabs = h('span', { class: 'group', role: 'tablist' });
  private readonly figures = h('div', { class: 'figures' });
  private readonly legend = h('span', { class: 'figure' });
  private readonly help = h('div', { class: 'help', hidden: true }, facts(KEYS));
  private readonly side: Side | null;
  /** Addresses up to here are always shown (bytes). */
  private minShownAddress = 0;

  constructor(
    private readonly frame: { root: HTMLElement; link: ViewLink },
    private readonly half: Half | null = null,
  ) {
    const label = 'Memory map: arrow keys move between buffers, ? lists the keys';
    this.stage = new Stage(label, this, frame.root, frame.link);
    this.side = half ? null : this.createSide();
    if (half) frame.root.append(this.figures, this.stage.root, this.help);
    this.listen();
    Object.assign(frame.root, {
      workbench: {
        placeOfBuffer: (key: string | number) => this.pagePosition(key),
        svg: () => this.svg(),
        window: () => ({ ...this.window }),
      },
    });
  }

  /** The toolbar above the map, and the side panel. */
  private createSide(): Side {
    const side = new Side(this.frame.link, {
      select: (b) => this.selectAndShow(b),
      tabChanged: () => this.remember(),
    });
    const bar = h(
      'div',
      { class: 'bar', role: 'toolbar', 'aria-label': 'Memory' },
      this.tabs,
      button('fit', 'Whole plan  (f)', () => this.fit()),
      button('peak', 'Go to the peak  (p)', () => this.goToPeak()),
      h('span', { class: 'gap' }),
      side.tabs.bar,
      downloadMenu(() => [
        ['All buffers, CSV', () => saveText('memory.csv', csv(this.data_), 'text/csv')],
        ['What the window shows, SVG', () => saveText('memory.svg', this.svg(), 'image/svg+xml')],
        ['What the window shows, PNG', () => saveCanvas('memory.png', this.stage.canvas)],
      ]),
      button('?', 'Keys  (?)', () => (this.help.hidden = !this.help.hidden)),
    );
    const main = h('div', { class: 'main' }, this.stage.root, side.root);
    this.frame.root.append(bar, this.figures, main, this.help);
    return side;
  }

  /** Selects a buffer and brings it into view. */
  selectAndShow(b: number): void {
    this.select(b);
    this.bringIntoView(b);
  }

  // -------------------------------------------------------------- updates from the host

  data(data: MemoryData, first: boolean): void {
    const before = this.data_;
    this.data_ = data;
    this.plans = makePlans(data);
    this.tier = Math.min(this.tier, Math.max(0, this.plans.length - 1));
    this.byKey = new Map(Array.from({ length: data.buffers.key.length }, (_, b) => [data.buffers.key[b]!, b]));
    this.hover = -1;
    this.selected_ = -1;
    this.side?.setData(data);
    this.showTabs();
    // The same program keeps its window, so that the next plan can be compared in place.
    if (first || before.steps !== data.steps) this.fit();
    this.stage.redraw();
  }

  /** Always shows addresses up to `bytes`, so that two maps have the same scale. */
  showUpTo(bytes: number): void {
    this.minShownAddress = bytes;
    this.fit();
  }

  theme(palette: Palette): void {
    this.palette = palette;
    if (!this.data_) return;
    this.showTabs();
    this.stage.redraw();
  }

  selected(selection: Selection): void {
    const { buffers } = this.data_;
    let b = selection.buffer === undefined ? -1 : (this.byKey.get(selection.buffer) ?? -1);
    if (b < 0 && selection.op !== undefined && buffers.op) {
      for (let i = 0; i < buffers.key.length && b < 0; i++) if (buffers.op[i] === selection.op) b = i;
    }
    if (b >= 0 && buffers.tier[b] !== this.tier) this.setTier(buffers.tier[b]!);
    this.selected_ = b;
    if (b >= 0) this.bringIntoView(b);
    this.stage.requestFrame();
  }

  state(state: Record<string, unknown>): void {
    if (!this.data_) return;
    this.side?.tabs.restore(state);
    const tier = this.data_.tiers.findIndex(({ name }) => name === state.tier);
    this.setTier(Math.max(0, tier));
  }

  // -------------------------------------------------------------- tiers and figures

  get plan(): TierPlan {
    return this.plans[this.tier]!;
  }

  private setTier(tier: number): void {
    if (tier === this.tier) return;
    this.tier = tier;
    this.selected_ = -1;
    this.showTabs();
    this.fit();
    this.remember();
  }

  private remember(): void {
    if (!this.side) {
      this.half?.onTierChosen(this.data_.tiers[this.tier]!.name);
      return;
    }
    const tier = this.tier > 0 ? { tier: this.data_.tiers[this.tier]!.name } : {};
    this.frame.link.write('state', { ...tier, ...this.side.tabs.savedState });
  }

  private showTabs(): void {
    replace(
      this.tabs,
      ...this.plans.map((plan, i) => {
        const tab = button(plan.tier.name, `Tier ${plan.tier.name}  (t)`, () => this.setTier(i));
        tab.setAttribute('role', 'tab');
        tab.setAttribute('aria-selected', String(i === this.tier));
        return tab;
      }),
    );
    const { tier, arena, peak, peakStep, padding, top, buffers } = this.plan;
    const termFigure = (name: string, value: string, more = '') => figure(name, value, this.data_.terms?.[name], more);
    const bound = tier.lower_bound;
    const gap = bound ? `${(((arena - bound) / bound) * 100).toFixed(1)} %` : '';
    const fragmented = (top[peakStep] ?? 0) - peak;
    const present = new Set([...buffers].map((b) => this.data_.buffers.category?.[b]));
    const { half } = this;
    replace(
      this.figures,
      ...(half ? sideName(half.letter, half.name) : []),
      termFigure('buffers', count(buffers.length)),
      termFigure('arena', bytes(arena)),
      termFigure('peak live', bytes(peak), `At program position ${peakStep}.`),
      bound === undefined ? null : termFigure('lower bound', bytes(bound)),
      gap ? termFigure('gap', gap) : null,
      termFigure('fragmentation at peak', bytes(fragmented)),
      this.data_.buffers.unpadded ? termFigure('padding', bytes(padding)) : null,
      tier.capacity
        ? termFigure('of capacity', `${((arena / tier.capacity) * 100).toFixed(1)} %`, bytes(tier.capacity))
        : null,
      half ? null : this.legend,
    );
    const colour = (i: number) => categoryColour(this.palette, i);
    const free = legend(['fragmentation'], () => this.palette.removed);
    free[0]!.title = 'Free memory below the highest live buffer, whose end is the dashed line of the lower plot.';
    free[0]!.querySelector<HTMLElement>('.key')!.style.opacity = '0.35';
    replace(this.legend, ...legend(this.data_.categories ?? [], colour, (i) => present.has(i)), ...free);
  }

  // -------------------------------------------------------------- drawing

  ready(): boolean {
    return this.data_ !== undefined;
  }

  prepare(): void {
    this.side?.update(this.plan, this.selected_);
  }

  background(): string {
    return this.palette.page;
  }

  scene(pen: Pen, width: number, height: number): number {
    return draw(pen, this.input(width, height));
  }

  private input(width: number, height: number) {
    return { data: this.data_, plan: this.plan, window: this.window, palette: this.palette, width, height };
  }

  marks(context: CanvasRenderingContext2D, width: number, height: number): void {
    const { map, curve } = areas(width, height);
    const s = new Scales(map, this.window);
    for (const b of [this.hover, this.selected_]) {
      if (b < 0 || this.data_.buffers.tier[b] !== this.tier) continue;
      const [x, y, w, hgt] = rectangle(this.data_, s, map, b);
      if (w <= 0 || hgt <= 0) continue;
      context.strokeStyle = this.palette.accent;
      context.lineWidth = b === this.selected_ ? 3 : 1.6;
      context.strokeRect(x, y, Math.max(2, w), Math.max(2, hgt));
      if (b !== this.selected_) continue;
      context.fillStyle = this.palette.accent;
      context.globalAlpha = 0.14;
      context.fillRect(x, curve.y, Math.max(2, w), curve.height);
      context.globalAlpha = 1;
    }
    const x = s.x(this.plan.peakStep + 0.5);
    if (x < map.x || x > map.x + map.width) return;
    context.strokeStyle = this.palette.accent;
    context.lineWidth = 1;
    context.setLineDash([4, 3]);
    context.beginPath();
    context.moveTo(x, map.y);
    context.lineTo(x, curve.y + curve.height);
    context.stroke();
    context.setLineDash([]);
  }

  svg(): string {
    return this.stage.svg();
  }

  // -------------------------------------------------------------- window

  private fullWindow(): Window {
    const { arena, tier } = this.plan;
    const needed = Math.max(arena, tier.lower_bound ?? 0, this.minShownAddress, 1);
    // A capacity far above the arena would only shrink the plan.
    const limit = tier.capacity && tier.capacity < 1.5 * needed ? tier.capacity : needed;
    return { from: 0, to: Math.max(1, this.data_.steps), low: 0, high: limit * 1.04 };
  }

  fit(): void {
    this.window = this.fullWindow();
    this.stage.redraw();
  }

  private get areas() {
    return areas(this.stage.width, this.stage.height);
  }

  private get scales(): Scales {
    return new Scales(this.areas.map, this.window);
  }

  /** Shows positions `steps` of the program and these `addresses`, clamped to the plan. */
  private setWindow(steps: Range, addresses: Range): void {
    const full = this.fullWindow();
    const { from, to } = clampRange(steps, full.from, full.to);
    const { from: low, to: high } = clampRange(addresses, full.low, full.high);
    this.window = { from, to, low, high };
    this.stage.tip.hide();
    this.stage.redraw();
  }

  private zoom(fx: number, fy: number, x: number, y: number): void {
    const { scales, window: w } = this;
    const full = this.fullWindow();
    this.setWindow(
      zoomRange(w, fx, scales.step(x), 2, full.to),
      zoomRange(addressRange(w), fy, scales.address(y), 64, full.high),
    );
  }

  private pan(dx: number, dy: number): boolean {
    const { map } = this.areas;
    const before = this.window;
    const bySteps = (dx / map.width) * (before.to - before.from);
    const byBytes = (-dy / map.height) * (before.high - before.low);
    this.setWindow(
      { from: before.from + bySteps, to: before.to + bySteps },
      { from: before.low + byBytes, to: before.high + byBytes },
    );
    return before.from !== this.window.from || before.low !== this.window.low;
  }

  goToPeak(): void {
    const { peakStep } = this.plan;
    const half = Math.max(10, Math.min(this.data_.steps / 8, (this.window.to - this.window.from) / 2));
    this.setWindow({ from: peakStep - half, to: peakStep + half }, addressRange(this.fullWindow()));
  }

  private bringIntoView(b: number): void {
    const { buffers } = this.data_;
    const w = this.window;
    const outsideX = buffers.end[b]! <= w.from || buffers.start[b]! >= w.to;
    const outsideY = buffers.offset[b]! >= w.high || buffers.offset[b]! + buffers.size[b]! <= w.low;
    if (!outsideX && !outsideY) return;
    const step = (buffers.start[b]! + buffers.end[b]!) / 2;
    const address = buffers.offset[b]! + buffers.size[b]! / 2;
    this.setWindow(centreRange(w, step), centreRange(addressRange(w), address));
  }

  // -------------------------------------------------------------- input

  private bufferUnder(x: number, y: number): number {
    return bufferAt(this.data_, this.plan, this.scales, this.areas.map, x, y);
  }

  private pagePosition(key: string | number): { x: number; y: number } | null {
    const b = this.byKey.get(key);
    if (b === undefined) return null;
    const [x, y, w, hgt] = rectangle(this.data_, this.scales, this.areas.map, b);
    return this.stage.toPagePosition(x + w / 2, y + hgt / 2);
  }

  private select(b: number): void {
    this.selected_ = b;
    const next: Selection = { ...this.frame.link.dict<Selection>('selection') };
    delete next.buffer;
    if (b >= 0) {
      const { buffers } = this.data_;
      next.buffer = buffers.key[b]!;
      if (buffers.op?.[b] !== undefined && buffers.op[b] !== null) {
        next.op = buffers.op[b]!;
        delete next.scope;
      }
      announce(this.frame.root, `${buffers.name[b]}, ${bytes(buffers.size[b]!)} at ${bytes(buffers.offset[b]!)}`);
    }
    this.frame.link.write('selection', next);
    this.stage.requestFrame();
  }

  private walk(dx: number, dy: number): void {
    const { buffers } = this.data_;
    const list = [...this.plan.buffers];
    if (this.selected_ < 0) {
      if (list.length) this.select(list[0]!);
      return;
    }
    const current = this.selected_;
    if (dx !== 0) {
      const next = list[list.indexOf(current) + dx];
      if (next !== undefined) this.select(next);
    } else {
      // The next one up or down in memory, of the buffers alive at the same time.
      const overlapping = list.filter(
        (b) => buffers.start[b]! < buffers.end[current]! && buffers.start[current]! < buffers.end[b]!,
      );
      const above = overlapping
        .filter((b) => (buffers.offset[b]! - buffers.offset[current]!) * dy > 0)
        .sort((a, b) => (buffers.offset[a]! - buffers.offset[b]!) * dy || a - b);
      if (above[0] !== undefined) this.select(above[0]);
    }
    this.bringIntoView(this.selected_);
    if (this.factsVisible) this.showFacts();
  }

  /** Shows the tooltip of the selection. */
  private showFacts(): void {
    if (this.selected_ < 0) return this.stage.tip.hide();
    const [x, y, w, hgt] = rectangle(this.data_, this.scales, this.areas.map, this.selected_);
    this.stage.showAndAnnounce(x + w / 2, y + hgt / 2, ...bufferFacts(this.data_, this.selected_));
  }

  private toggleFacts(): void {
    this.factsVisible = !this.factsVisible;
    if (this.factsVisible) this.showFacts();
    else this.stage.tip.hide();
  }

  private listen(): void {
    listenTo(this.stage.root, this.stage.canvas, {
      hover: (x, y) => this.hoverAt(x, y),
      click: (x, y) => this.select(this.bufferUnder(x, y)),
      drag: (dx, dy) => this.pan(-dx, -dy),
      moved: () => this.stage.tip.hide(),
      wheel: (event, x, y) => {
        const { map } = this.areas;
        const by = zoomFactor(event);
        if (x < map.x) this.zoom(1, by, x, y);
        else if (y > map.y + map.height) this.zoom(by, 1, x, y);
        else if (event.ctrlKey || event.metaKey) this.zoom(by, by, x, y);
        else return this.pan(...panDistance(event));
        return true;
      },
    });
    this.frame.root.addEventListener('keydown', (event) => this.key(event));
  }

  private hoverAt(x: number, y: number): void {
    const b = x < 0 ? -1 : this.bufferUnder(x, y);
    if (b !== this.hover) {
      this.hover = b;
      this.stage.requestFrame();
    }
    if (b >= 0) this.stage.tip.show(x, y, ...bufferFacts(this.data_, b));
    else if (x >= 0) this.stepTip(x, y);
    else this.stage.tip.hide();
  }

  private stepTip(x: number, y: number): void {
    const { map, curve } = this.areas;
    const step = Math.floor(this.scales.step(x));
    const { live, top } = this.plan;
    if (x < map.x || y < curve.y || step < 0 || step >= live.length) return this.stage.tip.hide();
    const rows: [string, string][] = [
      ['live', bytes(live[step]!)],
      ['fragmentation', bytes(top[step]! - live[step]!)],
    ];
    const label = this.data_.step_label?.[step];
    if (label) rows.unshift(['op', label]);
    this.stage.tip.show(x, y, h('b', {}, `position ${count(step)}`), facts(rows));
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isElsewhere = event.composedPath()[0] !== this.stage.root;
    const middle: [number, number] = [this.stage.width / 2, this.stage.height / 2];
    const { map } = this.areas;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => this.walk(-1, 0),
      ArrowRight: () => this.walk(1, 0),
      ArrowUp: () => this.walk(0, 1),
      ArrowDown: () => this.walk(0, -1),
      '+': () => this.zoom(0.8, 0.8, ...middle),
      '=': () => this.zoom(0.8, 0.8, ...middle),
      '-': () => this.zoom(1.25, 1.25, ...middle),
      w: () => this.zoom(0.7, 1, ...middle),
      s: () => this.zoom(1 / 0.7, 1, ...middle),
      W: () => this.zoom(1, 0.7, ...middle),
      S: () => this.zoom(1, 1 / 0.7, ...middle),
      a: () => this.pan(-0.2 * map.width, 0),
      d: () => this.pan(0.2 * map.width, 0),
      PageUp: () => this.pan(0, -0.4 * map.height),
      PageDown: () => this.pan(0, 0.4 * map.height),
      i: () => this.toggleFacts(),
      f: () => this.fit(),
      p: () => this.goToPeak(),
      t: () => this.setTier((this.tier + 1) % this.plans.length),
      '?': () => (this.help.hidden = !this.help.hidden),
      Escape: () => {
        this.help.hidden = true;
        this.select(-1);
        this.stage.tip.hide();
      },
    };
    const action = actions[event.key];
    if (!action || isElsewhere) return;
    action();
    event.preventDefault();
    event.stopPropagation();
  }
}
