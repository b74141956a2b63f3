/** The toolbar, the legend and the help of the graph view. */

import { button, h, replace } from '../shared/dom';
import { downloadMenu } from '../shared/download';
import { count, plural } from '../shared/format';
import { type Change, CHANGES, changeColour, type Palette, SIGNS } from '../shared/theme';
import { figure } from './facts';
import type { Commands } from './keys';
import { A_FIRST, changeName, type GraphData, type Overlay } from './model';
import { type Phases, phasesInside } from './phases';
import { css, type Heat, heatColour, phaseColour } from './style';

export const PANEL_STYLE = `
.cw-graph .changes { display: flex; gap: 12px; }
.cw-graph .sign { display: inline-block; min-width: 15px; text-align: center; border-radius: 8px;
  color: var(--surface); line-height: 15px; font-weight: 700; }
.cw-graph .ramp { display: inline-block; width: 120px; height: 9px; margin: 0 6px;
  vertical-align: -1px; border-radius: 2px; }
.cw-graph .heat { white-space: pre; }
.cw-graph .side { white-space: pre-wrap; }
.cw-graph .shown { flex: none; color: var(--muted); padding: 1px 4px 0; white-space: pre;
  font-variant-numeric: tabular-nums; background: color-mix(in srgb, var(--page) 85%, transparent); }
.cw-graph .bar input { flex: 1 1 80px; min-width: 80px; max-width: 210px; }
.cw-graph .rest { display: flex; gap: 6px; }
.cw-graph .more { display: none; }
.cw-graph .legend { max-width: calc(100% - 160px); }
.cw-graph .changes { flex-wrap: wrap; row-gap: 2px; }
.cw-graph .phases { display: flex; flex-wrap: wrap; gap: 2px; pointer-events: auto; margin: -1px -4px; }
.cw-graph .phases button { border: none; height: 20px; padding: 0 5px; background: none; color: inherit;
  font-variant-numeric: tabular-nums; }
.cw-graph .phases button:hover { background: var(--raised); }
.cw-graph .phases button[aria-pressed=false] { color: var(--faint); text-decoration: line-through; }
.cw-graph .phases i { display: inline-block; width: 5px; height: 12px; margin-right: 5px; vertical-align: -2px; }
.cw-graph .phases .recomputed { mask: repeating-linear-gradient(#000 0 5px, transparent 5px 7px); }
.cw-graph .phases button[aria-pressed=false] i { opacity: .3; }
.cw-graph .phases + .changes { border-top: 1px solid var(--line); margin-top: 3px; padding-top: 3px; }
@container view (max-width: 620px) {
  .cw-graph .bar select { width: 102px; padding: 0 2px; }
  .cw-graph .bar { gap: 5px; padding: 3px 6px; }
  .cw-graph .bar .gap { display: none; }
  .cw-graph .more { display: block; }
  .cw-graph .rest { display: none; }
  .cw-graph .rest.open { display: flex; position: absolute; right: 6px; top: 33px; z-index: 6; padding: 6px;
    background: var(--surface); border: 1px solid var(--line); border-radius: 5px; box-shadow: 0 4px 18px rgb(0 0 0 / 22%); }
  .cw-graph .heat { white-space: normal; }
  .cw-graph .shown .besides { display: none; }
}
`;

/** The commands, and the elements that only the toolbar has. */
export interface Actions extends Commands {
  search(query: string): void;
  step(by: number): void;
  overlay(index: number): void;
  svg(): void;
  dot(): void;
  png(): void;
}

export class Toolbar {
  readonly root: HTMLElement;
  readonly input: HTMLInputElement;
  /** How much of the graph is drawn; shown in the corner of the drawing. */
  readonly status = h('div', { class: 'shown' });
  private readonly hits = h('span', { class: 'figure hits' });
  private readonly hitButtons: HTMLElement;
  private readonly select: HTMLSelectElement;
  private readonly folded: HTMLButtonElement;
  private readonly changeButtons: HTMLElement;
  private overlays = '';

