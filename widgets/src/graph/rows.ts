/**
 * The layered layout of one scope, in linear time: longest-path ranks, program order within a row,
 * a few barycentre sweeps (Sugiyama, Tagawa, Toda 1981), then horizontal places by isotonic
 * regression per row. Long and wide edges become stubs before they cost anything. With `previous`
 * places of the same scope, what was there stays and new items get room that is free, else rows.
 */

export interface RowsInput {
  /** Items in program order. */
  width: Float64Array;
  height: Float64Array;
  /** Height of an item that has a line for incoming stubs. */
  tall: Float64Array;
  /** Edges between items, without duplicates. */
  from: Int32Array;
  to: Int32Array;
  previous?: Previous;
}

/** The stage before: of each item its place and height (NaN: it is new), its rows, its width. */
interface Previous {
  row: Float64Array;
  x: Float64Array;
  height: Float64Array;
  rowHeight: Float64Array;
  width: number;
}

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
  /** Per edge: 1 when it is only a stub. */
  stub: Uint8Array;
  /** Per edge: x of the points where it passes through the rows in between. */
  bendStart: Int32Array;
  bends: Float64Array;
}

export const GAP_X = 18;
export const GAP_Y = 26;
/** What an item is taller by with a line for incoming stubs; less than the gap and the padding. */
export const LINE = 14;
const LANE = 12;
const MAX_SPAN = 6;
const MAX_FAN_OUT = 8;
const MAX_ROW_WIDTH = 2600;
const SWEEPS = 3;
/** How many gaps of a row on either side of its place a new item tries. */
const MAX_LOOK = 64;
/** Rows that became empty stay up to this many, or this share of all; then they close together. */
const EMPTY_ROWS = 4;
const MAX_EMPTY = 0.25;

export function layoutRows(input: RowsInput): RowsLayout {
  const m = input.width.length;
  const edges = splitEdges(input, m);
  const kept = input.previous ? keptShare(input.previous) : 0;
  const stable = kept >= 0.5 ? input.previous! : null;
  const ranked = stable ? stableRows(input, edges, stable) : freshRows(input, edges);
  const { row } = ranked;
  const stub = markStubs(input, edges, row, m);
  const lanes = makeLanes(input, row, stub);
  const slots = arrange(input, lanes, row, ranked.rows, stable);
  return finish(input, ranked, stub, lanes, slots, stable);
}

