/** Drawing of a layout: culled to the window, with less detail at smaller scales. */

import { count, plural, shortType } from '../shared/format';
import { type Change, changeColour, MONO, type Palette, SANS, SIGNS } from '../shared/theme';
import { figure } from './facts';
import type { Focus } from './focus';
import { type Container, HEADER, type Layout, lastAtMost, PAD } from './layout';
import { changeOf, type Graph, kindOf, nameOf, NO_PHASE, operandsOf, typeOf } from './model';
import type { Pen } from '../shared/pen';
import { opIsDim, type Phases, phasesInside, scopeIsDim } from './phases';
import { GAP_Y } from './rows';
import type { Tree } from './scopes';
import {
  classColour,
  css,
  DARK_INK,
  type Heat,
  heatColour,
  inkOn,
  type OpClass,
  phaseColour,
} from './style';

export interface Camera {
  x: number;
  y: number;
  scale: number;
}

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface SceneInput {
  graph: Graph;
  tree: Tree;
  layout: Layout;
  palette: Palette;
  classes: OpClass[];
  heat: Heat | null;
  /** Counts of each change per scope, 5 per scope in the order of CHANGES; null without a diff. */
  changes: Int32Array | null;
  /** The hits, and their number inside each scope. */
  hits: { ops: Uint8Array; inside: Int32Array } | null;
  /** The positions of items while they move; null when they are at rest. */
  motion: Motion | null;
  showFolded: boolean;
  /** Null without training. */
  phases: Phases | null;
  /** The lit ops; null: all. */
  focus: Focus | null;
}

export interface Motion {
  fromX: Float64Array;
  fromY: Float64Array;
  fresh: Uint8Array;
  t: number;
}

/** Scales below which text, then outlines and curves, are not drawn. */
const TEXT = 0.45;
const SHAPES = 0.16;
const EDGES = 0.05;

const fontKind = `600 12px ${SANS}`;
const fontType = `10.5px ${MONO}`;
const fontSmall = `10px ${SANS}`;

export function drawScene(pen: Pen, input: SceneInput, view: Box, scale: number): number {
  const scene = new Scene(pen, input, view, scale);
  scene.container(input.layout.containers[0]!);
  return scene.drawn;
}

class Scene {
  drawn = 0;
  private readonly layout: Layout;
  private readonly palette: Palette;

  constructor(
    private readonly pen: Pen,
    private readonly input: SceneInput,
    private readonly view: Box,
    private readonly scale: number,
  ) {
    this.layout = input.layout;
    this.palette = input.palette;
  }

  container(container: Container): void {
    const { rows } = container;
    const top = this.view.y - container.y - HEADER;
    const first = Math.max(0, lastAtMost(rows.rowTop, top));
    const last = lastAtMost(rows.rowTop, top + this.view.height);
    if (this.scale >= EDGES) this.edges(container, first, last);
    if (this.scale < SHAPES) this.smallOps(container, first, last);
    for (let i = rows.rowStart[first] ?? 0; i < (rows.rowStart[last + 1] ?? 0); i++) {
      const item = container.items[rows.order[i]!]!;
      const x = this.x(item);
      if (x > this.view.x + this.view.width || x + this.layout.width[item]! < this.view.x) continue;
      this.drawn++;
      if (this.layout.opens[item]! >= 0) this.openScope(item);
      else if (this.layout.id[item]! < 0) this.closedScope(item);
      else if (this.scale >= SHAPES) this.op(item);
    }
  }

  private x(item: number): number {
    const { motion } = this.input;
    if (!motion) return this.layout.x[item]!;
    return motion.fromX[item]! + (this.layout.x[item]! - motion.fromX[item]!) * motion.t;
  }

  private y(item: number): number {
    const { motion } = this.input;
    if (!motion) return this.layout.y[item]!;
    return motion.fromY[item]! + (this.layout.y[item]! - motion.fromY[item]!) * motion.t;
  }

  private opIsDim(op: number): boolean {
    const { phases, focus } = this.input;
    return opIsDim(phases, op) || (focus !== null && !focus.ops[op]);
  }

