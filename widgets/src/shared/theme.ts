/** Light and dark: one table of colours for style sheets and for canvases. */

import { fonts, interface as interfaceColours, syntax } from '../../colours.json';
import type { Link } from './host';

/** A colour in the light and in the dark theme. */
export type ColourPair = readonly string[];

/** The colours of the interface in one theme. */
export type Palette = { dark: boolean } & Record<keyof typeof interfaceColours, string>;

function paletteOf(dark: boolean): Palette {
  const colours = Object.entries(interfaceColours).map(([name, pair]) => [name, pair[Number(dark)]]);
  return { dark, ...Object.fromEntries(colours) };
}

const LIGHT = paletteOf(false);
const DARK = paletteOf(true);

/** The one of two colours for the theme. */
export const inTheme = (palette: Palette, pair: ColourPair): string => pair[Number(palette.dark)]!;

export type Change = 'same' | 'added' | 'removed' | 'changed' | 'moved';
export const CHANGES: readonly Change[] = ['same', 'added', 'removed', 'changed', 'moved'];
/** The sign of each change, so that colour is never the only cue. */
export const SIGNS: Record<Change, string> = {
  same: '',
  added: '+',
  removed: '−',
  changed: '~',
  moved: '↕',
};

export function changeColour(palette: Palette, change: Change): string {
  return change === 'same' ? palette.line : palette[change];
}

function pageIsDark(): boolean | null {
  for (const node of [document.body, document.documentElement]) {
    const jupyter = node.getAttribute('data-jp-theme-light');
    if (jupyter) return jupyter === 'false';
    const theme = node.getAttribute('data-theme') ?? node.getAttribute('data-bs-theme');
    if (theme === 'dark' || theme === 'light') return theme === 'dark';
  }
  return null;
}

/** Keeps `root` in the theme of the host, and notifies the view when it changes. */
export function followTheme(link: Link, root: HTMLElement, apply: (palette: Palette) => void): void {
  const system = matchMedia('(prefers-color-scheme: dark)');
  let current: Palette | null = null;
  const update = () => {
    const theme = link.read<string>('theme');
    const dark =
      theme === 'dark' || (theme !== 'light' && (pageIsDark() ?? system.matches));
    const palette = dark ? DARK : LIGHT;
    if (palette === current) return;
    current = palette;
    root.dataset.theme = dark ? 'dark' : 'light';
    for (const [prefix, colours] of Object.entries({ '': interfaceColours, 'hl-': syntax })) {
      for (const [name, pair] of Object.entries<ColourPair>(colours)) {
        root.style.setProperty(`--${prefix}${name}`, inTheme(palette, pair));
      }
    }
    apply(palette);
  };
  link.watch('theme', update);
  system.addEventListener('change', update);
  const observer = new MutationObserver(update);
  const attributeFilter = ['data-theme', 'data-bs-theme', 'data-jp-theme-light'];
  observer.observe(document.documentElement, { attributeFilter });
  observer.observe(document.body, { attributeFilter });
  link.onDispose(() => {
    system.removeEventListener('change', update);
    observer.disconnect();
  });
  update();
}

export const { sans: SANS, mono: MONO } = fonts;

export const BASE_STYLE = `
.cw { position: relative; display: flex; flex-direction: column; width: 100%; height: 100%;
  min-height: 320px; overflow: hidden; box-sizing: border-box; background: var(--page);
  container: view / inline-size; color: var(--text); font: 12px/1.4 ${SANS}; text-align: left; }
.cw *, .cw *::before { box-sizing: border-box; }
.cw [hidden] { display: none !important; }
.cw .bar { display: flex; align-items: center; gap: 6px; min-height: 32px; padding: 3px 8px;
  background: var(--surface); border-bottom: 1px solid var(--line); flex: none; flex-wrap: wrap; }
.cw .bar > * { flex: none; }
.cw .bar .gap { flex: 1; }
@container view (max-width: 620px) { .cw .bar .wide { display: none; } }
.cw .bar .figure, .cw .status { color: var(--muted); white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.cw button, .cw select, .cw input { font: inherit; color: var(--text); background: var(--surface);
  border: 1px solid var(--line); border-radius: 4px; height: 24px; padding: 0 7px; margin: 0; }
.cw button { cursor: pointer; }
.cw button:hover { background: var(--raised); }
.cw button[aria-pressed=true], .cw button[role=tab][aria-selected=true] { background: var(--accentSoft); border-color: var(--accent); }
.cw button:disabled { color: var(--faint); cursor: default; }
.cw :focus-visible { outline: 2px solid var(--accent); outline-offset: -1px; }
.cw input[type=search] { width: 210px; }
.cw .group { display: flex; }
.cw .group > * { border-radius: 0; margin-left: -1px; }
.cw .group > :first-child { border-radius: 4px 0 0 4px; margin-left: 0; }
.cw .group > :last-child { border-radius: 0 4px 4px 0; }
.cw .tooltip { position: absolute; left: 0; top: 0; z-index: 5; pointer-events: none;
  max-width: 440px; background: var(--surface); border: 1px solid var(--line); border-radius: 5px;
  box-shadow: 0 3px 12px rgb(0 0 0 / 18%); padding: 6px 9px; }
.cw .tooltip b { font-weight: 600; }
.cw dl { display: grid; grid-template-columns: auto 1fr; gap: 1px 10px; margin: 3px 0 0; }
.cw dt { color: var(--muted); }
.cw dd { margin: 0; font-family: ${MONO}; font-size: 11px; overflow-wrap: anywhere; }
.cw .empty { margin: auto; color: var(--muted); padding: 24px; text-align: center; }
.cw .legend { position: absolute; z-index: 2; background: color-mix(in srgb, var(--surface) 92%, transparent);
  border: 1px solid var(--line); border-radius: 5px; padding: 4px 8px; color: var(--muted);
  pointer-events: none; }
.cw .help { position: absolute; z-index: 6; inset: 44px 12px auto auto; background: var(--surface);
  border: 1px solid var(--line); border-radius: 6px; box-shadow: 0 4px 18px rgb(0 0 0 / 22%);
  padding: 8px 12px; }
.cw .help dd { font-family: inherit; }
.cw .help dt { font-family: ${MONO}; color: var(--text); }
.cw .sr { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
`;
