/** Common parts of all views: frame, theme, data that arrives in two traits, errors as text. */

import { h, replace } from './dom';
import { MENU_STYLE } from './download';
import { Link, type RenderContext, type Selection } from './host';
import { BASE_STYLE, followTheme, type Palette } from './theme';
import { decode } from './wire';

export interface View<T> {
  /** New data; `first` when the view was empty before. */
  data(data: T, first: boolean): void;
  theme(palette: Palette): void;
  selected(selection: Selection): void;
  state?(state: Record<string, unknown>): void;
}

export interface Frame {
  root: HTMLElement;
  link: Link;
}

export function define<T>(
  name: string,
  style: string,
  create: (frame: Frame) => View<T>,
): { render(context: RenderContext): () => void } {
  return {
    render({ model, el }) {
      const link = new Link(model);
      const root = h('div', { class: `cw cw-${name}` });
      // Keys in a view are not Jupyter's commands: Jupyter checks the focused element.
      root.addEventListener('focusin', (event) => {
        (event.target as Element).setAttribute('data-lm-suppress-shortcuts', 'true');
      });
      const sheet = h('style');
      sheet.textContent = BASE_STYLE + MENU_STYLE + style;
      el.append(sheet, root);
      link.onDispose(() => {
        sheet.remove();
        root.remove();
      });
      const empty = h('div', { class: 'empty' }, 'Nothing to show yet.');
      root.append(empty);
      const content = h('div', { class: 'sr' }); // keeps the live region out of each view
      content.setAttribute('aria-live', 'polite');

      let view: View<T> | null = null;
      let palette: Palette | null = null;
      let shownText: unknown = null;

      const update = () => {
        const text = model.get('data');
        let data: T | null;
        try {
          data = decode<T>(text, model.get('blob'));
        } catch (error) {
          fail(error);
          return;
        }
        if (data === null || text === shownText) return;
        shownText = text;
        try {
          const first = view === null;
          if (view === null) {
            replace(root, content);
            view = create({ root, link });
            view.theme(palette!);
            view.state?.(link.dict('state'));
          }
          const started = performance.now();
          view.data(data, first);
          view.selected(link.dict('selection'));
          root.dataset.ms = (performance.now() - started).toFixed(1);
          root.dataset.ready = String(Number(root.dataset.ready ?? 0) + 1);
        } catch (error) {
          fail(error);
        }
      };
      const fail = (error: unknown) => {
        view = null;
        shownText = null;
        const message = error instanceof Error ? error.message : String(error);
        replace(root, h('div', { class: 'empty', role: 'alert' }, `This view failed: ${message}`));
        console.error(error);
      };

      followTheme(link, root, (next) => {
        palette = next;
        view?.theme(next);
      });
      link.watch('data', update);
      link.watch('blob', update);
      link.watch('selection', () => view?.selected(link.dict('selection')));
      link.watch('state', () => view?.state?.(link.dict('state')));
      update();
      return () => link.dispose();
    },
  };
}

/** Announces a text to screen readers. */
export function announce(root: HTMLElement, text: string): void {
  const live = (root.closest('.cw') ?? root).querySelector('[aria-live]');
  if (live) live.textContent = text;
}
