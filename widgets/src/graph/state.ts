/** The state of a graph view: the stage, the open scopes, and positions that persist across stages. */

import { makeGraph, type Graph, type GraphData, type Key } from './model';
import { initialOpen, layoutGraph, type Layout, type StagePositions, recordPositions } from './layout';
import { makeTree, type Sticky, type Tree } from './scopes';
import type { Motion } from './scene';
import { CHANGES } from '../shared/theme';

const OPEN_ITEMS = 140;
const MAX_VISIBLE = 20_000;
const REMEMBERED_STAGES = 48;
/** The maximum number of items opened to show the first change (each is a child or an op of a scope). */
const OPENED_FOR_CHANGE = 600;

export class GraphState {
  graph!: Graph;
  tree!: Tree;
  layout!: Layout;
  open = new Set<string>();
  showFolded = false;
  parents = new Int32Array(0);
  changes: Int32Array | null = null;
  private readonly sticky: Sticky = { groups: new Map(), sections: new Map() };
  /** Positions in the previously shown stage, which this stage's layout must keep. */
  private previousPositions: StagePositions | null = null;
  private currentPositions: StagePositions = new Map();
  private readonly positionsByStage = new Map<string, StagePositions>();
  /** The scopes around the first change of the first shown stage. */
  private scopesAroundChange: string[] = [];

  get maxVisible(): number {
    return this.graph.data.options?.max_visible ?? MAX_VISIBLE;
  }

  /** Shows another stage (or the first). */
  load(data: GraphData): void {
    const first = this.layout === undefined;
    if (!first) {
      this.positionsByStage.delete(this.graph.data.stage.id);
      this.positionsByStage.set(this.graph.data.stage.id, this.currentPositions);
      for (const id of this.positionsByStage.keys()) {
        if (this.positionsByStage.size <= REMEMBERED_STAGES) break;
        this.positionsByStage.delete(id);
      }
    }
    this.graph = makeGraph(data);
    this.tree = makeTree(this.graph, this.sticky);
    this.parents = Int32Array.from(this.tree.scopes, (scope) => scope.parent);
    this.changes = countChanges(this.graph, this.tree, this.parents);
    if (first) {
      this.scopesAroundChange = this.closedScopesAround(this.firstChange());
      this.open = this.initialOpen();
    }
    this.previousPositions = first ? null : new Map([...this.currentPositions, ...(this.positionsByStage.get(data.stage.id) ?? [])]);
    this.currentPositions = new Map(this.previousPositions ?? []);
    this.place();
  }

  /** The scopes that are open before the user opens or closes any; the changes of the first shown pass
   * are drawn. */
  initialOpen(): Set<string> {
    const open = initialOpen(this.tree, this.graph.data.options?.open_items ?? OPEN_ITEMS);
    for (const scope of this.scopesAroundChange) open.add(scope);
    return open;
  }

  /** The first op that the pass changed; below 0 if there is none.  Ops that only moved count if
   * there are no other changes. */
  firstChange(): number {
    const { status, n } = this.graph;
    const moved = CHANGES.indexOf('moved');
    let found = -1;
    for (let op = 0; op < n; op++) {
      if (status[op] === 0) continue;
      if (status[op] !== moved) return op;
      if (found < 0) found = op;
    }
    return found;
  }

  /** The ids of the initially closed scopes around an op; empty if they contain too many items. */
  private closedScopesAround(op: number): string[] {
    const open = this.initialOpen();
    const found: string[] = [];
    let items = 0;
    for (let s = op < 0 ? -1 : this.tree.scopeOf[op]!; s >= 0; s = this.parents[s]!) {
      const { id } = this.tree.scopes[s]!;
      if (open.has(id)) continue;
      found.push(id);
      items += this.directItemCount(s);
    }
    return items > OPENED_FOR_CHANGE ? [] : found;
  }

  place(): void {
    this.layout = layoutGraph({
      graph: this.graph,
      tree: this.tree,
      open: this.open,
      showFolded: this.showFolded,
      previous: this.previousPositions,
    });
    recordPositions(this.graph, this.tree, this.layout, this.currentPositions);
  }

  isOpen(scope: number): boolean {
    return this.open.has(this.tree.scopes[scope]!.id);
  }

  /** Opens or closes a scope; false if opening it would draw more than the cap. */
  toggle(scope: number, force = false): boolean {
    const { id } = this.tree.scopes[scope]!;
    if (this.open.has(id)) this.open.delete(id);
    else {
      if (!force && this.layout.count + this.directItemCount(scope) > this.maxVisible) return false;
      this.open.add(id);
    }
    this.place();
    return true;
  }

