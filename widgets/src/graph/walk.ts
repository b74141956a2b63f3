/** The targets of the arrow keys: along edges, and along a row. */

import type { Layout } from './layout';
import { type Graph, operandsOf, usersOf } from './model';

/** The nearest producer or consumer of an item; -1: none. */
export function neighbour(graph: Graph, layout: Layout, item: number, down: boolean): number {
  const id = layout.id[item]!;
  const found: number[] = [];
  if (id >= 0) {
    for (const op of down ? usersOf(graph, id) : operandsOf(graph, id)) {
      const other = layout.visibleItemOf[op]!;
      if (other >= 0 && other !== item) found.push(other);
    }
  } else {
    const container = layout.containers[layout.container[item]!]!;
    for (let e = 0; e < container.edgeFrom.length; e++) {
      const from = container.items[container.edgeFrom[e]!]!;
      const to = container.items[container.edgeTo[e]!]!;
      if (down && from === item) found.push(to);
      if (!down && to === item) found.push(from);
    }
  }
  // The nearest one: the next step of the computation rather than a distant user.
  const distance = (other: number) =>
    Math.abs(layout.y[other]! - layout.y[item]!) + Math.abs(layout.x[other]! - layout.x[item]!) / 8;
  return found.sort((a, b) => distance(a) - distance(b) || a - b)[0] ?? -1;
}

/** The item `by` positions to the right in the same row; -1: none. */
export function sibling(layout: Layout, item: number, by: number): number {
  const container = layout.containers[layout.container[item]!]!;
  const { rows, items } = container;
  const local = items.indexOf(item);
  const r = rows.row[local]!;
  const position = rows.order.indexOf(local) + by;
  if (position < rows.rowStart[r]! || position >= rows.rowStart[r + 1]!) return -1;
  return items[rows.order[position]!]!;
}
