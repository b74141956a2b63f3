/**
 * The hierarchy of a stage: scopes from paths, runs of equal siblings as one group, and, if a
 * scope has too many direct ops, detected repeats and then sections by program order.
 */

import { CHANGES } from '../shared/theme';
import { countCategory, type Graph, type Key } from './model';

const REMOVED = CHANGES.indexOf('removed');

export type ScopeKind = 'scope' | 'group' | 'repeat' | 'section';

export interface Scope {
  /** Stable from stage to stage; real scopes use their path. */
  id: string;
  label: string;
  kind: ScopeKind;
  parent: number;
  depth: number;
  children: number[];
  ops: number[];
  /** Ops inside, at any depth, including constants. */
  total: number;
  /** Those that count as ops of the stage: without constants, buffers and removed ops. */
  counted: number;
  /** The first non-constant op inside, in program order; -1: none. */
  first: number;
  /** The last such op; -1: none. */
  last: number;
  /** For a group: the number of members that are the same block (0: not a group), and whether all are. */
  repeats: number;
  uniform: boolean;
}

export interface Tree {
  scopes: Scope[];
  /** The scope that holds each op directly. */
  scopeOf: Int32Array;
  byId: Map<string, number>;
}

/** The state that keeps groups and sections the same in the next stage. */
export interface Sticky {
  groups: Map<string, string[]>;
  sections: Map<Key, string>;
}

/** A scope with more direct ops than this gets repeats or sections. */
export const SECTION = 300;

export function makeTree(graph: Graph, sticky: Sticky | null): Tree {
  const tree = fromPaths(graph);
  const sections = new Map<Key, string>();
  const groups = new Map<string, string[]>();
  splitLongScopes(graph, tree, sticky?.sections ?? null, sections);
  measure(graph, tree);
  groupRepeats(graph, tree, sticky?.groups ?? null, groups);
  measure(graph, tree);
  if (sticky) {
    sticky.groups = groups;
    sticky.sections = sections;
  }
  return tree;
}

function makeScope(id: string, label: string, kind: ScopeKind, parent: number): Scope {
  return {
    id,
    label,
    kind,
    parent,
    depth: 0,
    children: [],
    ops: [],
    total: 0,
    counted: 0,
    first: -1,
    last: -1,
    repeats: 0,
    uniform: true,
  };
}

function add(tree: Tree, scope: Scope): number {
  const index = tree.scopes.length;
  tree.scopes.push(scope);
  tree.byId.set(scope.id, index);
  return index;
}

function fromPaths(graph: Graph): Tree {
  const { scopes: paths, ops } = graph.data;
  const tree: Tree = { scopes: [], scopeOf: new Int32Array(graph.n), byId: new Map() };
  add(tree, makeScope('', '', 'scope', -1));
  const node = paths.map((path) => {
    let parent = 0;
    let id = '';
    for (const part of path.split('/')) {
      if (part === '') continue;
      id = id === '' ? part : `${id}/${part}`;
      let index = tree.byId.get(id);
      if (index === undefined) {
        index = add(tree, makeScope(id, part, 'scope', parent));
        tree.scopes[parent]!.children.push(index);
      }
      parent = index;
    }
    return parent;
  });
  const pathScope = Int32Array.from(ops.scope, (scope) => node[scope] ?? 0);
  const hasDrawnOps = new Uint8Array(tree.scopes.length);
  for (let op = 0; op < graph.n; op++) {
    if (graph.folded[op]) continue;
    for (let at = pathScope[op]!; at >= 0 && !hasDrawnOps[at]; at = tree.scopes[at]!.parent) hasDrawnOps[at] = 1;
  }
  for (let op = 0; op < graph.n; op++) {
    // Weights of a layer that no longer exists go to their current user.
    const isOrphan = graph.folded[op] && !hasDrawnOps[pathScope[op]!];
    const index = pathScope[isOrphan ? graph.users[graph.userStart[op]!]! : op]!;
    tree.scopeOf[op] = index;
    tree.scopes[index]!.ops.push(op);
  }
  return tree;
}

/** Fills total, first, last and depth, drops empty scopes, and orders children by the program order of
 * their non-constant ops, because weights are at the top of a program wherever they are read. */
