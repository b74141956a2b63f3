/** The live bytes of two recordings in one plot, with a cursor for the pointer and keys. */

import { type Area, Scale, ticks } from '../shared/axis';
import { facts, h, perFrame, type Tooltip, tooltip } from '../shared/dom';
import { bytes, count } from '../shared/format';
import type { ViewLink } from '../shared/host';
import type { Pen } from '../shared/pen';
import { fit, layer, ring, svgOf } from '../shared/stage';
import { MONO, type Palette, SANS } from '../shared/theme';
import { LEFT, mark } from './draw';
import { axisStep, type MemoryData, type TierPlan } from './model';

/** Margins of the plot (pixels). */
const [TOP, RIGHT, BOTTOM] = [20, 10, 22];

export const STRIP_STYLE = `
.cw-memory .strip { position: relative; height: 132px; flex: none; outline: none;
  border-top: 1px solid var(--line); }
.cw-memory .strip canvas { cursor: crosshair; }
.cw-memory .strip .at { position: absolute; top: ${TOP}px; bottom: ${BOTTOM}px; width: 1px; background: var(--text);
  pointer-events: none; }
${ring('.cw-memory .strip')}
`;

/** The plotted data of A and of B. */
interface PlotData {
  palette: Palette;
  data: [MemoryData, MemoryData];
  plans: [TierPlan, TierPlan];
}

export class Strip {
  readonly root = h('div', {
    class: 'strip',
    tabindex: 0,
    role: 'slider',
    'aria-valuemin': 0,
    'aria-valuemax': 100,
    'aria-valuenow': 0,
  });
  readonly canvas = layer();
  readonly requestFrame = perFrame(() => this.draw());
  private readonly tip: Tooltip;
  /** The cursor on both curves. */
  private readonly line = h('div', { class: 'at', hidden: true });
  /** The position of the keyboard cursor in the program (percent). */
  private part = 0;

  /** `plotData`: null while there is nothing to draw. */
  constructor(
    link: ViewLink,
    private readonly plotData: () => PlotData | null,
  ) {
    const { root, canvas } = this;
    root.append(canvas, this.line);
    this.tip = tooltip(root);
    canvas.addEventListener('pointermove', (event) => this.showAt(event.offsetX, event.offsetY));
    canvas.addEventListener('pointerleave', () => this.hide());
    root.addEventListener('keydown', (event) => this.key(event));
    root.addEventListener('focus', () => root.matches(':focus-visible') && this.go(this.part));
    root.addEventListener('blur', () => this.hide());
    const observer = new ResizeObserver(() => this.requestFrame());
    observer.observe(root);
    link.onDispose(() => observer.disconnect());
  }

  svg(): string {
    const { palette } = this.plotData()!;
    return svgOf(this.root, palette.page, (pen, width, height) => this.curves(pen, width, height));
  }

  // -------------------------------------------------------------- the cursor

  private showAt(x: number, y: number): void {
    const part = (x - LEFT) / (this.root.clientWidth - LEFT - RIGHT);
    const plot = this.plotData();
    if (!plot || part < 0 || part > 1) return this.hide();
    const rows = plot.plans.map(({ live }, side): [string, string] => {
      const step = Math.min(live.length - 1, Math.floor(part * live.length));
      const label = plot.data[side]!.step_label?.[step];
      const positionText = `position ${count(step)}${label ? `, ${label}` : ''}`;
      return ['AB'[side]!, `${bytes(live[step] ?? 0)} at ${positionText}`];
    });
    this.line.hidden = false;
    this.line.style.left = `${x}px`;
    this.tip.show(x, y, h('b', {}, `${(100 * part).toFixed(0)} % of the program`), facts(rows));
  }

  private hide(): void {
    this.line.hidden = true;
    this.tip.hide();
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { part } = this;
    const targets: Record<string, number> = {
      ArrowRight: part + 1,
      ArrowUp: part + 1,
      ArrowLeft: part - 1,
      ArrowDown: part - 1,
      PageUp: part + 10,
      PageDown: part - 10,
      Home: 0,
      End: 100,
    };
    const to = targets[event.key];
    if (to === undefined) return;
    this.go(Math.min(100, Math.max(0, to)));
    event.preventDefault();
    event.stopPropagation();
  }

