/** Axes: the pixel position of a value, the shown range, and the positions of grid lines. */

export interface Area {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Range {
  from: number;
  to: number;
}

/** Values `from`..`to` along the pixels `first`..`last`. */
export class Scale {
  constructor(
    private readonly first: number,
    private readonly last: number,
    private readonly from: number,
    private readonly to: number,
  ) {}

  /** Values from the left to the right edge of an area. */
  static across({ x, width }: Pick<Area, 'x' | 'width'>, from: number, to: number): Scale {
    return new Scale(x, x + width, from, to);
  }

  /** Values from the lower to the upper edge of an area. */
  static up({ y, height }: Pick<Area, 'y' | 'height'>, from: number, to: number): Scale {
    return new Scale(y + height, y, from, to);
  }

  at(value: number): number {
    return this.first + ((value - this.from) / (this.to - this.from)) * (this.last - this.first);
  }

  value(pixel: number): number {
    return this.from + ((pixel - this.first) / (this.last - this.first)) * (this.to - this.from);
  }
}

/** A range scaled by `factor`, limited to `minSize`..`maxSize`; `anchor` stays in place. */
export function zoomRange({ from, to }: Range, factor: number, anchor: number, minSize: number, maxSize: number): Range {
  const size = to - from;
  const scale = Math.min(Math.max(factor, minSize / size), Math.max(1, maxSize / size));
  return { from: anchor - (anchor - from) * scale, to: anchor + (to - anchor) * scale };
}

/** A range of the same size, or smaller, inside `low`..`high`. */
export function clampRange({ from, to }: Range, low: number, high: number): Range {
  const size = Math.min(to - from, high - low);
  const start = Math.min(Math.max(from, low), high - size);
  return { from: start, to: start + size };
}

/** A range of the same size around another centre. */
export function centreRange({ from, to }: Range, centre: number): Range {
  const half = (to - from) / 2;
  return { from: centre - half, to: centre + half };
}

/** The smallest of 1, 2, 5 times a power of ten that is at least `minimum`. */
export function roundStep(minimum: number): number {
  const ten = 10 ** Math.floor(Math.log10(minimum));
  // Accept a step that is off by rounding.
  return ten * ([1, 2, 5].find((factor) => factor * ten >= minimum * 0.999) ?? 10);
}

/** The smallest power of two that is at least `minimum`, for bytes. */
export const binaryStep = (minimum: number): number => 2 ** Math.ceil(Math.log2(minimum));

/** Multiples of `step` from `from` to `to`. */
export function ticks({ from, to }: Range, step: number): number[] {
  const found: number[] = [];
  for (let value = Math.ceil(from / step) * step; value <= to; value += step) found.push(value);
  return found;
}
