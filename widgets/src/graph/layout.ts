/**
 * The layout of a stage: the visible ops and scopes, their positions, and their edges.
 * Every open scope is a container laid out by itself (rows.ts), children before parents.
 */

import { shortType } from '../shared/format';
import { type Graph, type Key, kindOf, typeOf } from './model';
import { layoutRows, LINE, type RowsLayout } from './rows';
import type { Scope, Tree } from './scopes';

export const HEADER = 24;
export const PAD = 14;
const OP_HEIGHT = 36;
const SCOPE_HEIGHT = 44;

/** One open scope. Positions are absolute; `first` is its first visible item. */
export interface Container {
  scope: number;
  item: number;
  x: number;
  y: number;
  width: number;
  height: number;
  rows: RowsLayout;
  /** Visible items in the order of `rows` (program order within the container). */
  items: Int32Array;
  edgeFrom: Int32Array;
  edgeTo: Int32Array;
}

/** Visible items: ops and scopes (open or not), as columns. */
export interface Layout {
  count: number;
  /** Op index, or -1 - scope index. */
  id: Int32Array;
  x: Float64Array;
  y: Float64Array;
  width: Float64Array;
  height: Float64Array;
  container: Int32Array;
  /** The container of this item if it is an open scope, else -1. */
  opens: Int32Array;
  containers: Container[];
  itemOfOp: Int32Array;
  itemOfScope: Int32Array;
  /** For each op the visible item that represents it (itself or the closed scope around it). */
  visibleItemOf: Int32Array;
  drawnOps: number;
  stubs: number;
  edges: number;
}

/** Positions in the previous stage: by container, by item. */
type ItemPosition = { row: number; x: number; height: number };
export type StagePositions = Map<string, ContainerPositions>;
interface ContainerPositions {
  rowHeight: Float64Array;
  width: number;
  ops: Map<Key, ItemPosition>;
  scopes: Map<string, ItemPosition>;
}

export interface LayoutInput {
  graph: Graph;
  tree: Tree;
  open: ReadonlySet<string>;
  showFolded: boolean;
  previous: StagePositions | null;
}

export function layoutGraph(input: LayoutInput): Layout {
  const visible = findVisible(input);
  const layout = makeLayout(input, visible);
  const lifted = liftEdges(input.graph, layout);
  placeContainer(input, layout, lifted, 0);
  shiftChildren(layout, 0, PAD, 0);
  return layout;
}

/** A group of at most this many equal blocks opens at first, with its first block as a sample. */
const SMALL_GROUP = 16;

/** The scopes to open so that about `budget` items show, outermost first. */
export function initialOpen(tree: Tree, budget: number): Set<string> {
  const open = new Set<string>(['']);
  let itemCount = tree.scopes[0]!.children.length + tree.scopes[0]!.ops.length;
  let level = [...tree.scopes[0]!.children];
  while (level.length) {
    const next: number[] = [];
    for (const index of level) {
      const scope = tree.scopes[index]!;
      const cost = scope.children.length + scope.ops.length;
      const large = scope.kind === 'group' && cost > SMALL_GROUP;
      // A scope with one child adds no information: always look through it.
      if (cost > 1 && (large || itemCount + cost > budget)) continue;
      open.add(scope.id);
      itemCount += cost;
      next.push(...(scope.kind === 'group' ? scope.children.slice(0, 1) : scope.children));
    }
    level = next;
  }
  return open;
}

// ---------------------------------------------------------------- visibility

interface Visible {
  containers: number[];
  /** Per scope: index of its container, or -1. */
  containerOf: Int32Array;
  /** Per scope: the nearest open container that holds it. */
  enclosing: Int32Array;
  /** Per scope: the outermost closed scope around it (or itself), -1 when all are open. */
  closedScope: Int32Array;
}

