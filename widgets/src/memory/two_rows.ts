/** The rows of the side panel of two maps: A | B | B − A, for buffers, passes, planners and recomputation. */

import { h } from '../shared/dom';
import { csvText } from '../shared/download';
import { basename, bytes, count, signed } from '../shared/format';
import {
  passesDescription,
  plannersDescription,
  extraWork,
  gapPercent,
  recomputedLaunches,
  peakChange,
  OFFERED,
  type OfferRow,
  OUT_OF_REACH,
  type PassRow,
  passCount,
  type PlannerRow,
  provedBound,
  tone,
} from './answers';
import type { BufferPair, Matched, SideIndex } from './matched';
import { aliveAtPeak, savedForBackward, type TierPlan } from './model';

/** The host's answers about both (widgets/README.md). */
export interface BothSides<T> {
  a: T[];
  b: T[];
}
export interface PassesOfBoth extends BothSides<PassRow> {
  stages: { name: string; a: number | null; b: number | null }[];
}

type Pair<T> = readonly [T, T];

interface Cell {
  text: string;
  minor?: string;
  tone?: string;
  hint?: string;
}

export interface Row {
  /** Attributes for finding it. */
  marks: Record<string, string>;
  name: string;
  minor: string;
  hint: string;
  guessed?: boolean;
  cells: Pair<Cell>;
  /** B − A (bytes); NaN if a side has no value. */
  difference: number;
  /** The buffer numbers that it selects; -1 if a side has none. */
  buffers?: Pair<number>;
  /** The stage of A that it opens. */
  stage?: number;
}

/** A tab's list, which can have lines of text between the rows. */
export interface Listing {
  /** The head of the first column, and the label of the list. */
  head: string;
  label: string;
  description: (Node | string)[];
  lines: (Row | Node)[];
  csv(): string;
  file: string;
}

/** Rows beyond this many are counted, not listed. */
const MAX_ROWS = 400;

const SIDES = [0, 1] as const;
const letter = (side: SideIndex): string => 'AB'[side]!;
const pair = <T>(make: (side: SideIndex) => T): Pair<T> => [make(0), make(1)];
const difference = ([a, b]: Pair<number | undefined>): number => (a === undefined || b === undefined ? NaN : b - a);
const csvCell = (value: number): number | '' => (Number.isNaN(value) ? '' : value);

// -------------------------------------------------------------- buffers

/** A sentence about two sums of bytes; `what` formats them. */
function compared(what: (a: string, b: string) => string, [a, b]: Pair<number>): (Node | string)[] {
  const change = b - a;
  const percent = a ? ` (${signed((100 * change) / a, (size) => `${size.toFixed(1)} %`)})` : '';
  return [
    h('b', {}, what(bytes(a), bytes(b))),
    change === 0 ? ': the same.' : `: ${bytes(Math.abs(change))} ${change > 0 ? 'more' : 'less'} in B${percent}.`,
  ];
}

const listedNote = (pairs: readonly BufferPair[]): string =>
  pairs.length > MAX_ROWS ? `; ${count(MAX_ROWS)} of ${count(pairs.length)}` : '';

/** The buffers alive at either peak. */
export function peaks(matched: Matched, plans: Pair<TierPlan>): Listing {
  const pairs = matched.pairs(...pair((side) => aliveAtPeak(matched.side(side), plans[side])));
  const sums = pair((side) => plans[side].peak);
  return {
    head: 'buffer',
    label: 'Buffers alive at the two peaks',
    description: [...compared((a, b) => `Peak ${a} in A, ${b} in B`, sums), ` Alive at the peaks, largest difference first${listedNote(pairs)}.`],
    lines: pairs.slice(0, MAX_ROWS).map((bufferPair) => bufferRow(matched, bufferPair, 'is not alive at the peak')),
    csv: () => buffersCsv(matched, pairs),
    file: 'memory-of-two.csv',
  };
}

/** The buffers that two training steps save for their backward passes; `offers`: null without a host. */
export function backward(matched: Matched, plans: Pair<TierPlan>, offers: BothSides<OfferRow> | null): Listing {
  const saved = pair((side) => savedForBackward(matched.side(side), plans[side], matched.side(side).border!));
  const pairs = matched.pairs(...saved);
  const sums = pair((side) => saved[side].reduce((sum, b) => sum + matched.size(side, b), 0));
  const buffers = pairs.slice(0, MAX_ROWS).map((bufferPair) => bufferRow(matched, bufferPair, 'is not saved'));
  const recomputation = offers ? offerRows(offers) : [];
  const [offersHeading, buffersHeading] = [
    h('span', { title: OFFERED }, 'Kept or recomputed: the most bytes held at any time. Percentages: extra work.'),
    `Saved buffers, largest difference first${listedNote(pairs)}:`,
  ];
  return {
    head: 'saved',
    label: 'Buffers saved for the backward passes',
    description: [...compared((a, b) => `${a} saved in A, ${b} in B`, sums), ' For the backward pass: written before the loss, read after it.'],
    lines: recomputation.length ? [offersHeading, ...recomputation, h('span', {}, buffersHeading), ...buffers] : buffers,
    csv: () => buffersCsv(matched, pairs),
    file: 'saved-for-backward-of-two.csv',
  };
}

