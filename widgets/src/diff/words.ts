/** The differing words of two lines: longest common subsequence over tokens, bounded in size. */

import type { Marks } from '../shared/highlight';

// A shape is split into its sizes and its element type, so that only the changed ones are marked.
const WORD = /\d+|x(?=[\d?]|[a-z]+\d)|[A-Za-z_$][\w$]*|\s+|[^\w\s]/g;
const MAX_WORDS = 360;

export function wordMarks(left: string, right: string): { left: Marks; right: Marks } {
  const a = left.match(WORD) ?? [];
  const b = right.match(WORD) ?? [];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (
    tail < a.length - head &&
    tail < b.length - head &&
    a[a.length - 1 - tail] === b[b.length - 1 - tail]
  ) {
    tail++;
  }
  const n = a.length - head - tail;
  const m = b.length - head - tail;
  const keepA = new Uint8Array(a.length).fill(1, 0, head).fill(1, a.length - tail);
  const keepB = new Uint8Array(b.length).fill(1, 0, head).fill(1, b.length - tail);
  if (n > 0 && m > 0 && n <= MAX_WORDS && m <= MAX_WORDS) common(a, b, head, n, m, keepA, keepB);
  return { left: ranges(a, keepA), right: ranges(b, keepB) };
}

function common(
  a: string[],
  b: string[],
  head: number,
  n: number,
  m: number,
  keepA: Uint8Array,
  keepB: Uint8Array,
): void {
  const table = new Uint16Array((n + 1) * (m + 1));
  for (let i = n - 1; i >= 0; i--) {
    for (let j = m - 1; j >= 0; j--) {
      table[i * (m + 1) + j] =
        a[head + i] === b[head + j]
          ? table[(i + 1) * (m + 1) + j + 1]! + 1
          : Math.max(table[(i + 1) * (m + 1) + j]!, table[i * (m + 1) + j + 1]!);
    }
  }
  let [i, j] = [0, 0];
  while (i < n && j < m) {
    if (a[head + i] === b[head + j]) {
      keepA[head + i++] = 1;
      keepB[head + j++] = 1;
    } else if (table[(i + 1) * (m + 1) + j]! >= table[i * (m + 1) + j + 1]!) i++;
    else j++;
  }
}

function ranges(tokens: string[], keep: Uint8Array): Marks {
  const marks: Marks = [];
  let at = 0;
  tokens.forEach((token, i) => {
    const end = at + token.length;
    if (!keep[i]) {
      const last = marks[marks.length - 1];
      if (last && last[1] === at) last[1] = end;
      else marks.push([at, end]);
    }
    at = end;
  });
  return marks;
}
