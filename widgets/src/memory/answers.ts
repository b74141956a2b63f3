/** The host's answers about a plan (widgets/README.md), and their texts. */

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

/** A choice of launches to recompute for the backward pass; `extra`: fraction of all work. */
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
  'The most bytes alive at once if the ops of the stage ran one by one, each result in its own memory ' +
  'from its op through its last use. Views, which move no data, have none.';

export const OFFERED =
  'Results of the forward pass can be recomputed instead of kept (recompute=PART). Held: the most bytes of ' +
  'forward values at any time of the backward pass. Work: predicted, of the whole step.';

export const OUT_OF_REACH = 'reading a model of this size takes too long';

export const passesDescription = (): Node[] => [
  h('span', { title: MEANING }, h('b', {}, 'The peak after each pass'), ', ops one by one; inputs, weights, results not counted'),
];

export const plannersDescription = (): (Node | string)[] => [
  h('b', {}, 'Other planners'),
  ' on the same buffers of the arena, run now with little effort; no plan needs less than the bound.',
];

/** The CSS class of a difference. */
export const tone = (difference: number): string => (difference > 0 ? 'more' : difference < 0 ? 'less' : 'faint');

/** The change of the peak by a pass, as text; `rows`: all rows of its recording. */
export function peakChange(rows: readonly PassRow[], row: PassRow): { text: string; change: number } {
  const first = rows[0]!.stage;
  const before = rows[row.stage - first - 1];
  if (!before) return { text: first ? '' : 'imported', change: 0 };
  const change = row.bytes - before.bytes;
  return { text: change === 0 ? 'unchanged' : signed(change, bytes), change };
}

/** The distance of an arena from its lower bound (percent). */
export const gapPercent = ({ bytes: arena, bound }: PlannerRow): number => (bound ? 100 * (arena / bound - 1) : 0);

const pluralEs = (n: number, noun: string): string => plural(n, noun).replace(`${noun}s`, `${noun}es`);
export const passCount = (n: number): string => pluralEs(n, 'pass');
export const recomputedLaunches = ({ again }: OfferRow): string => (again ? `${pluralEs(again, 'launch')} recomputed` : 'none recomputed');
export const extraWork = ({ extra }: OfferRow): string => `+${(100 * extra).toFixed(1)} %`;
export const provedBound = (bound: number): string =>
  bound > 0 ? `No choice within the same bytes needs less than +${(100 * bound).toFixed(1)} %.` : '';
