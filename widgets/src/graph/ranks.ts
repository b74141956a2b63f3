/**
 * The row of every item of a scope: longest-path ranks in program order, wide rows broken into
 * several; after another stage, stable rows.
 */

import { type Edges, GAP_X, type Previous, type Ranked, type RowsInput } from './row_parts';

const MAX_ROW_WIDTH = 2600;
/** Empty rows are kept up to this number, or this share of all; beyond that they are removed. */
const EMPTY_ROWS = 4;
const MAX_EMPTY = 0.25;

export function freshRows(input: RowsInput, edges: Edges): Ranked {
  const { from, to } = input;
  const m = input.width.length;
  const rank = new Int32Array(m);
  // An item that depends only on sources (a constant and values computed from it) belongs next to its
  // user, not at the top.
  const floating = new Uint8Array(m);
  for (let v = 0; v < m; v++) {
    let isFloating = 1;
    for (let i = edges.inStart[v]!; i < edges.inStart[v + 1]!; i++) {
      const u = from[edges.inEdges[i]!]!;
      rank[v] = Math.max(rank[v]!, rank[u]! + 1);
      if (!floating[u] || edges.outStart[u + 1]! - edges.outStart[u]! > 1) isFloating = 0;
    }
    floating[v] = isFloating;
  }
  for (let v = m - 1; v >= 0; v--) {
    if (!floating[v] || edges.outStart[v] === edges.outStart[v + 1]) continue;
    let lowest = Infinity;
    for (let i = edges.outStart[v]!; i < edges.outStart[v + 1]!; i++) {
      lowest = Math.min(lowest, rank[to[edges.outEdges[i]!]!]! - 1);
    }
    rank[v] = lowest;
  }
  return { ...wrapWide(input, rank), previousHeights: new Map() };
}

/** Numbers the rows from 0 without gaps and breaks rows that are too wide into several. */
function wrapWide(input: RowsInput, rank: Int32Array): { row: Int32Array; rows: number } {
  const m = rank.length;
  let ranks = 0;
  for (const r of rank) ranks = Math.max(ranks, r + 1);
  const total = new Float64Array(ranks);
  for (let v = 0; v < m; v++) total[rank[v]!]! += input.width[v]! + GAP_X;
  const firstRow = new Int32Array(ranks + 1);
  for (let r = 0; r < ranks; r++) {
    firstRow[r + 1] = firstRow[r]! + Math.ceil(total[r]! / MAX_ROW_WIDTH);
  }
  const used = new Float64Array(ranks);
  const row = new Int32Array(m);
  for (let v = 0; v < m; v++) {
    const r = rank[v]!;
    const parts = firstRow[r + 1]! - firstRow[r]!;
    const part = Math.min(parts - 1, Math.floor((used[r]! * parts) / total[r]!));
    used[r]! += input.width[v]! + GAP_X;
    row[v] = firstRow[r]! + part;
  }
  return { row, rows: firstRow[ranks]! };
}

/**
 * Kept items keep their row; new ones get one between their producers and users (an existing
 * row, else a new one). An item moves down only if an edge forces it to.
 */
export function stableRows(
  input: RowsInput,
  edges: Edges,
  previous: Previous,
): Ranked {
  const { from, to } = input;
  const m = input.width.length;
  const rowPosition = Float64Array.from(previous.row);
  // The length of the longest chain of new items below each new item, including itself.
  const chain = new Int32Array(m);
  const ceiling = new Float64Array(m).fill(Infinity);
  for (let v = m - 1; v >= 0; v--) {
    chain[v] = Number.isNaN(rowPosition[v]!) ? 1 : 0;
    for (let i = edges.outStart[v]!; i < edges.outStart[v + 1]!; i++) {
      const w = to[edges.outEdges[i]!]!;
      if (chain[v] === 0) continue;
      if (chain[w]! > 0) {
        chain[v] = Math.max(chain[v]!, chain[w]! + 1);
        ceiling[v] = Math.min(ceiling[v]!, ceiling[w]!);
      } else ceiling[v] = Math.min(ceiling[v]!, rowPosition[w]!);
    }
  }
  const bottom = previous.rowHeight.length;
  for (let v = 0; v < m; v++) {
    let low = -Infinity;
    for (let i = edges.inStart[v]!; i < edges.inStart[v + 1]!; i++) {
      low = Math.max(low, rowPosition[from[edges.inEdges[i]!]!]!);
    }
    if (chain[v] === 0) {
      if (rowPosition[v]! > low) continue;
      rowPosition[v] = between(low, Math.floor(low) + 1, 1);
      continue;
    }
    let high = ceiling[v]!;
    if (low === -Infinity) low = Number.isFinite(high) ? high - chain[v]! - 1 : -1;
    if (high <= low) high = Math.floor(low) + 1;
    if (!Number.isFinite(high)) {
      const next = Math.floor(low) + 1;
      rowPosition[v] = Math.min(next, bottom + m);
      continue;
    }
    const next = Math.floor(low) + 1;
    const fits = next + chain[v]! - 1 < high;
    rowPosition[v] = fits ? next : between(low, high, chain[v]!);
  }
  return numberRows(rowPosition, previous);
}

const between = (low: number, high: number, parts: number): number =>
  low + (high - low) / (parts + 1);

function numberRows(rowPosition: Float64Array, { rowHeight }: Previous): Ranked {
  const values = [...new Set(rowPosition)].sort((a, b) => a - b);
  const filled = new Set(values);
  const empty: number[] = [];
  for (let r = 0; r < rowHeight.length; r++) if (!filled.has(r)) empty.push(r);
  const keepEmpty = empty.length <= Math.max(EMPTY_ROWS, MAX_EMPTY * rowHeight.length);
  const all = keepEmpty ? [...values, ...empty].sort((a, b) => a - b) : values;
  const index = new Map(all.map((value, i) => [value, i]));
  const previousHeights = new Map<number, number>();
  rowHeight.forEach((height, r) => index.has(r) && previousHeights.set(index.get(r)!, height));
  return { row: Int32Array.from(rowPosition, (value) => index.get(value)!), rows: all.length, previousHeights };
}
