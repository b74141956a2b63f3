/** The data that the parts of a scope's layout exchange. */

export interface RowsInput {
  /** Items in program order. */
  width: Float64Array;
  height: Float64Array;
  /** Height of an item that has a line for incoming stubs. */
  stubHeight: Float64Array;
  /** Edges between items, without duplicates. */
  from: Int32Array;
  to: Int32Array;
  previous?: Previous;
}

/** The previous stage: the position and height of each item (NaN: new), the rows, the width. */
export interface Previous {
  row: Float64Array;
  x: Float64Array;
  height: Float64Array;
  rowHeight: Float64Array;
  width: number;
}

export interface Edges {
  /** 1 for an edge that runs against program order: drawn as a stub, ignored for ranks. */
  back: Uint8Array;
  inStart: Int32Array;
  inEdges: Int32Array;
  outStart: Int32Array;
  outEdges: Int32Array;
}

/** The row of every item. */
export interface Ranked {
  row: Int32Array;
  rows: number;
  /** Heights of the rows of the previous stage. */
  previousHeights: Map<number, number>;
}

/** The positions of edges in the rows between their ends. */
export interface Lanes {
  /** Per edge, the index of the first of its lanes (one for each row it passes). */
  start: Int32Array;
  row: Int32Array;
  edge: Int32Array;
}

export interface Slots {
  /** Centre of every item, then of every lane. */
  centre: Float64Array;
  /** Items and lanes (item count + lane) by row, in their order from left to right. */
  rowStart: Int32Array;
  order: Int32Array;
}

export const GAP_X = 18;
/** The width a lane takes. */
export const LANE = 12;
