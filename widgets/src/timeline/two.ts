/** An execution of each of two recordings, one above the other, on one time axis. */

import { button, h, replace } from '../shared/dom';
import { csvText, downloadMenu, saveText } from '../shared/download';
import { legend } from '../shared/figures';
import { quantity } from '../shared/format';
import type { Selection, ViewLink } from '../shared/host';
import type { Palette } from '../shared/theme';
import { LETTER_STYLE } from '../shared/two';
import { announce, type Frame, type View } from '../shared/view';
import type { Numbers } from '../shared/wire';
import { categoryColour } from './draw';
import { Differences, DIFFERENCES_STYLE, type Pairs, type Row, rowFacts, rowsOf } from './differences';
import { kernelOf, type TimelineData } from './model';
import { type Half, type TimelineSelection, TimelineView } from './tracks';

/** The schema of `two` (widgets/README.md). */
export interface TwoTimelines {
  a: TimelineData;
  b: TimelineData;
  names: [string, string];
  /** Launches (indices into the columns) with the same computation; one can be in several rows. */
  first: Numbers;
  second: Numbers;
  guessed: Numbers;
  pairs: Pairs;
}

export const TWO_STYLE = `
${LETTER_STYLE}${DIFFERENCES_STYLE}
.cw-timeline .tracks { display: flex; flex-direction: column; flex: 1; min-height: 0; position: relative; }
.cw-timeline .tracks + .tracks { border-top: 2px solid var(--line); }
.cw-timeline .tracks .figures { align-items: center; flex-wrap: nowrap; overflow: hidden; white-space: nowrap; } .cw-timeline .tracks .figures > :last-child { overflow: hidden; text-overflow: ellipsis; }
`;

export class TwoTimelinesView implements View<TwoTimelines> {
  private data_!: TwoTimelines;
  private palette: Palette | null = null;
  private readonly halves: [Half, Half];
  private readonly tracks: [TimelineView, TimelineView];
  private timer = 0;
  private rows: Row[] = [];
  /** The selected launch if only B has it, which the host does not know. */
  private onlyB = false;
  private readonly differences = new Differences(
    (row) => this.chooseRow(row),
    () => this.frame.link.write('command', JSON.stringify({ name: 'show', view: 'code', n: Date.now() })),
  );
  private readonly listButton = button('differences', 'The launches by how much longer they take in B', () => this.toggleList());
  private readonly legend = h('span', { class: 'figure wide' });
  private readonly summary = h('span', { class: 'figure', role: 'status' });

  constructor(private readonly frame: Frame) {
    const half = (letter: string, side: 0 | 1): Half => ({
      letter,
      name: '',
      duration: 0,
      moved: (from, to) => this.moved(side, from, to),
      selected: (launch) => this.choose(side, launch),
      launchFacts: (launch) => {
        const row = this.rowOf(side, launch);
        return row ? rowFacts(row) : [];
      },
    });
    this.halves = [half('A', 0), half('B', 1)];
    const roots = [h('div', { class: 'tracks', 'data-side': 'a' }), h('div', { class: 'tracks', 'data-side': 'b' })] as const;
    const tracksLink: ViewLink = {
      request: (kind, body) => frame.link.request(kind, body),
      onDispose: (cleanup) => frame.link.onDispose(cleanup),
      dict: (name) => frame.link.dict(name),
      write: (name, value) => {
        if (name === 'command') frame.link.write(name, value);
      },
    };
    this.tracks = [new TimelineView({ root: roots[0], link: tracksLink }, this.halves[0]), new TimelineView({ root: roots[1], link: tracksLink }, this.halves[1])];
    const save = (side: 0 | 1) => saveText(`timeline-${'ab'[side]}.svg`, this.tracks[side].svg(), 'image/svg+xml');
    frame.root.append(
      h(
        'div',
        { class: 'bar', role: 'toolbar', 'aria-label': 'Timelines of both recordings' },
        button('fit', 'Fit both executions  (f)', () => this.tracks[0].fit()),
        this.summary,
        this.legend,
        h('span', { class: 'gap' }),
        this.listButton,
        downloadMenu(() => [
          ['Differences of the launches, CSV', () => saveText('timeline-differences.csv', this.differences.csv(), 'text/csv')],
          ['Spans of both, CSV', () => saveText('timeline-of-two.csv', this.csv(), 'text/csv')],
          ['What the window shows of A, SVG', () => save(0)],
          ['What the window shows of B, SVG', () => save(1)],
        ]),
      ),
      ...roots,
      this.differences.root,
    );
    // In a low pane, the table is next to the tracks.
    const observer = new ResizeObserver(() => frame.root.classList.toggle('low', frame.root.clientHeight < 460));
    observer.observe(frame.root);
    frame.link.onDispose(() => observer.disconnect());
    Object.assign(frame.root, { workbench: { csv: () => this.csv(), differences: () => this.differences.csv(), svg: (side: 0 | 1) => this.tracks[side].svg() } });
  }

  private side(side: 0 | 1): TimelineData {
    return side === 0 ? this.data_.a : this.data_.b;
  }

  data(data: TwoTimelines, first: boolean): void {
    this.data_ = data;
    const total = Math.max(data.a.total, data.b.total);
    ([0, 1] as const).forEach((side) => {
      const half = this.halves[side];
      [half.name, half.duration] = [data.names[side], this.side(side).total];
      this.tracks[side].data({ ...this.side(side), total }, first);
    });
    const [a, b] = [data.a.total, data.b.total];
    const ratio = a && b ? (b > a ? `B takes ${(b / a).toFixed(2)} times as long` : b < a ? `A takes ${(a / b).toFixed(2)} times as long` : 'both take the same time') : '';
    this.summary.title = 'The two shown executions; the differences are of the medians of all executions';
    replace(this.summary, `${quantity(a, 'us')} | ${quantity(b, 'us')}${ratio ? `: ${ratio}` : ''}`);
    this.rows = rowsOf(data.pairs, [data.a, data.b]);
    this.differences.data(this.rows);
    this.showLegend();
  }