interface Edges {
  /** 1 for an edge that runs against program order: drawn as a stub, ignored for ranks. */
  back: Uint8Array;
  inStart: Int32Array;
  inEdges: Int32Array;
  outStart: Int32Array;
  outEdges: Int32Array;
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

// ---------------------------------------------------------------- rows

interface Ranked {
  row: Int32Array;
  rows: number;
  /** Heights of the rows that were there in the stage before. */
  before: Map<number, number>;
}

function freshRows(input: RowsInput, edges: Edges): Ranked {
  const { from, to } = input;
  const m = input.width.length;
  const rank = new Int32Array(m);
  // An item that hangs only on sources (a constant and what is made of it) belongs beside its
  // user, not at the top.
  const floating = new Uint8Array(m);
  for (let v = 0; v < m; v++) {
    let floats = 1;
    for (let i = edges.inStart[v]!; i < edges.inStart[v + 1]!; i++) {
      const u = from[edges.inEdges[i]!]!;
      rank[v] = Math.max(rank[v]!, rank[u]! + 1);
      if (!floating[u] || edges.outStart[u + 1]! - edges.outStart[u]! > 1) floats = 0;
    }
    floating[v] = floats;
  }
  for (let v = m - 1; v >= 0; v--) {
    if (!floating[v] || edges.outStart[v] === edges.outStart[v + 1]) continue;
    let lowest = Infinity;
    for (let i = edges.outStart[v]!; i < edges.outStart[v + 1]!; i++) {
      lowest = Math.min(lowest, rank[to[edges.outEdges[i]!]!]! - 1);
    }
    rank[v] = lowest;
  }
  return { ...wrapWide(input, rank), before: new Map() };
}

/** Numbers the rows from 0 without holes and breaks rows that are too wide into several. */
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
 * Kept items keep their row; new ones get one between their producers and users (one that is there
 * already, else a new one). An item moves down only when an edge forces it to.
 */
function stableRows(
  input: RowsInput,
  edges: Edges,
  previous: Previous,
): Ranked {
  const { from, to } = input;
  const m = input.width.length;
  const place = Float64Array.from(previous.row);
  // How long the longest chain of new items below each new item is, itself included.
  const chain = new Int32Array(m);
  const ceiling = new Float64Array(m).fill(Infinity);
  for (let v = m - 1; v >= 0; v--) {
    chain[v] = Number.isNaN(place[v]!) ? 1 : 0;
    for (let i = edges.outStart[v]!; i < edges.outStart[v + 1]!; i++) {
      const w = to[edges.outEdges[i]!]!;
      if (chain[v] === 0) continue;
      if (chain[w]! > 0) {
        chain[v] = Math.max(chain[v]!, chain[w]! + 1);
        ceiling[v] = Math.min(ceiling[v]!, ceiling[w]!);
      } else ceiling[v] = Math.min(ceiling[v]!, place[w]!);
    }
  }
  const bottom = previous.rowHeight.length;
  for (let v = 0; v < m; v++) {
    let low = -Infinity;
    for (let i = edges.inStart[v]!; i < edges.inStart[v + 1]!; i++) {
      low = Math.max(low, place[from[edges.inEdges[i]!]!]!);
    }
    if (chain[v] === 0) {
      if (place[v]! > low) continue;
      place[v] = between(low, Math.floor(low) + 1, 1);
      continue;
    }
    let high = ceiling[v]!;
    if (low === -Infinity) low = Number.isFinite(high) ? high - chain[v]! - 1 : -1;
    if (high <= low) high = Math.floor(low) + 1;
    if (!Number.isFinite(high)) {
      const next = Math.floor(low) + 1;
      place[v] = Math.min(next, bottom + m);
      continue;
    }
    const next = Math.floor(low) + 1;
    const fits = next + chain[v]! - 1 < high;
    place[v] = fits ? next : between(low, high, chain[v]!);
  }
  return compress(place, previous);
}

const between = (low: number, high: number, parts: number): number =>
  low + (high - low) / (parts + 1);

function compress(place: Float64Array, { rowHeight }: Previous): Ranked {
  const values = [...new Set(place)].sort((a, b) => a - b);
  const filled = new Set(values);
  const empty: number[] = [];
  for (let r = 0; r < rowHeight.length; r++) if (!filled.has(r)) empty.push(r);
  const keepEmpty = empty.length <= Math.max(EMPTY_ROWS, MAX_EMPTY * rowHeight.length);
  const all = keepEmpty ? [...values, ...empty].sort((a, b) => a - b) : values;
  const index = new Map(all.map((value, i) => [value, i]));
  const before = new Map<number, number>();
  rowHeight.forEach((height, r) => index.has(r) && before.set(index.get(r)!, height));
  return { row: Int32Array.from(place, (value) => index.get(value)!), rows: all.length, before };
}

// ---------------------------------------------------------------- stubs and lanes

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

interface Lanes {
  /** Per edge, where its lanes (one for each row it passes) start. */
  start: Int32Array;
  row: Int32Array;
  edge: Int32Array;
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

// ---------------------------------------------------------------- order and places

interface Slots {
  /** Centre of every item, then of every lane. */
  centre: Float64Array;
  /** Items and lanes (item count + lane) by row, in their order from left to right. */
  rowStart: Int32Array;
  order: Int32Array;
}

/** Sections of edges between neighbouring rows; nodes are items and lanes. */
interface Links {
  upStart: Int32Array;
  up: Int32Array;
  downStart: Int32Array;
  down: Int32Array;
}

function arrange(
  input: RowsInput,
  lanes: Lanes,
  row: Int32Array,
  rows: number,
  previous: Previous | null,
): Slots {
  const m = input.width.length;
  const nodes = m + lanes.row.length;
  const width = new Float64Array(nodes).fill(LANE);
  width.set(input.width);
  const rowOf = new Int32Array(nodes);
  rowOf.set(row);
  rowOf.set(lanes.row, m);
  const links = linkRows(input, lanes, row, m, nodes);

  const rowStart = new Int32Array(rows + 1);
  for (const r of rowOf) rowStart[r + 1]!++;
  for (let r = 0; r < rows; r++) rowStart[r + 1]! += rowStart[r]!;
  const fill = rowStart.slice();
  const order = new Int32Array(nodes);
  for (let v = 0; v < nodes; v++) order[fill[rowOf[v]!]!++] = v;

  const centre = new Float64Array(nodes);
  const weight = new Float64Array(nodes).fill(1);
  if (previous) {
    placeStable(centre, previous, links, order, rowStart, m, width);
    return { centre, rowStart, order };
  }
  const position = new Float64Array(nodes);
  const renumber = (r: number) => {
    const middle = (rowStart[r]! + rowStart[r + 1]! - 1) / 2;
    for (let i = rowStart[r]!; i < rowStart[r + 1]!; i++) position[order[i]!] = i - middle;
  };
  for (let r = 0; r < rows; r++) renumber(r);
  const sortKey = new Float64Array(nodes);
  const reorder = (r: number, start: Int32Array, list: Int32Array) => {
    if (rowStart[r + 1]! - rowStart[r]! < 2) return;
    for (let i = rowStart[r]!; i < rowStart[r + 1]!; i++) {
      const v = order[i]!;
      sortKey[v] = mean(position, start, list, v) ?? position[v]!;
    }
    order
      .subarray(rowStart[r], rowStart[r + 1])
      .sort((a, b) => sortKey[a]! - sortKey[b]! || position[a]! - position[b]! || a - b);
    renumber(r);
  };
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (let r = 1; r < rows; r++) reorder(r, links.upStart, links.up);
    for (let r = rows - 2; r >= 0; r--) reorder(r, links.downStart, links.down);
  }
  for (let r = 1; r < rows; r++) reorder(r, links.upStart, links.up);

