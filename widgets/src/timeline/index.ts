/** The timeline: one execution on its threads or streams, above live bytes. See widgets/README.md. */

import { button, download, facts, h, perFrame, replace, tooltip } from '../shared/dom';
import { bytes, count, quantity } from '../shared/format';
import type { Selection } from '../shared/host';
import { SvgPen } from '../shared/pen';
import type { Palette } from '../shared/theme';
import { announce, define, type Frame } from '../shared/view';
import { areas, categoryColour, draw, Scale, type Window } from './draw';
import { categoryOf, csv, kernelOf, lastBefore, makePlan, type Plan, type TimelineData } from './model';

const STYLE = `
.cw-timeline .stage { position: relative; flex: 1; min-height: 0; overflow: hidden; outline: none; }
.cw-timeline .stage:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.cw-timeline canvas { position: absolute; inset: 0; display: block; touch-action: none; cursor: default; }
.cw-timeline .figures { display: flex; gap: 14px; flex-wrap: wrap; padding: 3px 10px; flex: none;
  background: var(--surface); border-bottom: 1px solid var(--line); color: var(--muted);
  font-variant-numeric: tabular-nums; }
.cw-timeline .figures b { color: var(--text); font-weight: 600; }
.cw-timeline .key { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 4px; }
`;

const KEYS: [string, string][] = [
  ['click', 'select the launch: its op, kernel and buffer everywhere'],
  ['w s', 'zoom in, out (also + −, and the wheel)'],
  ['a d', 'pan left, right (also drag, Shift + wheel)'],
  ['← →', 'launch before, after on this thread'],
  ['↑ ↓', 'thread above, below'],
  ['m', 'zoom to the selected launch'],
  ['p', 'go to the memory peak'],
  ['f', 'whole execution'],
  ['Enter', "the kernel's code"],
  ['Esc', 'clear'],
];
/** How long the host has to answer before the view says that nobody does (milliseconds). */
const PATIENCE = 5_000;

/** A selection as Python says it: all launches that it is or became. */
interface Marked extends Selection {
  launches?: number[];
}

class TimelineView {
  private data_!: TimelineData;
  private plan!: Plan;
  private window: Window = { from: 0, to: 1, scroll: 0 };
  private palette!: Palette;
  private marked = new Set<number>();
  /** The span that keys start from. */
  private current = -1;
  private hover = -1;
  private chosen = false;
  private dirty = true;
  private readonly stage = h('div', {
    class: 'stage',
    tabindex: 0,
    role: 'application',
    'aria-label': 'Timeline: arrow keys walk over launches, w a s d zoom and pan, ? lists the keys',
  });
  private readonly scene = document.createElement('canvas');
  private readonly canvas = h('canvas');
  private readonly figures = h('div', { class: 'figures' });
  private readonly legend = h('span', { class: 'figure wide' });
  private readonly note = h('span', { class: 'figure', role: 'status' });
  private readonly help = h('div', { class: 'help', hidden: true }, facts(KEYS));
  private readonly tip;
  private readonly ask = perFrame(() => this.frameNow());

  constructor(private readonly frame: Frame) {
    const bar = h(
      'div',
      { class: 'bar', role: 'toolbar', 'aria-label': 'Timeline' },
      button('fit', 'Whole execution  (f)', () => this.fit()),
      button('peak', 'Go to the memory peak  (p)', () => this.goToPeak()),
      this.legend,
      h('span', { class: 'gap' }),
      this.note,
      h(
        'span',
        { class: 'group' },
        button('Trace', 'Download for Perfetto (ui.perfetto.dev) and Chrome', () => void this.trace()),
        button('CSV', 'Download all spans as CSV', () =>
          download('timeline.csv', new Blob([csv(this.data_)], { type: 'text/csv' })),
        ),
        button('SVG', 'Download what the window shows as SVG', () =>
          download('timeline.svg', new Blob([this.svg()], { type: 'image/svg+xml' })),
        ),
        button('PNG', 'Download what the window shows as PNG', () =>
          this.canvas.toBlob((blob) => blob && download('timeline.png', blob)),
        ),
      ),
      button('?', 'Keys  (?)', () => (this.help.hidden = !this.help.hidden)),
    );
    this.stage.append(this.canvas);
    frame.root.append(bar, this.figures, this.stage, this.help);
    this.tip = tooltip(this.stage);
    this.listen();
    const observer = new ResizeObserver(() => this.redraw());
    observer.observe(this.stage);
    frame.link.onDispose(() => observer.disconnect());
    Object.assign(frame.root, {
      workbench: {
        placeOfLaunch: (n: number) => this.placeOf(n),
        window: () => ({ ...this.window }),
        marked: () => [...this.marked],
        svg: () => this.svg(),
        csv: () => csv(this.data_),
      },
    });
  }