  private directItemCount(scope: number): number {
    const { children, ops } = this.tree.scopes[scope]!;
    return children.length + ops.length;
  }

  /** Opens every scope around an op; true if one was closed. */
  reveal(op: number): boolean {
    return this.openFrom(this.tree.scopeOf[op]!);
  }

  /** Opens every scope around a scope, not the scope itself. */
  revealScope(scope: number): boolean {
    return this.openFrom(this.parents[scope]!);
  }

  private openFrom(scope: number): boolean {
    let opened = false;
    for (let s = scope; s >= 0; s = this.parents[s]!) {
      const { id } = this.tree.scopes[s]!;
      if (this.open.has(id)) continue;
      this.open.add(id);
      opened = true;
    }
    if (opened) this.place();
    return opened;
  }

  /** Opens one more level everywhere, or all; returns false if it stops at the cap. */
  expand(all: boolean): boolean {
    let itemCount = this.layout.count;
    let complete = true;
    let level = this.tree.scopes.flatMap((_, i) => (this.layout.itemOfScope[i]! >= 0 ? [i] : []));
    level = level.filter((scope) => !this.isOpen(scope));
    while (level.length) {
      const next: number[] = [];
      for (const scope of level) {
        if (itemCount + this.directItemCount(scope) > this.maxVisible) {
          complete = false;
          continue;
        }
        itemCount += this.directItemCount(scope);
        this.open.add(this.tree.scopes[scope]!.id);
        next.push(...this.tree.scopes[scope]!.children);
      }
      level = all ? next : [];
    }
    this.place();
    return complete;
  }

  collapse(): void {
    this.open = new Set(['']);
    this.place();
  }

  keyOf(item: number): Key | string {
    const id = this.layout.id[item]!;
    return id >= 0 ? this.graph.keys[id]! : `§${this.tree.scopes[-1 - id]!.id}`;
  }
}

/** The transition from an old layout to the new one, and the shift of the items that stay in `window`. */
export function motionBetween(
  before: { layout: Layout; keyOf: (item: number) => Key | string },
  after: GraphState,
  isSeen: (x: number, y: number) => boolean,
): { motion: Motion; dx: number; dy: number; moved: number } {
  const old = new Map<Key | string, number>();
  for (let item = 0; item < before.layout.count; item++) old.set(before.keyOf(item), item);
  const { layout } = after;
  const motion: Motion = {
    fromX: Float64Array.from(layout.x),
    fromY: Float64Array.from(layout.y),
    fresh: new Uint8Array(layout.count),
    t: 0,
  };
  const dxs: number[] = [];
  const dys: number[] = [];
  const from = new Int32Array(layout.count).fill(-1);
  for (let item = 0; item < layout.count; item++) {
    const source = old.get(after.keyOf(item));
    if (source === undefined) {
      motion.fresh[item] = 1;
      continue;
    }
    from[item] = source;
    if (layout.opens[item]! < 0 && isSeen(before.layout.x[source]!, before.layout.y[source]!)) {
      dxs.push(layout.x[item]! - before.layout.x[source]!);
      dys.push(layout.y[item]! - before.layout.y[source]!);
    }
  }
  const [dx, dy] = [median(dxs), median(dys)];
  let moved = 0;
  for (let item = 0; item < layout.count; item++) {
    if (from[item]! < 0) continue;
    motion.fromX[item] = before.layout.x[from[item]!]! + dx;
    motion.fromY[item] = before.layout.y[from[item]!]! + dy;
    const distance =
      Math.abs(motion.fromX[item]! - layout.x[item]!) +
      Math.abs(motion.fromY[item]! - layout.y[item]!);
    if (distance > 0.5) moved++;
  }
  return { motion, dx, dy, moved };
}

function median(values: number[]): number {
  if (values.length === 0) return 0;
  return values.sort((a, b) => a - b)[values.length >> 1]!;
}

function countChanges(graph: Graph, tree: Tree, parents: Int32Array): Int32Array | null {
  let hasChanges = false;
  const counts = new Int32Array(tree.scopes.length * 5);
  for (let op = 0; op < graph.n; op++) {
    const status = graph.status[op]!;
    if (status === 0) continue;
    hasChanges = true;
    for (let s = tree.scopeOf[op]!; s >= 0; s = parents[s]!) counts[s * 5 + status]!++;
  }
  return hasChanges ? counts : null;
}

/** The number of marked ops inside each scope. */
export function countInside(tree: Tree, parents: Int32Array, ops: Int32Array): Int32Array {
  const counts = new Int32Array(tree.scopes.length);
  for (const op of ops) for (let s = tree.scopeOf[op]!; s >= 0; s = parents[s]!) counts[s]!++;
  return counts;
}
