/** What the host answers of a plan (widgets/README.md), and how it is said. */

import { h } from '../shared/dom';
import { bytes, plural, signed } from '../shared/format';

export interface PassRow {
  stage: number;
  pass: string;
  bytes: number;
  op: number | null;
  changed: boolean;
}

export interface PlannerRow {
  planner: string;
  bytes: number;
  bound: number;
  ms: number;
  used: boolean;
}

/** A choice of launches that are done again for the backward pass; `extra`: part of all work. */
export interface OfferRow {
  held: number;
  part: number;
  extra: number;
  bound: number;
  peak: number;
  again: number;
  chosen: boolean;
}

const MEANING =
  'The most bytes alive at once if the ops of the stage ran one by one, each result in memory of its own ' +
  'from its op through its last use. Views that move nothing have none.';

export const OFFERED =
  'Launches of the forward pass can run a second time instead of being kept (recompute=PART). Held: the most bytes of ' +
  'forward values at any time of the backward pass. Work: predicted, of the whole step.';

export const OUT_OF_REACH = 'so large a model takes too long to read';

export const aboutPasses = (): Node[] => [
  h('span', { title: MEANING }, h('b', {}, 'The peak after each pass'), ', ops one by one; inputs, weights, results not counted'),
];

export const aboutPlanners = (): (Node | string)[] => [
  h('b', {}, 'Other planners'),
  ' on the same buffers of the arena, just now, with little effort; no plan needs less than the bound.',
];

/** The class of what is more, or less, than something else. */
export const tone = (by: number): string => (by > 0 ? 'more' : by < 0 ? 'less' : 'faint');

/** How a pass moved the peak, said in words; `rows`: all of its recording. */
export function moved(rows: readonly PassRow[], row: PassRow): { words: string; by: number } {
  const first = rows[0]!.stage;
  const before = rows[row.stage - first - 1];
  if (!before) return { words: first ? '' : 'imported', by: 0 };
  const by = row.bytes - before.bytes;
  return { words: by === 0 ? 'as before' : signed(by, bytes), by };
}

/** How far above its lower bound an arena is (percent). */
export const gapOf = ({ bytes: arena, bound }: PlannerRow): number => (bound ? 100 * (arena / bound - 1) : 0);

const several = (n: number, noun: string): string => plural(n, noun).replace(`${noun}s`, `${noun}es`);
export const passesLeft = (n: number): string => several(n, 'pass');
export const launchesAgain = ({ again }: OfferRow): string => (again ? `${several(again, 'launch')} again` : 'nothing again');
export const extraWork = ({ extra }: OfferRow): string => `+${(100 * extra).toFixed(1)} %`;
export const proved = (bound: number): string =>
  bound > 0 ? `No choice within the same bytes needs less than +${(100 * bound).toFixed(1)} %.` : '';
