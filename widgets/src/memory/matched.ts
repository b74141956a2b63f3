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
export type Which = 0 | 1;

/** The buffer numbers of a row; -1 if a side has none. */
export interface Couple {
  buffers: readonly [number, number];
  /** Whether the match of the first buffer on the other side is guessed, and why; even if it is not in the row. */
  guessed: boolean;
  why: string;
}

export class Matched {
  /** The partner of each buffer, by side; and its row in `first`. */
  private readonly partners: readonly [Map<number, number>, Map<number, number>] = [new Map(), new Map()];
  private readonly said = new Map<number, number>();

  constructor(readonly two: TwoMaps) {
    const { first, second } = two;
    const [ones, twos] = [two.a, two.b].map(({ buffers }) => new Map(Array.from(buffers.key as ArrayLike<number>, (key, i) => [key, i])));
    for (let i = 0; i < first.length; i++) {
      const [a, b] = [ones!.get(first[i]!), twos!.get(second[i]!)];
      if (a === undefined || b === undefined) continue;
      this.partners[0].set(a, b);
      this.partners[1].set(b, a);
      this.said.set(a, i);
    }
  }

  side(side: Which): MemoryData {
    return side === 0 ? this.two.a : this.two.b;
  }

  /** The partner of a buffer of `side` on the other side; -1: none. */
  partner(side: Which, number: number): number {
    return this.partners[side].get(number) ?? -1;
  }

  /** A buffer's number by its key. */
  numberOf(side: Which, key: string | number): number {
    return Array.prototype.indexOf.call(this.side(side).buffers.key, key) as number;
  }

  /** The name of a buffer's tier. */
  tier(side: Which, number: number): string | undefined {
    const { buffers, tiers } = this.side(side);
    return tiers[buffers.tier[number] ?? -1]?.name;
  }

  size(side: Which, number: number): number {
    return number < 0 ? 0 : this.side(side).buffers.size[number]!;
  }

  apart({ buffers: [a, b] }: Couple): number {
    return this.size(1, b) - this.size(0, a);
  }

  /** The evidence that both buffers of a row match; empty if one is missing. */
  how({ buffers, guessed }: Couple): '' | 'guessed' | 'recorded' {
    if (buffers.includes(-1)) return '';
    return guessed ? 'guessed' : 'recorded';
  }

  /** Rows of some buffers of A and of B, largest difference first. */
  couples(ones: readonly number[], twos: readonly number[]): Couple[] {
    const [mine, theirs] = [new Set(ones), new Set(twos)];
    const both = ones.map((a) => this.couple(a, theirs));
    const alone = twos.filter((b) => !mine.has(this.partner(1, b))).map((b): Couple => ({ buffers: [-1, b], guessed: false, why: '' }));
    const size = ({ buffers: [a, b] }: Couple) => Math.max(this.size(0, a), this.size(1, b));
    return [...both, ...alone].sort((p, q) => Math.abs(this.apart(q)) - Math.abs(this.apart(p)) || size(q) - size(p));
  }

  private couple(a: number, theirs: ReadonlySet<number>): Couple {
    const b = this.partner(0, a);
    const at = this.said.get(a);
    const { guessed, why, whys } = this.two;
    const known = at === undefined ? { guessed: false, why: '' } : { guessed: Boolean(guessed[at]), why: whys[why[at]!]! };
    return { buffers: [a, theirs.has(b) ? b : -1], ...known };
  }
}
