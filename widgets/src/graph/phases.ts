/** The phases of a training step: the number of ops of each, in total and in each scope. */

import { type Graph, NO_PHASE } from './model';
import type { Tree } from './scopes';

export interface Phases {
  names: string[];
  phaseOfOp: Uint8Array;
  /** Drawn ops of each phase: `names.length` numbers per scope. */
  inside: Int32Array;
  /** The dimmed phases. */
  dim: Uint8Array;
}

export function makePhases(
  graph: Graph,
  tree: Tree,
  parents: Int32Array,
  dimmed: ReadonlySet<string>,
): Phases | null {
  const names = graph.data.phases;
  if (!names || !graph.phase) return null;
  const inside = new Int32Array(tree.scopes.length * names.length);
  for (let op = 0; op < graph.n; op++) {
    const phase = graph.phase[op]!;
    if (phase === NO_PHASE || graph.folded[op]) continue;
    for (let s = tree.scopeOf[op]!; s >= 0; s = parents[s]!) inside[s * names.length + phase]!++;
  }
  const dim = Uint8Array.from(names, (name) => (dimmed.has(name) ? 1 : 0));
  return { names, phaseOfOp: graph.phase, inside, dim };
}

/** The phases inside a scope with their counts, in the order of the step. */
export function phasesInside(phases: Phases, scope: number): [phase: number, count: number][] {
  const k = phases.names.length;
  return phases.names.flatMap((_, i): [number, number][] => {
    const n = phases.inside[scope * k + i]!;
    return n > 0 ? [[i, n]] : [];
  });
}

export const opIsDim = (phases: Phases | null, op: number): boolean =>
  phases !== null && phases.phaseOfOp[op] !== NO_PHASE && phases.dim[phases.phaseOfOp[op]!] === 1;

/** Whether everything inside a scope is dimmed. */
export function scopeIsDim(phases: Phases | null, scope: number): boolean {
  if (!phases) return false;
  const found = phasesInside(phases, scope);
  return found.length > 0 && found.every(([phase]) => phases.dim[phase] === 1);
}
