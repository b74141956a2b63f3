/** Breadcrumbs of the open scopes in the window: a way out of a deep graph.  Next to them: how much is drawn. */

import { button, h } from '../shared/dom';
import type { GraphState } from './state';

export const CRUMBS_STYLE = `
.cw-graph .top { position: absolute; z-index: 2; left: 4px; right: 8px; top: 6px; display: flex; gap: 8px; pointer-events: none; }
.cw-graph .top > * { pointer-events: auto; }
.cw-graph .crumbs { position: relative; flex: 0 1 auto; min-width: 0; margin-right: auto; display: flex; overflow: hidden;
  justify-content: flex-end; }
.cw-graph .crumbs span { flex: none; padding: 0 4px; line-height: 20px; color: var(--faint); background: color-mix(in srgb, var(--page) 85%, transparent); }
.cw-graph .crumbs button { border: none; height: 20px; padding: 0 4px; color: var(--muted); flex: none; white-space: pre;
  background: color-mix(in srgb, var(--page) 85%, transparent); }
.cw-graph .crumbs button:last-child { margin-right: auto; } /* if they do not fit, the outermost are dropped */
.cw-graph .crumbs * + button::before { content: '› '; color: var(--faint); }
`;

export class Crumbs {
  readonly root = h('nav', { class: 'crumbs', 'aria-label': 'Scope in the window' });
  private shownText = '';

  constructor(private readonly go: (item: number) => void) {}

  /** Shows the open scopes around a point of the drawing, outermost first, in the given width (pixels). */
  show({ layout, tree }: GraphState, x: number, y: number, width: number): void {
    let at = 0;
    const openScopes: number[] = [];
    for (;;) {
      const next = layout.containers[at]!.items.find(
        (item) =>
          layout.opens[item]! >= 0 &&
          layout.y[item]! <= y &&
          y < layout.y[item]! + layout.height[item]! &&
          layout.x[item]! <= x &&
          x < layout.x[item]! + layout.width[item]!,
      );
      if (next === undefined) break;
      openScopes.push(next);
      at = layout.opens[next]!;
    }
    const text = `${openScopes.join()} in ${width}`;
    if (this.shownText === text) return;
    this.shownText = text;
    this.root.replaceChildren(
      ...openScopes.map((item) => {
        const { label } = tree.scopes[-1 - layout.id[item]!]!;
        return button(label, `Select scope ${label}`, () => this.go(item));
      }),
    );
    this.shorten();
  }

  /** If they do not fit, the outermost are dropped whole: an ellipsis lists them. */
  private shorten(): void {
    const first = () => this.root.firstElementChild as HTMLElement | null;
    if ((first()?.offsetLeft ?? 0) >= 0) return;
    const dropped: string[] = [];
    const more = h('span', {}, '…');
    while (first() && first()!.offsetLeft < 0 && this.root.childElementCount > (dropped.length ? 2 : 1)) {
      more.remove();
      dropped.push(first()!.textContent ?? '');
      first()!.remove();
      this.root.prepend(more);
    }
    more.title = dropped.join(' › ');
  }
}
