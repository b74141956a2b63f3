/** A view of one recording that can also show two: `data` is then `{two: ...}`. */

import type { Selection } from './host';
import type { Palette } from './theme';
import type { Frame, View } from './view';

export const LETTER_STYLE = `
.cw .letter { display: inline-grid; place-content: center; width: 18px; height: 18px; border-radius: 4px; font-weight: 700;
  font-size: 11px; flex: none; color: var(--surface); background: var(--accent); }
.cw .letter.b { background: var(--moved); }
.cw.shows-two > .of-one, .cw:not(.shows-two) > .of-two { display: none !important; }
`;

interface CreatedView {
  view: View<never>;
  /** The view's interface for tests. */
  workbench: unknown;
}

/** Creates the view for one or for two recordings when its first data arrive, and shows the right one. */
export function oneOrTwo<T extends object, P extends object>(
  frame: Frame,
  makeOne: () => View<T>,
  makeTwo: () => View<P>,
): View<T | { two: P }> {
  const root = frame.root as HTMLElement & { workbench?: unknown };
  const views: { one?: CreatedView; two?: CreatedView } = {};
  let current: View<never> | null = null;
  let palette: Palette | null = null;

  function createView(which: 'one' | 'two'): CreatedView {
    const before = new Set(root.children);
    const view = (which === 'one' ? makeOne() : makeTwo()) as View<never>;
    for (const node of root.children) if (!before.has(node)) node.classList.add(`of-${which}`);
    view.theme(palette!);
    return { view, workbench: root.workbench };
  }

  return {
    data(data) {
      const which = 'two' in data ? 'two' : 'one';
      root.classList.toggle('shows-two', which === 'two');
      const first = views[which] === undefined;
      const next = (views[which] ??= createView(which));
      const switched = current !== next.view;
      current = next.view;
      root.workbench = next.workbench;
      (current as View<T | P>).data(which === 'two' ? (data as { two: P }).two : (data as T), first);
      if (switched) current.state?.(frame.link.dict('state'));
    },
    theme(next) {
      palette = next;
      views.one?.view.theme(next);
      views.two?.view.theme(next);
    },
    selected: (selection: Selection) => current?.selected(selection),
    state: (state) => current?.state?.(state),
  };
}