  private scopeIsDim(scope: number): boolean {
    const { phases, focus } = this.input;
    return scopeIsDim(phases, scope) || (focus !== null && focus.inside[scope] === 0);
  }

  private fade(item: number): void {
    const { motion } = this.input;
    this.pen.globalAlpha = motion?.fresh[item] ? motion.t : 1;
  }

  // -------------------------------------------------------------- edges

  private edges(container: Container, first: number, last: number): void {
    const { pen, palette } = this;
    const { rows, edgeFrom, edgeTo } = container;
    const order = edgeOrder(container);
    pen.strokeStyle = palette.edge;
    pen.lineWidth = this.scale < SHAPES ? 1.5 / this.scale : 1.2;
    pen.globalAlpha = this.scale < SHAPES ? 0.5 : 1;
    pen.setLineDash([]);
    pen.beginPath();
    // Drawn edges span few rows, so visible ones start close above the window.
    const from = order.start[Math.max(0, first - 8)]!;
    const to = order.start[Math.min(rows.rowTop.length, last + 1)]!;
    const arrows: number[] = [];
    for (let i = from; i < to; i++) {
      const e = order.edges[i]!;
      if (rows.stub[e] || rows.row[edgeTo[e]!]! < first) continue;
      this.edge(container, e, edgeFrom[e]!, edgeTo[e]!);
      arrows.push(e);
    }
    pen.stroke();
    if (this.scale >= TEXT) this.arrows(container, arrows);
    pen.globalAlpha = 1;
  }

  private edge(container: Container, e: number, from: number, to: number): void {
    const { pen, layout } = this;
    const { rows } = container;
    const source = container.items[from]!;
    const target = container.items[to]!;
    let x = this.x(source) + layout.width[source]! / 2;
    let y = this.y(source) + layout.height[source]!;
    pen.moveTo(x, y);
    const dy = this.y(source) - layout.y[source]!;
    let row = rows.row[from]! + 1;
    for (let i = rows.bendStart[e]!; i < rows.bendStart[e + 1]!; i++, row++) {
      const bend = container.x + PAD + rows.bends[i]!;
      const top = container.y + HEADER + rows.rowTop[row]! + dy;
      this.curve(x, y, bend, top);
      y = top + rows.rowHeight[row]!;
      pen.lineTo(bend, y);
      x = bend;
    }
    this.curve(x, y, this.x(target) + layout.width[target]! / 2, this.y(target));
  }

  private curve(x0: number, y0: number, x1: number, y1: number): void {
    if (this.scale < SHAPES) {
      this.pen.lineTo(x1, y1);
      return;
    }
    // A source shorter than its row leaves space: go straight down first, then bend in the gap.
    const bend = Math.min(y1 - y0, GAP_Y * 1.6);
    const start = y1 - bend;
    if (start > y0 + 1) this.pen.lineTo(x0, start);
    const half = start + bend / 2;
    if (Math.abs(x0 - x1) < 0.5) this.pen.lineTo(x1, y1);
    else this.pen.bezierCurveTo(x0, half, x1, half, x1, y1);
  }

  private arrows(container: Container, edges: number[]): void {
    const { pen, layout } = this;
    pen.fillStyle = this.palette.edge;
    pen.beginPath();
    for (const e of edges) {
      const target = container.items[container.edgeTo[e]!]!;
      const x = this.x(target) + layout.width[target]! / 2;
      const y = this.y(target);
      pen.moveTo(x - 3.5, y - 6);
      pen.lineTo(x + 3.5, y - 6);
      pen.lineTo(x, y);
      pen.closePath();
    }
    pen.fill();
  }

  // -------------------------------------------------------------- ops

