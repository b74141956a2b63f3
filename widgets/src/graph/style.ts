/** Colours of ops: a subtle mark for the kind of work, and scales for heat overlays. */

import { ink, phases, work } from '../../colours.json';
import { inTheme, type ColourPair, type Palette } from '../shared/theme';
import type { Graph, Overlay } from './model';

/** Classes of work, with a mark each; the host can name the class of each kind. */
export type OpClass = keyof typeof work;
export const OP_CLASSES = Object.keys(work) as OpClass[];

const RULES: [RegExp, OpClass][] = [
  [/constant|weight|parameter|iota|literal|fill|splat/, 'constant'],
  [/^(argument|input|output|return|result)/, 'interface'],
  [/matmul|dot|conv|gemm|einsum|attention|linear|kernel|call_kernel/, 'compute'],
  [/reduce|softmax|norm|pool|sum|mean|arg(max|min)|cumulative|scan|loss/, 'reduction'],
  [/reshape|transpose|broadcast|concat|slice|gather|scatter|pad|expand|squeeze|split|tile|copy|view|layout|reverse|cast|convert|permute|pack/, 'movement'],
  [/loop|while|if|call|cond|region|barrier/, 'control'],
];

export function classOfKind(kind: string): OpClass {
  const name = kind.replace(/^.*\./, '').toLowerCase();
  return RULES.find(([pattern]) => pattern.test(name))?.[1] ?? 'elementwise';
}

export function classColour(palette: Palette, name: OpClass): string {
  return inTheme(palette, work[name]);
}

export function kindClasses(graph: Graph): OpClass[] {
  const classes = graph.data.classes;
  return graph.data.kinds.map((kind, i) => {
    const name = classes?.[i];
    return name && name in work ? (name as OpClass) : classOfKind(kind);
  });
}

export function phaseColour(palette: Palette, phase: string): string {
  const pair = (phases as Record<string, ColourPair>)[phase];
  return pair ? inTheme(palette, pair) : palette.faint;
}

// cividis (Nuñez, Anderton, Renslow 2018): reads the same with and without colour vision.
const CIVIDIS = [
  [0, 34, 78],
  [34, 56, 111],
  [64, 79, 110],
  [92, 103, 112],
  [124, 129, 118],
  [159, 157, 113],
  [197, 187, 99],
  [239, 220, 74],
  [254, 232, 56],
] as const;

export interface Rgb {
  r: number;
  g: number;
  b: number;
}

/** The colour at `t` in 0..1; low values are dark on a dark page and bright on a light one. */
export function heatColour(palette: Palette, t: number): Rgb {
  const clamped = Math.min(1, Math.max(0, t)) || 0; // NaN is not on the scale
  const at = (palette.dark ? clamped : 1 - clamped) * (CIVIDIS.length - 1);
  const i = Math.min(CIVIDIS.length - 2, Math.floor(at));
  const f = at - i;
  const [a, b] = [CIVIDIS[i]!, CIVIDIS[i + 1]!];
  const mix = (k: 0 | 1 | 2) => Math.round(a[k] + (b[k] - a[k]) * f);
  return { r: mix(0), g: mix(1), b: mix(2) };
}

export const [DARK_INK, LIGHT_INK] = ink.onArea as [string, string];
export const css = ({ r, g, b }: Rgb): string => `rgb(${r},${g},${b})`;
export const inkOn = ({ r, g, b }: Rgb): string =>
  0.299 * r + 0.587 * g + 0.114 * b > 140 ? DARK_INK : LIGHT_INK;

/** A prepared heat overlay: the value of every op and scope, and the position of a value on the scale.
 * `low` and `high` are finite: infinite values are at the ends. */
export interface Heat {
  overlay: Overlay;
  low: number;
  high: number;
  ofOp(op: number): number;
  ofScope(scope: number): number;
  position(value: number): number;
}

export function makeHeat(overlay: Overlay, scopeOf: Int32Array, parents: Int32Array): Heat {
  const { values } = overlay;
  const add = overlay.combine === 'max' ? Math.max : (a: number, b: number) => a + b;
  const scopes = new Float64Array(parents.length).fill(NaN);
  for (let op = 0; op < values.length; op++) {
    const value = values[op]!;
    if (Number.isNaN(value)) continue;
    for (let s = scopeOf[op]!; s >= 0; s = parents[s]!) {
      scopes[s] = Number.isNaN(scopes[s]!) ? value : add(scopes[s]!, value);
    }
  }
  let low = Infinity;
  let high = -Infinity;
  for (let op = 0; op < values.length; op++) {
    const value = values[op]!;
    if (!Number.isFinite(value) || (overlay.scale === 'log' && value <= 0)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) low = high = 0;
  const log = overlay.scale === 'log' && low > 0;
  const width = log ? Math.log(high / low) : high - low;
  return {
    overlay,
    low,
    high,
    ofOp: (op) => values[op] ?? NaN,
    ofScope: (scope) => scopes[scope]!,
    position: (value) => {
      if (width <= 0) return value >= high ? 1 : 0;
      const t = log ? Math.log(Math.max(value, low) / low) / width : (value - low) / width;
      return Math.min(1, Math.max(0, t));
    },
  };
}
