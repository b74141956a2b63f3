/** The memory view: where each buffer lies and when. See widgets/README.md. */

import { button, download, facts, h, perFrame, replace, tooltip } from '../shared/dom';
import { bytes, count, plural } from '../shared/format';
import type { Selection } from '../shared/host';
import { SvgPen } from '../shared/pen';
import type { Palette } from '../shared/theme';
import { announce, define, type Frame } from '../shared/view';
import { areas, categoryColour, draw, rectangle, Scales, type Window } from './draw';
import { csv, makePlans, type MemoryData, type TierPlan, unpaddedOf } from './model';
import { Side, SIDE_STYLE, type SideName, SIDES } from './side';

const STYLE = `
${SIDE_STYLE}
.cw-memory .stage { position: relative; flex: 1; min-height: 0; overflow: hidden; outline: none; }
.cw-memory .stage:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.cw-memory canvas { position: absolute; inset: 0; display: block; touch-action: none; }
.cw-memory .figures { display: flex; gap: 14px; flex-wrap: wrap; padding: 3px 10px; flex: none;
  background: var(--surface); border-bottom: 1px solid var(--line); color: var(--muted);
  font-variant-numeric: tabular-nums; }
.cw-memory .figures b { color: var(--text); font-weight: 600; }
.cw-memory .key { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 4px; }
`;

const KEYS: [string, string][] = [
  ['click', 'select the buffer and its op'],
  ['← →', 'buffer before, after in the program'],
  ['↑ ↓', 'buffer above, below in memory'],
  ['+ −', 'zoom (Ctrl + wheel; over an axis: that axis)'],
  ['f', 'whole plan'],
  ['p', 'go to the peak'],
  ['t', 'next memory tier'],
  ['Esc', 'clear'],
];

class MemoryView {
  private data_!: MemoryData;
  private plans: TierPlan[] = [];
  private tier = 0;
  private window: Window = { from: 0, to: 1, low: 0, high: 1 };
  private palette!: Palette;
  private selected_ = -1;
  private hover = -1;
  private byKey = new Map<string | number, number>();
  private dirty = true;
  private readonly stage = h('div', {
    class: 'stage',
    tabindex: 0,
    role: 'application',
    'aria-label': 'Memory map: arrow keys walk over buffers, ? lists the keys',
  });
  private readonly scene = document.createElement('canvas');
  private readonly canvas = h('canvas');
  private readonly tabs = h('span', { class: 'group', role: 'tablist' });
  private readonly figures = h('div', { class: 'figures' });
  private readonly legend = h('span', { class: 'figure' });
  private readonly help = h('div', { class: 'help', hidden: true }, facts(KEYS));
  private readonly side: Side;
  private readonly tip;
  private readonly ask = perFrame(() => this.frameNow());

  constructor(private readonly frame: Frame) {
    this.side = new Side(frame.link, {
      select: (b) => {
        this.select(b);
        this.bringIntoView(b);
      },
      shown: () => this.remember(),
    });
    const bar = h(
      'div',
      { class: 'bar', role: 'toolbar', 'aria-label': 'Memory' },
      this.tabs,
      button('fit', 'Whole plan  (f)', () => this.fit()),
      button('peak', 'Go to the peak  (p)', () => this.goToPeak()),
      this.legend,
      h('span', { class: 'gap' }),
      this.side.tabs,
      h(
        'span',
        { class: 'group' },
        button('CSV', 'Download all buffers as CSV', () =>
          download('memory.csv', new Blob([csv(this.data_)], { type: 'text/csv' })),
        ),
        button('SVG', 'Download what the window shows as SVG', () => {
          download('memory.svg', new Blob([this.svg()], { type: 'image/svg+xml' }));
        }),
        button('PNG', 'Download what the window shows as PNG', () =>
          this.canvas.toBlob((blob) => blob && download('memory.png', blob)),
        ),
      ),
      button('?', 'Keys  (?)', () => (this.help.hidden = !this.help.hidden)),
    );
    this.stage.append(this.canvas);
    const main = h('div', { class: 'main' }, this.stage, this.side.root);
    frame.root.append(bar, this.figures, main, this.help);
    this.tip = tooltip(this.stage);
    this.listen();
    const observer = new ResizeObserver(() => this.redraw());
    observer.observe(this.stage);
    frame.link.onDispose(() => observer.disconnect());
    Object.assign(frame.root, {
      workbench: {
        placeOfBuffer: (key: string | number) => this.placeOf(key),
        svg: () => this.svg(),
        window: () => ({ ...this.window }),
      },
    });
  }