  /** At small scales, ops are plain rectangles, one fill per colour. */
  private smallOps(container: Container, first: number, last: number): void {
    const { rows } = container;
    const byColour = new Map<string, number[]>();
    for (let i = rows.rowStart[first] ?? 0; i < (rows.rowStart[last + 1] ?? 0); i++) {
      const item = container.items[rows.order[i]!]!;
      if (this.layout.id[item]! < 0) continue;
      const colour = this.farColour(this.layout.id[item]!);
      const list = byColour.get(colour);
      if (list) list.push(item);
      else byColour.set(colour, [item]);
    }
    for (const [colour, items] of byColour) {
      this.pen.fillStyle = colour;
      this.pen.beginPath();
      for (const item of items) {
        this.pen.rect(this.x(item), this.y(item), this.layout.width[item]!, this.layout.height[item]!);
      }
      this.pen.fill();
    }
  }

  private farColour(op: number): string {
    const { heat, hits, palette, graph, classes, phases } = this.input;
    if (hits?.ops[op]) return palette.hit;
    if (this.opIsDim(op)) return palette.raised;
    if (heat) {
      const value = heat.ofOp(op);
      return Number.isNaN(value) ? palette.raised : css(heatColour(palette, heat.position(value)));
    }
    const change = changeOf(graph, op);
    if (change !== 'same') return changeColour(palette, change);
    const phase = phases ? phases.phaseOfOp[op]! : NO_PHASE;
    if (phase !== NO_PHASE) return phaseColour(palette, phases!.names[phase]!);
    return classColour(palette, classes[graph.data.ops.kind[op]!]!);
  }

  private op(item: number): void {
    const { pen, palette, layout, scale } = this;
    const { graph, classes, heat, hits, phases } = this.input;
    const op = layout.id[item]!;
    const [x, y, w, h] = [this.x(item), this.y(item), layout.width[item]!, layout.height[item]!];
    if (this.opIsDim(op) && !hits?.ops[op]) {
      this.shade(item, x, y, w, h);
      return;
    }
    const change = changeOf(graph, op);
    const value = heat ? heat.ofOp(op) : NaN;
    const heatRgb = heat && !Number.isNaN(value) ? heatColour(palette, heat.position(value)) : null;
    this.fade(item);
    const kind = classes[graph.data.ops.kind[op]!]!;
    const radius = kind === 'interface' ? h / 2 : 5;
    pen.fillStyle = heatRgb ? css(heatRgb) : change === 'removed' ? palette.page : palette.surface;
    pen.beginPath();
    pen.roundRect(x, y, w, h, radius);
    pen.fill();
    this.outline(change, x, y, w, h, radius);
    if (hits?.ops[op]) this.halo(x, y, w, h);
    if (!heatRgb && kind !== 'interface') {
      pen.fillStyle = classColour(palette, kind);
      pen.fillRect(x + 3, y + 6, 3, h - 12);
    }
    if (phases && phases.phaseOfOp[op] !== NO_PHASE) this.stripe(phases.names[phases.phaseOfOp[op]!]!, x, y, w, h);
    if (scale < TEXT) {
      if (change !== 'same') this.badge(change, x, y);
      return;
    }
    const ink = heatRgb ? inkOn(heatRgb) : palette.text;
    const left = x + (kind === 'interface' ? 16 : 12);
    pen.textAlign = 'left';
    pen.fillStyle = change === 'removed' && !heatRgb ? palette.muted : ink;
    pen.font = fontKind;
    pen.fillText(clip(kindOf(graph, op), w - 26, 7), left, y + 15);
    pen.fillStyle = heatRgb ? ink : palette.muted;
    pen.font = fontType;
    const second = heat && heatRgb ? figure(heat.overlay, value) : shortType(typeOf(graph, op));
    pen.fillText(clip(second, w - 20, 6.35), left, y + 29);
    if (h > 40) this.inputs(op, item, left, y + 43, w - 18, ink, heatRgb !== null);
    if (change !== 'same') this.badge(change, x, y);
  }

  /** The phase of an op at its right edge; recomputed ops have a broken line. */
  private stripe(phase: string, x: number, y: number, w: number, h: number): void {
    const { pen } = this;
    const stripeWidth = Math.min(w / 3, Math.max(4, 3 / this.scale));
    pen.fillStyle = phaseColour(this.palette, phase);
    const broken = phase === 'recomputed' && this.scale >= SHAPES;
    for (let top = 4; top < h - 4; top += broken ? 8 : h) {
      pen.fillRect(x + w - stripeWidth - 3, y + top, stripeWidth, Math.min(broken ? 5 : h, h - 4 - top));
    }
  }