  packRows(centre, order, rowStart, width, rows);
  const wanted = new Float64Array(nodes);
  const pull = (r: number, both: boolean, downwards: boolean) => {
    for (let i = rowStart[r]!; i < rowStart[r + 1]!; i++) {
      const v = order[i]!;
      wanted[v] = desired(centre, links, v, m, both, downwards);
      weight[v] = v >= m ? 4 : 1;
    }
    fit(centre, wanted, weight, width, order, rowStart[r]!, rowStart[r + 1]!);
  };
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (let r = 1; r < rows; r++) pull(r, false, true);
    for (let r = rows - 2; r >= 0; r--) pull(r, false, false);
  }
  for (let r = 0; r < rows; r++) pull(r, true, true);
  for (let r = rows - 1; r >= 0; r--) pull(r, true, false);
  // Last, chains straight: an item goes below its only direct producer, lanes give way.
  for (let r = 1; r < rows; r++) {
    for (let i = rowStart[r]!; i < rowStart[r + 1]!; i++) {
      const v = order[i]!;
      wanted[v] = below(centre, links, v, m);
      weight[v] = v >= m ? 1 : 400;
    }
    fit(centre, wanted, weight, width, order, rowStart[r]!, rowStart[r + 1]!);
  }
  return { centre, rowStart, order };
}

function linkRows(
  input: RowsInput,
  lanes: Lanes,
  row: Int32Array,
  m: number,
  nodes: number,
): Links {
  const { from, to } = input;
  const above: number[] = [];
  const below: number[] = [];
  for (let e = 0; e < from.length; e++) {
    const first = lanes.start[e]!;
    const last = lanes.start[e + 1]!;
    if (first === last) {
      if (row[to[e]!]! - row[from[e]!]! !== 1) continue;
      above.push(from[e]!);
      below.push(to[e]!);
      continue;
    }
    above.push(from[e]!);
    below.push(m + first);
    for (let i = first; i + 1 < last; i++) {
      above.push(m + i);
      below.push(m + i + 1);
    }
    above.push(m + last - 1);
    below.push(to[e]!);
  }
  const [upStart, up] = compressed(below, above, nodes);
  const [downStart, down] = compressed(above, below, nodes);
  return { upStart, up, downStart, down };
}

function compressed(keys: number[], values: number[], n: number): [Int32Array, Int32Array] {
  const start = new Int32Array(n + 1);
  for (const key of keys) start[key + 1]!++;
  for (let i = 0; i < n; i++) start[i + 1]! += start[i]!;
  const fill = start.slice();
  const list = new Int32Array(values.length);
  for (let i = 0; i < keys.length; i++) list[fill[keys[i]!]!++] = values[i]!;
  return [start, list];
}

function mean(
  value: Float64Array,
  start: Int32Array,
  list: Int32Array,
  v: number,
): number | null {
  const from = start[v]!;
  const to = start[v + 1]!;
  if (from === to) return null;
  let sum = 0;
  for (let i = from; i < to; i++) sum += value[list[i]!]!;
  return sum / (to - from);
}

/** Where a node wants to be; lanes pull their neighbours so that long edges run straight. */
function desired(
  centre: Float64Array,
  links: Links,
  v: number,
  m: number,
  both: boolean,
  downwards: boolean,
): number {
  let sum = 0;
  let total = 0;
  const collect = (start: Int32Array, list: Int32Array) => {
    for (let i = start[v]!; i < start[v + 1]!; i++) {
      const u = list[i]!;
      const pull = v >= m && u >= m ? 8 : v >= m || u >= m ? 1.5 : 2;
      sum += pull * centre[u]!;
      total += pull;
    }
  };
  if (both || downwards) collect(links.upStart, links.up);
  if (both || !downwards) collect(links.downStart, links.down);
  return total > 0 ? sum / total : centre[v]!;
}

