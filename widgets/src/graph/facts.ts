/** What the graph says of an op or a scope in words: tooltips, pinned ops, screen readers. */

import { count, plural, quantity } from '../shared/format';
import {
  attributesOf,
  changeOf,
  type Graph,
  kindOf,
  nameOf,
  operandsOf,
  type Overlay,
  phaseOf,
  placeOf,
  typeOf,
  usersOf,
} from './model';
import { type Phases, phasesInside } from './phases';
import type { GraphState } from './state';
import type { Heat } from './style';

export type Fact = [name: string, text: string];

const MOST_INPUTS = 6;

/** One line for an item of the layout. */
export function describe({ layout, graph, tree }: GraphState, item: number): string {
  const id = layout.id[item]!;
  if (id < 0) {
    const { label, total } = tree.scopes[-1 - id]!;
    return `scope ${label}, ${plural(total, 'op')}`;
  }
  return `${kindOf(graph, id)} ${nameOf(graph, id)} ${typeOf(graph, id)}`;
}

/** A figure of an overlay: a number with its unit, or the label it stands for. */
export function figure(overlay: Overlay, value: number): string {
  return overlay.labels ? (overlay.labels[value] ?? '') : quantity(value, overlay.unit);
}

export function opFacts(graph: Graph, op: number): Fact[] {
  const rows: Fact[] = [];
  const row = (name: string, value: string) => value && rows.push([name, value]);
  row('type', typeOf(graph, op));
  row('attributes', attributesOf(graph, op));
  const inputs = [...operandsOf(graph, op)];
  const list = inputs.slice(0, MOST_INPUTS).map((i) => `${nameOf(graph, i)} ${kindOf(graph, i)}`);
  const more = inputs.length > MOST_INPUTS ? ` +${inputs.length - MOST_INPUTS}` : '';
  row('inputs', list.join(', ') + more);
  row('used by', plural(usersOf(graph, op).length, 'op'));
  row('phase', phaseOf(graph, op));
  row('scope', graph.data.scopes[graph.data.ops.scope[op]!] ?? '');
  row('from', placeOf(graph, op));
  const change = changeOf(graph, op);
  if (change !== 'same') {
    row('change', change + (graph.data.ops.guessed?.[op] ? ' (match guessed)' : ''));
  }
  for (const overlay of graph.data.overlays ?? []) {
    row(overlay.name, figure(overlay, overlay.values[op]!));
  }
  return rows;
}

export function scopeFacts(
  { tree, changes }: GraphState,
  scope: number,
  heat: Heat | null,
  phases: Phases | null,
): Fact[] {
  const { total, kind, id, repeats, uniform } = tree.scopes[scope]!;
  const rows: Fact[] = [['ops', count(total)]];
  if (kind === 'scope') rows.push(['path', id]);
  if (repeats) rows.push(['repeat', `${repeats} × ${uniform ? 'same block' : 'not all equal'}`]);
  for (const [phase, n] of phases ? phasesInside(phases, scope) : []) {
    rows.push([phases!.names[phase]!, plural(n, 'op')]);
  }
  if (changes) {
    const [added, removed, changed, moved] = changes.subarray(scope * 5 + 1, scope * 5 + 5);
    rows.push(['changes', `+${added} −${removed} ~${changed} ↕${moved}`]);
  }
  if (heat) {
    const { overlay } = heat;
    const how = overlay.combine === 'max' ? 'max' : 'sum';
    rows.push([overlay.name, `${figure(overlay, heat.ofScope(scope))} (${how})`]);
  }
  return rows;
}
