/** The texts of a diff to copy or save: a hunk, a whole text. */

import type { ViewLink } from '../shared/host';
import { type Hunk, KINDS, type Line, PAGE, type Rows } from './model';

export type TextKind = 'patch' | 'after' | 'before';

/** The lines of hunks with their signs. */
export async function patch(link: Pick<ViewLink, 'request'>, rows: Rows, hunks: readonly Hunk[]): Promise<string> {
  const more = await fetchFullLines(link, rows, hunks);
  return hunks.map((hunk) => signedLines(rows, hunk, (row) => more.get(row) ?? rows.line(row))).join('\n');
}

/** Fetches the lines of hunks that the view lacks or has cut. */
async function fetchFullLines(
  link: Pick<ViewLink, 'request'>,
  rows: Rows,
  hunks: readonly Hunk[],
): Promise<Map<number, Line>> {
  const incomplete = new Map<number, Hunk>(); // by page
  for (const { from, to } of hunks) {
    for (let row = from; row < to; row++) {
      const line = rows.line(row);
      const page = Math.floor(row / PAGE);
      if (!line || line.cut) incomplete.set(page, { from: incomplete.get(page)?.from ?? row, to: row + 1 });
    }
  }
  const found = new Map<number, Line>();
  for (const { from, to } of incomplete.values()) {
    const body = { from, to, whole: true };
    const part = await link.request<{ start: number; lines: Line[] }>('lines', body);
    part.lines.forEach((line, i) => found.set(part.start + i, line));
  }
  return found;
}

function signedLines(rows: Rows, { from, to }: Hunk, lineOf: (row: number) => Line | undefined): string {
  const [removed, added]: [string[], string[]] = [[], []];
  for (let row = from; row < to; row++) {
    const line = lineOf(row);
    const kind = KINDS[rows.kind[row]!];
    if (kind !== 'added') removed.push(`-${line?.left ?? ''}`);
    if (kind !== 'removed') added.push(`+${line?.right ?? ''}`);
  }
  return [...removed, ...added].join('\n');
}

/** Fetches a whole text from the host in parts: the view has only the visible lines, and cuts long ones. */
export async function fetchText(link: Pick<ViewLink, 'request'>, what: TextKind): Promise<{ file: string; text: string }> {
  const lines: string[] = [];
  let file = '';
  for (let next: number | null = 0; next !== null; ) {
    const part: { file: string; lines: string[]; next: number | null } = await link.request('text', {
      what,
      from: next,
    });
    lines.push(...part.lines);
    ({ file, next } = part);
  }
  return { file, text: `${lines.join('\n')}\n` };
}