function below(centre: Float64Array, links: Links, v: number, m: number): number {
  let sum = 0;
  let items = 0;
  for (let i = links.upStart[v]!; i < links.upStart[v + 1]!; i++) {
    const u = links.up[i]!;
    if (v < m && u >= m) continue;
    sum += centre[u]!;
    items++;
  }
  return items > 0 ? sum / items : centre[v]!;
}

function packRows(
  centre: Float64Array,
  order: Int32Array,
  rowStart: Int32Array,
  width: Float64Array,
  rows: number,
): void {
  for (let r = 0; r < rows; r++) {
    let total = 0;
    for (let i = rowStart[r]!; i < rowStart[r + 1]!; i++) total += width[order[i]!]! + GAP_X;
    let at = -total / 2;
    for (let i = rowStart[r]!; i < rowStart[r + 1]!; i++) {
      const v = order[i]!;
      centre[v] = at + (width[v]! + GAP_X) / 2;
      at += width[v]! + GAP_X;
    }
  }
}

const makeScratch = (n: number) => ({
  offset: new Float64Array(n),
  mean: new Float64Array(n),
  total: new Float64Array(n),
  size: new Int32Array(n),
});
let scratch = makeScratch(64);

/**
 * The places nearest to `wanted` (weighted least squares) that keep the order and the gaps: pool
 * adjacent violators, linear in the length of the row.
 */
function fit(
  centre: Float64Array,
  wanted: Float64Array,
  weight: Float64Array,
  width: Float64Array,
  order: Int32Array,
  from: number,
  to: number,
): void {
  const n = to - from;
  if (n === 0) return;
  if (n === 1) {
    centre[order[from]!] = wanted[order[from]!]!;
    return;
  }
  if (n > scratch.size.length) scratch = makeScratch(2 * n);
  const { offset, mean, total, size } = scratch;
  let blocks = 0;
  offset[0] = 0;
  for (let i = 0; i < n; i++) {
    const v = order[from + i]!;
    if (i > 0) {
      const u = order[from + i - 1]!;
      offset[i] = offset[i - 1]! + (width[u]! + width[v]!) / 2 + GAP_X;
    }
    mean[blocks] = wanted[v]! - offset[i]!;
    total[blocks] = weight[v]!;
    size[blocks] = 1;
    blocks++;
    while (blocks > 1 && mean[blocks - 2]! > mean[blocks - 1]!) {
      const a = blocks - 2;
      const b = blocks - 1;
      const sum = total[a]! + total[b]!;
      mean[a] = (mean[a]! * total[a]! + mean[b]! * total[b]!) / sum;
      total[a] = sum;
      size[a]! += size[b]!;
      blocks--;
    }
  }
  let i = 0;
  for (let block = 0; block < blocks; block++) {
    for (let k = 0; k < size[block]!; k++, i++) {
      centre[order[from + i]!] = mean[block]! + offset[i]!;
    }
  }
}

/**
 * Kept items stay: only one that has become wider pushes what is right of it in its row. New items
 * take the nearest room of their row, and edges run through what is left.
 */
function placeStable(
  centre: Float64Array,
  previous: Previous,
  links: Links,
  order: Int32Array,
  rowStart: Int32Array,
  m: number,
  width: Float64Array,
): void {
  const known = new Uint8Array(centre.length);
  for (let v = 0; v < m; v++) {
    if (Number.isNaN(previous.x[v]!)) continue;
    centre[v] = previous.x[v]! + width[v]! / 2;
    known[v] = 1;
  }
  const left = (v: number) => centre[v]! - width[v]! / 2;
  const right = (v: number) => centre[v]! + width[v]! / 2;
  const byCentre = (a: number, b: number) => centre[a]! - centre[b]! || a - b;
  const beside = (v: number, start: Int32Array, list: Int32Array) => {
    const near = list.subarray(start[v], start[v + 1]).filter((u) => known[u]);
    return near.length ? near.reduce((sum, u) => sum + centre[u]!, 0) / near.length : null;
  };
  for (let r = 0; r + 1 < rowStart.length; r++) {
    const inRow = order.subarray(rowStart[r], rowStart[r + 1]);
    const items = [...inRow].filter((v) => known[v]).sort((a, b) => left(a) - left(b) || a - b);
    for (let i = 1; i < items.length; i++) {
      const least = right(items[i - 1]!) + GAP_X + width[items[i]!]! / 2;
      // Places are whole numbers, so gaps may be one too small.
      if (least - centre[items[i]!]! > 1) centre[items[i]!] = least;
    }
    const added = inRow.filter((v) => !known[v]);
    for (const v of added) {
      centre[v] = beside(v, links.upStart, links.up) ?? beside(v, links.downStart, links.down) ?? 0;
      known[v] = 1;
    }
    added.sort(byCentre);
    for (const v of added) if (v < m) takeRoom(v, items, centre, width, previous.width);
    const lanes = added.filter((v) => v >= m);
    for (let from = 0, to = 0; from < lanes.length; from = to) {
      // Those that pass between the same two items.
      const at = countAtMost(items, centre, centre[lanes[from]!]!);
      const end = at < items.length ? left(items[at]!) - GAP_X / 2 : previous.width;
      const start = at > 0 ? right(items[at - 1]!) + GAP_X / 2 : Math.min(0, end);
      while (to < lanes.length && countAtMost(items, centre, centre[lanes[to]!]!) === at) to++;
      spread(lanes.subarray(from, to), centre, start, Math.max(start, end));
    }
    order.set([...items, ...lanes], rowStart[r]);
  }
}

