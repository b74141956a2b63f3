/** What of a diff is copied or saved: a hunk, a whole text. */

import type { Ties } from '../shared/host';
import { type Hunk, KINDS, type Rows } from './model';

export type Text = 'patch' | 'after' | 'before';

/** The lines of a hunk with their signs. */
export function patch(rows: Rows, { from, to }: Hunk): string {
  const [removed, added]: [string[], string[]] = [[], []];
  for (let row = from; row < to; row++) {
    const line = rows.line(row);
    const kind = KINDS[rows.kind[row]!];
    if (kind !== 'added') removed.push(`-${line?.left ?? ''}`);
    if (kind !== 'removed') added.push(`+${line?.right ?? ''}`);
  }
  return [...removed, ...added].join('\n');
}

/** A whole text comes from the host, in parts: the view has but what is looked at, lines cut. */
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