function findVisible({ tree, open }: LayoutInput): Visible {
  const n = tree.scopes.length;
  const containerOf = new Int32Array(n).fill(-1);
  const enclosing = new Int32Array(n).fill(-1);
  const closedScope = new Int32Array(n).fill(-1);
  const containers: number[] = [];
  const visit = (index: number, container: number) => {
    enclosing[index] = container;
    if (index !== 0 && !open.has(tree.scopes[index]!.id)) {
      close(index, index, container);
      return;
    }
    containerOf[index] = containers.length;
    containers.push(index);
    const self = containerOf[index]!;
    for (const child of tree.scopes[index]!.children) visit(child, self);
  };
  const close = (index: number, top: number, container: number) => {
    closedScope[index] = top;
    enclosing[index] = container;
    for (const child of tree.scopes[index]!.children) close(child, top, container);
  };
  visit(0, -1);
  return { containers, containerOf, enclosing, closedScope };
}

function makeLayout(input: LayoutInput, visible: Visible): Layout {
  const { graph, tree, showFolded } = input;
  const ids: number[] = [];
  const containerOfItem: number[] = [];
  const containers: Container[] = [];
  const itemOfOp = new Int32Array(graph.n).fill(-1);
  const itemOfScope = new Int32Array(tree.scopes.length).fill(-1);
  const visibleItemOf = new Int32Array(graph.n).fill(-1);
  let drawnOps = 0;
  visible.containers.forEach((index, at) => {
    const scope = tree.scopes[index]!;
    const members = [
      ...scope.ops.filter((op) => showFolded || !graph.folded[op]),
      ...scope.children.map((child) => -1 - child),
    ];
    const order = (id: number) => (id >= 0 ? id : tree.scopes[-1 - id]!.first);
    members.sort((a, b) => order(a) - order(b) || a - b);
    const items = new Int32Array(members.length);
    members.forEach((id, i) => {
      const item = ids.length;
      items[i] = item;
      ids.push(id);
      containerOfItem.push(at);
      if (id >= 0) {
        itemOfOp[id] = item;
        visibleItemOf[id] = item;
        drawnOps++;
      } else itemOfScope[-1 - id] = item;
    });
    containers.push({ scope: index, item: -1, x: 0, y: 0, width: 0, height: 0, items } as never);
  });
  const count = ids.length;
  const opens = new Int32Array(count).fill(-1);
  containers.forEach((container, at) => {
    container.item = itemOfScope[container.scope]!;
    if (container.item >= 0) opens[container.item] = at;
  });
  for (let op = 0; op < graph.n; op++) {
    const closedScope = visible.closedScope[tree.scopeOf[op]!]!;
    if (closedScope >= 0) visibleItemOf[op] = itemOfScope[closedScope]!;
  }
  return {
    count,
    id: Int32Array.from(ids),
    x: new Float64Array(count),
    y: new Float64Array(count),
    width: new Float64Array(count),
    height: new Float64Array(count),
    container: Int32Array.from(containerOfItem),
    opens,
    containers,
    itemOfOp,
    itemOfScope,
    visibleItemOf,
    drawnOps,
    stubs: 0,
    edges: 0,
  };
}

// ---------------------------------------------------------------- edges between siblings

/** Per container: edges between its own items, each once; and the ops with inputs from outside. */
interface LiftedEdges {
  from: number[][];
  to: number[][];
  outside: Uint8Array;
}

