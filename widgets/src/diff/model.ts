/** The aligned lines of two stages: rows, hunks, and the rows that a mode shows. */

import type { Numbers } from '../shared/wire';

export const KINDS = ['equal', 'changed', 'added', 'removed'] as const;
export type Kind = (typeof KINDS)[number];
type Key = number | string;

export interface Line {
  left?: string | null;
  right?: string | null;
  kind: Kind;
  leftKey?: Key | null;
  rightKey?: Key | null;
  /** Its texts are cut: the host has more of them. */
  cut?: boolean;
}

/** The schema of the `data` trait (documented in widgets/README.md). */
export interface DiffData {
  left: { title: string };
  right: { title: string };
  language?: 'mlir' | 'python' | 'llvm' | 'asm' | 'text';
  lines: Line[];
  /** When only some rows are sent: all rows, the first one sent, and the kind of every row. */
  count?: number;
  start?: number;
  kinds?: Numbers;
}

export interface Hunk {
  from: number;
  to: number;
}

export const PAGE = 2000;

export class Rows {
  readonly count: number;
  readonly kind: Uint8Array;
  readonly hunks: Hunk[] = [];
  /** Line numbers (from 1) of each row on both sides; 0 where the side has no line. */
  readonly leftNumber: Int32Array;
  readonly rightNumber: Int32Array;
  readonly totals = { changed: 0, added: 0, removed: 0 };
  private readonly pages = new Map<number, Line[]>();
  private readonly byKey = new Map<Key, number>();
  private readonly requested = new Set<number>();

  constructor(readonly data: DiffData) {
    this.count = data.count ?? data.lines.length;
    this.kind = data.kinds
      ? Uint8Array.from(data.kinds)
      : Uint8Array.from(data.lines, (line) => KINDS.indexOf(line.kind));
    if (this.kind.length !== this.count) {
      throw new Error(`kinds has ${this.kind.length} entries for ${this.count} rows`);
    }
    this.leftNumber = new Int32Array(this.count);
    this.rightNumber = new Int32Array(this.count);
    let [left, right] = [0, 0];
    for (let row = 0; row < this.count; row++) {
      const kind = KINDS[this.kind[row]!]!;
      if (kind !== 'added') this.leftNumber[row] = ++left;
      if (kind !== 'removed') this.rightNumber[row] = ++right;
      if (kind === 'equal') continue;
      this.totals[kind]++;
      const last = this.hunks[this.hunks.length - 1];
      if (last && last.to === row) last.to = row + 1;
      else this.hunks.push({ from: row, to: row + 1 });
    }
    this.store(data.start ?? 0, data.lines);
  }

  line(row: number): Line | undefined {
    return this.pages.get(Math.floor(row / PAGE))?.[row % PAGE];
  }

  rowOf(key: Key): number | undefined {
    return this.byKey.get(key);
  }

  store(start: number, lines: Line[]): void {
    lines.forEach((line, i) => {
      const row = start + i;
      const at = Math.floor(row / PAGE);
      let page = this.pages.get(at);
      if (!page) this.pages.set(at, (page = []));
      page[row % PAGE] = line;
      for (const key of [line.rightKey, line.leftKey]) {
        if (key !== null && key !== undefined && !this.byKey.has(key)) this.byKey.set(key, row);
      }
    });
  }

  /** The pages of rows [first, last) that were not requested yet; marks them as requested. */
  missing(first: number, last: number): [number, number][] {
    const ranges: [number, number][] = [];
    for (let page = Math.floor(first / PAGE); page * PAGE < last; page++) {
      const end = Math.min(this.count, (page + 1) * PAGE);
      const from = Math.max(first, page * PAGE);
      if (this.requested.has(page) || this.line(from) !== undefined) continue;
      this.requested.add(page);
      ranges.push([page * PAGE, end]);
    }
    return ranges;
  }
}

/** One line of the display: a row (both sides or one) or a fold of equal rows. */
export interface Entry {
  row: number;
  side: 'both' | 'left' | 'right';
  /** For a fold: rows [row, until) are hidden. */
  until?: number;
}

export interface Mode {
  unified: boolean;
  whole: boolean;
  /** Folds opened by hand, by first row. */
  opened: ReadonlySet<number>;
  /** Show only the lines of this op; null: none is selected, undefined: all lines. */
  op?: Key | null;
}

const CONTEXT = 3;

/** The available lines of one op. */
function entriesOfOp(rows: Rows, op: Key | null, unified: boolean): Entry[] {
  const entries: Entry[] = [];
  for (let row = 0; row < rows.count; row++) {
    const line = rows.line(row);
    if (op === null || !line || (line.leftKey !== op && line.rightKey !== op)) continue;
    const changed = KINDS[rows.kind[row]!] !== 'equal';
    if (!unified || !changed) entries.push({ row, side: 'both' });
    else {
      if (KINDS[rows.kind[row]!] !== 'added') entries.push({ row, side: 'left' });
      if (KINDS[rows.kind[row]!] !== 'removed') entries.push({ row, side: 'right' });
    }
  }
  return entries;
}

export function display(rows: Rows, mode: Mode): Entry[] {
  if (mode.op !== undefined) return entriesOfOp(rows, mode.op, mode.unified);
  const entries: Entry[] = [];
  const equal = (from: number, to: number) => {
    for (let row = from; row < to; row++) entries.push({ row, side: 'both' });
  };
  const between = (from: number, to: number, first: boolean, last: boolean) => {
    const start = first ? from : Math.min(to, from + CONTEXT);
    const end = last ? to : Math.max(start, to - CONTEXT);
    if (mode.whole || end - start < 4 || mode.opened.has(start)) {
      equal(from, to);
      return;
    }
    equal(from, start);
    entries.push({ row: start, side: 'both', until: end });
    equal(end, to);
  };
  let at = 0;
  rows.hunks.forEach((hunk, i) => {
    between(at, hunk.from, i === 0, false);
    if (mode.unified) {
      for (let row = hunk.from; row < hunk.to; row++) {
        if (KINDS[rows.kind[row]!] !== 'added') entries.push({ row, side: 'left' });
      }
      for (let row = hunk.from; row < hunk.to; row++) {
        if (KINDS[rows.kind[row]!] !== 'removed') entries.push({ row, side: 'right' });
      }
    } else equal(hunk.from, hunk.to);
    at = hunk.to;
  });
  between(at, rows.count, rows.hunks.length === 0, true);
  return entries;
}
