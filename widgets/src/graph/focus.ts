/** A part of the graph that stays lit while the rest is dimmed: the transitive inputs or users
 * of an op. */

import { plural } from '../shared/format';
import { type Graph, nameOf, operandsOf, usersOf } from './model';
import { countInside } from './state';
import type { Tree } from './scopes';

export type Direction = 'inputs' | 'users';

export interface Focus {
  direction: Direction;
  /** The keys of the ops it starts from. */
  roots: ReadonlySet<number | string>;
  ops: Uint8Array;
  /** The number of its ops inside each scope. */
  inside: Int32Array;
  message: string;
}

/** The ops that `roots` are computed from, or that depend on them; the roots too. */
export function cone(graph: Graph, roots: Iterable<number>, direction: Direction): Int32Array {
  const next = direction === 'inputs' ? operandsOf : usersOf;
  const seen = new Uint8Array(graph.n);
  const work = [...roots];
  for (const op of work) seen[op] = 1;
  for (let i = 0; i < work.length; i++) {
    for (const op of next(graph, work[i]!)) {
      if (seen[op]) continue;
      seen[op] = 1;
      work.push(op);
    }
  }
  return Int32Array.from(work).sort();
}

export function focusOn(
  graph: Graph,
  tree: Tree,
  parents: Int32Array,
  roots: readonly number[],
  name: string,
  direction: Direction,
): Focus {
  const found = cone(graph, roots, direction);
  const ops = new Uint8Array(graph.n);
  for (const op of found) ops[op] = 1;
  const n = found.length - roots.length;
  const pluralVerb = direction === 'inputs' ? 'feed' : 'depend on';
  const verb = n === 1 ? (direction === 'inputs' ? 'feeds' : 'depends on') : pluralVerb;
  return {
    direction,
    roots: new Set(roots.map((op) => graph.keys[op]!)),
    ops,
    inside: countInside(tree, parents, found),
    message: `${plural(n, 'op')} of ${graph.n.toLocaleString('en')} ${verb} ${name}. Esc shows all.`,
  };
}

/** The ops of a scope and of its nested scopes. */
export function opsInside(tree: Tree, scope: number): number[] {
  const found: number[] = [];
  const work = [scope];
  for (let at = work.pop(); at !== undefined; at = work.pop()) {
    found.push(...tree.scopes[at]!.ops);
    work.push(...tree.scopes[at]!.children);
  }
  return found;
}

/** The name of a selected op or scope in a sentence. */
export const nameForSentence = (graph: Graph, tree: Tree, id: number): string =>
  id >= 0 ? nameOf(graph, id) : tree.scopes[-1 - id]!.label || 'the module';
