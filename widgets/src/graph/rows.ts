/**
 * The layered layout of one scope, in linear time: longest-path ranks, program order within a row,
 * a few barycentre sweeps (Sugiyama, Tagawa, Toda 1981), then horizontal positions by isotonic
 * regression per row. Long and wide edges become stubs first, so that they cost nothing. With
 * `previous` positions of the same scope, old items stay and new ones get free space, else rows.
 */

import { arrange } from './places';
import { freshRows, stableRows } from './ranks';
import {
  type Edges,
  GAP_X,
  LANE,
  type Lanes,
  type Previous,
  type Ranked,
  type RowsInput,
  type Slots,
} from './row_parts';

export interface RowsLayout {
  /** Top left corners, relative to the scope's content area. */
  x: Float64Array;
  y: Float64Array;
  row: Int32Array;
  /** Items sorted by row, then x. */
  order: Int32Array;
  rowStart: Int32Array;
  rowTop: Float64Array;
  rowHeight: Float64Array;
  itemHeight: Float64Array;
  width: number;
  height: number;
  /** Per edge: 1 if it is only a stub. */
  stub: Uint8Array;
  /** Per edge: x of the points where it passes through the rows in between. */
  bendStart: Int32Array;
  bends: Float64Array;
}

export const GAP_Y = 26;
/** The extra height of an item with a line for incoming stubs; less than the gap and the padding. */
export const LINE = 14;
const MAX_SPAN = 6;
const MAX_FAN_OUT = 8;

export function layoutRows(input: RowsInput): RowsLayout {
  const m = input.width.length;
  const edges = splitEdges(input, m);
  const share = input.previous ? keptShare(input.previous) : 0;
  const stable = share >= 0.5 ? input.previous! : null;
  const ranked = stable ? stableRows(input, edges, stable) : freshRows(input, edges);
  const { row } = ranked;
  const stub = markStubs(input, edges, row, m);
  const lanes = makeLanes(input, row, stub);
  const slots = arrange(input, lanes, row, ranked.rows, stable);
  return finish(input, ranked, stub, lanes, slots, stable);
}

function splitEdges(input: RowsInput, m: number): Edges {
  const { from, to } = input;
  const back = new Uint8Array(from.length);
  const inStart = new Int32Array(m + 1);
  const outStart = new Int32Array(m + 1);
  for (let e = 0; e < from.length; e++) {
    if (from[e]! >= to[e]!) {
      back[e] = 1;
      continue;
    }
    inStart[to[e]! + 1]!++;
    outStart[from[e]! + 1]!++;
  }
  for (let v = 0; v < m; v++) {
    inStart[v + 1]! += inStart[v]!;
    outStart[v + 1]! += outStart[v]!;
  }
  const inEdges = new Int32Array(inStart[m]!);
  const outEdges = new Int32Array(outStart[m]!);
  const inFill = inStart.slice();
  const outFill = outStart.slice();
  for (let e = 0; e < from.length; e++) {
    if (back[e]) continue;
    inEdges[inFill[to[e]!]!++] = e;
    outEdges[outFill[from[e]!]!++] = e;
  }
  return { back, inStart, inEdges, outStart, outEdges };
}

function keptShare(previous: { row: Float64Array }): number {
  let kept = 0;
  for (const row of previous.row) if (!Number.isNaN(row)) kept++;
  return previous.row.length ? kept / previous.row.length : 0;
}

function markStubs(input: RowsInput, edges: Edges, row: Int32Array, m: number): Uint8Array {
  const { from, to } = input;
  const stub = Uint8Array.from(edges.back);
  const fanOut = new Int32Array(m);
  for (let e = 0; e < from.length; e++) fanOut[from[e]!]!++;
  for (let e = 0; e < from.length; e++) {
    const span = row[to[e]!]! - row[from[e]!]!;
    if (span > MAX_SPAN || (fanOut[from[e]!]! > MAX_FAN_OUT && span > 1)) stub[e] = 1;
  }
  return stub;
}

