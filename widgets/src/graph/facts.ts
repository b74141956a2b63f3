/** Descriptions of an op or a scope: for tooltips, pinned ops, screen readers. */

import { count, plural, quantity } from '../shared/format';
import { CHANGES } from '../shared/theme';
import {
  countCategory,
  A_FIRST,
  attributesOf,
  changeName,
  changeOf,
  type Graph,
  kindOf,
  nameOf,
  operandsOf,
  type Overlay,
  phaseOf,
  sourceLocation,
  typeOf,
  usersOf,
} from './model';
import { type Phases, phasesInside } from './phases';
import type { GraphState } from './state';
import type { Heat } from './style';

export type Fact = [name: string, text: string];

const MAX_INPUTS = 6;
/** The shown parts of a path, as in the rest of the page (`short_path`). */
const PATH_PARTS = 3;

/** One line for an item of the layout. */
export function describe({ layout, graph, tree }: GraphState, item: number): string {
  const id = layout.id[item]!;
  if (id < 0) {
    const { label, counted } = tree.scopes[-1 - id]!;
    return `scope ${label}, ${plural(counted, 'op')}`;
  }
  return `${kindOf(graph, id)} ${nameOf(graph, id)} ${typeOf(graph, id)}`;
}

/** How much of the graph is drawn: the ops, the other nodes, and an explanation. */
export function describeCounts({ graph, layout }: GraphState): [drawn: string, details: string, title: string] {
  const counts = { drawn: 0, ops: 0, constants: 0, buffers: 0, removed: 0 };
  const removedStatus = CHANGES.indexOf('removed');
  for (let op = 0; op < graph.n; op++) {
    const removed = graph.status[op] === removedStatus;
    const category = countCategory(graph, op);
    if (removed) counts.removed++;
    else if (category !== 'op') counts[`${category}s`]++;
    else {
      counts.ops++;
      if (layout.itemOfOp[op]! >= 0) counts.drawn++;
    }
  }
  const total = graph.data.total_ops ?? graph.n;
  const parts = [
    counts.constants ? plural(counts.constants, 'constant') : '',
    counts.buffers ? plural(counts.buffers, 'buffer') : '',
    counts.removed ? `${count(counts.removed)} ${changeName(graph.data, 'removed')}` : '',
    total > graph.n ? `${count(graph.n)} of ${count(total)} sent` : '',
  ];
  return [
    `${count(counts.drawn)} of ${plural(counts.ops, 'op')}`,
    parts.map((part) => part && `, ${part}`).join(''),
    `${count(counts.drawn)} of the ${plural(counts.ops, 'op')} of this stage drawn as nodes; the others are ` +
      'inside closed scopes. Ops in a group or a launch count one by one (the list of passes counts a ' +
      'group as one). Constants and buffers do not count: they fold into their user ' +
      '(w draws them). Removed ops are drawn in their former places. ' +
      `${plural(layout.stubs, 'long or wide edge')} shown on hover only.`,
  ];
}

/** A figure of an overlay: a number with its unit, or a label. */
export function figure(overlay: Overlay, value: number): string {
  return overlay.labels ? (overlay.labels[value] ?? '') : quantity(value, overlay.unit);
}

export function opFacts(graph: Graph, op: number): Fact[] {
  const rows: Fact[] = [];
  const addRow = (name: string, value: string) => value && rows.push([name, value]);
  addRow('type', typeOf(graph, op));
  addRow('attributes', attributesOf(graph, op));
  const inputs = [...operandsOf(graph, op)];
  const list = inputs.slice(0, MAX_INPUTS).map((i) => `${nameOf(graph, i)} ${kindOf(graph, i)}`);
  const more = inputs.length > MAX_INPUTS ? ` +${inputs.length - MAX_INPUTS}` : '';
  addRow('inputs', list.join(', ') + more);
  addRow('used by', plural(usersOf(graph, op).length, 'op'));
  addRow('phase', phaseOf(graph, op));
  addRow('scope', graph.data.scopes[graph.data.ops.scope[op]!] ?? '');
  addRow('from', sourceLocation(graph, op).split(/[\\/]/).slice(-PATH_PARTS).join('/'));
  const change = changeOf(graph, op);
  const { two, notes, ops } = graph.data;
  const guessed = ops.guessed?.[op] ? '(match guessed)' : '';
  if (change !== 'same' || (two && guessed)) {
    const changeText = change === 'same' ? 'in both' : changeName(graph.data, change);
    addRow(two ? 'A | B' : 'change', `${changeText} ${guessed}`.trim());
    addRow('difference', (ops.note && notes?.[ops.note[op]!]) ?? '');
  }
  for (const overlay of graph.data.overlays ?? []) {
    addRow(overlay.name, figure(overlay, overlay.values[op]!));
  }
  return rows;
}

export function scopeFacts(
  { graph, tree, changes }: GraphState,
  scope: number,
  heat: Heat | null,
  phases: Phases | null,
): Fact[] {
  const { total, counted, kind, id, repeats, uniform } = tree.scopes[scope]!;
  const rows: Fact[] = [['ops', count(counted)]];
  if (total > counted) rows.push(['constants and buffers', count(total - counted)]);
  if (kind === 'scope') rows.push(['path', id]);
  if (repeats) rows.push(['repeat', `${repeats} × ${uniform ? 'same block' : 'not all equal'}`]);
  for (const [phase, n] of phases ? phasesInside(phases, scope) : []) {
    rows.push([phases!.names[phase]!, plural(n, 'op')]);
  }
  if (changes) {
    const [added, removed, changed, moved] = changes.subarray(scope * 5 + 1, scope * 5 + 5);
    if (graph.data.two) {
      const counts = { removed, added, changed, moved };
      const present = A_FIRST.filter((change) => counts[change]);
      const texts = present.map((change) => `${count(counts[change]!)} ${changeName(graph.data, change)}`);
      rows.push(['A | B', texts.join(', ') || 'no difference']);
    } else rows.push(['changes', `+${added} −${removed} ~${changed} ↕${moved}`]);
  }
  if (heat) {
    const { overlay } = heat;
    const combination = overlay.combine === 'max' ? 'max' : 'sum';
    rows.push([overlay.name, `${figure(overlay, heat.ofScope(scope))} (${combination})`]);
  }
  return rows;
}
