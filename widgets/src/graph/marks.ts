/** The marks above the scene: selection, hover, the edges of one op, a path. */

import type { Palette } from '../shared/theme';
import type { Layout } from './layout';
import { type Graph, linksOf, operandsOf, phaseOf, usersOf } from './model';
import type { Pen } from '../shared/pen';
import type { Tree } from './scopes';
import { phaseColour } from './style';

export interface MarksInput {
  graph: Graph;
  layout: Layout;
  palette: Palette;
  selected: number;
  hover: number;
  /** Ops from one op to another, in order. */
  path: number[];
  /** Items related to the selected one, possibly without an edge between them, with the colour
   * of their phase. */
  linked: [item: number, colour: string][];
}

const MAX_LINES = 160;
/** With more linked items than this, lines would hide the drawing: only the boxes are drawn. */
const FEW_LINKED = 24;

export function drawMarks(pen: Pen, input: MarksInput, scale: number): void {
  const { palette, selected, hover } = input;
  const thin = Math.max(1, 1 / scale);
  pen.globalAlpha = 1;
  if (input.path.length > 1) {
    pen.strokeStyle = palette.moved;
    pen.fillStyle = palette.moved;
    pen.lineWidth = 3 * thin;
    // Neighbours in one closed scope are one item; an op that is not drawn has none.
    const items = input.path
      .map((op) => input.layout.visibleItemOf[op]!)
      .filter((item, i, all) => item >= 0 && item !== all[i - 1]);
    for (let i = 1; i < items.length; i++) line(pen, input.layout, items[i - 1]!, items[i]!, scale);
    for (const item of new Set(items)) box(pen, input.layout, item, thin);
  }
  pen.setLineDash([6 * thin, 4 * thin]);
  for (const [item, colour] of input.linked) {
    pen.strokeStyle = colour;
    pen.fillStyle = colour;
    pen.lineWidth = 1.4 * thin;
    if (input.linked.length <= FEW_LINKED) line(pen, input.layout, selected, item, scale);
    pen.lineWidth = 3 * thin;
    box(pen, input.layout, item, 2.5 * thin);
  }
  pen.setLineDash([]);
  for (const item of [hover, selected]) {
    if (item < 0 || (item === hover && hover === selected)) continue;
    pen.strokeStyle = palette.accent;
    pen.fillStyle = palette.accent;
    pen.lineWidth = (item === selected ? 1.8 : 1.3) * thin;
    pen.globalAlpha = item === selected ? 0.95 : 0.7;
    for (const [from, to] of edgeEnds(input, item)) line(pen, input.layout, from, to, scale);
    pen.globalAlpha = 1;
    pen.lineWidth = (item === selected ? 2.6 : 1.6) * thin;
    box(pen, input.layout, item, thin);
  }
}

/** The visible ends of every edge of an item, stubs included; at most a fixed number. */
function edgeEnds(input: MarksInput, item: number): [number, number][] {
  const { graph, layout } = input;
  const id = layout.id[item]!;
  const lines: [number, number][] = [];
  if (id >= 0) {
    for (const producer of operandsOf(graph, id)) lines.push([layout.visibleItemOf[producer]!, item]);
    for (const user of usersOf(graph, id)) {
      if (lines.length >= MAX_LINES) break;
      lines.push([item, layout.visibleItemOf[user]!]);
    }
  } else {
    const container = layout.containers[layout.container[item]!]!;
    for (let e = 0; e < container.edgeFrom.length && lines.length < MAX_LINES; e++) {
      const from = container.items[container.edgeFrom[e]!]!;
      const to = container.items[container.edgeTo[e]!]!;
      if (from === item || to === item) lines.push([from, to]);
    }
  }
  return lines.filter(([from, to]) => from >= 0 && to >= 0 && from !== to);
}

function line(pen: Pen, layout: Layout, from: number, to: number, scale: number): void {
  const x0 = layout.x[from]! + layout.width[from]! / 2;
  const y0 = layout.y[from]! + layout.height[from]!;
  const x1 = layout.x[to]! + layout.width[to]! / 2;
  const y1 = layout.y[to]!;
  const reach = Math.min(90, Math.max(24, Math.abs(y1 - y0) * 0.4));
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.bezierCurveTo(x0, y0 + reach, x1, y1 - reach, x1, y1);
  pen.stroke();
  const size = Math.max(4.5, 3 / scale);
  pen.beginPath();
  pen.moveTo(x1 - size, y1 - 1.7 * size);
  pen.lineTo(x1 + size, y1 - 1.7 * size);
  pen.lineTo(x1, y1);
  pen.closePath();
  pen.fill();
}

function box(pen: Pen, layout: Layout, item: number, thin: number): void {
  const grow = 1.5 * thin;
  pen.beginPath();
  pen.roundRect(
    layout.x[item]! - grow,
    layout.y[item]! - grow,
    layout.width[item]! + 2 * grow,
    layout.height[item]! + 2 * grow,
    6,
  );
  pen.stroke();
}

/** The gradients and updates of the selected op (-1: of the ops of the selected scope),
 * drawn or in a closed scope, with the colour of its phase. */
export function linkedItems(
  { graph, tree, layout }: { graph: Graph; tree: Tree; layout: Layout },
  palette: Palette,
  selected: number,
  op: number,
): [item: number, colour: string][] {
  if (selected < 0 || graph.links.length === 0) return [];
  const found = new Map<number, string>();
  const add = (from: number) => {
    for (const partner of linksOf(graph, from)) {
      const item = layout.visibleItemOf[partner]!;
      if (item < 0 || isInside(layout, item, selected)) continue;
      found.set(item, phaseColour(palette, phaseOf(graph, partner)));
    }
  };
  if (op >= 0) add(op);
  const work = op >= 0 ? [] : [-1 - layout.id[selected]!];
  for (let scope = work.pop(); scope !== undefined; scope = work.pop()) {
    tree.scopes[scope]!.ops.forEach(add);
    work.push(...tree.scopes[scope]!.children);
  }
  return [...found];
}

/** Whether an item is another one, or inside it. */
function isInside(layout: Layout, item: number, other: number): boolean {
  for (let at = item; at >= 0; at = layout.containers[layout.container[at]!]!.item) {
    if (at === other) return true;
  }
  return false;
}

/** The shortest path along edges between two ops, in the direction of the data; [] if none. */
export function pathBetween(graph: Graph, a: number, b: number): number[] {
  const [from, to] = a < b ? [a, b] : [b, a];
  const before = new Int32Array(graph.n).fill(-2);
  before[from] = -1;
  const queue = [from];
  for (let i = 0; i < queue.length; i++) {
    const op = queue[i]!;
    if (op === to) {
      const path: number[] = [];
      for (let at = to; at >= 0; at = before[at]!) path.push(at);
      return path.reverse();
    }
    for (const user of usersOf(graph, op)) {
      if (before[user] !== -2) continue;
      before[user] = op;
      queue.push(user);
    }
  }
  return [];
}
