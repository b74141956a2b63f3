/** A table of the time differences between launches of B and those of A with the same computation, largest first. */

import { h, replace } from '../shared/dom';
import { csvText } from '../shared/download';
import { basename, count, quantity, signed, significant } from '../shared/format';
import type { Numbers } from '../shared/wire';
import { kernelOf, type TimelineData } from './model';

const SIGNS = ['', '≥ ', '≈ '];

/** The schema of `pairs` (widgets/README.md). */
export interface Pairs {
  title: string[];
  place: string[];
  /** Microseconds by row; NaN: the side has no such launch, or its time is unknown. */
  a: { us: Numbers; sign: Numbers };
  b: { us: Numbers; sign: Numbers };
  guessed: Numbers;
  /** The row of each launch; -1: none. */
  of_a: Numbers;
  of_b: Numbers;
}

/** Launches of A and those of B with the same computation. */
export interface Row {
  at: number;
  launches: [number[], number[]];
  kernels: [string, string];
  us: [number, number];
  /** What precedes each time: "≥ " or "≈ " if it was predicted. */
  sign: [string, string];
  /** B − A; a side without the launches counts as 0. */
  difference: number;
  /** In percent of the time of A; NaN without one. */
  percent: number;
  guessed: boolean;
  title: string;
  location: string;
}

export const DIFFERENCES_STYLE = `
.cw-timeline .differences { flex: 0 1 30%; min-height: 76px; display: flex; flex-direction: column; border-top: 2px solid var(--line); background: var(--surface); }
.cw-timeline .differences header { padding: 4px 10px; color: var(--muted); flex: none; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; border-bottom: 1px solid var(--line); }
.cw-timeline .differences header b { color: var(--text); font-weight: 600; }
.cw-timeline .differences .list { overflow: auto; flex: 1; min-height: 0; outline: none; } .cw-timeline .differences .list:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.cw-timeline .differences table { border-collapse: separate; border-spacing: 0; width: 100%; table-layout: fixed; font-variant-numeric: tabular-nums; }
.cw-timeline .differences th { position: sticky; top: 0; z-index: 1; background: var(--raised); border-bottom: 1px solid var(--line); padding: 0; text-align: right; width: 96px; font-weight: 600; }
.cw-timeline .differences th button { all: unset; box-sizing: border-box; width: 100%; padding: 2px 10px; cursor: pointer; font-weight: 600; white-space: nowrap; } .cw-timeline .differences th button:hover { color: var(--accent); }
.cw-timeline .differences th button:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; } .cw-timeline .differences th small { color: var(--faint); font-weight: 400; font-size: inherit; }
.cw-timeline .differences td { text-align: right; padding: 2px 10px; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; border-bottom: 1px solid color-mix(in srgb, var(--line) 45%, transparent); }
.cw-timeline .differences th.text, .cw-timeline .differences td.text { text-align: left; width: auto; }
.cw-timeline .differences tbody tr { cursor: pointer; } .cw-timeline .differences tbody tr:hover { background: var(--raised); } .cw-timeline .differences tbody tr.on { background: var(--accentSoft); }
.cw-timeline .differences .more { color: var(--removed); } .cw-timeline .differences .less { color: var(--added); } .cw-timeline .differences .faint { color: var(--faint); } .cw-timeline .differences .said { font-style: italic; }
.cw-timeline.shows-two.low { display: grid; grid-template: auto minmax(0, 1fr) minmax(0, 1fr) / minmax(0, 1fr) auto; }
.low > .bar { grid-column: 1 / -1; } .low > .tracks { grid-column: 1; min-width: 0; } .low > .differences { grid-column: 2; grid-row: 2 / span 2; width: 440px; min-height: 0; border-top: none; border-left: 1px solid var(--line); }
.low > .differences .wide { display: none; } .cw-timeline.low > .differences th:not(.text) { width: 76px; } .cw-timeline.low > .differences td, .cw-timeline.low > .differences th button { padding-left: 6px; padding-right: 6px; }
@container view (max-width: 700px) { .cw-timeline .differences .wide { display: none; } .cw-timeline .differences th { width: 78px; } }
`;

/** Rows beyond this many are counted, not listed. */
const MAX_ROWS = 400;

const percents = (value: number) => `${significant(value, 3)} %`;
const micros = (value: number) => significant(value, 3);

/** The rows of both timelines. */
export function rowsOf(pairs: Pairs, sides: readonly [TimelineData, TimelineData]): Row[] {
  const rows: Row[] = pairs.title.map((title, at) => {
    const us: [number, number] = [pairs.a.us[at]!, pairs.b.us[at]!];
    return {
      at,
      launches: [[], []],
      kernels: ['', ''],
      us,
      sign: [SIGNS[pairs.a.sign[at]], SIGNS[pairs.b.sign[at]]],
      difference: NaN,
      percent: NaN,
      guessed: Boolean(pairs.guessed[at]),
      title,
      location: pairs.place[at]!,
    };
  });
  [pairs.of_a, pairs.of_b].forEach((rowOfLaunch, side) => {
    for (let n = 0; n < rowOfLaunch.length; n++) if (rowOfLaunch[n]! >= 0) rows[rowOfLaunch[n]!]!.launches[side]!.push(n);
  });
  for (const row of rows) {
    row.launches.forEach((launches, side) => {
      row.kernels[side] = [...new Set(launches.map((n) => kernelOf(sides[side]!, n)))].join(', ');
    });
    // A side without launches takes 0; an unknown time stays unknown.
    const [a, b] = row.us.map((us, side) => (Number.isNaN(us) && row.launches[side]!.length === 0 ? 0 : us)) as [number, number];
    row.difference = b - a;
    row.percent = a > 0 && row.launches[1].length ? (100 * row.difference) / a : NaN;
  }
  return rows;
}

