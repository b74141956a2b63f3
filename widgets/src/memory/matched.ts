/** The buffers of two plans, and the pairs that hold the same value. */

import type { MemoryData } from './model';
import type { Numbers } from '../shared/wire';

/** The schema of `two` (widgets/README.md). */
export interface TwoMaps {
  a: MemoryData;
  b: MemoryData;
  names: [string, string];
  /** Keys of buffers that hold the same value in A and in B. */
  first: Numbers;
  second: Numbers;
  guessed: Numbers;
  why: Numbers;
  whys: string[];
  /** The host answers the requests `passes`, `planners` and `again`, for both at once. */
  asks?: boolean;
}

/** A or B. */
export type SideIndex = 0 | 1;

/** The buffer numbers of a row; -1 if a side has none. */
export interface BufferPair {
  buffers: readonly [number, number];
  /** Whether the match of the first buffer on the other side is guessed, and why; even if it is not in the row. */
  guessed: boolean;
  why: string;
}

export class Matched {
  /** The partner of each buffer, by side; and its row in `first`. */
  private readonly partners: readonly [Map<number, number>, Map<number, number>] = [new Map(), new Map()];
  private readonly rowByBuffer = new Map<number, number>();

  constructor(readonly two: TwoMaps) {
    const { first, second } = two;
    const [indexA, indexB] = [two.a, two.b].map(({ buffers }) => new Map(Array.from(buffers.key as ArrayLike<number>, (key, i) => [key, i])));
    for (let i = 0; i < first.length; i++) {
      const [a, b] = [indexA!.get(first[i]!), indexB!.get(second[i]!)];
      if (a === undefined || b === undefined) continue;
      this.partners[0].set(a, b);
      this.partners[1].set(b, a);
      this.rowByBuffer.set(a, i);
    }
  }

  side(side: SideIndex): MemoryData {
    return side === 0 ? this.two.a : this.two.b;
  }

  /** The partner of a buffer of `side` on the other side; -1: none. */
  partner(side: SideIndex, number: number): number {
    return this.partners[side].get(number) ?? -1;
  }

  /** A buffer's number by its key. */
  bufferByKey(side: SideIndex, key: string | number): number {
    return Array.prototype.indexOf.call(this.side(side).buffers.key, key) as number;
  }

  /** The name of a buffer's tier. */
  tier(side: SideIndex, number: number): string | undefined {
    const { buffers, tiers } = this.side(side);
    return tiers[buffers.tier[number] ?? -1]?.name;
  }

  size(side: SideIndex, number: number): number {
    return number < 0 ? 0 : this.side(side).buffers.size[number]!;
  }

  sizeDifference({ buffers: [a, b] }: BufferPair): number {
    return this.size(1, b) - this.size(0, a);
  }

  /** The evidence that both buffers of a row match; empty if one is missing. */
  matchEvidence({ buffers, guessed }: BufferPair): '' | 'guessed' | 'recorded' {
    if (buffers.includes(-1)) return '';
    return guessed ? 'guessed' : 'recorded';
  }

  /** Rows of some buffers of A and of B, largest difference first. */
  pairs(buffersA: readonly number[], buffersB: readonly number[]): BufferPair[] {
    const [inA, inB] = [new Set(buffersA), new Set(buffersB)];
    const fromA = buffersA.map((a) => this.makePair(a, inB));
    const onlyInB = buffersB.filter((b) => !inA.has(this.partner(1, b))).map((b): BufferPair => ({ buffers: [-1, b], guessed: false, why: '' }));
    const size = ({ buffers: [a, b] }: BufferPair) => Math.max(this.size(0, a), this.size(1, b));
    return [...fromA, ...onlyInB].sort((p, q) => Math.abs(this.sizeDifference(q)) - Math.abs(this.sizeDifference(p)) || size(q) - size(p));
  }

  private makePair(a: number, inB: ReadonlySet<number>): BufferPair {
    const b = this.partner(0, a);
    const at = this.rowByBuffer.get(a);
    const { guessed, why, whys } = this.two;
    const match = at === undefined ? { guessed: false, why: '' } : { guessed: Boolean(guessed[at]), why: whys[why[at]!]! };
    return { buffers: [a, inB.has(b) ? b : -1], ...match };
  }
}