/** Puts a new item among the others of its row, which stay: as near to where it is as it fits. */
function takeRoom(
  v: number,
  items: number[],
  centre: Float64Array,
  width: Float64Array,
  rowWidth: number,
): void {
  const half = width[v]! / 2;
  const wanted = centre[v]!;
  const start = (i: number) =>
    half + (i > 0 ? centre[items[i - 1]!]! + width[items[i - 1]!]! / 2 + GAP_X : 0);
  const end = (i: number) =>
    (i < items.length ? centre[items[i]!]! - width[items[i]!]! / 2 - GAP_X : rowWidth) - half;
  const at = countAtMost(items, centre, wanted);
  let place = items.length;
  let best = Infinity;
  for (const step of [1, -1]) {
    for (let k = 0; k < MAX_LOOK; k++) {
      const i = at + step * k;
      if (i < 0 || i > items.length) break;
      if (end(i) < start(i)) continue;
      const x = Math.min(Math.max(wanted, start(i)), end(i));
      if (Math.abs(x - wanted) < Math.abs(best - wanted)) [place, best] = [i, x];
      break;
    }
  }
  // No room: at the end, where the row grows.
  centre[v] = best === Infinity ? start(place) : best;
  items.splice(place, 0, v);
}

/** Lanes, in their order, as near to where they are as they are apart between `start` and `end`. */
function spread(lanes: Int32Array, centre: Float64Array, start: number, end: number): void {
  const apart = Math.min(LANE, (end - start) / Math.max(1, lanes.length - 1));
  let least = start;
  lanes.forEach((v, i) => {
    const most = end - (lanes.length - 1 - i) * apart;
    centre[v] = Math.min(Math.max(centre[v]!, least), most);
    least = centre[v]! + apart;
  });
}

/** How many of `items` (in the order of their centres) have their centre at `x` or left of it. */
function countAtMost(items: number[], centre: Float64Array, x: number): number {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (centre[items[middle]!]! <= x) low = middle + 1;
    else high = middle;
  }
  return low;
}

// ---------------------------------------------------------------- result

function finish(
  input: RowsInput,
  ranked: Ranked,
  stub: Uint8Array,
  lanes: Lanes,
  slots: Slots,
  previous: Previous | null,
): RowsLayout {
  const m = input.width.length;
  const { row, rows, before } = ranked;
  const rowHeight = new Float64Array(rows);
  const itemHeight = Float64Array.from(input.height);
  for (let e = 0; e < stub.length; e++) {
    const v = input.to[e]!;
    if (stub[e]) itemHeight[v] = Math.max(itemHeight[v]!, input.tall[v]!);
  }
  for (let v = 0; v < m; v++) {
    rowHeight[row[v]!] = Math.max(rowHeight[row[v]!]!, itemHeight[v]!);
  }
  // A row keeps its height where items went, or where one has a line more (the gap has room), not
  // where a scope was closed.
  const closed = new Set<number>();
  previous?.height.forEach((height, v) => height - itemHeight[v]! > LINE && closed.add(row[v]!));
  for (const [r, height] of before) {
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
  // Among kept items a lane may stand in the padding.
  const room = previous ? -GAP_X / 2 : LANE / 2;
  for (let i = m; i < slots.centre.length; i++) {
    left = Math.min(left, slots.centre[i]! - room);
    right = Math.max(right, slots.centre[i]! + room);
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