  theme(palette: Palette): void {
    this.palette = palette;
    this.tracks.forEach((each) => each.theme(palette));
    this.showLegend();
  }

  private showLegend(): void {
    if (!this.data_ || !this.palette) return;
    replace(this.legend, ...legend(this.data_.a.categories, (i) => categoryColour(this.palette!, i)));
  }

  state(state: Record<string, unknown>): void {
    if (this.data_) this.tracks[0].state(state);
    this.showList(state.list !== false);
  }

  private showList(visible: boolean): void {
    this.differences.root.hidden = !visible;
    this.listButton.setAttribute('aria-pressed', String(visible));
  }

  private toggleList(): void {
    const visible = Boolean(this.differences.root.hidden);
    this.showList(visible);
    const { list: _, ...rest } = this.frame.link.dict<Record<string, unknown>>('state');
    this.frame.link.write('state', visible ? rest : { ...rest, list: false });
  }

  // -------------------------------------------------------------- one window

  private moved(side: 0 | 1, from: number, to: number): void {
    this.tracks[1 - side]!.syncWindow(from, to);
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      const showsAll = from <= 0 && to >= Math.max(this.data_.a.total, this.data_.b.total);
      const short = (time: number) => Number(time.toPrecision(7));
      const { from: _from, to: _to, ...rest } = this.frame.link.dict<Record<string, unknown>>('state');
      this.frame.link.write('state', showsAll ? rest : { ...rest, from: short(from), to: short(to) });
    }, 400);
  }

  // -------------------------------------------------------------- one selection

  /** The match of a launch on the other side. */
  private partners(side: 0 | 1, launch: number): number[] {
    const [from, to] = side === 0 ? [this.data_.first, this.data_.second] : [this.data_.second, this.data_.first];
    const found: number[] = [];
    for (let i = 0; i < from.length; i++) if (from[i] === launch) found.push(to[i]!);
    return found;
  }

  private rowOf(side: 0 | 1, launch: number): Row | undefined {
    const { pairs } = this.data_;
    return this.rows[(side === 0 ? pairs.of_a : pairs.of_b)[launch] ?? -1];
  }

  selected(selection: TimelineSelection): void {
    const launches = selection.launches ?? [];
    if (this.onlyB && !launches.length && selection.op === undefined && selection.kernel === undefined) return;
    this.onlyB = false;
    this.tracks[0].selected(selection);
    this.tracks[1].selected({ launches: launches.flatMap((launch) => this.partners(0, launch)) });
    this.differences.mark(launches.length ? (this.rowOf(0, launches[0]!)?.at ?? -1) : -1);
  }

  /** Both timelines show the launches of a row, both visible if they fit. */
  private chooseRow(row: Row): void {
    const times = row.launches.map((launches, at) => this.tracks[at]!.timeOf(launches)).filter((time) => time !== null);
    if (times.length) {
      this.tracks[0].reveal({ from: Math.min(...times.map((time) => time.from)), to: Math.max(...times.map((time) => time.to)) });
    }
    const side = row.launches[0].length ? 0 : 1;
    this.mark(row.launches[0], row.launches[1]);
    this.sendSelection(side, row.launches[side][0] ?? -1, row.launches[0][0] ?? -1);
  }

  private choose(side: 0 | 1, launch: number): void {
    const partners = launch < 0 ? [] : this.partners(side, launch);
    const selected = launch < 0 ? [] : [launch];
    this.mark(side === 0 ? selected : partners, side === 0 ? partners : selected);
    this.sendSelection(side, launch, side === 0 ? launch : (partners[0] ?? -1));
  }

  private mark(launchesA: number[], launchesB: number[]): void {
    this.tracks[0].selected({ launches: launchesA });
    this.tracks[1].selected({ launches: launchesB });
    this.onlyB = !launchesA.length && launchesB.length > 0;
    const row = launchesA.length ? this.rowOf(0, launchesA[0]!) : launchesB.length ? this.rowOf(1, launchesB[0]!) : undefined;
    this.differences.mark(row?.at ?? -1);
  }

  /** Sends the selected launch to the page: `launchOfA`: its match in A (-1: none). */
  private sendSelection(side: 0 | 1, launch: number, launchOfA: number): void {
    const { link } = this.frame;
    const next: Selection & { launches?: number[] } = { ...link.dict<Selection>('selection') };
    for (const name of ['launches', 'op', 'kernel', 'buffer', 'scope'] as const) delete next[name];
    const op = launchOfA < 0 ? -1 : this.data_.a.launches.op[launchOfA]!;
    if (op >= 0) next.op = op;
    if (launch >= 0) {
      const row = this.rowOf(side, launch);
      announce(this.frame.root, [kernelOf(this.side(side), launch), ...(row ? rowFacts(row).map(([name, value]) => `${name} ${value}`) : [])].join(', '));
    }
    link.write('selection', next);
  }

  private csv(): string {
    const rows = (['a', 'b'] as const).flatMap((letter) => {
      const { launches, places, spans } = this.data_[letter];
      return Array.from(spans.launch, (n, i) => [letter.toUpperCase(), n, kernelOf(this.data_[letter], n), spans.lane[i]!, spans.start[i]!, spans.duration[i]!, places[launches.place[n]!]]);
    });
    return csvText(['side', 'launch', 'kernel', 'lane', 'start_us', 'duration_us', 'place'], rows);
  }
}