  constructor(actions: Actions) {
    this.input = h('input', {
      type: 'search',
      placeholder: 'Search ops',
      'aria-label': 'Search ops',
      title: 'Words match name, kind, shape, attribute, scope and source line; or kind:add shape:768 dtype:bf16 line:model.py:12 phase:backward; "two words", /regular expressions/  (/)',
      input: () => actions.search(this.input.value),
      keydown: (event: KeyboardEvent) => {
        if (event.key === 'Enter') actions.step(event.shiftKey ? -1 : 1);
      },
    });
    this.select = h('select', {
      'aria-label': 'Heat overlay',
      title: 'Colour ops by a figure  (o)',
      change: () => actions.overlay(this.select.selectedIndex - 1),
    });
    this.folded = button('weights', 'Show weights and constants as nodes  (w)', actions.toggleFolded);
    this.changeButtons = h(
      'span',
      { class: 'group', hidden: true },
      button('‹', 'Previous changed op  ([)', () => actions.stepChange(-1)),
      button('change ›', 'Next changed op  (])', () => actions.stepChange(1)),
    );
    this.hitButtons = h(
      'span',
      { class: 'group', hidden: true },
      button('‹', 'Previous hit  (Shift+Enter)', () => actions.step(-1)),
      button('›', 'Next hit  (Enter)', () => actions.step(1)),
    );
    // In a narrow pane, these are in the menu of one button.
    const rest = h(
      'span',
      { class: 'rest' },
      this.folded,
      h(
        'span',
        { class: 'group' },
        button('inputs', 'Light only the inputs of the selection, transitively  (i)', actions.lightInputs),
        button('users', 'Light only the users of the selection, transitively  (u)', actions.lightUsers),
      ),
      button('pin', 'Pin the selected op and compare others with it  (p)', actions.pin),
      downloadMenu(() => [
        ['Drawing, SVG', actions.svg],
        ['What the window shows, PNG', actions.png],
        ['Visible graph, DOT for Graphviz', actions.dot],
      ]),
      button('?', 'Keys  (?)', actions.help),
    );
    const more = button('⋯', 'Weights, downloads, keys', () => {
      more.setAttribute('aria-expanded', String(rest.classList.toggle('open')));
    });
    more.className = 'more';
    more.setAttribute('aria-expanded', 'false');
    this.root = h(
      'div',
      { class: 'bar', role: 'toolbar', 'aria-label': 'Graph' },
      this.input,
      this.hitButtons,
      this.hits,
      this.select,
      h(
        'span',
        { class: 'group' },
        button('−', 'Close all scopes  (C)', actions.collapse),
        button('+', 'Open one more level  (e; all: E)', () => actions.expand(false)),
      ),
      button('fit', 'Fit the whole graph  (f)', actions.fit),
      this.changeButtons,
      h('span', { class: 'gap' }),
      rest,
      more,
    );
  }

  setOverlays(overlays: Overlay[], chosen: number): void {
    const names = overlays.map((overlay) => overlay.name + (overlay.unit ? ` (${overlay.unit})` : ''));
    const text = names.join('\n');
    if (text !== this.overlays || this.select.options.length === 0) {
      this.overlays = text;
      replace(
        this.select,
        h('option', {}, 'kind of work'),
        ...names.map((name) => h('option', {}, name)),
      );
    }
    this.select.selectedIndex = chosen + 1;
    this.select.hidden = overlays.length === 0;
  }

  setHits(text: string, title = ''): void {
    this.hits.textContent = text;
    this.hits.title = title;
    this.hitButtons.hidden = text === '';
  }

  /** `details`: the part that is hidden in a narrow pane. */
  setStatus(text: string, details: string, title: string): void {
    this.status.replaceChildren(text, h('span', { class: 'besides' }, details));
    this.status.title = title;
  }

  setFolded(on: boolean): void {
    this.folded.setAttribute('aria-pressed', String(on));
  }

  setDiff(on: boolean): void {
    this.changeButtons.hidden = !on;
  }
}

export class Legend {
  readonly root = h('div', { class: 'legend', style: 'left:8px;bottom:8px', hidden: true });