function measure(graph: Graph, tree: Tree): void {
  const visit = (index: number, depth: number): void => {
    const scope = tree.scopes[index]!;
    scope.depth = depth;
    scope.total = scope.ops.length;
    scope.counted = 0;
    for (const op of scope.ops) {
      if (graph.status[op] !== REMOVED && countCategory(graph, op) === 'op') scope.counted++;
    }
    const drawn = scope.ops.filter((op) => !graph.constant[op]);
    scope.first = drawn[0] ?? -1;
    scope.last = drawn[drawn.length - 1] ?? -1;
    for (const child of scope.children) {
      tree.scopes[child]!.parent = index;
      visit(child, depth + 1);
      const { total, counted, first, last } = tree.scopes[child]!;
      scope.total += total;
      scope.counted += counted;
      scope.last = Math.max(scope.last, last);
      if (first >= 0 && (scope.first < 0 || first < scope.first)) scope.first = first;
    }
    scope.children = scope.children
      .filter((child) => tree.scopes[child]!.total > 0)
      .sort((a, b) => tree.scopes[a]!.first - tree.scopes[b]!.first);
  };
  visit(0, 0);
}

// ---------------------------------------------------------------- sections of long scopes

function splitLongScopes(
  graph: Graph,
  tree: Tree,
  previous: Map<Key, string> | null,
  next: Map<Key, string>,
): void {
  const count = tree.scopes.length;
  for (let index = 0; index < count; index++) {
    const scope = tree.scopes[index]!;
    const visible = scope.ops.filter((op) => !graph.folded[op]);
    if (visible.length <= SECTION) continue;
    const names = sectionNames(graph, scope, visible, previous);
    moveIntoSections(graph, tree, index, names, next);
  }
}

/** For each visible op of the scope the id of its section; '' leaves it in place. */
function sectionNames(
  graph: Graph,
  scope: Scope,
  visible: number[],
  previous: Map<Key, string> | null,
): Map<number, string> {
  const prefix = `${scope.id}#`;
  const names = new Map<number, string>();
  if (previous) {
    let keptCount = 0;
    let current: string | undefined;
    const pending: number[] = [];
    for (const op of visible) {
      const before = previous.get(graph.keys[op]!);
      if (before?.startsWith(prefix)) {
        keptCount++;
        current = before;
        for (const waiting of pending.splice(0)) names.set(waiting, before);
      }
      if (current === undefined) pending.push(op);
      else names.set(op, current);
    }
    if (keptCount * 2 > visible.length) return names;
    names.clear();
  }
  const blocks = repeatedBlocks(graph, visible);
  let from = 0;
  const sections = (to: number) => {
    const parts = Math.max(1, Math.ceil((to - from) / SECTION));
    for (let i = from; i < to; i++) {
      const part = Math.floor(((i - from) * parts) / (to - from));
      const first = from + Math.ceil((part * (to - from)) / parts);
      names.set(visible[i]!, `${prefix}section@${graph.keys[visible[first]!]}`);
    }
  };
  for (const block of blocks) {
    if (block.start > from) sections(block.start);
    for (let i = 0; i < block.period * block.times; i++) {
      const first = block.start + Math.floor(i / block.period) * block.period;
      names.set(visible[block.start + i]!, `${prefix}block@${graph.keys[visible[first]!]}`);
    }
    from = block.start + block.period * block.times;
  }
  if (from < visible.length) sections(visible.length);
  return names;
}

function moveIntoSections(
  graph: Graph,
  tree: Tree,
  index: number,
  names: Map<number, string>,
  next: Map<Key, string>,
): void {
  const scope = tree.scopes[index]!;
  const ops = scope.ops;
  scope.ops = [];
  for (const op of ops) {
    // A folded op goes to its first user, so that it never gets its own section.
    const user = graph.folded[op] ? graph.users[graph.userStart[op]!]! : op;
    const id = names.get(user);
    if (id === undefined) {
      scope.ops.push(op);
      continue;
    }
    let section = tree.byId.get(id);
    if (section === undefined) {
      const kind = id.startsWith('block@', scope.id.length + 1) ? 'repeat' : 'section';
      section = add(tree, makeScope(id, '', kind, index));
      scope.children.push(section);
    }
    tree.scopes[section]!.ops.push(op);
    tree.scopeOf[op] = section;
    if (!graph.folded[op]) next.set(graph.keys[op]!, id);
  }
  const members = scope.children.filter((child) => tree.scopes[child]!.kind !== 'scope');
  members.forEach((child, i) => {
    const section = tree.scopes[child]!;
    const word = section.kind === 'repeat' ? 'block' : 'section';
    section.label = `${word} ${i + 1} of ${members.length}`;
  });
}