/** The additional facts of a launch. */
export function rowFacts(row: Row): [string, string][] {
  const times = ([0, 1] as const).map((side) => {
    const n = row.launches[side].length;
    if (n === 0) return 'none';
    return `${row.sign[side]}${quantity(row.us[side], 'us')}${n > 1 ? ` in ${count(n)} launches` : ''}`;
  });
  const onlyIn = row.launches[0].length === 0 ? 'only in B' : row.launches[1].length === 0 ? 'only in A' : '';
  const rows: [string, string][] = [['A | B', times.join(' | ')]];
  const relative = Number.isNaN(row.percent) ? '' : ` (${signed(row.percent, percents)})`;
  rows.push(['B − A', onlyIn || `${signed(row.difference, (us) => quantity(us, 'us'))}${row.difference === 0 ? '' : relative}`]);
  if (!onlyIn) rows.push(['matched', row.guessed ? 'guessed: by flops, bytes and order' : 'recorded: same nodes of the framework']);
  return rows;
}

interface Column {
  name: string;
  title: string;
  unit: string;
  hint: string;
  kind?: string;
  value(row: Row): number | string;
}

const COLUMNS: Column[] = [
  { name: 'launch', title: 'launch', unit: '', hint: 'The kernel in A → the one in B with the same computation; ≈ the match is guessed, by flops, bytes and order', kind: 'text', value: (row) => row.kernels[0] || row.kernels[1] },
  { name: 'computes', title: 'computes', unit: '', hint: 'The framework nodes, and the line of the model', kind: 'text wide', value: (row) => row.title },
  { name: 'a', title: 'A', unit: 'µs', hint: 'Median time of these launches in A; ≥ not measured: the minimum that the machine allows', value: (row) => row.us[0] },
  { name: 'b', title: 'B', unit: 'µs', hint: 'Median time of these launches in B; ≥ not measured: the minimum that the machine allows', value: (row) => row.us[1] },
  { name: 'by', title: 'B − A', unit: 'µs', hint: 'How much longer they take in B; launches of only one recording count fully', value: (row) => row.difference },
  { name: 'percent', title: 'B − A', unit: '%', hint: 'The difference relative to the time in A', value: (row) => row.percent },
];

export class Differences {
  readonly root: HTMLElement;
  private rows: Row[] = [];
  private shownRows: Row[] = [];
  private order: [string, 1 | -1] = ['by', -1];
  private selectedIndex = -1;
  private readonly summary = h('header', {});
  private readonly heads = h('tr');
  private readonly body = h('tbody');
  private readonly list = h('div', { class: 'list', tabindex: 0, role: 'region', 'aria-label': 'Launches by how much longer they take in B: up and down select, Enter shows the code' });

  constructor(
    private readonly choose: (row: Row) => void,
    private readonly enter: () => void,
  ) {
    this.list.append(h('table', {}, h('thead', {}, this.heads), this.body));
    this.root = h('section', { class: 'differences', 'aria-label': 'Differences' }, this.summary, this.list);
    this.list.addEventListener('keydown', (event) => this.key(event));
  }

  data(rows: Row[]): void {
    this.rows = rows;
    this.showSummary();
    this.fill();
  }

  /** The selected row; -1: none. */
  mark(at: number): void {
    this.selectedIndex = at;
    this.shownRows.slice(0, MAX_ROWS).forEach((row, i) => {
      const node = this.body.children[i]!;
      node.classList.toggle('on', row.at === at);
      node.setAttribute('aria-selected', String(row.at === at));
      if (row.at === at) node.scrollIntoView({ block: 'nearest' });
    });
  }

  private showSummary(): void {
    const { rows } = this;
    const onlyIn = ([0, 1] as const).map((side) => rows.filter((row) => row.launches[1 - side]!.length === 0).length);
    const sums = ([0, 1] as const).map((side) => rows.reduce((sum, row) => sum + (Number.isNaN(row.us[side]) ? 0 : row.us[side]), 0)) as [number, number];
    const difference = sums[1] - sums[0];
    replace(
      this.summary,
      h('b', {}, 'B − A'),
      ` ${signed(difference, (us) => quantity(us, 'us'))}${difference && sums[0] ? ` (${signed((100 * difference) / sums[0], percents)})` : ''} over all launches, by their medians; `,
      `${count(rows.length - onlyIn[0]! - onlyIn[1]!)} matched${onlyIn[0] ? `, ${count(onlyIn[0])} only in A` : ''}${onlyIn[1] ? `, ${count(onlyIn[1])} only in B` : ''}`,
      rows.length > MAX_ROWS ? `; ${count(MAX_ROWS)} of ${count(rows.length)} listed` : '',
    );
    this.summary.title = 'Medians of the launches, as in Compare; the tracks above show one execution';
  }