  constructor(private readonly toggle: (phase: string) => void) {}

  show(
    palette: Palette,
    data: GraphData,
    changes: Int32Array | null,
    heat: Heat | null,
    guessed: number,
    phases: Phases | null,
  ): void {
    const parts: Node[] = [];
    if (data.two) parts.push(...data.two.titles.map((title) => h('div', { class: 'side' }, title)));
    if (phases) parts.push(this.phases(palette, phases));
    if (data.two && !changes) parts.push(h('div', {}, 'no difference'));
    if (changes) {
      const order: readonly Change[] = data.two ? A_FIRST : CHANGES;
      const items = order.flatMap((change) => {
        const n = changes[CHANGES.indexOf(change)]!;
        if (change === 'same' || n === 0) return [];
        const sign = h('b', { class: `sign ${change}` }, SIGNS[change]);
        sign.style.background = changeColour(palette, change);
        return [h('span', {}, sign, ` ${count(n)} ${changeName(data, change)}`)];
      });
      parts.push(h('div', { class: 'changes' }, ...items));
      if (guessed > 0) {
        parts.push(h('div', {}, `${count(guessed)} matched by structure (guessed), not recorded`));
      }
    }
    if (heat) {
      const stops = [0, 0.25, 0.5, 0.75, 1].map((t) => css(heatColour(palette, t))).join(',');
      const ramp = h('span', { class: 'ramp' });
      ramp.style.background = `linear-gradient(90deg,${stops})`;
      const { name, scale, combine } = heat.overlay;
      const scaleText = `${scale === 'log' ? 'log scale, ' : ''}scopes: ${combine === 'max' ? 'max' : 'sum'}`;
      parts.push(
        h(
          'div',
          { class: 'heat' },
          `${name}  `,
          figure(heat.overlay, heat.low),
          ramp,
          figure(heat.overlay, heat.high),
          `  (${scaleText})`,
        ),
      );
    }
    const focused = (this.root.getRootNode() as Document | ShadowRoot).activeElement;
    const focusedPhase = focused instanceof HTMLElement ? focused.dataset.phase : undefined;
    replace(this.root, ...parts);
    this.root.hidden = parts.length === 0;
    if (focusedPhase) this.root.querySelector<HTMLElement>(`[data-phase="${focusedPhase}"]`)?.focus();
  }

  /** A toggle for each phase that has ops. */
  private phases(palette: Palette, phases: Phases): HTMLElement {
    const items = phasesInside(phases, 0).map(([phase, n]) => {
      const name = phases.names[phase]!;
      const lit = !phases.dim[phase];
      const mark = h('i', { class: name });
      mark.style.background = phaseColour(palette, name);
      return h(
        'button',
        {
          'data-phase': name,
          'aria-pressed': String(lit),
          title: lit ? `Dim the ${plural(n, 'op')} of this phase` : 'Show this phase again',
          click: () => this.toggle(name),
        },
        mark,
        `${name} ${count(n)}`,
      );
    });
    return h('div', { class: 'phases', role: 'group', 'aria-label': 'Phases of the step' }, ...items);
  }
}

export const KEYS: [string, string][] = [
  ['↑ ↓', 'producer, consumer'],
  ['← →', 'neighbour in the row'],
  ['Enter', 'open or close the scope'],
  ['e  E', 'open one level, all'],
  ['C', 'close all scopes'],
  ['Backspace', 'select the enclosing scope'],
  ['f  .', 'fit all, centre the selection'],
  ['+ −', 'zoom (also Ctrl + wheel)'],
  ['/', 'search; Enter next hit'],
  ['[ ]', 'previous, next change'],
  ['i  u', 'light only its inputs, its users'],
  ['p  P', 'pin the op, unpin all'],
  ['t', 'path from the pinned op'],
  ['o', 'next heat overlay'],
  ['w', 'weights and constants'],
  ['Shift + click', 'path from the selection'],
  ['Tab: the map', 'arrows move the window, Home End'],
  ['Esc', 'clear'],
];
