/** The timeline of one recording: an execution on its threads or streams, above live bytes. See widgets/README.md. */

import { centreRange, clampRange, type Range, Scale, zoomRange } from '../shared/axis';
import { button, facts, h, replace } from '../shared/dom';
import { downloadMenu, saveCanvas, saveText } from '../shared/download';
import { figure, FIGURES_STYLE, legend, sideName } from '../shared/figures';
import { bytes, count, quantity } from '../shared/format';
import { listenTo, zoomFactor } from '../shared/gestures';
import type { Selection, ViewLink } from '../shared/host';
import type { Pen } from '../shared/pen';
import { type Painter, Stage, STAGE_STYLE } from '../shared/stage';
import type { Palette } from '../shared/theme';
import { announce } from '../shared/view';
import { areas, categoryColour, draw, type Window } from './draw';
import { spanFacts } from './facts';
import { csv, kernelOf, lastBefore, makePlan, type Plan, type TimelineData } from './model';

export const TIMELINE_STYLE = STAGE_STYLE + FIGURES_STYLE;

const KEYS: [string, string][] = [
  ['click', 'select the launch: its op, kernel and buffer in all views'],
  ['w s', 'zoom in, out (also + −, and the wheel)'],
  ['a d', 'pan left, right (also drag, Shift + wheel)'],
  ['← →', 'previous, next launch on this thread'],
  ['↑ ↓', 'thread above, below'],
  ['i', 'facts of the selected launch'],
  ['m', 'zoom to the selected launch'],
  ['p', 'go to the memory peak'],
  ['f', 'whole execution'],
  ['Enter', "the kernel's code"],
  ['Esc', 'clear'],
];
/** The time after which the view reports a missing answer of the host (milliseconds). */
const PATIENCE = 5_000;

/** A selection as Python sends it: all of its launches. */
export interface TimelineSelection extends Selection {
  launches?: number[];
}

/** One of two timelines: without a toolbar, on a shared time axis. */
export interface Half {
  /** `A` or `B`, and the recording. */
  letter: string;
  name: string;
  /** The length of its own execution (microseconds); `total` of its data is that of the longer one. */
  duration: number;
  /** The user moved the window. */
  moved(from: number, to: number): void;
  /** The user selected a launch; -1: none. */
  selected(launch: number): void;
  /** Additional facts of a launch: its match in the other recording. */
  launchFacts(launch: number): [string, string][];
}

export class TimelineView implements Painter {
  private data_!: TimelineData;
  private plan!: Plan;
  private window: Window = { from: 0, to: 1, scroll: 0 };
  private palette!: Palette;
  private selectedLaunches = new Set<number>();
  /** The span at the keyboard cursor. */
  private current = -1;
  private hover = -1;
  /** Whether the facts of the current span are shown next to it. */
  private factsVisible = false;
  private selectedByUser = false;
  private readonly stage: Stage;
  private readonly figures = h('div', { class: 'figures' });
  private readonly legend = h('span', { class: 'figure wide' });
  private readonly note = h('span', { class: 'figure', role: 'status' });
  private readonly help = h('div', { class: 'help', hidden: true }, facts(KEYS));

  constructor(
    private readonly frame: { root: HTMLElement; link: ViewLink },
    private readonly half: Half | null = null,
  ) {
    const bar = h(
      'div',
      { class: 'bar', role: 'toolbar', 'aria-label': 'Timeline' },
      button('fit', 'Whole execution  (f)', () => this.fit()),
      button('peak', 'Go to the memory peak  (p)', () => this.goToPeak()),
      this.legend,
      h('span', { class: 'gap' }),
      this.note,
      downloadMenu(() => [
        ['Trace, for Perfetto (ui.perfetto.dev) and Chrome', () => this.saveTrace()],
        ['All spans, CSV', () => saveText('timeline.csv', csv(this.data_), 'text/csv')],
        ['What the window shows, SVG', () => saveText('timeline.svg', this.svg(), 'image/svg+xml')],
        ['What the window shows, PNG', () => saveCanvas('timeline.png', this.stage.canvas)],
      ]),
      button('?', 'Keys  (?)', () => (this.help.hidden = !this.help.hidden)),
    );
    const label = 'Timeline: arrow keys move between launches, w a s d zoom and pan, ? lists the keys';
    this.stage = new Stage(label, this, frame.root, frame.link);
    frame.root.append(...(half ? [] : [bar]), this.figures, this.stage.root, this.help);
    this.listen();
    Object.assign(frame.root, {
      workbench: {
        placeOfLaunch: (n: number) => this.pagePosition(n),
        window: () => ({ ...this.window }),
        marked: () => [...this.selectedLaunches],
        svg: () => this.svg(),
        csv: () => csv(this.data_),
      },
    });
  }

