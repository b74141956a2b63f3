/** An execution of each of two recordings, one above the other, on one time axis. */

import { button, h, replace } from '../shared/dom';
import { csvText, downloadMenu, saveText } from '../shared/download';
import { legend } from '../shared/figures';
import { quantity } from '../shared/format';
import type { Selection, Ties } from '../shared/host';
import type { Palette } from '../shared/theme';
import { LETTER_STYLE } from '../shared/two';
import { announce, type Frame, type View } from '../shared/view';
import type { Numbers } from '../shared/wire';
import { categoryColour } from './draw';
import { kernelOf, type TimelineData } from './model';
import { type Half, type Marked, TimelineView } from './tracks';

/** The schema of `two` (widgets/README.md). */
export interface TwoTimelines {
  a: TimelineData;
  b: TimelineData;
  names: [string, string];
  /** Launches (places in the columns) that compute the same; one may be in several rows. */
  first: Numbers;
  second: Numbers;
  guessed: Numbers;
}

export const TWO_STYLE = `
${LETTER_STYLE}
.cw-timeline .tracks { display: flex; flex-direction: column; flex: 1; min-height: 0; position: relative; }
.cw-timeline .tracks + .tracks { border-top: 2px solid var(--line); }
.cw-timeline .tracks .figures { align-items: center; flex-wrap: nowrap; overflow: hidden; white-space: nowrap; }
`;

export class TwoTimelinesView implements View<TwoTimelines> {
  private data_!: TwoTimelines;
  private palette: Palette | null = null;
  private readonly halves: [Half, Half];
  private readonly tracks: [TimelineView, TimelineView];
  private timer = 0;
  private readonly legend = h('span', { class: 'figure wide' });
  private readonly about = h('span', { class: 'figure', role: 'status' });

  constructor(private readonly frame: Frame) {
    const half = (letter: string, side: 0 | 1): Half => ({
      letter,
      name: '',
      own: 0,
      moved: (from, to) => this.moved(side, from, to),
      selected: (launch) => this.choose(side, launch),
    });
    this.halves = [half('A', 0), half('B', 1)];
    const roots = [h('div', { class: 'tracks', 'data-side': 'a' }), h('div', { class: 'tracks', 'data-side': 'b' })] as const;
    const ties: Ties = {
      ask: (kind, body) => frame.link.ask(kind, body),
      onDispose: (cleanup) => frame.link.onDispose(cleanup),
      dict: (name) => frame.link.dict(name),
      write: (name, value) => {
        if (name === 'command') frame.link.write(name, value);
      },
    };
    this.tracks = [new TimelineView({ root: roots[0], link: ties }, this.halves[0]), new TimelineView({ root: roots[1], link: ties }, this.halves[1])];
    const save = (side: 0 | 1) => saveText(`timeline-${'ab'[side]}.svg`, this.tracks[side].svg(), 'image/svg+xml');
    frame.root.append(
      h(
        'div',
        { class: 'bar', role: 'toolbar', 'aria-label': 'Timelines of both recordings' },
        button('fit', 'Both executions whole  (f)', () => this.tracks[0].fit()),
        this.about,
        this.legend,
        h('span', { class: 'gap' }),
        downloadMenu(() => [
          ['Spans of both, CSV', () => saveText('timeline-of-two.csv', this.csv(), 'text/csv')],
          ['What the window shows of A, SVG', () => save(0)],
          ['What the window shows of B, SVG', () => save(1)],
        ]),
      ),
      ...roots,
    );
    Object.assign(frame.root, { workbench: { csv: () => this.csv(), svg: (side: 0 | 1) => this.tracks[side].svg() } });
  }

  private side(side: 0 | 1): TimelineData {
    return side === 0 ? this.data_.a : this.data_.b;
  }

  data(data: TwoTimelines, first: boolean): void {
    this.data_ = data;
    const total = Math.max(data.a.total, data.b.total);
    ([0, 1] as const).forEach((side) => {
      const half = this.halves[side];
      [half.name, half.own] = [data.names[side], this.side(side).total];
      this.tracks[side].data({ ...this.side(side), total }, first);
    });
    const [a, b] = [data.a.total, data.b.total];
    const ratio = a && b ? (b > a ? `B takes ${(b / a).toFixed(2)} times as long` : b < a ? `A takes ${(a / b).toFixed(2)} times as long` : 'both take as long') : '';
    replace(this.about, `${quantity(a, 'us')} | ${quantity(b, 'us')}${ratio ? `: ${ratio}` : ''}`);
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
  }

  // -------------------------------------------------------------- one window

  private moved(side: 0 | 1, from: number, to: number): void {
    this.tracks[1 - side]!.follow(from, to);
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      const whole = from <= 0 && to >= Math.max(this.data_.a.total, this.data_.b.total);
      const short = (time: number) => Number(time.toPrecision(7));
      this.frame.link.write('state', whole ? {} : { from: short(from), to: short(to) });
    }, 400);
  }

  // -------------------------------------------------------------- one selection

  /** What a launch of one side is on the other. */
  private partners(side: 0 | 1, launch: number): number[] {
    const [mine, theirs] = side === 0 ? [this.data_.first, this.data_.second] : [this.data_.second, this.data_.first];
    const found: number[] = [];
    for (let i = 0; i < mine.length; i++) if (mine[i] === launch) found.push(theirs[i]!);
    return found;
  }

  selected(selection: Marked): void {
    const mine = selection.launches;
    this.tracks[0].selected(selection);
    this.tracks[1].selected({ launches: (mine ?? []).flatMap((launch) => this.partners(0, launch)) });
  }

  private choose(side: 0 | 1, launch: number): void {
    const there = launch < 0 ? [] : this.partners(side, launch);
    const marked = (at: 0 | 1) => ({ launches: launch < 0 ? [] : at === side ? [launch] : there });
    ([0, 1] as const).forEach((at) => this.tracks[at].selected(marked(at)));
    const { link } = this.frame;
    const next: Selection & { launches?: number[] } = { ...link.dict<Selection>('selection') };
    for (const name of ['launches', 'op', 'kernel', 'buffer', 'scope'] as const) delete next[name];
    const own = side === 0 ? launch : (there[0] ?? -1);
    const op = own < 0 ? -1 : this.data_.a.launches.op[own]!;
    if (op >= 0) next.op = op;
    if (launch >= 0) announce(this.frame.root, `${kernelOf(this.side(side), launch)}${side === 1 && own < 0 ? ', only in B' : ''}`);
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