  /** The placeholder of an op or a closed scope of a dimmed phase. */
  private shade(item: number, x: number, y: number, w: number, h: number): void {
    const { pen } = this;
    this.fade(item);
    pen.fillStyle = this.palette.raised;
    pen.beginPath();
    pen.roundRect(x, y, w, h, 5);
    pen.globalAlpha *= 0.7;
    pen.fill();
    pen.globalAlpha = 1;
  }

  /** The phases inside a scope, each as long as its share of the ops. */
  private phaseBar(scope: number, x: number, y: number, w: number, h: number): void {
    const { phases } = this.input;
    if (!phases) return;
    const found = phasesInside(phases, scope);
    const total = found.reduce((sum, [, n]) => sum + n, 0);
    let at = x;
    for (const [phase, n] of found) {
      const segmentWidth = (w * n) / total;
      this.pen.fillStyle = phases.dim[phase]
        ? this.palette.line
        : phaseColour(this.palette, phases.names[phase]!);
      this.pen.fillRect(at, y, segmentWidth, h);
      at += segmentWidth;
    }
  }

  /** The third line: the constants folded into this op, and the inputs without a drawn edge. */
  private inputs(
    op: number,
    item: number,
    x: number,
    y: number,
    width: number,
    ink: string,
    onHeat: boolean,
  ): void {
    const { graph, showFolded } = this.input;
    const parts: string[] = [];
    const container = this.layout.containers[this.layout.container[item]!]!;
    const direct = drawnSources(container, item);
    for (const producer of operandsOf(graph, op)) {
      if (graph.folded[producer] && !showFolded) {
        const type = shortType(typeOf(graph, producer));
        parts.push(`${kindOf(graph, producer).replace(/^.*\./, '')} ${type}`);
      } else if (!direct.has(this.layout.visibleItemOf[producer]!)) {
        parts.push(`← ${nameOf(graph, producer)} ${kindOf(graph, producer)}`);
      }
    }
    this.pen.font = fontSmall;
    this.pen.fillStyle = onHeat ? ink : this.palette.faint;
    this.pen.fillText(clip(parts.join(' · '), width, 6.1), x, y);
  }

  private outline(change: Change, x: number, y: number, w: number, h: number, r: number): void {
    const { pen, palette } = this;
    pen.strokeStyle = changeColour(palette, change);
    pen.lineWidth = change === 'same' ? 1 : 2;
    pen.setLineDash(change === 'removed' ? [5, 4] : change === 'moved' ? [2, 3] : []);
    pen.beginPath();
    pen.roundRect(x, y, w, h, r);
    pen.stroke();
    pen.setLineDash([]);
    if (change === 'removed' && !this.input.graph.data.two && this.scale >= TEXT) {
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(x + 8, y + h / 2);
      pen.lineTo(x + w - 8, y + h / 2);
      pen.globalAlpha *= 0.45;
      pen.stroke();
      pen.globalAlpha = 1;
    }
  }

  private halo(x: number, y: number, w: number, h: number): void {
    const { pen } = this;
    pen.strokeStyle = this.palette.hit;
    pen.lineWidth = 3;
    pen.beginPath();
    pen.roundRect(x - 3, y - 3, w + 6, h + 6, 7);
    pen.stroke();
  }

  private badge(change: Change, x: number, y: number): void {
    const { pen, palette } = this;
    pen.fillStyle = changeColour(palette, change);
    pen.beginPath();
    pen.roundRect(x - 7, y - 7, 15, 15, 7.5);
    pen.fill();
    if (this.scale < 0.3) return;
    pen.fillStyle = palette.surface;
    pen.font = `700 12px ${SANS}`;
    pen.textAlign = 'center';
    pen.fillText(SIGNS[change], x + 0.5, y + 5);
    pen.textAlign = 'left';
  }

  // -------------------------------------------------------------- scopes