  // -------------------------------------------------------------- updates from the host

  data(data: TimelineData, first: boolean): void {
    const before = this.data_;
    this.data_ = data;
    this.plan = makePlan(data);
    this.current = -1;
    this.hover = -1;
    this.showFigures();
    if (first || before.total !== data.total) this.fit();
    this.stage.redraw();
  }

  theme(palette: Palette): void {
    this.palette = palette;
    if (!this.data_) return;
    this.showFigures();
    this.stage.redraw();
  }

  selected(selection: TimelineSelection): void {
    const { launches, kernels } = this.data_;
    const found = new Set<number>();
    const all = Array.from(launches.op.keys());
    if (selection.launches) selection.launches.forEach((n) => found.add(n));
    else if (selection.op !== undefined) all.filter((n) => launches.op[n] === selection.op).forEach((n) => found.add(n));
    else if (selection.kernel !== undefined) {
      all.filter((n) => kernels.key[launches.kernel[n]!] === selection.kernel).forEach((n) => found.add(n));
    }
    this.selectedLaunches = found;
    const isCurrentSelected = this.current >= 0 && found.has(this.data_.spans.launch[this.current]!);
    if (!isCurrentSelected) this.current = this.firstSpanOf([...found].sort((a, b) => a - b)[0] ?? -1);
    if (found.size && !this.selectedByUser) this.bringIntoView(this.current);
    this.selectedByUser = false;
    this.stage.redraw();
  }

  /** The time range of some launches, from the first to the last; null: none has spans. */
  timeOf(launches: readonly number[]): Range | null {
    const measured = launches.filter((n) => !Number.isNaN(this.plan.first[n]!));
    if (!measured.length) return null;
    return { from: Math.min(...measured.map((n) => this.plan.first[n]!)), to: Math.max(...measured.map((n) => this.plan.last[n]!)) };
  }

  /** Moves the window so that a time range is completely visible. */
  reveal({ from, to }: Range): void {
    if (from >= this.window.from && to <= this.window.to) return;
    const fits = to - from <= this.window.to - this.window.from;
    if (fits) this.setWindow(centreRange(this.window, (from + to) / 2));
    else this.setWindow({ from: from - (to - from) * 0.1, to: to + (to - from) * 0.1 });
  }

  /** Shows the same time as the other timeline. */
  syncWindow(from: number, to: number): void {
    this.window = { ...this.window, from, to };
    this.stage.redraw();
  }

  state(state: Record<string, unknown>): void {
    if (!this.data_) return;
    const { from, to } = state;
    if (typeof from === 'number' && typeof to === 'number') this.setWindow({ from, to });
    else if (!this.showsAll) this.setWindow({ from: 0, to: this.data_.total });
  }

  // -------------------------------------------------------------- figures

  private showFigures(): void {
    const { total, lanes, spans, launches, categories, note } = this.data_;
    const busy = this.plan.busy.reduce((sum, time) => sum + time, 0) / Math.max(1, lanes.length);
    const termFigure = (name: string, value: string, more = '') => figure(name, value, this.data_.terms?.[name], more);
    const { half } = this;
    const duration = half ? half.duration : total;
    replace(
      this.figures,
      ...(half ? sideName(half.letter, half.name) : []),
      termFigure(this.data_.predicted ? 'predicted' : 'execution', quantity(duration, 'us')),
      termFigure('launches', count(launches.op.length)),
      termFigure('lanes', count(lanes.length), `${count(spans.launch.length)} spans.`),
      termFigure('at work', `${duration ? ((100 * busy) / duration).toFixed(1) : '0'} %`),
      this.data_.live ? termFigure('peak live', bytes(this.plan.peak)) : null,
      h('span', { title: this.data_.recorded ? 'By the clock of each thread' : 'The recording has no complete execution' }, note),
    );
    replace(this.legend, ...legend(categories, (i) => categoryColour(this.palette, i)));
  }