  // -------------------------------------------------------------- from the host

  data(data: TimelineData, first: boolean): void {
    const before = this.data_;
    this.data_ = data;
    this.plan = makePlan(data);
    this.current = -1;
    this.hover = -1;
    this.showFigures();
    if (first || before.total !== data.total) this.fit();
    this.redraw();
  }

  theme(palette: Palette): void {
    this.palette = palette;
    if (!this.data_) return;
    this.showFigures();
    this.redraw();
  }

  selected(selection: Marked): void {
    const { launches, kernels } = this.data_;
    const found = new Set<number>();
    const all = Array.from(launches.op.keys());
    if (selection.launches) selection.launches.forEach((n) => found.add(n));
    else if (selection.op !== undefined) all.filter((n) => launches.op[n] === selection.op).forEach((n) => found.add(n));
    else if (selection.kernel !== undefined) {
      all.filter((n) => kernels.key[launches.kernel[n]!] === selection.kernel).forEach((n) => found.add(n));
    }
    this.marked = found;
    const here = this.current >= 0 && found.has(this.data_.spans.launch[this.current]!);
    if (!here) this.current = this.spanOf([...found].sort((a, b) => a - b)[0] ?? -1);
    if (found.size && !this.chosen) this.bringIntoView(this.current);
    this.chosen = false;
    this.redraw();
  }

  state(state: Record<string, unknown>): void {
    if (!this.data_ || typeof state.from !== 'number' || typeof state.to !== 'number') return;
    this.window = { ...this.window, from: state.from, to: state.to };
    this.clamp();
  }

  // -------------------------------------------------------------- figures

  private showFigures(): void {
    const { total, lanes, spans, launches, categories, note } = this.data_;
    const busy = this.plan.busy.reduce((sum, time) => sum + time, 0) / Math.max(1, lanes.length);
    const figure = (name: string, value: string, more = '') =>
      h('span', { title: [this.data_.terms?.[name], more].filter(Boolean).join('\n') }, `${name} `, h('b', {}, value));
    replace(
      this.figures,
      figure('execution', quantity(total, 'us')),
      figure('launches', count(launches.op.length)),
      figure('lanes', count(lanes.length), `${count(spans.launch.length)} spans.`),
      figure('at work', `${total ? ((100 * busy) / total).toFixed(1) : '0'} %`),
      this.data_.live ? figure('peak live', bytes(this.plan.peak)) : null,
      h('span', { title: this.data_.recorded ? 'As the clock of each thread saw it' : 'No execution was recorded whole' }, note),
    );
    replace(
      this.legend,
      ...categories.map((name, i) => {
        const key = h('span', { class: 'key' });
        key.style.background = categoryColour(this.palette, i);
        return h('span', {}, key, `${name}  `);
      }),
    );
  }

  private async trace(): Promise<void> {
    const timer = window.setTimeout(() => {
      this.note.textContent = 'no answer yet; without a server: workbench export RUN -o x.trace.json';
    }, PATIENCE);
    try {
      const found = await this.frame.link.ask<unknown>('trace', {});
      download(`${this.data_.title}.trace.json`, new Blob([JSON.stringify(found)], { type: 'application/json' }));
      this.note.textContent = '';
    } catch (error) {
      this.note.textContent = error instanceof Error ? error.message : String(error);
    } finally {
      window.clearTimeout(timer);
    }
  }

  // -------------------------------------------------------------- drawing

  private redraw(): void {
    this.dirty = true;
    this.ask();
  }

  private get where() {
    return areas(this.data_, this.stage.clientWidth, this.stage.clientHeight);
  }

  private get scale(): Scale {
    return new Scale(this.where.lanes, this.window.from, this.window.to);
  }

