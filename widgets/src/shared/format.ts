/** Formatting of numbers and types for display. */

const GROUPED = new Intl.NumberFormat('en-US'); // created once: that takes longer than a row

export function count(value: number): string {
  return GROUPED.format(Math.round(value));
}

const BINARY = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export function bytes(value: number): string {
  let unit = 0;
  let scaled = Math.abs(value);
  while (scaled >= 1024 && unit < BINARY.length - 1) {
    scaled /= 1024;
    unit++;
  }
  const sign = value < 0 ? '-' : '';
  return `${sign}${unit === 0 ? scaled : significant(scaled, 3)} ${BINARY[unit]}`;
}

export function significant(value: number, digits: number): string {
  if (Number.isNaN(value)) return String(value);
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(digits - 1).replace('e+', 'e');
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return size >= 10 ** digits ? count(value) : value.toFixed(decimals);
}

const SECONDS: [number, string][] = [
  [1, 's'],
  [1e-3, 'ms'],
  [1e-6, 'µs'],
  [1e-9, 'ns'],
];

/** A figure with its unit; bytes and seconds get a suitable prefix. */
export function quantity(value: number, unit: string): string {
  if (Number.isNaN(value)) return 'not measured';
  if (unit === 'B' || unit === 'bytes') return bytes(value);
  const scale = SECONDS.find(([, name]) => name === unit || (name === 'µs' && unit === 'us'));
  if (scale) {
    const seconds = value * scale[0];
    if (seconds === 0) return '0 s';
    const best = SECONDS.find(([size]) => Math.abs(seconds) >= size) ?? SECONDS[3]!;
    return `${significant(seconds / best[0], 3)} ${best[1]}`;
  }
  return `${significant(value, 3)} ${unit}`.trim();
}

/** `tensor<1x128x768xf32>` as `1×128×768 f32`; anything else as it is. */
export function shortType(type: string): string {
  const replaced = type.replace(
    /(?:tensor|memref|vector)<((?:(?:\d+|\?|[a-z_]\w*)x)*)([^<>,]+)(?:,[^<>]*)?>/g,
    (_match, dims: string, element: string) =>
      dims ? `${dims.slice(0, -1).split('x').join('×')} ${element}` : element,
  );
  return replaced;
}

export function plural(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? '' : 's'}`;
}

/** A difference with its sign, `=` for zero, `–` for unknown. */
export function signed(difference: number, format: (size: number) => string): string {
  if (Number.isNaN(difference)) return '–';
  return difference === 0 ? '=' : `${difference > 0 ? '+' : '−'}${format(Math.abs(difference))}`;
}

/** The last part of a path. */
export const basename = (path: string): string => path.slice(Math.max(path.lastIndexOf('/'), path.lastIndexOf('\\')) + 1);
