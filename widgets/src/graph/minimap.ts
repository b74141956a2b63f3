/** The map of the whole stage in a corner: one dot per item, the window as a frame. */

import { h } from '../shared/dom';
import { changeColour, type Palette } from '../shared/theme';
import { announce } from '../shared/view';
import type { Layout } from './layout';
import { changeOf, NO_PHASE } from './model';
import { opIsDim, phasesInside, scopeIsDim } from './phases';
import type { Box, SceneInput } from './scene';
import { classColour, css, heatColour, phaseColour } from './style';

const WIDTH = 132;
const HEIGHT = 184;

/** The movements of the window that the map triggers. */
export interface Moves {
  /** Shows the part of the graph at a point of the map. */
  centre(x: number, y: number): void;
  /** Moves by fractions of the window. */
  move(dx: number, dy: number): void;
  /** Goes to the first rows of the graph, or to the last. */
  top(): void;
  end(): void;
  zoom(factor: number): void;
  /** A description of the shown part. */
  describeWindow(): string;
}

const KEYS: Record<string, (moves: Moves) => void> = {
  ArrowLeft: (moves) => moves.move(-0.25, 0),
  ArrowRight: (moves) => moves.move(0.25, 0),
  ArrowUp: (moves) => moves.move(0, -0.25),
  ArrowDown: (moves) => moves.move(0, 0.25),
  PageUp: (moves) => moves.move(0, -0.9),
  PageDown: (moves) => moves.move(0, 0.9),
  Home: (moves) => moves.top(),
  End: (moves) => moves.end(),
  '+': (moves) => moves.zoom(1.25),
  '=': (moves) => moves.zoom(1.25),
  '-': (moves) => moves.zoom(0.8),
};

export class Minimap {
  readonly canvas = h('canvas', {
    class: 'minimap',
    tabindex: 0,
    role: 'application',
    'aria-label': 'Map of the whole graph: arrow keys move the window, Home and End go to the ends, + and - zoom',
    title: 'The whole graph; the frame is the window',
  });
  private readonly bitmap = document.createElement('canvas');
  private scaleX = 1;
  private scaleY = 1;
  private width = WIDTH;
  private height = HEIGHT;
  private readonly ratio = Math.min(2, window.devicePixelRatio || 1);