  private async saveTrace(): Promise<void> {
    const timer = window.setTimeout(() => {
      this.note.textContent = 'no answer yet; without a server: workbench export RUN -o x.trace.json';
    }, PATIENCE);
    try {
      const found = await this.frame.link.request<unknown>('trace', {});
      saveText(`${this.data_.title}.trace.json`, JSON.stringify(found), 'application/json');
      this.note.textContent = '';
    } catch (error) {
      this.note.textContent = error instanceof Error ? error.message : String(error);
    } finally {
      window.clearTimeout(timer);
    }
  }

  // -------------------------------------------------------------- drawing

  ready(): boolean {
    return this.data_ !== undefined;
  }

  background(): string {
    return this.palette.page;
  }

  private get areas() {
    return areas(this.data_, this.stage.width, this.stage.height);
  }

  private get scale(): Scale {
    return Scale.across(this.areas.lanes, this.window.from, this.window.to);
  }

  scene(pen: Pen, width: number, height: number): number {
    return draw(pen, this.input(width, height));
  }

  private input(width: number, height: number) {
    const { data_: data, plan, window, palette, selectedLaunches: selected } = this;
    return { data, plan, window, palette, width, height, selected };
  }

  marks(context: CanvasRenderingContext2D): void {
    const box = this.hover < 0 ? null : this.box(this.hover);
    if (!box) return;
    context.strokeStyle = this.palette.accent;
    context.lineWidth = 1.4;
    context.strokeRect(...box);
    const { curve, percent } = this.areas;
    context.fillStyle = this.palette.accent;
    context.globalAlpha = 0.14;
    for (const area of [curve, percent]) {
      if (area) context.fillRect(box[0], area.y, Math.max(1.5, box[2]), area.height);
    }
    context.globalAlpha = 1;
  }

  svg(): string {
    return this.stage.svg();
  }

  /** The position of a span on the stage; null: outside. */
  private box(span: number): [number, number, number, number] | null {
    const { lanes, lane } = this.areas;
    const { start, duration, lane: laneOf } = this.data_.spans;
    const x0 = Math.max(lanes.x, this.scale.at(start[span]!));
    const x1 = Math.min(lanes.x + lanes.width, this.scale.at(start[span]! + duration[span]!));
    const y = lanes.y + laneOf[span]! * lane - this.window.scroll;
    if (x1 < lanes.x || x0 > lanes.x + lanes.width || y + lane < lanes.y || y > lanes.y + lanes.height) return null;
    return [x0, y + 1.5, Math.max(1, x1 - x0), lane - 3];
  }

  private pagePosition(n: number): { x: number; y: number } | null {
    const span = this.firstSpanOf(n);
    const box = span < 0 ? null : this.box(span);
    if (!box) return null;
    return this.stage.toPagePosition(box[0] + box[2] / 2, box[1] + box[3] / 2);
  }

  // -------------------------------------------------------------- window

  fit(): void {
    this.window = { from: 0, to: Math.max(this.data_.total, 1e-3), scroll: 0 };
    this.stage.redraw();
    this.remember();
  }

  /** Shows a time range, clamped to the execution. */
  private setWindow(time: Range, scroll = this.window.scroll): void {
    const total = Math.max(this.data_.total, 1e-3);
    const { lanes, lane } = this.areas;
    const maxScroll = Math.max(0, lane * this.data_.lanes.length - lanes.height);
    const long = { from: time.from, to: Math.max(time.to, time.from + 1e-6) };
    this.window = { ...clampRange(long, 0, total), scroll: Math.min(Math.max(0, scroll), maxScroll) };
    this.stage.tip.hide();
    this.stage.redraw();
    this.remember();
  }

