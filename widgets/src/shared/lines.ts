/**
 * A scrolling list that builds only its visible rows.  A row is one line high, or several
 * where its text is wrapped.
 *
 * Its position and size are cached: a browser that is asked for them after rows were built lays out
 * the whole page at once, several times for each step through the passes.
 */

import { h, perFrame } from './dom';

export const ROW = 18;
const OVERSCAN = 12;

export class Lines {
  readonly root: HTMLElement;
  private readonly spacer = h('div', { class: 'spacer' });
  private readonly layer = h('div', { class: 'layer' });
  private count = 0;
  /** Lines before each row and in all; null: each row is one line. */
  private linesBefore: Int32Array | null = null;
  private top = 0;
  private scrollPending = false;
  private size: { width: number; height: number } | null = null;
  private readonly rows = new Map<number, HTMLElement>();

  constructor(
    private readonly makeRow: (index: number) => HTMLElement,
    private readonly onScroll: (first: number, last: number) => void = () => {},
  ) {
    this.root = h('div', { class: 'lines', tabindex: 0 }, this.spacer);
    this.spacer.append(this.layer);
    const scrolled = perFrame(() => this.draw());
    this.root.addEventListener('scroll', () => {
      this.top = this.root.scrollTop;
      scrolled();
    });
    new ResizeObserver(() => {
      this.size = null;
      this.draw();
    }).observe(this.root);
  }

  get width(): number {
    return this.measured().width;
  }

  private measured(): { width: number; height: number } {
    if (this.size) return this.size;
    const size = { width: this.root.clientWidth, height: this.root.clientHeight };
    if (size.height > 0) {
      this.size = size;
      this.top = this.root.scrollTop;
    }
    return size;
  }

  /** Shows `count` rows, all rebuilt; `lineCount`: the number of lines of each (default: one). */
  reset(count: number, lineCount: ((index: number) => number) | null = null): void {
    this.count = count;
    this.linesBefore = null;
    if (lineCount) {
      this.linesBefore = new Int32Array(count + 1);
      for (let i = 0; i < count; i++) this.linesBefore[i + 1] = this.linesBefore[i]! + lineCount(i);
    }
    const maxTop = Math.max(0, this.rowTop(count) - this.measured().height);
    this.spacer.style.height = `${this.rowTop(count)}px`;
    if (this.top > maxTop) this.scrollTo(maxTop);
    this.refresh();
  }

  /** Rebuilds the visible rows in place. */
  refresh(): void {
    this.rows.clear();
    this.layer.replaceChildren();
    this.draw();
  }

  /** The start of a row, in pixels from the top. */
  private rowTop(index: number): number {
    return (this.linesBefore ? this.linesBefore[index]! : index) * ROW;
  }

  /** The row at a position. */
  private rowAt(top: number): number {
    const line = top / ROW;
    const { linesBefore } = this;
    if (!linesBefore) return line;
    let [low, high] = [0, this.count];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (linesBefore[middle]! <= line) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  range(): [number, number] {
    const { height } = this.measured();
    const first = Math.floor(this.rowAt(this.top));
    const last = Math.ceil(this.rowAt(this.top + height)) + (this.linesBefore ? 1 : 0);
    return [Math.max(0, first), Math.min(this.count, last)];
  }

  draw(): void {
    const [first, last] = this.range();
    const from = Math.max(0, first - OVERSCAN);
    const to = Math.min(this.count, last + OVERSCAN);
    for (const [index, row] of this.rows) {
      if (index >= from && index < to) continue;
      row.remove();
      this.rows.delete(index);
    }
    const added = document.createDocumentFragment();
    for (let index = from; index < to; index++) {
      if (this.rows.has(index)) continue;
      const row = this.makeRow(index);
      row.style.top = `${this.rowTop(index)}px`;
      if (this.linesBefore) row.style.height = `${this.rowTop(index + 1) - this.rowTop(index)}px`;
      this.rows.set(index, row);
      added.append(row);
    }
    this.layer.append(added);
    if (this.scrollPending) this.root.scrollTop = this.top;
    this.scrollPending = false;
    this.onScroll(first, last);
  }

  row(index: number): HTMLElement | undefined {
    return this.rows.get(index);
  }

  each(visit: (index: number, row: HTMLElement) => void): void {
    for (const [index, row] of this.rows) visit(index, row);
  }

  /** Scrolls a row into view; `fraction` is its position in the window, 0 (top) to 1 (bottom). */
  reveal(index: number, fraction = 0.3, force = false): void {
    const [first, last] = this.range();
    if (!force && index >= first + 1 && index < last - 2) return;
    const { height } = this.measured();
    const maxTop = Math.max(0, this.rowTop(this.count) - height);
    const target = Math.round(this.rowTop(index) - fraction * height);
    this.scrollTo(Math.min(maxTop, Math.max(0, target)));
    this.draw();
  }

  /** Scrolls to the first row; rows are built at the next `reset` or `draw`. */
  toTop(): void {
    if (this.top > 0) this.scrollTo(0);
  }

  /** Sets the browser's scroll position only once the rows exist, so that it lays them out once. */
  private scrollTo(top: number): void {
    this.top = top;
    this.scrollPending = true;
  }
}

/** Width of a character in pixels. */
export const CHARACTER = 7.3;

/** The number of lines of a text in a given width (pixels). */
export function countLines(text: string, width: number): number {
  const columns = Math.max(8, Math.floor(width / CHARACTER));
  let length = text.length;
  for (let at = text.indexOf('\t'); at >= 0; at = text.indexOf('\t', at + 1)) length += 3;
  return Math.max(1, Math.ceil(length / columns));
}

export const LINES_STYLE = `
.cw .lines { position: relative; overflow: auto; flex: 1; min-height: 0; outline: none;
  overflow-anchor: none; contain: strict; }
.cw .lines:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.cw .spacer { position: relative; min-width: 100%; }
.cw .layer > * { position: absolute; left: 0; top: 0; width: 100%; height: ${ROW}px; }
.cw .wrapped .code { white-space: pre-wrap; overflow-wrap: anywhere; word-break: break-all; }
`;