  private frameNow(): void {
    const { clientWidth: width, clientHeight: height } = this.stage;
    if (!this.data_ || width === 0 || height === 0) return;
    const started = performance.now();
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    const [w, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== w || this.canvas.height !== tall) {
      for (const canvas of [this.canvas, this.scene]) {
        canvas.width = w;
        canvas.height = tall;
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
    this.drawHover(context);
    this.frame.root.dataset.frameMs = (performance.now() - started).toFixed(1);
  }

  private input(width: number, height: number) {
    const { data_: data, plan, window, palette, marked: selected } = this;
    return { data, plan, window, palette, width, height, selected };
  }

  private drawHover(context: CanvasRenderingContext2D): void {
    const box = this.hover < 0 ? null : this.box(this.hover);
    if (!box) return;
    context.strokeStyle = this.palette.accent;
    context.lineWidth = 1.4;
    context.strokeRect(...box);
    const { curve, percent } = this.where;
    context.fillStyle = this.palette.accent;
    context.globalAlpha = 0.14;
    for (const area of [curve, percent]) {
      if (area) context.fillRect(box[0], area.y, Math.max(1.5, box[2]), area.height);
    }
    context.globalAlpha = 1;
  }

  private svg(): string {
    const { clientWidth, clientHeight } = this.stage;
    const pen = new SvgPen();
    draw(pen, this.input(clientWidth, clientHeight));
    return pen.document(0, 0, clientWidth, clientHeight, this.palette.page);
  }

  /** Where a span is on the stage; null: outside. */
  private box(span: number): [number, number, number, number] | null {
    const { lanes, lane } = this.where;
    const { start, duration, lane: of } = this.data_.spans;
    const x0 = Math.max(lanes.x, this.scale.x(start[span]!));
    const x1 = Math.min(lanes.x + lanes.width, this.scale.x(start[span]! + duration[span]!));
    const y = lanes.y + of[span]! * lane - this.window.scroll;
    if (x1 < lanes.x || x0 > lanes.x + lanes.width || y + lane < lanes.y || y > lanes.y + lanes.height) return null;
    return [x0, y + 1.5, Math.max(1, x1 - x0), lane - 3];
  }

  private placeOf(n: number): { x: number; y: number } | null {
    const span = this.spanOf(n);
    const box = span < 0 ? null : this.box(span);
    if (!box) return null;
    const stage = this.stage.getBoundingClientRect();
    return { x: stage.left + box[0] + box[2] / 2, y: stage.top + box[1] + box[3] / 2 };
  }

  // -------------------------------------------------------------- window

  private fit(): void {
    this.window = { from: 0, to: Math.max(this.data_.total, 1e-3), scroll: 0 };
    this.redraw();
    this.remember();
  }

  private zoom(factor: number, x?: number): void {
    const { lanes } = this.where;
    const at = this.scale.time(Math.max(lanes.x, Math.min(lanes.x + lanes.width, x ?? lanes.x + lanes.width / 2)));
    const { from, to } = this.window;
    const least = Math.min(0.02, this.data_.total);
    const k = Math.min(Math.max(factor, least / (to - from)), Math.max(1, this.data_.total / (to - from)));
    this.window = { ...this.window, from: at - (at - from) * k, to: at + (to - at) * k };
    this.clamp();
  }

  private pan(dx: number, dy = 0): void {
    const { from, to, scroll } = this.window;
    const by = (dx / this.where.lanes.width) * (to - from);
    this.window = { from: from + by, to: to + by, scroll: scroll + dy };
    this.clamp();
  }

  private clamp(): void {
    const w = this.window;
    const total = Math.max(this.data_.total, 1e-3);
    const size = Math.min(Math.max(w.to - w.from, 1e-6), total);
    w.from = Math.min(Math.max(0, w.from), total - size);
    w.to = w.from + size;
    const { lanes, lane } = this.where;
    w.scroll = Math.min(Math.max(0, w.scroll), Math.max(0, lane * this.data_.lanes.length - lanes.height));
    this.redraw();
    this.remember();
  }

  private timer = 0;
  private remember(): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      const { from, to } = this.window;
      const whole = from <= 0 && to >= this.data_.total;
      const short = (time: number) => Number(time.toPrecision(7));
      this.frame.link.write('state', whole ? {} : { from: short(from), to: short(to) });
    }, 400);
  }

  private zoomTo(from: number, to: number): void {
    const around = (to - from) * 2;
    this.window = { ...this.window, from: from - around, to: to + around };
    this.clamp();
  }

  private goToPeak(): void {
    const n = this.plan.peakLaunch;
    if (n < 0 || Number.isNaN(this.plan.first[n]!)) return;
    this.zoomTo(this.plan.first[n]!, this.plan.last[n]!);
  }

  private bringIntoView(span: number): void {
    if (span < 0) return;
    const { start, duration, lane: of } = this.data_.spans;
    const w = this.window;
    const [from, to] = [start[span]!, start[span]! + duration[span]!];
    if (to < w.from || from > w.to) {
      const half = (w.to - w.from) / 2;
      const middle = (from + to) / 2;
      this.window = { ...w, from: middle - half, to: middle + half };
    }
    const { lanes, lane } = this.where;
    const y = of[span]! * lane;
    if (y < this.window.scroll) this.window.scroll = y;
    if (y + lane > this.window.scroll + lanes.height) this.window.scroll = y + lane - lanes.height;
    this.clamp();
  }

  // -------------------------------------------------------------- selection

  /** The first span of a launch. */
  private spanOf(n: number): number {
    return n < 0 ? -1 : this.data_.spans.launch.indexOf(n);
  }

  private at(x: number, y: number): number {
    const { lanes, lane } = this.where;
    if (x < lanes.x || x > lanes.x + lanes.width || y < lanes.y || y > lanes.y + lanes.height) return -1;
    const list = this.plan.lanes[Math.floor((y - lanes.y + this.window.scroll) / lane)];
    if (!list) return -1;
    const { start, duration } = this.data_.spans;
    const slack = this.scale.time(x + 1.5);
    const place = lastBefore(list, start, slack);
    const span = place < 0 ? -1 : list[place]!;
    return span >= 0 && start[span]! + duration[span]! >= this.scale.time(x - 1.5) ? span : -1;
  }

  private select(span: number): void {
    this.current = span;
    const next: Marked = { ...this.frame.link.dict<Marked>('selection') };
    for (const name of ['launches', 'op', 'kernel', 'buffer', 'scope'] as const) delete next[name];
    this.marked = new Set();
    if (span >= 0) {
      const n = this.data_.spans.launch[span]!;
      this.marked.add(n);
      this.chosen = true;
      const op = this.data_.launches.op[n]!;
      if (op >= 0) next.op = op;
      announce(this.frame.root, `${kernelOf(this.data_, n)}, ${quantity(this.data_.spans.duration[span]!, 'us')}`);
    }
    this.frame.link.write('selection', next);
    this.redraw();
  }

  private walk(by: number, lanesBy: number): void {
    const { start, lane } = this.data_.spans;
    if (this.current < 0) {
      // From what is seen: the first span that begins in the window.
      const seen = start.findIndex((at) => at >= this.window.from);
      if (start.length) this.select(Math.max(0, seen));
      return;
    }
    const of = lane[this.current]!;
    let next: number | undefined;
    if (by) {
      const list = this.plan.lanes[of]!;
      next = list[lastBefore(list, start, start[this.current]!) + by];
    } else {
      const list = this.plan.lanes[of + lanesBy];
      const place = list ? Math.max(0, lastBefore(list, start, start[this.current]! + 1e-9)) : 0;
      next = list?.[place];
      // The same launch on the other thread, where it has a part of it.
      const same = list?.find((s) => this.data_.spans.launch[s] === this.data_.spans.launch[this.current]);
      next = same ?? next;
    }
    if (next === undefined) return;
    this.select(next);
    this.bringIntoView(next);
  }

  private facts(span: number): Node[] {
    const { spans, launches, places, lanes, live, total } = this.data_;
    const n = spans.launch[span]!;
    const [median, duration] = [launches.median[n]!, spans.duration[span]!];
    const spent = this.plan.last[n]! - this.plan.first[n]!;
    const rate = (amount: number, unit: string) => `${(amount / spent / 1e3).toFixed(1)} ${unit}`;
    const rows: [string, string][] = [
      ['start', quantity(spans.start[span]!, 'us')],
      ['duration', `${quantity(duration, 'us')} on ${lanes[spans.lane[span]!] ?? ''}`],
    ];
    if (lanes.length > 1) rows.push(['all threads', quantity(spent, 'us')]);
    rows.push(['share', `${((100 * spent) / Math.max(total, 1e-9)).toFixed(2)} % of the execution`]);
    if (!Number.isNaN(median)) {
      rows.push(['median', `${quantity(median, 'us')}, from ${quantity(launches.min[n]!, 'us')}, 95 of 100 below ${quantity(launches.p95[n]!, 'us')}`]);
    }
    if (launches.flops[n] && spent) rows.push(['rate', `${rate(launches.flops[n]!, 'GFLOP/s')}, ${rate(launches.bytes[n]!, 'GB/s')}`]);
    if (live) rows.push(['live', bytes(live[n]!)]);
    const percent = this.data_.percent?.[n];
    if (percent !== undefined) rows.push(['of limit', `${percent.toFixed(1)} % of this machine's lower roof, by the median`]);
    rows.push(['kind', this.data_.categories[categoryOf(this.data_, n)] ?? '']);
    const place = places[launches.place[n]!];
    if (place) rows.push(['model line', place.split('/').slice(-2).join('/')]);
    return [h('b', {}, `${kernelOf(this.data_, n)}`), h('span', {}, `  launch ${count(n)}`), facts(rows)];
  }

  // -------------------------------------------------------------- input

  private listen(): void {
    const { canvas, stage } = this;
    let drag: { x: number; y: number; far: boolean; map: boolean } | null = null;
    const inMap = (y: number) => y < this.where.map.y + this.where.map.height;
    const centre = (x: number) => {
      const { map } = this.where;
      const middle = new Scale(map, 0, this.data_.total).time(x);
      const half = (this.window.to - this.window.from) / 2;
      this.window = { ...this.window, from: middle - half, to: middle + half };
      this.clamp();
    };
    canvas.addEventListener('pointerdown', (event) => {
      stage.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      drag = { x: event.clientX, y: event.clientY, far: false, map: inMap(event.offsetY) };
      if (drag.map) centre(event.offsetX);
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!drag) return this.hoverAt(event.offsetX, event.offsetY);
      if (drag.map) return centre(event.offsetX);
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      if (!drag.far && Math.hypot(dx, dy) < 4) return;
      drag = { x: event.clientX, y: event.clientY, far: true, map: false };
      this.tip.hide();
      this.pan(-dx, -dy);
    });
    canvas.addEventListener('pointerup', (event) => {
      if (drag && !drag.far && !drag.map) this.select(this.at(event.offsetX, event.offsetY));
      drag = null;
    });
    canvas.addEventListener('pointercancel', () => (drag = null));
    canvas.addEventListener('pointerleave', () => this.hoverAt(-1, -1));
    canvas.addEventListener('dblclick', (event) => {
      const span = this.at(event.offsetX, event.offsetY);
      const { start, duration } = this.data_.spans;
      if (span >= 0) this.zoomTo(start[span]!, start[span]! + duration[span]!);
    });
    canvas.addEventListener(
      'wheel',
      (event) => {
        const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(sideways);
        else this.zoom(Math.exp(event.deltaY * 0.0022), event.offsetX);
        event.preventDefault();
        this.tip.hide();
      },
      { passive: false },
    );
    this.frame.root.addEventListener('keydown', (event) => this.key(event));
  }

  private hoverAt(x: number, y: number): void {
    const span = x < 0 ? -1 : this.at(x, y);
    if (span !== this.hover) {
      this.hover = span;
      this.ask();
    }
    if (span >= 0) this.tip.show(x, y, ...this.facts(span));
    else if (x >= 0) this.liveTip(x, y);
    else this.tip.hide();
  }

  private liveTip(x: number, y: number): void {
    const { curve } = this.where;
    const { live } = this.data_;
    if (!curve || !live || x < curve.x || y < curve.y || y > curve.y + curve.height) return this.tip.hide();
    const place = lastBefore(this.plan.order, this.plan.first, this.scale.time(x));
    if (place < 0) return this.tip.hide();
    const n = this.plan.order[place]!;
    this.tip.show(x, y, h('b', {}, bytes(live[n]!)), h('span', {}, `  live at launch ${count(n)}, ${kernelOf(this.data_, n)}`));
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.composedPath()[0] !== this.stage) return;
    const step = this.where.lanes.width * 0.2;
    const { start, duration } = this.data_.spans;
    const actions: Record<string, () => void> = {
      w: () => this.zoom(0.7),
      s: () => this.zoom(1 / 0.7),
      a: () => this.pan(-step),
      d: () => this.pan(step),
      '+': () => this.zoom(0.7),
      '=': () => this.zoom(0.7),
      '-': () => this.zoom(1 / 0.7),
      ArrowLeft: () => this.walk(-1, 0),
      ArrowRight: () => this.walk(1, 0),
      ArrowUp: () => this.walk(0, -1),
      ArrowDown: () => this.walk(0, 1),
      m: () => {
        const span = this.current;
        if (span >= 0) this.zoomTo(start[span]!, start[span]! + duration[span]!);
      },
      p: () => this.goToPeak(),
      f: () => this.fit(),
      Enter: () => this.frame.link.write('command', JSON.stringify({ name: 'show', view: 'code', n: Date.now() })),
      '?': () => (this.help.hidden = !this.help.hidden),
      Escape: () => {
        this.help.hidden = true;
        this.select(-1);
      },
    };
    const action = actions[event.key];
    if (!action) return;
    action();
    event.preventDefault();
    event.stopPropagation();
  }
}

export default define<TimelineData>('timeline', STYLE, (frame) => {
  const view = new TimelineView(frame);
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
