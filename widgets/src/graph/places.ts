/**
 * Order and horizontal positions of the items in their rows: barycentre sweeps (Sugiyama, Tagawa,
 * Toda 1981), then isotonic regression per row; after another stage, stable positions.
 */

import { GAP_X, LANE, type Lanes, type Previous, type RowsInput, type Slots } from './row_parts';

const SWEEPS = 3;
/** The number of gaps that a new item tries on either side of its position. */
const MAX_GAPS_TRIED = 64;

/** Sections of edges between neighbouring rows; nodes are items and lanes. */
interface Links {
  upStart: Int32Array;
  up: Int32Array;
  downStart: Int32Array;
  down: Int32Array;
}

export function arrange(
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
  const target = new Float64Array(nodes);
  const pull = (r: number, bothSides: boolean, downwards: boolean) => {
    for (let i = rowStart[r]!; i < rowStart[r + 1]!; i++) {
      const v = order[i]!;
      target[v] = preferredCentre(centre, links, v, m, bothSides, downwards);
      weight[v] = v >= m ? 4 : 1;
    }
    fit(centre, target, weight, width, order, rowStart[r]!, rowStart[r + 1]!);
  };
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (let r = 1; r < rows; r++) pull(r, false, true);
    for (let r = rows - 2; r >= 0; r--) pull(r, false, false);
  }
  for (let r = 0; r < rows; r++) pull(r, true, true);
  for (let r = rows - 1; r >= 0; r--) pull(r, true, false);
  // Last, straighten chains: an item goes below its only direct producer, lanes give way.
  for (let r = 1; r < rows; r++) {
    for (let i = rowStart[r]!; i < rowStart[r + 1]!; i++) {
      const v = order[i]!;
      target[v] = meanOfProducers(centre, links, v, m);
      weight[v] = v >= m ? 1 : 400;
    }
    fit(centre, target, weight, width, order, rowStart[r]!, rowStart[r + 1]!);
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

/** The preferred position of a node; lanes pull their neighbours so that long edges run straight. */
function preferredCentre(
  centre: Float64Array,
  links: Links,
  v: number,
  m: number,
  bothSides: boolean,
  downwards: boolean,
): number {
  let sum = 0;
  let total = 0;
  const collect = (start: Int32Array, list: Int32Array) => {
    for (let i = start[v]!; i < start[v + 1]!; i++) {
      const u = list[i]!;
      const pullWeight = v >= m && u >= m ? 8 : v >= m || u >= m ? 1.5 : 2;
      sum += pullWeight * centre[u]!;
      total += pullWeight;
    }
  };
  if (bothSides || downwards) collect(links.upStart, links.up);
  if (bothSides || !downwards) collect(links.downStart, links.down);
  return total > 0 ? sum / total : centre[v]!;
}

function meanOfProducers(centre: Float64Array, links: Links, v: number, m: number): number {
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
 * The positions nearest to `target` (weighted least squares) that keep the order and the gaps: pool
 * adjacent violators, linear in the length of the row.
 */
function fit(
  centre: Float64Array,
  target: Float64Array,
  weight: Float64Array,
  width: Float64Array,
  order: Int32Array,
  from: number,
  to: number,
): void {
  const n = to - from;
  if (n === 0) return;
  if (n === 1) {
    centre[order[from]!] = target[order[from]!]!;
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
    mean[blocks] = target[v]! - offset[i]!;
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
 * Kept items stay: only one that became wider pushes the items to its right. New items
 * take the nearest free space of their row, and edges run through the rest.
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
  const isPlaced = new Uint8Array(centre.length);
  for (let v = 0; v < m; v++) {
    if (Number.isNaN(previous.x[v]!)) continue;
    centre[v] = previous.x[v]! + width[v]! / 2;
    isPlaced[v] = 1;
  }
  const left = (v: number) => centre[v]! - width[v]! / 2;
  const right = (v: number) => centre[v]! + width[v]! / 2;
  const byCentre = (a: number, b: number) => centre[a]! - centre[b]! || a - b;
  const meanOfKnown = (v: number, start: Int32Array, list: Int32Array) => {
    const placed = list.subarray(start[v], start[v + 1]).filter((u) => isPlaced[u]);
    return placed.length ? placed.reduce((sum, u) => sum + centre[u]!, 0) / placed.length : null;
  };
  for (let r = 0; r + 1 < rowStart.length; r++) {
    const rowNodes = order.subarray(rowStart[r], rowStart[r + 1]);
    const items = [...rowNodes].filter((v) => isPlaced[v]).sort((a, b) => left(a) - left(b) || a - b);
    for (let i = 1; i < items.length; i++) {
      const minCentre = right(items[i - 1]!) + GAP_X + width[items[i]!]! / 2;
      // Positions are integers, so gaps can be one too small.
      if (minCentre - centre[items[i]!]! > 1) centre[items[i]!] = minCentre;
    }
    const added = rowNodes.filter((v) => !isPlaced[v]);
    for (const v of added) {
      centre[v] = meanOfKnown(v, links.upStart, links.up) ?? meanOfKnown(v, links.downStart, links.down) ?? 0;
      isPlaced[v] = 1;
    }
    added.sort(byCentre);
    for (const v of added) if (v < m) insertItem(v, items, centre, width, previous.width);
    const lanes = added.filter((v) => v >= m);
    for (let from = 0, to = 0; from < lanes.length; from = to) {
      // The lanes between the same two items.
      const at = countAtMost(items, centre, centre[lanes[from]!]!);
      const end = at < items.length ? left(items[at]!) - GAP_X / 2 : previous.width;
      const start = at > 0 ? right(items[at - 1]!) + GAP_X / 2 : Math.min(0, end);
      while (to < lanes.length && countAtMost(items, centre, centre[lanes[to]!]!) === at) to++;
      spread(lanes.subarray(from, to), centre, start, Math.max(start, end));
    }
    order.set([...items, ...lanes], rowStart[r]);
  }
}

/** Inserts a new item into its row without moving the others, as near to its position as it fits. */
function insertItem(
  v: number,
  items: number[],
  centre: Float64Array,
  width: Float64Array,
  rowWidth: number,
): void {
  const half = width[v]! / 2;
  const target = centre[v]!;
  const start = (i: number) =>
    half + (i > 0 ? centre[items[i - 1]!]! + width[items[i - 1]!]! / 2 + GAP_X : 0);
  const end = (i: number) =>
    (i < items.length ? centre[items[i]!]! - width[items[i]!]! / 2 - GAP_X : rowWidth) - half;
  const at = countAtMost(items, centre, target);
  let slot = items.length;
  let best = Infinity;
  for (const step of [1, -1]) {
    for (let k = 0; k < MAX_GAPS_TRIED; k++) {
      const i = at + step * k;
      if (i < 0 || i > items.length) break;
      if (end(i) < start(i)) continue;
      const x = Math.min(Math.max(target, start(i)), end(i));
      if (Math.abs(x - target) < Math.abs(best - target)) [slot, best] = [i, x];
      break;
    }
  }
  // No space: at the end of the row, which grows.
  centre[v] = best === Infinity ? start(slot) : best;
  items.splice(slot, 0, v);
}

/** Spreads lanes, in order, between `start` and `end`, as near to their positions as possible. */
function spread(lanes: Int32Array, centre: Float64Array, start: number, end: number): void {
  const spacing = Math.min(LANE, (end - start) / Math.max(1, lanes.length - 1));
  let lowest = start;
  lanes.forEach((v, i) => {
    const highest = end - (lanes.length - 1 - i) * spacing;
    centre[v] = Math.min(Math.max(centre[v]!, lowest), highest);
    lowest = centre[v]! + spacing;
  });
}

/** The number of `items` (ordered by centre) whose centre is at `x` or left of it. */
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
