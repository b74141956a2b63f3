/** A canvas that fills its part of a view: two layers in the screen's pixels, drawn at most once per
 * frame. The scene is kept in a bitmap until it changes; marks are drawn on top of it each time. */

import { h, perFrame, type Tooltip, tooltip } from './dom';
import type { ViewLink } from './host';
import { type Pen, SvgPen } from './pen';
import { announce } from './view';

/** The focus ring of elements filled by canvases, which would cover their outline. */
export const ring = (selector: string): string => `
${selector}:focus-visible::after { content: ''; position: absolute; inset: 0; z-index: 4; pointer-events: none;
  border: 2px solid var(--accent); }`;

export const STAGE_STYLE = `
.cw .stage { position: relative; flex: 1; min-height: 0; overflow: hidden; outline: none; }
${ring('.cw .stage')}
`;

/** A canvas that fills its host. */
export const layer = (): HTMLCanvasElement =>
  h('canvas', { style: 'display:block;position:absolute;inset:0;touch-action:none' });

export interface Size {
  /** CSS pixels. */
  width: number;
  height: number;
  /** The screen's pixels to one of CSS. */
  ratio: number;
  /** The canvases have a new size and are empty. */
  changed: boolean;
}

/** Resizes canvases to their host; null if it has no size yet. `hidden`: not in the page. */
export function fit(
  host: HTMLElement,
  canvas: HTMLCanvasElement,
  ...hidden: HTMLCanvasElement[]
): Size | null {
  const { clientWidth: width, clientHeight: height } = host;
  if (width === 0 || height === 0) return null;
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  const [wide, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
  const changed = canvas.width !== wide || canvas.height !== tall;
  for (const each of changed ? [canvas, ...hidden] : []) {
    each.width = wide;
    each.height = tall;
  }
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  return { width, height, ratio, changed };
}

export interface Painter {
  /** False while there is nothing to draw. */
  ready(): boolean;
  /** Called before each frame, also without a size: for the elements next to the stage. */
  prepare?(): void;
  background(): string;
  /** Draws the parts that rarely change; returns how many of them were in the window. */
  scene(pen: Pen, width: number, height: number): number;
  /** Draws the parts that follow the pointer and the selection. */
  marks(context: CanvasRenderingContext2D, width: number, height: number): void;
}

export class Stage {
  readonly root: HTMLElement;
  readonly canvas = layer();
  readonly tip: Tooltip;
  /** The marks have changed. */
  readonly requestFrame = perFrame(() => this.frame());
  private readonly bitmap = document.createElement('canvas');
  private dirty = true;

  /** `label`: the label for screen readers; `dataElement`: the element whose data tests read. */
  constructor(
    label: string,
    private readonly painter: Painter,
    private readonly dataElement: HTMLElement,
    link: ViewLink,
  ) {
    const attributes = { tabindex: 0, role: 'application', 'aria-label': label };
    this.root = h('div', { class: 'stage', ...attributes }, this.canvas);
    this.tip = tooltip(this.root);
    const observer = new ResizeObserver(() => this.redraw());
    observer.observe(this.root);
    link.onDispose(() => observer.disconnect());
  }

  get width(): number {
    return this.root.clientWidth;
  }

  get height(): number {
    return this.root.clientHeight;
  }

  /** The scene itself has changed. */
  redraw(): void {
    this.dirty = true;
    this.requestFrame();
  }

  private frame(): void {
    if (!this.painter.ready()) return;
    this.painter.prepare?.();
    const size = fit(this.root, this.canvas, this.bitmap);
    if (!size) return;
    const started = performance.now();
    const { width, height, ratio } = size;
    if (this.dirty || size.changed) {
      const pen = this.bitmap.getContext('2d')!;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.fillStyle = this.painter.background();
      pen.fillRect(0, 0, width, height);
      this.dataElement.dataset.drawn = String(this.painter.scene(pen, width, height));
      this.dirty = false;
    }
    const context = this.canvas.getContext('2d')!;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.bitmap, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.painter.marks(context, width, height);
    this.dataElement.dataset.frameMs = (performance.now() - started).toFixed(1);
  }

  /** Shows a tooltip and announces it to screen readers. */
  showAndAnnounce(x: number, y: number, ...content: Node[]): void {
    this.tip.show(x, y, ...content);
    announce(this.root, this.tip.text());
  }

  /** The scene as a standalone file. */
  svg(): string {
    const { root, painter } = this;
    return svgOf(root, painter.background(), (pen, width, height) => painter.scene(pen, width, height));
  }

  /** The position in the page of a point of the stage. */
  toPagePosition(x: number, y: number): { x: number; y: number } {
    const { left, top } = this.root.getBoundingClientRect();
    return { x: left + x, y: top + y };
  }
}

/** The output of `draw` in the size of `host`, as SVG. */
export function svgOf(
  host: HTMLElement,
  background: string,
  draw: (pen: Pen, width: number, height: number) => void,
): string {
  const { clientWidth, clientHeight } = host;
  const pen = new SvgPen();
  draw(pen, clientWidth, clientHeight);
  return pen.document(0, 0, clientWidth, clientHeight, background);
}