function bufferRow(matched: Matched, bufferPair: BufferPair, absent: string): Row {
  const [a, b] = bufferPair.buffers;
  const [side, at] = a >= 0 ? ([0, a] as const) : ([1, b] as const);
  const { name: names, what: whats, place: locations, type: types } = matched.side(side).buffers;
  const [name, what, location, type] = [names[at]!, whats?.[at] ?? '', locations?.[at] ?? '', types?.[at] ?? ''];
  const evidence = matched.matchEvidence(bufferPair);
  return {
    marks: { 'data-a': a < 0 ? '' : String(matched.two.a.buffers.key[a]) },
    name: name || what || 'buffer',
    minor: [name ? what : '', location ? basename(location) : ''].filter(Boolean).join(' · ') || type,
    hint: [name, type, what, location, evidence && `${evidence}: ${bufferPair.why}`].filter(Boolean).join('\n'),
    guessed: bufferPair.guessed,
    cells: pair((each) => bufferCell(matched, bufferPair, each, absent)),
    difference: matched.sizeDifference(bufferPair),
    buffers: bufferPair.buffers,
  };
}

function bufferCell(matched: Matched, { buffers }: BufferPair, side: SideIndex, absent: string): Cell {
  if (buffers[side] >= 0) return { text: bytes(matched.size(side, buffers[side])) };
  const other = side === 0 ? 1 : 0;
  const partner = matched.partner(other, buffers[other]);
  if (partner < 0) return { text: 'none', tone: 'faint', hint: `${letter(side)} does not have this buffer` };
  return { text: '–', tone: 'faint', hint: `In ${letter(side)} its size is ${bytes(matched.size(side, partner))}, and ${absent}` };
}

function buffersCsv(matched: Matched, pairs: readonly BufferPair[]): string {
  const rows = pairs.map((bufferPair) => {
    const [a, b] = bufferPair.buffers;
    const [side, at] = a >= 0 ? ([0, a] as const) : ([1, b] as const);
    const { name, what, place } = matched.side(side).buffers;
    const sizes = SIDES.map((each) => (bufferPair.buffers[each] < 0 ? '' : matched.size(each, bufferPair.buffers[each])));
    return [name[at]!, what?.[at], place?.[at], ...sizes, matched.sizeDifference(bufferPair), matched.matchEvidence(bufferPair)];
  });
  return csvText(['buffer', 'computes', 'place', 'a_bytes', 'b_bytes', 'difference_bytes', 'match'], rows);
}

// -------------------------------------------------------------- passes

/** A pass and its data on each side that has it. */
interface AlignedPass {
  name: string;
  stages: Pair<number | null>;
  found: Pair<PassRow | undefined>;
}

/** The peaks after each pass; `all`: including unchanged ones; `toggle` shows or hides these. */
export function passes(answer: PassesOfBoth, all: boolean, toggle: (label: string) => Node): Listing {
  const aligned = answer.stages.map(({ name, a, b }): AlignedPass => {
    const stages = [a, b] as const;
    return { name, stages, found: pair((side) => (side ? answer.b : answer.a).find((row) => row.stage === stages[side])) };
  });
  const visible = all ? aligned : aligned.filter(({ found }, i) => i === 0 || i === aligned.length - 1 || found.some((row) => row?.changed));
  const hidden = aligned.length - visible.length;
  const rows: (Row | Node)[] = visible.map((each) => passRow(answer, each));
  if (hidden || all) rows.push(toggle(all ? 'only changes' : `${passCount(hidden)} did not change either`));
  return {
    head: 'pass',
    label: 'The peak after each pass',
    description: passesDescription(),
    lines: rows,
    csv: () => passesCsv(aligned),
    file: 'peak-by-pass-of-two.csv',
  };
}

function passRow(answer: PassesOfBoth, each: AlignedPass): Row {
  const { name, stages, found } = each;
  const [a, b] = stages.map((stage) => (stage === null ? '' : String(stage).padStart(2, '0')));
  return {
    marks: { 'data-stage': stages[0] === null ? '' : String(stages[0]), 'data-pass': name },
    name,
    minor: a === b ? a! : [a ? `A ${a}` : '', b ? `B ${b}` : ''].filter(Boolean).join(', '),
    hint: `${name}\n${a && b ? `stage ${a} of A, ${b} of B` : `only in ${a ? 'A' : 'B'}`}`,
    cells: pair((side) => passCell(side ? answer.b : answer.a, each, side)),
    difference: difference(pair((side) => found[side]?.bytes)),
    stage: stages[0] ?? undefined,
  };
}

function passCell(rows: readonly PassRow[], { stages, found }: AlignedPass, side: SideIndex): Cell {
  const row = found[side];
  if (stages[side] === null) return { text: 'none', tone: 'faint', hint: `${letter(side)} does not have this pass` };
  if (!row) return { text: '–', tone: 'faint', hint: `Not included for ${letter(side)}: ${OUT_OF_REACH}` };
  const { text, change } = peakChange(rows, row);
  return { text: bytes(row.bytes), minor: text, tone: tone(change), hint: `${count(row.bytes)} B alive at most in ${letter(side)}` };
}