  // -------------------------------------------------------------- from the host

  data(data: MemoryData, first: boolean): void {
    const before = this.data_;
    this.data_ = data;
    this.plans = makePlans(data);
    this.tier = Math.min(this.tier, Math.max(0, this.plans.length - 1));
    this.byKey = new Map(Array.from({ length: data.buffers.key.length }, (_, b) => [data.buffers.key[b]!, b]));
    this.hover = -1;
    this.selected_ = -1;
    this.side.take(data);
    this.showTabs();
    // The same program keeps its window: the next plan can be compared with this one in place.
    if (first || before.steps !== data.steps) this.fit();
    this.redraw();
  }

  theme(palette: Palette): void {
    this.palette = palette;
    if (!this.data_) return;
    this.showTabs();
    this.redraw();
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
    this.ask();
  }

  state(state: Record<string, unknown>): void {
    if (!this.data_) return;
    const side = (['', ...SIDES] as SideName[]).find((name) => name === state.side) ?? 'peak';
    if (side !== this.side.name) this.side.show(side);
    const tier = this.data_.tiers.findIndex(({ name }) => name === state.tier);
    if (tier >= 0) this.setTier(tier);
  }

  // -------------------------------------------------------------- tiers and figures

  private get plan(): TierPlan {
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
    const tier = this.tier > 0 ? { tier: this.data_.tiers[this.tier]!.name } : {};
    const side = this.side.name === 'peak' ? {} : { side: this.side.name };
    this.frame.link.write('state', { ...tier, ...side });
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
    const figure = (name: string, value: string, more = '') =>
      h('span', { title: [this.data_.terms?.[name], more].filter(Boolean).join('\n') }, `${name} `, h('b', {}, value));
    const bound = tier.lower_bound;
    const gap = bound ? `${(((arena - bound) / bound) * 100).toFixed(1)} %` : '';
    const fragmented = (top[peakStep] ?? 0) - peak;
    const there = new Set([...buffers].map((b) => this.data_.buffers.category?.[b]));
    replace(
      this.figures,
      figure('buffers', count(buffers.length)),
      figure('arena', bytes(arena)),
      figure('peak live', bytes(peak), `At program position ${peakStep}.`),
      bound === undefined ? null : figure('lower bound', bytes(bound)),
      gap ? figure('gap', gap) : null,
      figure('fragmentation at peak', bytes(fragmented)),
      this.data_.buffers.unpadded
        ? figure('padding', bytes(padding))
        : null,
      tier.capacity
        ? figure('of capacity', `${((arena / tier.capacity) * 100).toFixed(1)} %`, bytes(tier.capacity))
        : null,
    );
    replace(
      this.legend,
      ...(this.data_.categories ?? []).flatMap((name, i) => {
        if (!there.has(i)) return [];
        const key = h('span', { class: 'key' });
        key.style.background = categoryColour(this.palette, i);
        return [h('span', {}, key, `${name}  `)];
      }),
    );
  }

  // -------------------------------------------------------------- drawing

  private redraw(): void {
    this.dirty = true;
    this.ask();
  }