interface Block {
  start: number;
  period: number;
  times: number;
}

/**
 * Tandem repeats in program order: distances between equal ops vote for a period; then runs with
 * op[i] like op[i + period] are taken, longest first. Time is linear in ops times a fixed number
 * of candidate periods.
 */
export function repeatedBlocks(graph: Graph, visible: number[]): Block[] {
  const signature = signatures(graph, visible);
  const m = visible.length;
  const votes = new Map<number, number>();
  const last = new Map<number, number>();
  for (let i = 0; i < m; i++) {
    const before = last.get(signature[i]!);
    if (before !== undefined && i - before >= 4) {
      votes.set(i - before, (votes.get(i - before) ?? 0) + 1);
    }
    last.set(signature[i]!, i);
  }
  const periods = [...votes.entries()]
    .filter(([, votes]) => votes >= 8)
    .sort((a, b) => b[0] * b[1] - a[0] * a[1] || a[0] - b[0])
    .slice(0, 12)
    .map(([period]) => period);
  const candidates: Block[] = [];
  for (const period of periods) {
    let run = 0;
    for (let i = 0; i + period <= m; i++) {
      if (i + period < m && signature[i] === signature[i + period]) {
        run++;
        continue;
      }
      const times = Math.floor(run / period) + 1;
      if (times >= 2) candidates.push({ start: i - run, period, times });
      run = 0;
    }
  }
  candidates.sort(
    (a, b) => b.period * b.times - a.period * a.times || a.period - b.period || a.start - b.start,
  );
  const covered = new Uint8Array(m);
  const blocks: Block[] = [];
  for (const block of candidates) {
    const end = block.start + block.period * block.times;
    let free = true;
    for (let i = block.start; free && i < end; i++) free = covered[i] === 0;
    if (!free || block.period < 8) continue;
    covered.fill(1, block.start, end);
    blocks.push(block);
  }
  return blocks.sort((a, b) => a.start - b.start);
}

function signatures(graph: Graph, visible: number[]): Float64Array {
  const { kind, type } = graph.data.ops;
  const types = graph.data.types.length + 1;
  return Float64Array.from(visible, (op) => {
    const operands = graph.operandStart[op + 1]! - graph.operandStart[op]!;
    return (kind[op]! * types + type[op]!) * 8 + Math.min(operands, 7);
  });
}

// ---------------------------------------------------------------- groups of equal siblings

function groupRepeats(
  graph: Graph,
  tree: Tree,
  previous: Map<string, string[]> | null,
  next: Map<string, string[]>,
): void {
  const shapes = new Shapes(graph, tree);
  const before = new Map<string, string[]>();
  for (const members of previous?.values() ?? []) before.set(members[0]!, members);
  const count = tree.scopes.length;
  for (let index = 0; index < count; index++) {
    const children = tree.scopes[index]!.children;
    if (children.length < 3) continue;
    const result: number[] = [];
    for (let i = 0; i < children.length; ) {
      const previousEnd = previousRunEnd(tree, children, i, before);
      const to = previousEnd ?? equalRunEnd(tree, shapes, children, i);
      if (to - i < 3) {
        result.push(children[i++]!);
        continue;
      }
      result.push(group(tree, shapes, index, children.slice(i, to), next));
      i = to;
    }
    tree.scopes[index]!.children = result;
  }
}

/** The end of a group of the previous stage whose members are all still adjacent. */
function previousRunEnd(
  tree: Tree,
  children: number[],
  from: number,
  before: Map<string, string[]>,
): number | null {
  const members = before.get(tree.scopes[children[from]!]!.id);
  if (!members || from + members.length > children.length) return null;
  for (let i = 0; i < members.length; i++) {
    if (tree.scopes[children[from + i]!]!.id !== members[i]) return null;
  }
  return from + members.length;
}

function equalRunEnd(tree: Tree, shapes: Shapes, children: number[], from: number): number {
  const first = children[from]!;
  let to = from + 1;
  if (tree.scopes[first]!.total < 2) return to;
  while (
    to < children.length &&
    shapes.isAdjacent(children[to - 1]!, children[to]!) &&
    shapes.isEqual(first, children[to]!)
  ) {
    to++;
  }
  return to;
}