function passesCsv(aligned: readonly AlignedPass[]): string {
  const rows = aligned.map(({ name, stages, found }) => [
    name, ...stages, ...found.map((row) => row?.bytes), csvCell(difference(pair((side) => found[side]?.bytes))),
  ]);
  return csvText(['pass', 'a_stage', 'b_stage', 'a_peak_bytes', 'b_peak_bytes', 'difference_bytes'], rows);
}

// -------------------------------------------------------------- planners

/** The arenas that planners need for the buffers of each recording. */
export function planners(answer: BothSides<PlannerRow>): Listing {
  const sides = pair((side) => new Map((side ? answer.b : answer.a).map((row) => [row.planner, row])));
  const names = [...new Set([...sides[0].keys(), ...sides[1].keys()])];
  const rows = names.map((name) => ({ name, found: pair((side) => sides[side].get(name)) }));
  const bounds = pair((side) => (side ? answer.b : answer.a)[0]?.bound);
  return {
    head: 'planner',
    label: 'The arena that each planner needs',
    description: [...plannersDescription(), ' Percentages: above the bound.'],
    lines: [boundRow(bounds), ...rows.map(({ name, found }) => plannerRow(name, found))],
    csv: () => plannersCsv(rows, bounds),
    file: 'planners-of-two.csv',
  };
}

function boundRow(bounds: Pair<number | undefined>): Row {
  const cell = (bound: number | undefined): Cell => (bound === undefined ? { text: '–', tone: 'faint' } : { text: bytes(bound), hint: `${count(bound)} B` });
  return {
    marks: { 'data-planner': '' },
    name: 'lower bound',
    minor: 'no plan needs less',
    hint: 'The most bytes that are alive at once',
    cells: pair((side) => cell(bounds[side])),
    difference: difference(bounds),
  };
}

function plannerRow(name: string, found: Pair<PlannerRow | undefined>): Row {
  const used = SIDES.filter((side) => found[side]?.used).map(letter);
  return {
    marks: { 'data-planner': name },
    name,
    minor: used.length ? `the plan of ${used.join(' and ')}` : '',
    hint: name,
    cells: pair((side) => plannerCell(found[side], side)),
    difference: difference(pair((side) => found[side]?.bytes)),
  };
}

function plannerCell(row: PlannerRow | undefined, side: SideIndex): Cell {
  if (!row) return { text: '–', tone: 'faint', hint: `Not computed for ${letter(side)}: too many buffers` };
  const gap = gapPercent(row);
  const gapText = gap > 0 ? `${gap.toFixed(1)} % above the lower bound` : 'optimal: at the lower bound';
  return {
    text: bytes(row.bytes),
    minor: gap > 0 ? `+${gap.toFixed(1)} %` : 'optimal',
    tone: gap > 0 ? 'more' : 'less',
    hint: `${gapText}; planned in ${row.ms.toFixed(1)} ms`,
  };
}

function plannersCsv(rows: readonly { name: string; found: Pair<PlannerRow | undefined> }[], bounds: Pair<number | undefined>): string {
  const lines = rows.map(({ name, found }) => [
    name, ...found.map((row) => row?.bytes), csvCell(difference(pair((side) => found[side]?.bytes))), ...bounds, ...found.map((row) => row?.ms),
  ]);
  return csvText(['planner', 'a_arena_bytes', 'b_arena_bytes', 'difference_bytes', 'a_bound_bytes', 'b_bound_bytes', 'a_milliseconds', 'b_milliseconds'], lines);
}

// -------------------------------------------------------------- recomputation

/** The comparable offers of both sides, whose offers differ. */
const OFFERS: readonly [name: string, minor: string, pick: (rows: readonly OfferRow[]) => OfferRow | undefined][] = [
  ['all kept', 'none recomputed', (rows) => rows[0]],
  ['as compiled', 'these programs', (rows) => rows.find((row) => row.chosen)],
  ['least kept', 'most recomputed', (rows) => rows[rows.length - 1]],
];

function offerRows(answer: BothSides<OfferRow>): Row[] {
  if (!answer.a.length && !answer.b.length) return [];
  return OFFERS.map(([name, minor, pick]) => {
    const found = pair((side) => pick(side ? answer.b : answer.a));
    return {
      marks: { 'data-offer': name },
      name,
      minor,
      hint: OFFERED,
      cells: pair((side) => offerCell(found[side], side)),
      difference: difference(pair((side) => found[side]?.held)),
    };
  });
}

function offerCell(row: OfferRow | undefined, side: SideIndex): Cell {
  if (!row) return { text: '–', tone: 'faint', hint: `Not available in ${letter(side)}` };
  const part = `${(100 * row.part).toFixed(0)} % of the bytes held without recomputation`;
  return { text: bytes(row.held), minor: extraWork(row), tone: row.extra > 0 ? 'more' : 'faint', hint: `${recomputedLaunches(row)}: ${part}. ${provedBound(row.bound)}` };
}