  private sorted(): Row[] {
    const [name, sign] = this.order;
    const { value } = COLUMNS.find((column) => column.name === name)!;
    const rank = (row: Row) => {
      const found = value(row);
      if (typeof found === 'string') return found;
      return Number.isNaN(found) ? -Infinity : name === 'by' || name === 'percent' ? Math.abs(found) : found;
    };
    return [...this.rows].sort((p, q) => {
      const [x, y] = [rank(p), rank(q)];
      return x < y ? -sign : x > y ? sign : p.at - q.at;
    });
  }

  private fill(): void {
    this.shownRows = this.sorted();
    const focused = (this.root.getRootNode() as Document | ShadowRoot).activeElement?.getAttribute('data-sort');
    replace(this.heads, ...COLUMNS.map((column) => this.head(column)));
    if (focused) this.heads.querySelector<HTMLElement>(`[data-sort="${focused}"]`)?.focus();
    replace(this.body, ...this.shownRows.slice(0, MAX_ROWS).map((row) => this.row(row)));
    this.mark(this.selectedIndex);
  }

  private head({ name, title, unit, hint, kind = '' }: Column): HTMLElement {
    const [sortedBy, sign] = this.order;
    const sort = () => {
      this.order = [name, sortedBy === name ? (-sign as 1 | -1) : kind ? 1 : -1];
      this.fill();
    };
    const label = [title, ...(unit ? [h('small', {}, ` ${unit}`)] : []), sortedBy === name ? (sign > 0 ? ' ▴' : ' ▾') : ''];
    const state = sortedBy !== name ? 'none' : sign > 0 ? 'ascending' : 'descending';
    return h('th', { class: kind, scope: 'col', 'aria-sort': state, title: hint }, h('button', { type: 'button', 'data-sort': name, click: sort }, ...label));
  }

  private row(row: Row): HTMLElement {
    const [a, b] = row.kernels;
    const onlyIn = !a ? 'only in B' : !b ? 'only in A' : '';
    const match = onlyIn || (row.guessed ? 'guessed: by flops, bytes and order' : 'recorded: same nodes of the framework');
    const name = onlyIn || a === b ? a || b : `${a} → ${b}`;
    const time = (side: 0 | 1) => {
      const us = row.us[side];
      if (Number.isNaN(us)) return h('td', { class: 'faint', title: row.launches[side].length ? 'Not measured' : `${'AB'[side]} does not have this launch` }, '–');
      return h('td', { class: row.sign[side] ? 'said' : '' }, `${row.sign[side]}${micros(us)}`);
    };
    const tone = row.difference > 0 ? 'more' : row.difference < 0 ? 'less' : 'faint';
    const location = row.location ? basename(row.location) : '';
    return h(
      'tr',
      { 'data-row': row.at, 'aria-selected': 'false', click: () => this.choose(row) },
      h('td', { class: `text${row.guessed ? ' said' : ''}`, title: [name, match, row.location].filter(Boolean).join('\n') }, `${row.guessed ? '≈ ' : ''}${name}`, onlyIn ? h('span', { class: 'faint' }, `  ${onlyIn}`) : null),
      h('td', { class: 'text wide', title: [row.title, row.location].filter(Boolean).join('\n') }, row.title, location ? h('span', { class: 'faint' }, `  ${location}`) : null),
      time(0),
      time(1),
      h('td', { class: tone }, signed(row.difference, micros)),
      h('td', { class: Number.isNaN(row.percent) ? 'faint' : tone }, signed(row.percent, (value) => significant(value, 3))),
    );
  }

  csv(): string {
    const cell = (value: number) => (Number.isNaN(value) ? '' : value);
    return csvText(
      ['kernel_a', 'kernel_b', 'computes', 'place', 'launches_a', 'launches_b', 'a_us', 'b_us', 'difference_us', 'difference_percent', 'match'],
      this.shownRows.map((row) => [
        ...row.kernels, row.title, row.location, row.launches[0].length, row.launches[1].length,
        cell(row.us[0]), cell(row.us[1]), cell(row.difference), cell(row.percent),
        row.launches.some((each) => each.length === 0) ? '' : row.guessed ? 'guessed' : 'recorded',
      ]),
    );
  }

  private key(event: KeyboardEvent): void {
    if (event.composedPath()[0] !== this.list || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.shownRows.findIndex((row) => row.at === this.selectedIndex);
    const last = Math.min(this.shownRows.length, MAX_ROWS) - 1;
    const to = ({ ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: last } as Record<string, number>)[event.key];
    if (event.key === 'Enter' && at >= 0) this.enter();
    else if (to !== undefined && to <= last && this.shownRows[to]) this.choose(this.shownRows[to]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
