/** The buffers of one plan and derived figures: live bytes, peak, fragmentation. */

import { binaryStep, roundStep } from '../shared/axis';
import { csvText } from '../shared/download';
import type { Numbers } from '../shared/wire';

type Key = number | string;

export interface Tier {
  name: string;
  /** Available bytes; missing if there is no limit. */
  capacity?: number;
  /** The smallest arena of any plan, in bytes. */
  lower_bound?: number;
}

/** The schema of the `data` trait (documented in widgets/README.md). All sizes are in bytes. */
export interface MemoryData {
  title?: string;
  /** The definition of each figure, by its name. */
  terms?: Record<string, string>;
  /** Program positions; a buffer lives in [start, end). */
  steps: number;
  step_op?: ArrayLike<Key>;
  step_label?: string[];
  tiers: Tier[];
  categories?: string[];
  buffers: {
    key: ArrayLike<Key>;
    name: string[];
    tier: Numbers;
    offset: Numbers;
    size: Numbers;
    /** Bytes that hold data; the rest of `size` is padding. */
    unpadded?: Numbers;
    start: Numbers;
    end: Numbers;
    category?: Numbers;
    op?: ArrayLike<Key>;
    type?: string[];
    /** The computation of the op, and its `file:line` in the model. */
    what?: string[];
    place?: string[];
  };
  /** For a training step: the program position of the launch that computes the loss. */
  border?: number;
  /** The host answers the requests `passes`, `planners` and `again`. */
  asks?: boolean;
}

/** One tier's buffers in drawing order, and its curves over the program. */
export interface TierPlan {
  tier: Tier;
  /** Buffer numbers of this tier by start. */
  buffers: Int32Array;
  /** Highest address used by any buffer. */
  arena: number;
  live: Float64Array;
  /** End of the highest live buffer at each step. */
  top: Float64Array;
  peakStep: number;
  peak: number;
  padding: number;
}

export function makePlans(data: MemoryData): TierPlan[] {
  const { buffers } = data;
  const n = buffers.key.length;
  for (const [name, column] of Object.entries(buffers)) {
    if (column && column.length !== n) {
      throw new Error(`column buffers.${name} has ${column.length} entries, buffers.key has ${n}`);
    }
  }
  return data.tiers.map((tier, at) => {
    const members: number[] = [];
    for (let b = 0; b < n; b++) if (buffers.tier[b] === at) members.push(b);
    members.sort((a, b) => buffers.start[a]! - buffers.start[b]! || a - b);
    return planTier(data, tier, Int32Array.from(members));
  });
}

function planTier(data: MemoryData, tier: Tier, members: Int32Array): TierPlan {
  const { buffers, steps } = data;
  const change = new Float64Array(steps + 1);
  let arena = 0;
  let padding = 0;
  for (const b of members) {
    const [start, end] = [buffers.start[b]!, Math.min(steps, buffers.end[b]!)];
    change[start]! += buffers.size[b]!;
    change[end]! -= buffers.size[b]!;
    arena = Math.max(arena, buffers.offset[b]! + buffers.size[b]!);
    if (buffers.unpadded) padding += buffers.size[b]! - buffers.unpadded[b]!;
  }
  const live = new Float64Array(steps);
  let sum = 0;
  let peakStep = 0;
  for (let step = 0; step < steps; step++) {
    sum += change[step]!;
    live[step] = sum;
    if (sum > live[peakStep]!) peakStep = step;
  }
  const top = highestEnds(data, members);
  return { tier, buffers: members, arena, live, top, peakStep, peak: live[peakStep] ?? 0, padding };
}

/** The end of the highest live buffer at each step, by a heap of buffers ordered by their end. */
function highestEnds(data: MemoryData, members: Int32Array): Float64Array {
  const { buffers, steps } = data;
  const top = new Float64Array(steps);
  const height = (b: number) => buffers.offset[b]! + buffers.size[b]!;
  const heap: number[] = [];
  const push = (b: number) => {
    let i = heap.push(b) - 1;
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (height(heap[parent]!) >= height(heap[i]!)) break;
      [heap[parent], heap[i]] = [heap[i]!, heap[parent]!];
      i = parent;
    }
  };
  const pop = () => {
    const last = heap.pop()!;
    if (heap.length === 0) return;
    heap[0] = last;
    for (let i = 0; ; ) {
      let largest = i;
      for (const child of [2 * i + 1, 2 * i + 2]) {
        if (child < heap.length && height(heap[child]!) > height(heap[largest]!)) largest = child;
      }
      if (largest === i) return;
      [heap[i], heap[largest]] = [heap[largest]!, heap[i]!];
      i = largest;
    }
  };
  let next = 0;
  for (let step = 0; step < steps; step++) {
    while (next < members.length && buffers.start[members[next]!]! <= step) push(members[next++]!);
    while (heap.length && buffers.end[heap[0]!]! <= step) pop();
    top[step] = heap.length ? height(heap[0]!) : 0;
  }
  return top;
}

/** Numbers of the buffers that are alive at the peak, largest first. */
export const aliveAtPeak = (data: MemoryData, plan: TierPlan): number[] => aliveFrom(data, plan, plan.peakStep, plan.peakStep);

/** The buffers of a training step that are written before its loss and read after it, largest first. */
export const savedForBackward = (data: MemoryData, plan: TierPlan, border: number): number[] => aliveFrom(data, plan, border - 1, border + 1);

/** Buffers that are alive from position `from` through `to`. */
function aliveFrom({ buffers }: MemoryData, plan: TierPlan, from: number, to: number): number[] {
  return [...plan.buffers]
    .filter((b) => buffers.start[b]! <= from && to < buffers.end[b]!)
    .sort((a, b) => buffers.size[b]! - buffers.size[a]! || a - b);
}

export const unpaddedOf = (data: MemoryData, b: number): number =>
  data.buffers.unpadded ? data.buffers.unpadded[b]! : data.buffers.size[b]!;

/** A step for an axis so that about `lines` fit: powers of two of bytes, or 1, 2, 5 of steps. */
export function axisStep(span: number, lines: number, binary: boolean): number {
  const minStep = Math.max(span / Math.max(1, lines), 1);
  return binary ? binaryStep(minStep) : roundStep(minStep);
}

export function csv(data: MemoryData): string {
  const { buffers, tiers, categories } = data;
  const names = ['key', 'name', 'tier', 'category', 'offset_bytes', 'size_bytes', 'unpadded_bytes', 'start', 'end', 'op'];
  const rows = Array.from({ length: buffers.key.length }, (_, b) => [
    buffers.key[b],
    buffers.name[b]!,
    tiers[buffers.tier[b]!]?.name,
    categories?.[buffers.category?.[b] ?? -1],
    buffers.offset[b],
    buffers.size[b],
    unpaddedOf(data, b),
    buffers.start[b],
    buffers.end[b],
    buffers.op?.[b],
  ]);
  return csvText(names, rows);
}