function group(
  tree: Tree,
  shapes: Shapes,
  parent: number,
  members: number[],
  next: Map<string, string[]>,
): number {
  const ids = members.map((member) => tree.scopes[member]!.id);
  const id = `${tree.scopes[parent]!.id}*${ids[0]}..${ids.length}`;
  const first = tree.scopes[members[0]!]!;
  const last = tree.scopes[members[members.length - 1]!]!;
  const label = first.kind === 'repeat' ? 'repeated block' : `${first.label} … ${last.label}`;
  const scope = makeScope(id, label, 'group', parent);
  scope.children = members;
  scope.repeats = members.length;
  scope.uniform = members.every((member) => shapes.isEqual(members[0]!, member));
  next.set(id, ids);
  return add(tree, scope);
}

/**
 * The structure of scopes: kinds, types and inner operands of the ops in program order, and the
 * tree of child scopes. Hashes find candidates; equality is then checked token by token.
 */
class Shapes {
  private readonly hashes = new Map<number, number>();
  private readonly position: Int32Array;
  private readonly inside: Int32Array;
  private tokens: Int32Array = new Int32Array(1024);
  private readonly labels = new Map<string, number>();
  /** The number of drawn ops before each op. */
  private readonly drawnBefore: Int32Array;

  constructor(
    private readonly graph: Graph,
    private readonly tree: Tree,
  ) {
    this.drawnBefore = new Int32Array(graph.n + 1);
    for (let op = 0; op < graph.n; op++) {
      const counts = !graph.folded[op] && graph.status[op] !== 2;
      this.drawnBefore[op + 1] = this.drawnBefore[op]! + (counts ? 1 : 0);
    }
    this.position = new Int32Array(graph.n).fill(-1);
    this.inside = new Int32Array(graph.n);
  }

  /** Whether `b` directly follows `a`: ops between them must not be enclosed. */
  isAdjacent(a: number, b: number): boolean {
    const end = this.tree.scopes[a]!.last + 1;
    const { first } = this.tree.scopes[b]!;
    return 0 < end && end <= first && this.drawnBefore[first] === this.drawnBefore[end];
  }

  isEqual(a: number, b: number): boolean {
    if (a === b) return true;
    if (this.hash(a) !== this.hash(b)) return false;
    const first = this.tokens.slice(0, this.fill(a));
    const n = this.fill(b);
    if (n !== first.length) return false;
    for (let i = 0; i < n; i++) if (first[i] !== this.tokens[i]) return false;
    return true;
  }

  private hash(scope: number): number {
    const cached = this.hashes.get(scope);
    if (cached !== undefined) return cached;
    const n = this.fill(scope);
    let hash = 0x811c9dc5 ^ n;
    for (let i = 0; i < n; i++) hash = Math.imul(hash ^ this.tokens[i]!, 0x01000193);
    this.hashes.set(scope, hash);
    return hash;
  }

  /** Writes the tokens of a scope and returns their number. */
  private fill(scope: number): number {
    const { graph, tree, position, inside } = this;
    const { kind, type, status } = graph.data.ops;
    let n = 0;
    const push = (token: number) => {
      if (n === this.tokens.length) {
        const grown = new Int32Array(2 * n);
        grown.set(this.tokens);
        this.tokens = grown;
      }
      this.tokens[n++] = token;
    };
    let count = 0;
    const collect = (index: number, name: number) => {
      const { ops, children } = tree.scopes[index]!;
      push(-1);
      push(name);
      for (const op of ops) {
        // A removed op is no longer part of the block.
        if (!status || status[op] !== 2) inside[count++] = op;
      }
      children.forEach((child, i) => collect(child, this.nameToken(tree.scopes[child]!.label, i)));
      push(-2);
    };
    collect(scope, 0);
    const ops = inside.subarray(0, count).sort();
    for (let i = 0; i < count; i++) position[ops[i]!] = i;
    for (let i = 0; i < count; i++) {
      const op = ops[i]!;
      push(kind[op]!);
      push(type[op]!);
      for (let k = graph.operandStart[op]!; k < graph.operandStart[op + 1]!; k++) {
        const producer = graph.operands[k]!;
        push(producer < 0 || position[producer]! < 0 ? -3 : i - position[producer]!);
      }
    }
    for (let i = 0; i < count; i++) position[ops[i]!] = -1;
    return n;
  }

  /** Scopes whose names differ only by a number are compared by their position instead. */
  private nameToken(label: string, index: number): number {
    if (/\d/.test(label)) return -10 - index;
    let id = this.labels.get(label);
    if (id === undefined) this.labels.set(label, (id = this.labels.size + 1));
    return id;
  }
}
