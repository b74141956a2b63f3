/** The texts of a diff to copy or save: a hunk, a whole text. */

import type { Ties } from '../shared/host';
import { type Hunk, KINDS, type Line, PAGE, type Rows } from './model';

export type Text = 'patch' | 'after' | 'before';

/** The lines of hunks with their signs. */
export async function patch(link: Pick<Ties, 'ask'>, rows: Rows, hunks: readonly Hunk[]): Promise<string> {
  const more = await wholeLines(link, rows, hunks);
  return hunks.map((hunk) => signed(rows, hunk, (row) => more.get(row) ?? rows.line(row))).join('\n');
}

/** Fetches the lines of hunks that the view lacks or has cut. */
async function wholeLines(
  link: Pick<Ties, 'ask'>,
  rows: Rows,
  hunks: readonly Hunk[],
): Promise<Map<number, Line>> {
  const wanted = new Map<number, Hunk>(); // by page
  for (const { from, to } of hunks) {
    for (let row = from; row < to; row++) {
      const line = rows.line(row);
      const page = Math.floor(row / PAGE);
      if (!line || line.cut) wanted.set(page, { from: wanted.get(page)?.from ?? row, to: row + 1 });
    }
  }
  const found = new Map<number, Line>();
  for (const { from, to } of wanted.values()) {
    const body = { from, to, whole: true };
    const part = await link.ask<{ start: number; lines: Line[] }>('lines', body);
    part.lines.forEach((line, i) => found.set(part.start + i, line));
  }
  return found;
}

function signed(rows: Rows, { from, to }: Hunk, lineOf: (row: number) => Line | undefined): string {
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
export async function wholeText(link: Pick<Ties, 'ask'>, what: Text): Promise<{ file: string; text: string }> {
  const lines: string[] = [];
  let file = '';
  for (let next: number | null = 0; next !== null; ) {
    const part: { file: string; lines: string[]; next: number | null } = await link.ask('text', {
      what,
      from: next,
    });
    lines.push(...part.lines);
    ({ file, next } = part);
  }
  return { file, text: `${lines.join('\n')}\n` };
}