function makeLanes(input: RowsInput, row: Int32Array, stub: Uint8Array): Lanes {
  const { from, to } = input;
  const start = new Int32Array(from.length + 1);
  for (let e = 0; e < from.length; e++) {
    const span = row[to[e]!]! - row[from[e]!]!;
    start[e + 1] = start[e]! + (stub[e] ? 0 : Math.max(0, span - 1));
  }
  const count = start[from.length]!;
  const laneRow = new Int32Array(count);
  const edge = new Int32Array(count);
  for (let e = 0; e < from.length; e++) {
    for (let i = start[e]!; i < start[e + 1]!; i++) {
      laneRow[i] = row[from[e]!]! + 1 + i - start[e]!;
      edge[i] = e;
    }
  }
  return { start, row: laneRow, edge };
}

function finish(
  input: RowsInput,
  ranked: Ranked,
  stub: Uint8Array,
  lanes: Lanes,
  slots: Slots,
  previous: Previous | null,
): RowsLayout {
  const m = input.width.length;
  const { row, rows, previousHeights } = ranked;
  const rowHeight = new Float64Array(rows);
  const itemHeight = Float64Array.from(input.height);
  for (let e = 0; e < stub.length; e++) {
    const v = input.to[e]!;
    if (stub[e]) itemHeight[v] = Math.max(itemHeight[v]!, input.stubHeight[v]!);
  }
  for (let v = 0; v < m; v++) {
    rowHeight[row[v]!] = Math.max(rowHeight[row[v]!]!, itemHeight[v]!);
  }
  // A row keeps its height if items were removed, or if one has a line more (the gap has space), not
  // if a scope was closed.
  const closed = new Set<number>();
  previous?.height.forEach((height, v) => height - itemHeight[v]! > LINE && closed.add(row[v]!));
  for (const [r, height] of previousHeights) {
    if (rowHeight[r]! - height <= LINE && !closed.has(r)) rowHeight[r] = height;
  }
  const rowTop = new Float64Array(rows);
  for (let r = 1; r < rows; r++) rowTop[r] = rowTop[r - 1]! + rowHeight[r - 1]! + GAP_Y;

  let left = Infinity;
  let right = -Infinity;
  for (let v = 0; v < m; v++) {
    left = Math.min(left, slots.centre[v]! - input.width[v]! / 2);
    right = Math.max(right, slots.centre[v]! + input.width[v]! / 2);
  }
  // Between kept items, a lane can use the padding.
  const laneMargin = previous ? -GAP_X / 2 : LANE / 2;
  for (let i = m; i < slots.centre.length; i++) {
    left = Math.min(left, slots.centre[i]! - laneMargin);
    right = Math.max(right, slots.centre[i]! + laneMargin);
  }
  if (m === 0) left = right = 0;
  const shift = previous ? 0 : -left;
  const x = Float64Array.from(input.width, (width, v) =>
    Math.round(slots.centre[v]! - width / 2 + shift),
  );
  const y = Float64Array.from(row, (r) => rowTop[r]!);
  const order = slots.order.filter((v) => v < m);
  const rowStart = new Int32Array(rows + 1);
  for (const r of row) rowStart[r + 1]!++;
  for (let r = 0; r < rows; r++) rowStart[r + 1]! += rowStart[r]!;
  const bends = new Float64Array(lanes.row.length);
  for (let i = 0; i < bends.length; i++) bends[i] = Math.round(slots.centre[m + i]! + shift);
  return {
    x,
    y,
    row,
    order,
    rowStart,
    rowTop,
    rowHeight,
    itemHeight,
    width: Math.ceil(right + shift),
    height: rows ? rowTop[rows - 1]! + rowHeight[rows - 1]! : 0,
    stub,
    bendStart: lanes.start,
    bends,
  };
}