  private go(part: number): void {
    this.part = part;
    const { clientWidth, clientHeight } = this.root;
    this.showAt(LEFT + (part / 100) * (clientWidth - LEFT - RIGHT), clientHeight / 2);
    this.root.setAttribute('aria-valuenow', String(part));
    this.root.setAttribute('aria-valuetext', this.tip.text());
  }

  // -------------------------------------------------------------- drawing

  private draw(): void {
    const plot = this.plotData();
    const size = plot && fit(this.root, this.canvas);
    if (!size) return;
    const { width, height, ratio } = size;
    const pen = this.canvas.getContext('2d')!;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.curves(pen, width, height);
    const [a, b] = plot.plans.map(({ peak }) => bytes(peak));
    const label = `Live bytes of both; left and right move the cursor. A peaks at ${a}, B at ${b}`;
    this.root.setAttribute('aria-label', label);
  }

  private curves(pen: Pen, width: number, height: number): void {
    const { palette, plans } = this.plotData()!;
    const area = {
      x: LEFT,
      y: TOP,
      width: Math.max(40, width - LEFT - RIGHT),
      height: Math.max(30, height - TOP - BOTTOM),
    };
    const maximum = Math.max(1, ...plans.map((plan) => plan.peak)) * 1.12;
    const across = Scale.across(area, 0, 1);
    const up = Scale.up(area, 0, maximum);
    const x = (part: number) => across.at(part);
    const y = (value: number) => up.at(value);
    pen.fillStyle = palette.page;
    pen.fillRect(0, 0, width, height);
    pen.fillStyle = palette.surface;
    pen.fillRect(area.x, area.y, area.width, area.height);
    pen.font = `10.5px ${MONO}`;
    pen.textAlign = 'right';
    pen.lineWidth = 1;
    for (const value of ticks({ from: 0, to: maximum }, axisStep(maximum, area.height / 30, true))) {
      pen.strokeStyle = palette.raised;
      pen.beginPath();
      pen.moveTo(area.x, y(value));
      pen.lineTo(area.x + area.width, y(value));
      pen.stroke();
      pen.fillStyle = palette.muted;
      pen.fillText(bytes(value), area.x - 6, y(value) + 4);
    }
    pen.font = `10.5px ${SANS}`;
    pen.textAlign = 'left';
    pen.fillText('live bytes of both', area.x + 4, 13);
    pen.textAlign = 'right';
    const steps = plans.map((plan) => count(plan.live.length)).join(' and ');
    pen.fillText(`part of the program (${steps} positions) →`, area.x + area.width, area.y + area.height + 15);
    const colours = [palette.accent, palette.moved];
    plans.forEach((plan, side) => {
      const n = Math.max(1, plan.live.length);
      pen.strokeStyle = colours[side]!;
      pen.lineWidth = 1.7;
      pen.setLineDash(side ? [6, 3] : []);
      pen.beginPath();
      for (let step = 0; step < n; step++) {
        const level = y(plan.live[step] ?? 0);
        if (step === 0) pen.moveTo(x(0), level);
        else pen.lineTo(x(step / n), level);
        pen.lineTo(x((step + 1) / n), level);
      }
      pen.stroke();
      pen.setLineDash([]);
    });
    plans.forEach((plan, side) => {
      const at = x((plan.peakStep + 0.5) / Math.max(1, plan.live.length));
      pen.fillStyle = colours[side]!;
      this.peak(pen, `${'AB'[side]} ${bytes(plan.peak)}`, side, at, y(plan.peak), area);
    });
    pen.textAlign = 'left';
  }

  /** Marks a peak; its label is left of A's and right of B's, if it fits. */
  private peak(pen: Pen, text: string, side: number, at: number, top: number, area: Area): void {
    mark(pen, at, top);
    const room = 16 + text.length * 6.4;
    const left = side === 0 ? at - room > area.x : at + room > area.x + area.width;
    pen.font = `600 11px ${SANS}`;
    pen.textAlign = left ? 'right' : 'left';
    pen.fillText(text, left ? at - 8 : at + 8, top - 2);
  }
}