  private frameNow(): void {
    if (this.data_) this.side.update(this.plan, this.selected_);
    const { clientWidth: width, clientHeight: height } = this.stage;
    if (!this.data_ || width === 0 || height === 0) return;
    const started = performance.now();
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    const [w, hgt] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== w || this.canvas.height !== hgt) {
      for (const canvas of [this.canvas, this.scene]) {
        canvas.width = w;
        canvas.height = hgt;
      }
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
      this.dirty = true;
    }
    if (this.dirty) {
      const pen = this.scene.getContext('2d')!;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.fillStyle = this.palette.page;
      pen.fillRect(0, 0, width, height);
      this.frame.root.dataset.drawn = String(draw(pen, this.input(width, height)));
      this.dirty = false;
    }
    const context = this.canvas.getContext('2d')!;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.scene, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.marks(context, width, height);
    this.frame.root.dataset.frameMs = (performance.now() - started).toFixed(1);
  }

  private input(width: number, height: number) {
    return { data: this.data_, plan: this.plan, window: this.window, palette: this.palette, width, height };
  }

  private marks(context: CanvasRenderingContext2D, width: number, height: number): void {
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

  private svg(): string {
    const { clientWidth, clientHeight } = this.stage;
    const pen = new SvgPen();
    draw(pen, this.input(clientWidth, clientHeight));
    return pen.document(0, 0, clientWidth, clientHeight, this.palette.page);
  }

  // -------------------------------------------------------------- window

  private whole(): Window {
    const { arena, tier } = this.plan;
    const most = Math.max(arena, tier.lower_bound ?? 0, 1);
    // A capacity far above the arena would only make the plan small.
    const shown = tier.capacity && tier.capacity < 1.5 * most ? tier.capacity : most;
    return { from: 0, to: Math.max(1, this.data_.steps), low: 0, high: shown * 1.04 };
  }

  private fit(): void {
    this.window = this.whole();
    this.redraw();
  }

  private zoom(fx: number, fy: number, x: number, y: number): void {
    const { map } = areas(this.stage.clientWidth, this.stage.clientHeight);
    const s = new Scales(map, this.window);
    const [step, address] = [s.step(x), s.address(y)];
    const whole = this.whole();
    const { from, to, low, high } = this.window;
    const kx = Math.min(Math.max(fx, 2 / (to - from)), (whole.to - whole.from) / (to - from));
    const ky = Math.min(Math.max(fy, 64 / (high - low)), (whole.high - whole.low) / (high - low));
    this.window = {
      from: step - (step - from) * kx,
      to: step + (to - step) * kx,
      low: address - (address - low) * ky,
      high: address + (high - address) * ky,
    };
    this.clamp();
  }

  private pan(dx: number, dy: number): boolean {
    const { map } = areas(this.stage.clientWidth, this.stage.clientHeight);
    const before = { ...this.window };
    const bySteps = (dx / map.width) * (before.to - before.from);
    const byBytes = (-dy / map.height) * (before.high - before.low);
    this.window = {
      from: before.from + bySteps,
      to: before.to + bySteps,
      low: before.low + byBytes,
      high: before.high + byBytes,
    };
    this.clamp();
    return before.from !== this.window.from || before.low !== this.window.low;
  }

  private clamp(): void {
    const whole = this.whole();
    const w = this.window;
    const inside = (low: number, high: number, min: number, max: number): [number, number] => {
      const size = Math.min(high - low, max - min);
      const start = Math.min(Math.max(low, min), max - size);
      return [start, start + size];
    };
    [w.from, w.to] = inside(w.from, w.to, whole.from, whole.to);
    [w.low, w.high] = inside(w.low, w.high, whole.low, whole.high);
    this.redraw();
  }

  private goToPeak(): void {
    const { peakStep } = this.plan;
    const half = Math.max(10, Math.min(this.data_.steps / 8, (this.window.to - this.window.from) / 2));
    this.window = { ...this.whole(), from: peakStep - half, to: peakStep + half };
    this.clamp();
  }

  private bringIntoView(b: number): void {
    const { buffers } = this.data_;
    const w = this.window;
    const outsideX = buffers.end[b]! <= w.from || buffers.start[b]! >= w.to;
    const outsideY = buffers.offset[b]! >= w.high || buffers.offset[b]! + buffers.size[b]! <= w.low;
    if (!outsideX && !outsideY) return;
    const [halfX, halfY] = [(w.to - w.from) / 2, (w.high - w.low) / 2];
    const x = (buffers.start[b]! + buffers.end[b]!) / 2;
    const y = buffers.offset[b]! + buffers.size[b]! / 2;
    this.window = { from: x - halfX, to: x + halfX, low: y - halfY, high: y + halfY };
    this.clamp();
  }

  // -------------------------------------------------------------- input

  private at(x: number, y: number): number {
    const { map } = areas(this.stage.clientWidth, this.stage.clientHeight);
    if (x < map.x || x > map.x + map.width || y < map.y || y > map.y + map.height) return -1;
    const s = new Scales(map, this.window);
    const step = s.step(x);
    const address = s.address(y);
    const { buffers } = this.data_;
    for (const b of this.plan.buffers) {
      if (buffers.start[b]! > step) break;
      if (
        step < buffers.end[b]! &&
        buffers.offset[b]! <= address &&
        address < buffers.offset[b]! + buffers.size[b]!
      ) {
        return b;
      }
    }
    return -1;
  }

  private placeOf(key: string | number): { x: number; y: number } | null {
    const b = this.byKey.get(key);
    if (b === undefined) return null;
    const { map } = areas(this.stage.clientWidth, this.stage.clientHeight);
    const [x, y, w, hgt] = rectangle(this.data_, new Scales(map, this.window), map, b);
    const box = this.stage.getBoundingClientRect();
    return { x: box.left + x + w / 2, y: box.top + y + hgt / 2 };
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
    this.ask();
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
      // Among the buffers that live at the same time, the next one up or down in memory.
      const together = list.filter(
        (b) => buffers.start[b]! < buffers.end[current]! && buffers.start[current]! < buffers.end[b]!,
      );
      const above = together
        .filter((b) => (buffers.offset[b]! - buffers.offset[current]!) * dy > 0)
        .sort((a, b) => (buffers.offset[a]! - buffers.offset[b]!) * dy || a - b);
      if (above[0] !== undefined) this.select(above[0]);
    }
    this.bringIntoView(this.selected_);
  }

  private facts(b: number): Node[] {
    const { buffers, categories, tiers, step_label } = this.data_;
    const [start, end] = [buffers.start[b]!, buffers.end[b]!];
    const size = buffers.size[b]!;
    const unpadded = unpaddedOf(this.data_, b);
    const rows: [string, string][] = [
      ['size', `${bytes(size)}  (${count(size)} B)`],
      ['offset', `${bytes(buffers.offset[b]!)}  (${count(buffers.offset[b]!)} B)`],
      ['padding', `${bytes(size - unpadded)}`],
      ['lives', `${count(start)} to ${count(end)}, ${plural(end - start, 'step')}`],
      ['tier', tiers[buffers.tier[b]!]?.name ?? ''],
    ];
    const category = categories?.[buffers.category?.[b] ?? -1];
    if (category) rows.push(['kind', category]);
    if (buffers.type?.[b]) rows.push(['type', buffers.type[b]!]);
    if (step_label?.[start]) rows.push(['first', step_label[start]!]);
    if (step_label?.[end - 1]) rows.push(['last', step_label[end - 1]!]);
    return [h('b', {}, buffers.name[b]!), facts(rows)];
  }

  private listen(): void {
    const { canvas, stage } = this;
    let drag: { x: number; y: number; far: boolean } | null = null;
    canvas.addEventListener('pointerdown', (event) => {
      stage.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      drag = { x: event.clientX, y: event.clientY, far: false };
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!drag) return this.hoverAt(event.offsetX, event.offsetY);
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      if (!drag.far && Math.hypot(dx, dy) < 4) return;
      drag = { x: event.clientX, y: event.clientY, far: true };
      this.tip.hide();
      this.pan(-dx, -dy);
    });
    canvas.addEventListener('pointerup', (event) => {
      if (drag && !drag.far) this.select(this.at(event.offsetX, event.offsetY));
      drag = null;
    });
    canvas.addEventListener('pointercancel', () => (drag = null));
    canvas.addEventListener('pointerleave', () => this.hoverAt(-1, -1));
    canvas.addEventListener(
      'wheel',
      (event) => {
        const { map } = areas(stage.clientWidth, stage.clientHeight);
        const onAddresses = event.offsetX < map.x;
        const onProgram = event.offsetY > map.y + map.height;
        const factor = Math.exp(event.deltaY * 0.0022);
        if (onAddresses) this.zoom(1, factor, event.offsetX, event.offsetY);
        else if (onProgram) this.zoom(factor, 1, event.offsetX, event.offsetY);
        else if (event.ctrlKey || event.metaKey) this.zoom(factor, factor, event.offsetX, event.offsetY);
        else {
          const sideways = event.shiftKey && event.deltaX === 0;
          const [dx, dy] = sideways ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
          if (!this.pan(dx, dy)) return;
        }
        event.preventDefault();
        this.tip.hide();
      },
      { passive: false },
    );
    this.frame.root.addEventListener('keydown', (event) => this.key(event));
  }

  private hoverAt(x: number, y: number): void {
    const b = x < 0 ? -1 : this.at(x, y);
    if (b !== this.hover) {
      this.hover = b;
      this.ask();
    }
    if (b >= 0) this.tip.show(x, y, ...this.facts(b));
    else if (x >= 0) this.stepTip(x, y);
    else this.tip.hide();
  }

  private stepTip(x: number, y: number): void {
    const { map, curve } = areas(this.stage.clientWidth, this.stage.clientHeight);
    const step = Math.floor(new Scales(map, this.window).step(x));
    const { live, top } = this.plan;
    if (x < map.x || y < curve.y || step < 0 || step >= live.length) return this.tip.hide();
    const rows: [string, string][] = [
      ['live', bytes(live[step]!)],
      ['fragmentation', bytes(top[step]! - live[step]!)],
    ];
    const label = this.data_.step_label?.[step];
    if (label) rows.unshift(['op', label]);
    this.tip.show(x, y, h('b', {}, `position ${count(step)}`), facts(rows));
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inButton = event.composedPath()[0] !== this.stage;
    const middle: [number, number] = [this.stage.clientWidth / 2, this.stage.clientHeight / 2];
    const actions: Record<string, () => void> = {
      ArrowLeft: () => this.walk(-1, 0),
      ArrowRight: () => this.walk(1, 0),
      ArrowUp: () => this.walk(0, 1),
      ArrowDown: () => this.walk(0, -1),
      '+': () => this.zoom(0.8, 0.8, ...middle),
      '=': () => this.zoom(0.8, 0.8, ...middle),
      '-': () => this.zoom(1.25, 1.25, ...middle),
      f: () => this.fit(),
      p: () => this.goToPeak(),
      t: () => this.setTier((this.tier + 1) % this.plans.length),
      '?': () => (this.help.hidden = !this.help.hidden),
      Escape: () => {
        this.help.hidden = true;
        this.select(-1);
      },
    };
    const action = actions[event.key];
    if (!action || inButton) return;
    action();
    event.preventDefault();
    event.stopPropagation();
  }
}

export default define<MemoryData>('memory', STYLE, (frame) => {
  const view = new MemoryView(frame);
  return {
    data: (data, first) => {
      view.data(data, first);
      if (first) view.state(frame.link.dict('state'));
    },
    theme: (palette) => view.theme(palette),
    selected: (selection) => view.selected(selection),
    state: (state) => view.state(state),
  };
});