  private openScope(item: number): void {
    const { pen, palette, layout } = this;
    const scope = -1 - layout.id[item]!;
    const container = layout.containers[layout.opens[item]!]!;
    const [x, y, w, h] = [this.x(item), this.y(item), layout.width[item]!, layout.height[item]!];
    if (y > this.view.y + this.view.height || y + h < this.view.y) return;
    if (h * this.scale < 2.5) {
      const found = this.input.hits && this.input.hits.inside[scope]! > 0;
      pen.fillStyle = found ? palette.hit : palette.faint;
      pen.fillRect(x, y, w, h);
      return;
    }
    this.fade(item);
    const { depth, label } = this.input.tree.scopes[scope]!;
    pen.fillStyle = depth % 2 === 1 ? palette.raised : palette.page;
    pen.globalAlpha *= 0.6;
    pen.beginPath();
    pen.roundRect(x, y, w, h, 7);
    pen.fill();
    this.fade(item);
    pen.strokeStyle = palette.line;
    pen.lineWidth = this.scale < SHAPES ? 1 / this.scale : 1;
    pen.beginPath();
    pen.roundRect(x, y, w, h, 7);
    pen.stroke();
    const barHeight = Math.min(HEADER / 3, Math.max(3, 2 / this.scale));
    this.phaseBar(scope, x + 7, y + 1, w - 14, barHeight);
    if (this.scale >= 0.3) {
      pen.fillStyle = palette.muted;
      pen.font = `600 11px ${SANS}`;
      pen.textAlign = 'left';
      const note = this.scopeNote(scope);
      pen.fillText(`▾ ${clip(label, w - 24 - note.length * 6, 6.6)}`, x + 8, y + 15);
      pen.font = fontSmall;
      pen.fillStyle = palette.faint;
      pen.textAlign = 'right';
      if (w > note.length * 6 + 80) pen.fillText(note, x + w - 8, y + 15);
      pen.textAlign = 'left';
    }
    pen.globalAlpha = 1;
    this.container(container);
  }

  private scopeNote(scope: number): string {
    const { heat, tree } = this.input;
    const { counted, repeats, uniform } = tree.scopes[scope]!;
    if (heat) {
      const value = heat.ofScope(scope);
      return Number.isNaN(value) ? '' : figure(heat.overlay, value);
    }
    if (repeats) return `${repeats} × ${uniform ? 'same block' : 'block, not all equal'}`;
    return plural(counted, 'op');
  }

  private closedScope(item: number): void {
    const { pen, palette, layout, scale } = this;
    const { tree, heat, hits } = this.input;
    const index = -1 - layout.id[item]!;
    const scope = tree.scopes[index]!;
    const [x, y, w, h] = [this.x(item), this.y(item), layout.width[item]!, layout.height[item]!];
    if (y > this.view.y + this.view.height || y + h < this.view.y) return;
    if (this.scopeIsDim(index) && !(hits && hits.inside[index]! > 0)) {
      this.shade(item, x, y, w, h);
      return;
    }
    this.fade(item);
    const value = heat ? heat.ofScope(index) : NaN;
    const share = heat && !Number.isNaN(value) ? heat.position(value) : 0;
    const heatRgb = heat && !Number.isNaN(value) ? heatColour(palette, share) : null;
    // A stack of sheets indicates the contents.
    const sheets = scope.repeats ? 2 : 1;
    for (let i = scale >= SHAPES ? sheets : 0; i >= 0; i--) {
      pen.fillStyle = i === 0 && heatRgb ? css(heatRgb) : i === 0 ? palette.raised : palette.surface;
      pen.strokeStyle = palette.faint;
      pen.lineWidth = scale < SHAPES ? 1 / scale : 1;
      pen.beginPath();
      pen.roundRect(x + i * 3, y + i * 3, w, h, 6);
      pen.fill();
      pen.stroke();
    }
    if (hits && hits.inside[index]! > 0) this.halo(x, y, w, h);
    const barHeight = Math.min(h / 3, Math.max(4, 3 / scale));
    this.phaseBar(index, x + 6, y + h - barHeight - 2, w - 12, barHeight);
    if (scale >= 0.25) {
      const ink = heatRgb ? inkOn(heatRgb) : palette.text;
      pen.fillStyle = ink;
      pen.font = fontKind;
      pen.textAlign = 'left';
      pen.fillText(`▸ ${clip(scope.label, w - 34, 7)}`, x + 10, y + 18);
      const repeat = scope.repeats
        ? `${scope.repeats} × ${scope.uniform ? 'same block' : 'block, not all equal'} · `
        : '';
      const note =
        heat && heatRgb ? figure(heat.overlay, value) : plural(scope.counted, 'op');
      const changesWidth = this.scopeChanges(index, x + w - 4, y + 31);
      pen.font = fontSmall;
      pen.fillStyle = heatRgb ? ink : palette.muted;
      pen.fillText(clip(repeat + note, w - 20 - changesWidth, 6), x + 10, y + 34);
      const hitCount = hits ? hits.inside[index]! : 0;
      if (hitCount > 0) this.pill(`${count(hitCount)} found`, x + w - 4, y, palette.hit, DARK_INK);
    }
    pen.globalAlpha = 1;
  }

