/** The buffers of two plans, and which of them hold the same. */

import type { MemoryData } from './model';
import type { Numbers } from '../shared/wire';

/** The schema of `two` (widgets/README.md). */
export interface TwoMaps {
  a: MemoryData;
  b: MemoryData;
  names: [string, string];
  /** Keys of buffers that hold the same in A and in B. */
  first: Numbers;
  second: Numbers;
  guessed: Numbers;
  why: Numbers;
  whys: string[];
  /** The host answers the requests `passes`, `planners` and `again`, for both at once. */
  asks?: boolean;
}

/** One of both: A, B. */
export type Which = 0 | 1;

/** Numbers of buffers that stand in one row, -1 where a side has none. */
export interface Couple {
  buffers: readonly [number, number];
  /** Whether what the other side has instead of the first is a guess, and why; also where it is not in the row. */
  guessed: boolean;
  why: string;
}

export class Matched {
  /** Number of the partner of each buffer, by side; and the row of `first` that says so. */
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

  /** What a buffer of `side` is on the other side; -1: nothing. */
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

  /** How it is known that both of a row are the same; empty where one is alone. */
  how({ buffers, guessed }: Couple): '' | 'guessed' | 'recorded' {
    if (buffers.includes(-1)) return '';
    return guessed ? 'guessed' : 'recorded';
  }

  /** Some buffers of A beside some of B, the largest difference first. */
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
