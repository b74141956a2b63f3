/** The line of figures above a drawing, and the colours of its legend. */

import { h } from './dom';

export const FIGURES_STYLE = `
.cw .figures { display: flex; gap: 2px 12px; flex-wrap: wrap; padding: 3px 10px; flex: none;
  background: var(--surface); border-bottom: 1px solid var(--line); color: var(--muted);
  font-variant-numeric: tabular-nums; }
.cw .figures b { color: var(--text); font-weight: 600; }
.cw .key { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 4px; }
`;

/** A figure with its name; `hint`: its definition and further lines. */
export const figure = (name: string, value: string, ...hint: (string | undefined)[]): HTMLElement =>
  h('span', { title: hint.filter(Boolean).join('\n') }, `${name} `, h('b', {}, value));

/** Which of two recordings is shown. */
export const sideName = (letter: string, name: string): HTMLElement[] => [
  h('span', { class: `letter ${letter.toLowerCase()}` }, letter),
  h('b', {}, name),
];

/** The colours of the names for which `isShown` is true. */
export function legend(
  names: readonly string[],
  colour: (i: number) => string,
  isShown = (_i: number) => true,
): HTMLElement[] {
  return names.flatMap((name, i) => {
    if (!isShown(i)) return [];
    const key = h('span', { class: 'key' });
    key.style.background = colour(i);
    return [h('span', {}, key, `${name}  `)];
  });
}