  /** The counts of changes inside a closed scope; returns their width. */
  private scopeChanges(scope: number, right: number, y: number): number {
    const { changes } = this.input;
    if (!changes) return 0;
    let x = right;
    (['moved', 'changed', 'removed', 'added'] as const).forEach((change) => {
      const at = { added: 1, removed: 2, changed: 3, moved: 4 }[change];
      const n = changes[scope * 5 + at]!;
      if (n === 0) return;
      const text = `${SIGNS[change]}${count(n)}`;
      x -= this.pill(text, x, y, changeColour(this.palette, change), this.palette.surface) + 3;
    });
    return right - x;
  }

  private pill(text: string, right: number, middle: number, colour: string, ink: string): number {
    const { pen } = this;
    const width = text.length * 6.2 + 9;
    pen.fillStyle = colour;
    pen.beginPath();
    pen.roundRect(right - width, middle - 7, width, 14, 7);
    pen.fill();
    pen.fillStyle = ink;
    pen.font = `600 10px ${SANS}`;
    pen.textAlign = 'center';
    pen.fillText(text, right - width / 2, middle + 3.5);
    pen.textAlign = 'left';
    return width;
  }
}

/** Text cut to a width in pixels, by the average width of a letter. */
export function clip(text: string, width: number, letter: number): string {
  const fits = Math.max(1, Math.floor(width / letter));
  return text.length <= fits ? text : `${text.slice(0, fits - 1)}…`;
}

const orders = new WeakMap<Container, { start: Int32Array; edges: Int32Array }>();

/** Edges by the row they start in, so that only those near the window are drawn. */
function edgeOrder(container: Container): { start: Int32Array; edges: Int32Array } {
  const cached = orders.get(container);
  if (cached) return cached;
  const { rows, edgeFrom } = container;
  const start = new Int32Array(rows.rowTop.length + 1);
  for (const from of edgeFrom) start[rows.row[from]! + 1]!++;
  for (let r = 0; r < rows.rowTop.length; r++) start[r + 1]! += start[r]!;
  const fill = start.slice();
  const edges = new Int32Array(edgeFrom.length);
  for (let e = 0; e < edgeFrom.length; e++) edges[fill[rows.row[edgeFrom[e]!]!]!++] = e;
  const order = { start, edges };
  orders.set(container, order);
  return order;
}

const sources = new WeakMap<Container, Map<number, Set<number>>>();
const NONE: ReadonlySet<number> = new Set();

/** The items with a drawn edge to `item`. */
function drawnSources(container: Container, item: number): ReadonlySet<number> {
  let cached = sources.get(container);
  if (!cached) {
    cached = new Map();
    for (let e = 0; e < container.edgeFrom.length; e++) {
      if (container.rows.stub[e]) continue;
      const target = container.items[container.edgeTo[e]!]!;
      const set = cached.get(target) ?? new Set();
      set.add(container.items[container.edgeFrom[e]!]!);
      cached.set(target, set);
    }
    sources.set(container, cached);
  }
  return cached.get(item) ?? NONE;
}
