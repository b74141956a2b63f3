/** A scrolling list of equally high rows that builds only the rows that can be seen. */

import { h, perFrame } from './dom';

export const ROW = 18;
const EXTRA = 12;

export class Lines {
  readonly root: HTMLElement;
  private readonly spacer = h('div', { class: 'spacer' });
  private readonly layer = h('div', { class: 'layer' });
  private count = 0;
  private readonly rows = new Map<number, HTMLElement>();

  constructor(
    private readonly makeRow: (index: number) => HTMLElement,
    private readonly onScroll: (first: number, last: number) => void = () => {},
  ) {
    this.root = h('div', { class: 'lines', tabindex: 0 }, this.spacer);
    this.spacer.append(this.layer);
    this.root.addEventListener('scroll', perFrame(() => this.draw()));
  }

  /** Shows `count` rows, all built anew. */
  reset(count: number): void {
    this.count = count;
    this.spacer.style.height = `${count * ROW}px`;
    this.refresh();
  }

  /** Builds the visible rows anew, where they are. */
  refresh(): void {
    this.rows.clear();
    this.layer.replaceChildren();
    this.draw();
  }

  range(): [number, number] {
    const first = Math.floor(this.root.scrollTop / ROW);
    const last = Math.ceil((this.root.scrollTop + this.root.clientHeight) / ROW);
    return [Math.max(0, first), Math.min(this.count, last)];
  }

  draw(): void {
    const [first, last] = this.range();
    const from = Math.max(0, first - EXTRA);
    const to = Math.min(this.count, last + EXTRA);
    for (const [index, row] of this.rows) {
      if (index >= from && index < to) continue;
      row.remove();
      this.rows.delete(index);
    }
    for (let index = from; index < to; index++) {
      if (this.rows.has(index)) continue;
      const row = this.makeRow(index);
      row.style.transform = `translateY(${index * ROW}px)`;
      this.rows.set(index, row);
      this.layer.append(row);
    }
    this.onScroll(first, last);
  }

  row(index: number): HTMLElement | undefined {
    return this.rows.get(index);
  }

  each(visit: (index: number, row: HTMLElement) => void): void {
    for (const [index, row] of this.rows) visit(index, row);
  }

  /** Brings a row into sight; `where` is its place in the window, 0 top to 1 bottom. */
  reveal(index: number, where = 0.3, always = false): void {
    const [first, last] = this.range();
    if (!always && index >= first + 1 && index < last - 2) return;
    const height = this.root.clientHeight;
    this.root.scrollTop = Math.max(0, index * ROW - where * height);
    this.draw();
  }
}

export const LINES_STYLE = `
.cw .lines { position: relative; overflow: auto; flex: 1; min-height: 0; outline: none;
  overflow-anchor: none; contain: strict; }
.cw .lines:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.cw .spacer { position: relative; min-width: 100%; }
.cw .layer > * { position: absolute; left: 0; top: 0; width: 100%; height: ${ROW}px; }
`;