  private zoom(factor: number, x?: number): void {
    const { lanes } = this.areas;
    const { total } = this.data_;
    const at = Math.max(lanes.x, Math.min(lanes.x + lanes.width, x ?? lanes.x + lanes.width / 2));
    this.setWindow(zoomRange(this.window, factor, this.scale.value(at), Math.min(0.02, total), total));
  }

  private pan(dx: number, dy = 0): void {
    const { from, to, scroll } = this.window;
    const by = (dx / this.areas.lanes.width) * (to - from);
    this.setWindow({ from: from + by, to: to + by }, scroll + dy);
  }

  private get showsAll(): boolean {
    return this.window.from <= 0 && this.window.to >= this.data_.total;
  }

  private timer = 0;
  private remember(): void {
    if (this.half) {
      this.half.moved(this.window.from, this.window.to);
      return;
    }
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      const { from, to } = this.window;
      const short = (time: number) => Number(time.toPrecision(7));
      this.frame.link.write('state', this.showsAll ? {} : { from: short(from), to: short(to) });
    }, 400);
  }

  private zoomTo(from: number, to: number): void {
    const margin = (to - from) * 2;
    this.setWindow({ from: from - margin, to: to + margin });
  }

  private zoomToSpan(span: number): void {
    const { start, duration } = this.data_.spans;
    if (span >= 0) this.zoomTo(start[span]!, start[span]! + duration[span]!);
  }

  private goToPeak(): void {
    const n = this.plan.peakLaunch;
    if (n < 0 || Number.isNaN(this.plan.first[n]!)) return;
    this.zoomTo(this.plan.first[n]!, this.plan.last[n]!);
  }

  private bringIntoView(span: number): void {
    if (span < 0) return;
    const { start, duration, lane: laneOf } = this.data_.spans;
    const { window: w } = this;
    const [from, to] = [start[span]!, start[span]! + duration[span]!];
    const time = to < w.from || from > w.to ? centreRange(w, (from + to) / 2) : w;
    const { lanes, lane } = this.areas;
    const y = laneOf[span]! * lane;
    this.setWindow(time, Math.max(Math.min(w.scroll, y), y + lane - lanes.height));
  }

  // -------------------------------------------------------------- selection

  /** The first span of a launch. */
  private firstSpanOf(n: number): number {
    return n < 0 ? -1 : this.data_.spans.launch.indexOf(n);
  }

  private spanAt(x: number, y: number): number {
    const { lanes, lane } = this.areas;
    if (x < lanes.x || x > lanes.x + lanes.width || y < lanes.y || y > lanes.y + lanes.height) return -1;
    const list = this.plan.lanes[Math.floor((y - lanes.y + this.window.scroll) / lane)];
    if (!list) return -1;
    const { start, duration } = this.data_.spans;
    const slack = this.scale.value(x + 1.5);
    const index = lastBefore(list, start, slack);
    const span = index < 0 ? -1 : list[index]!;
    return span >= 0 && start[span]! + duration[span]! >= this.scale.value(x - 1.5) ? span : -1;
  }

  private select(span: number): void {
    this.current = span;
    if (this.half) {
      this.half.selected(span < 0 ? -1 : this.data_.spans.launch[span]!);
      return;
    }
    const next: TimelineSelection = { ...this.frame.link.dict<TimelineSelection>('selection') };
    for (const name of ['launches', 'op', 'kernel', 'buffer', 'scope'] as const) delete next[name];
    this.selectedLaunches = new Set();
    if (span >= 0) {
      const n = this.data_.spans.launch[span]!;
      this.selectedLaunches.add(n);
      this.selectedByUser = true;
      const op = this.data_.launches.op[n]!;
      if (op >= 0) next.op = op;
      announce(this.frame.root, `${kernelOf(this.data_, n)}, ${quantity(this.data_.spans.duration[span]!, 'us')}`);
    }
    this.frame.link.write('selection', next);
    this.stage.redraw();
  }

  private walk(by: number, lanesBy: number): void {
    const { start, lane } = this.data_.spans;
    if (this.current < 0) {
      // Start with the first span that begins in the window.
      const firstVisible = start.findIndex((at) => at >= this.window.from);
      if (start.length) this.select(Math.max(0, firstVisible));
      return;
    }
    const currentLane = lane[this.current]!;
    let next: number | undefined;
    if (by) {
      const list = this.plan.lanes[currentLane]!;
      next = list[lastBefore(list, start, start[this.current]!) + by];
    } else {
      const list = this.plan.lanes[currentLane + lanesBy];
      const index = list ? Math.max(0, lastBefore(list, start, start[this.current]! + 1e-9)) : 0;
      next = list?.[index];
      // The same launch on the other thread, if it has a part of it.
      const same = list?.find((s) => this.data_.spans.launch[s] === this.data_.spans.launch[this.current]);
      next = same ?? next;
    }
    if (next === undefined) return;
    this.select(next);
    this.bringIntoView(next);
    if (this.factsVisible) this.showFacts();
  }

  private factsOf(span: number): Node[] {
    return spanFacts(this.data_, this.plan, span, this.half?.launchFacts);
  }

  /** Shows the tooltip of the current span. */
  private showFacts(): void {
    const box = this.current < 0 ? null : this.box(this.current);
    if (box) this.stage.showAndAnnounce(box[0] + box[2] / 2, box[1] + box[3] / 2, ...this.factsOf(this.current));
    else this.stage.tip.hide();
  }

  private toggleFacts(): void {
    this.factsVisible = !this.factsVisible;
    if (this.factsVisible) this.showFacts();
    else this.stage.tip.hide();
  }

  // -------------------------------------------------------------- input

  private listen(): void {
    listenTo(this.stage.root, this.stage.canvas, {
      hover: (x, y) => this.hoverAt(x, y),
      click: (x, y) => this.select(this.spanAt(x, y)),
      open: (x, y) => this.zoomToSpan(this.spanAt(x, y)),
      grab: (_, y) => {
        const { map } = this.areas;
        return y < map.y + map.height ? (x) => this.centre(x) : null;
      },
      drag: (dx, dy) => this.pan(-dx, -dy),
      moved: () => this.stage.tip.hide(),
      wheel: (event, x) => {
        const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(sideways);
        else this.zoom(zoomFactor(event), x);
        return true;
      },
    });
    this.frame.root.addEventListener('keydown', (event) => this.key(event));
  }

  /** Moves the window to `x` on the overview map. */
  private centre(x: number): void {
    const time = Scale.across(this.areas.map, 0, this.data_.total).value(x);
    this.setWindow(centreRange(this.window, time));
  }

  private hoverAt(x: number, y: number): void {
    const span = x < 0 ? -1 : this.spanAt(x, y);
    if (span !== this.hover) {
      this.hover = span;
      this.stage.requestFrame();
    }
    if (span >= 0) this.stage.tip.show(x, y, ...this.factsOf(span));
    else if (x >= 0) this.liveTip(x, y);
    else this.stage.tip.hide();
  }

  private liveTip(x: number, y: number): void {
    const { curve } = this.areas;
    const { live } = this.data_;
    if (!curve || !live || x < curve.x || y < curve.y || y > curve.y + curve.height) return this.stage.tip.hide();
    const index = lastBefore(this.plan.order, this.plan.first, this.scale.value(x));
    if (index < 0) return this.stage.tip.hide();
    const n = this.plan.order[index]!;
    this.stage.tip.show(x, y, h('b', {}, bytes(live[n]!)), h('span', {}, `  live at launch ${count(n)}, ${kernelOf(this.data_, n)}`));
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.composedPath()[0] !== this.stage.root) return;
    const step = this.areas.lanes.width * 0.2;
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
      m: () => this.zoomToSpan(this.current),
      i: () => this.toggleFacts(),
      p: () => this.goToPeak(),
      f: () => this.fit(),
      Enter: () => this.frame.link.write('command', JSON.stringify({ name: 'show', view: 'code', n: Date.now() })),
      '?': () => (this.help.hidden = !this.help.hidden),
      Escape: () => {
        this.help.hidden = true;
        this.select(-1);
        this.stage.tip.hide();
      },
    };
    const action = actions[event.key];
    if (!action) return;
    action();
    event.preventDefault();
    event.stopPropagation();
  }
}