function liftEdges(graph: Graph, layout: Layout): LiftedEdges {
  const { containers, visibleItemOf, container: containerOfItem } = layout;
  const depth = containers.map(() => 0);
  const parent = containers.map((c) => (c.item < 0 ? -1 : containerOfItem[c.item]!));
  containers.forEach((_, i) => {
    if (parent[i]! >= 0) depth[i] = depth[parent[i]!]! + 1;
  });
  const from: number[][] = containers.map(() => []);
  const to: number[][] = containers.map(() => []);
  const outside = new Uint8Array(layout.count);
  const seen = new Set<number>();
  for (let op = 0; op < graph.n; op++) {
    const target = visibleItemOf[op]!;
    if (target < 0) continue;
    for (let i = graph.operandStart[op]!; i < graph.operandStart[op + 1]!; i++) {
      const producer = graph.operands[i]!;
      if (producer < 0) continue;
      let source = visibleItemOf[producer]!;
      if (source < 0 || source === target) continue;
      let end = target;
      const direct = source;
      let a = containerOfItem[source]!;
      let b = containerOfItem[end]!;
      if (a !== b && b >= 0 && layout.id[end]! >= 0) outside[end] = b === 0 ? 0 : 1;
      while (a !== b) {
        if (depth[a]! >= depth[b]!) {
          source = containers[a]!.item;
          a = parent[a]!;
        } else {
          end = containers[b]!.item;
          b = parent[b]!;
        }
      }
      if (source === end) continue;
      if (source === direct && end === target && layout.id[source]! >= 0 && layout.id[end]! >= 0) {
        // Between two ops an edge can repeat only among this op's own operands.
        if (graph.operands.indexOf(producer, graph.operandStart[op]!) < i) continue;
      } else {
        const key = source * layout.count + end;
        if (seen.has(key)) continue;
        seen.add(key);
      }
      from[a]!.push(source);
      to[a]!.push(end);
    }
  }
  return { from, to, outside };
}

// ---------------------------------------------------------------- sizes and positions

function placeContainer(
  input: LayoutInput,
  layout: Layout,
  lifted: LiftedEdges,
  at: number,
): void {
  const { tree, graph } = input;
  const container = layout.containers[at]!;
  const m = container.items.length;
  const width = new Float64Array(m);
  const height = new Float64Array(m);
  const stubHeight = new Float64Array(m);
  container.items.forEach((item, i) => {
    const id = layout.id[item]!;
    if (layout.opens[item]! >= 0) {
      placeContainer(input, layout, lifted, layout.opens[item]!);
      const inner = layout.containers[layout.opens[item]!]!;
      width[i] = inner.width;
      height[i] = stubHeight[i] = inner.height;
    } else if (id >= 0) {
      width[i] = opWidth(graph, id);
      stubHeight[i] = OP_HEIGHT + LINE;
      height[i] = hasFolded(input, id) || lifted.outside[item] ? stubHeight[i]! : OP_HEIGHT;
    } else {
      width[i] = scopeWidth(tree.scopes[-1 - id]!);
      height[i] = stubHeight[i] = SCOPE_HEIGHT;
    }
  });
  // The items of a container are numbered consecutively.
  const base = container.items[0] ?? 0;
  const from = Int32Array.from(lifted.from[at]!, (item) => item - base);
  const to = Int32Array.from(lifted.to[at]!, (item) => item - base);
  const previous = previousPositions(input, layout, container);
  const rows = layoutRows({ width, height, stubHeight, from, to, ...(previous && { previous }) });
  container.rows = rows;
  container.edgeFrom = from;
  container.edgeTo = to;
  const label = tree.scopes[container.scope]!.label.length * 7 + 90;
  container.width = Math.max(rows.width + 2 * PAD, at === 0 ? 0 : label);
  container.height = rows.height + HEADER + PAD;
  container.items.forEach((item, i) => {
    layout.width[item] = width[i]!;
    layout.height[item] = rows.itemHeight[i]!;
  });
  layout.edges += from.length;
  for (const stub of rows.stub) layout.stubs += stub;
}

function shiftChildren(layout: Layout, at: number, x: number, y: number): void {
  const container = layout.containers[at]!;
  container.x = x - PAD;
  container.y = y - HEADER;
  container.items.forEach((item, i) => {
    layout.x[item] = x + container.rows.x[i]!;
    layout.y[item] = y + container.rows.y[i]!;
    const inner = layout.opens[item]!;
    if (inner >= 0) shiftChildren(layout, inner, layout.x[item]! + PAD, layout.y[item]! + HEADER);
  });
}

