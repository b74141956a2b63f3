/** The map of changes beside the lines: their positions in the whole text. */

import { h } from '../shared/dom';
import { changeColour, type Palette } from '../shared/theme';
import { type Entry, KINDS, type Rows } from './model';

const WIDTH = 12;

export const RULER_STYLE = `
.cw-diff .ruler { width: ${WIDTH}px; flex: none; cursor: pointer; border-left: 1px solid var(--line); }
`;

export class Ruler {
  readonly canvas = h('canvas', { class: 'ruler', role: 'img', 'aria-label': 'map of changes' });
  private height = 0;

  /** `go`: called with the chosen position, 0 to 1. */
  constructor(go: (share: number) => void) {
    // For the mouse only: keys scroll the lines themselves.
    this.canvas.addEventListener('pointerdown', (event) => go(event.offsetY / this.canvas.clientHeight));
  }

  /** Follows the size of its container. */
  fit(): void {
    this.height = this.canvas.parentElement!.clientHeight;
  }

  paint(rows: Rows, entries: Entry[], palette: Palette): void {
    const { canvas, height } = this;
    if (height === 0) return;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = WIDTH * ratio;
    canvas.height = height * ratio;
    const context = canvas.getContext('2d')!;
    context.scale(ratio, ratio);
    context.fillStyle = palette.surface;
    context.fillRect(0, 0, WIDTH, height);
    entries.forEach((entry, i) => {
      const kind = KINDS[rows.kind[entry.row]!]!;
      if (kind === 'equal' || entry.until) return;
      const colour = kind === 'changed' && entry.side === 'left' ? 'removed' : kind;
      context.fillStyle = changeColour(palette, colour);
      context.fillRect(2, (i / entries.length) * height, WIDTH - 4, Math.max(2, height / entries.length));
    });
  }
}