  listen(moves: Moves): void {
    const { canvas } = this;
    const go = ({ clientX, clientY }: PointerEvent) => {
      const box = canvas.getBoundingClientRect();
      moves.centre(clientX - box.left, clientY - box.top);
    };
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      go(event);
    });
    canvas.addEventListener('pointermove', (event) => {
      if (event.buttons & 1) go(event);
    });
    canvas.addEventListener('keydown', (event) => {
      const action = KEYS[event.key];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      action(moves);
      announce(canvas, moves.describeWindow());
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** Draws all items; call when the layout or the colours change. */
  paint(input: SceneInput): void {
    const { layout, palette } = input;
    const root = layout.containers[0]!;
    // A long thin graph is stretched sideways: the map shows positions, not shapes.
    this.scaleY = Math.min(HEIGHT / root.height, 0.25);
    this.scaleX = Math.min(WIDTH / root.width, 0.25);
    this.width = Math.max(24, Math.min(WIDTH, Math.ceil(root.width * this.scaleX)));
    this.height = Math.max(24, Math.min(HEIGHT, Math.ceil(root.height * this.scaleY)));
    const [w, hgt] = [Math.round(this.width * this.ratio), Math.round(this.height * this.ratio)];
    for (const canvas of [this.canvas, this.bitmap]) {
      canvas.width = w;
      canvas.height = hgt;
    }
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    const context = this.bitmap.getContext('2d')!;
    const image = context.createImageData(w, hgt);
    const pixels = new Uint32Array(image.data.buffer);
    pixels.fill(toPixel(palette.surface));
    this.dots(input, pixels, w, hgt);
    context.putImageData(image, 0, 0);
  }

  private dots(input: SceneInput, pixels: Uint32Array, w: number, hgt: number): void {
    const { layout } = input;
    const kx = this.scaleX * this.ratio;
    const ky = this.scaleY * this.ratio;
    const colours = itemColours(input);
    const fillItem = (item: number, colour: number) => {
      const x0 = Math.max(0, Math.floor((layout.x[item]! - layout.containers[0]!.x) * kx));
      const y0 = Math.max(0, Math.floor((layout.y[item]! - layout.containers[0]!.y) * ky));
      const x1 = Math.min(w, Math.max(x0 + 1, Math.round(x0 + layout.width[item]! * kx)));
      const y1 = Math.min(hgt, Math.max(y0 + 1, Math.round(y0 + layout.height[item]! * ky)));
      for (let y = y0; y < y1; y++) pixels.fill(colour, y * w + x0, y * w + x1);
    };
    // Open scopes at the bottom, important items (changes, hits) on top.
    const onTop: number[] = [];
    for (let item = 0; item < layout.count; item++) {
      const { colour, important } = colours(item);
      if (important) onTop.push(item);
      else fillItem(item, colour);
    }
    for (const item of onTop) fillItem(item, colours(item).colour);
  }

  frame(palette: Palette, view: Box, layout: Layout): void {
    const context = this.canvas.getContext('2d')!;
    const root = layout.containers[0]!;
    context.drawImage(this.bitmap, 0, 0);
    const kx = this.scaleX * this.ratio;
    const ky = this.scaleY * this.ratio;
    const left = Math.max(0, (view.x - root.x) * kx);
    const top = Math.max(0, (view.y - root.y) * ky);
    const right = Math.min(this.canvas.width, (view.x + view.width - root.x) * kx);
    const bottom = Math.min(this.canvas.height, (view.y + view.height - root.y) * ky);
    context.strokeStyle = palette.accent;
    context.fillStyle = palette.accent;
    context.lineWidth = 1.5 * this.ratio;
    const [w, hgt] = [Math.max(4, right - left), Math.max(4, bottom - top)];
    context.globalAlpha = 0.12;
    context.fillRect(left, top, w, hgt);
    context.globalAlpha = 1;
    context.strokeRect(left, top, w, hgt);
  }

  /** The position in the graph under a point of the map. */
  toGraph(x: number, y: number, layout: Layout): [number, number] {
    const root = layout.containers[0]!;
    return [root.x + x / this.scaleX, root.y + y / this.scaleY];
  }
}

function itemColours(input: SceneInput): (item: number) => { colour: number; important: boolean } {
  const { layout, palette, graph, classes, heat, hits, changes, phases } = input;
  const cache = new Map<string, number>();
  const colourOf = (text: string): number => {
    const cached = cache.get(text);
    if (cached !== undefined) return cached;
    const value = toPixel(text);
    cache.set(text, value);
    return value;
  };
  return (item) => {
    const id = layout.id[item]!;
    if (id < 0) {
      const scope = -1 - id;
      if (layout.opens[item]! >= 0) return { colour: colourOf(palette.raised), important: false };
      if (hits && hits.inside[scope]! > 0) return { colour: colourOf(palette.hit), important: true };
      const changed = changes && [1, 2, 3, 4].some((k) => changes[scope * 5 + k]! > 0);
      const largestPhase = phases && phasesInside(phases, scope).sort(([, a], [, b]) => b - a)[0];
      const quiet = largestPhase ? phaseColour(palette, phases.names[largestPhase[0]]!) : palette.faint;
      const text = changed ? palette.changed : scopeIsDim(phases, scope) ? palette.line : quiet;
      return { colour: colourOf(text), important: Boolean(changed) };
    }
    if (hits?.ops[id]) return { colour: colourOf(palette.hit), important: true };
    if (opIsDim(phases, id)) return { colour: colourOf(palette.line), important: false };
    if (heat) {
      const value = heat.ofOp(id);
      const warm = Number.isNaN(value) ? palette.line : css(heatColour(palette, heat.position(value)));
      return { colour: colourOf(warm), important: false };
    }
    const change = changeOf(graph, id);
    if (change !== 'same') {
      return { colour: colourOf(changeColour(palette, change)), important: true };
    }
    const phase = phases ? phases.phaseOfOp[id]! : NO_PHASE;
    if (phase !== NO_PHASE) {
      return { colour: colourOf(phaseColour(palette, phases!.names[phase]!)), important: false };
    }
    const name = classes[graph.data.ops.kind[id]!]!;
    return { colour: colourOf(classColour(palette, name)), important: false };
  };
}

/** A CSS colour (#rrggbb or rgb()) as a little-endian RGBA pixel. */
function toPixel(colour: string): number {
  const hex = /^#([0-9a-f]{6})$/i.exec(colour);
  const [r, g, b] = hex
    ? [0, 2, 4].map((i) => Number.parseInt(hex[1]!.slice(i, i + 2), 16))
    : colour.match(/\d+/g)!.map(Number);
  return ((255 << 24) | (b! << 16) | (g! << 8) | r!) >>> 0;
}