function hasFolded({ graph, showFolded }: LayoutInput, op: number): boolean {
  if (showFolded) return false;
  for (let i = graph.operandStart[op]!; i < graph.operandStart[op + 1]!; i++) {
    const producer = graph.operands[i]!;
    if (producer >= 0 && graph.folded[producer]) return true;
  }
  return false;
}

// Widths are counted in characters, not measured, so that a layout is the same on every machine.
function opWidth(graph: Graph, op: number): number {
  const kind = kindOf(graph, op).length * 7.2 + 34;
  const type = shortType(typeOf(graph, op)).length * 6.3 + 24;
  return Math.ceil(Math.min(230, Math.max(72, kind, type)) / 4) * 4;
}

function scopeWidth(scope: Scope): number {
  const label = scope.label.length * 7.2 + 46;
  return Math.ceil(Math.min(300, Math.max(150, label, scope.repeats ? 190 : 0)) / 4) * 4;
}

// ---------------------------------------------------------------- stable positions

export function recordPositions(graph: Graph, tree: Tree, layout: Layout, into: StagePositions): void {
  for (const container of layout.containers) {
    const { rows } = container;
    const positions: ContainerPositions = {
      rowHeight: rows.rowHeight,
      width: rows.width,
      ops: new Map(),
      scopes: new Map(),
    };
    container.items.forEach((item, i) => {
      const id = layout.id[item]!;
      const position = { row: rows.row[i]!, x: rows.x[i]!, height: rows.itemHeight[i]! };
      if (id >= 0) positions.ops.set(graph.keys[id]!, position);
      else positions.scopes.set(tree.scopes[-1 - id]!.id, position);
    });
    into.set(tree.scopes[container.scope]!.id, positions);
  }
}

function previousPositions(input: LayoutInput, layout: Layout, container: Container) {
  const { graph, tree } = input;
  const positions = input.previous?.get(tree.scopes[container.scope]!.id);
  if (!positions) return null;
  const row = new Float64Array(container.items.length);
  const x = new Float64Array(container.items.length);
  const height = new Float64Array(container.items.length);
  container.items.forEach((item, i) => {
    const id = layout.id[item]!;
    const position =
      id >= 0 ? positions.ops.get(graph.keys[id]!) : positions.scopes.get(tree.scopes[-1 - id]!.id);
    row[i] = position?.row ?? NaN;
    x[i] = position?.x ?? NaN;
    height[i] = position?.height ?? NaN;
  });
  return { row, x, height, rowHeight: positions.rowHeight, width: positions.width };
}

// ---------------------------------------------------------------- hits

/** The innermost item at a point, found by row and then by position in the row; -1: none. */
export function itemAt(layout: Layout, x: number, y: number): number {
  let at = 0;
  let found = -1;
  for (;;) {
    const item = itemInContainer(layout, layout.containers[at]!, x, y);
    if (item < 0) return found;
    found = item;
    if (layout.opens[item]! < 0) return item;
    at = layout.opens[item]!;
  }
}

function itemInContainer(layout: Layout, container: Container, x: number, y: number): number {
  const { rows } = container;
  const r = lastAtMost(rows.rowTop, y - container.y - HEADER);
  if (r < 0) return -1;
  let low = rows.rowStart[r]!;
  let high = rows.rowStart[r + 1]! - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (layout.x[container.items[rows.order[middle]!]!]! <= x) low = middle;
    else high = middle - 1;
  }
  if (low > high) return -1;
  const item = container.items[rows.order[low]!]!;
  const inside =
    x >= layout.x[item]! &&
    x < layout.x[item]! + layout.width[item]! &&
    y >= layout.y[item]! &&
    y < layout.y[item]! + layout.height[item]!;
  return inside ? item : -1;
}

/** The last index whose value is at most `value`; -1: none. */
export function lastAtMost(sorted: Float64Array, value: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]! <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
