/** The op graph of one stage, as columns; built once from the host's data. */

import { CHANGES, type Change } from '../shared/theme';
import type { Numbers } from '../shared/wire';

export interface Overlay {
  name: string;
  unit: string;
  values: Numbers;
  combine?: 'sum' | 'max';
  scale?: 'linear' | 'log';
  /** Names, if values are indices into them instead of figures. */
  labels?: string[];
}

/** The comparison: A and B, the names of the changes, and the message for a selected op
 * that only B has, which other views do not know. */
export interface Two {
  titles: [string, string];
  statuses: Partial<Record<Change, string>>;
  apart: string;
}

/** The schema of the `data` trait (documented in widgets/README.md). */
export interface GraphData {
  stage: { id: string; title: string };
  kinds: string[];
  classes?: string[];
  types: string[];
  scopes: string[];
  files?: string[];
  attributes?: string[];
  /** Present for the graph of two recordings. */
  two?: Two;
  /** The texts that `ops.note` indexes: the tooltip's text about a change. */
  notes?: string[];
  /** For a training step: the phases that `ops.phase` indexes, in the order of the step. */
  phases?: string[];
  ops: {
    key: ArrayLike<number | string>;
    kind: Numbers;
    type: Numbers;
    scope: Numbers;
    operand_start: Numbers;
    operand: Numbers;
    name?: string[];
    file?: Numbers;
    line?: Numbers;
    attribute?: Numbers;
    fold?: Numbers;
    status?: Numbers;
    guessed?: Numbers;
    note?: Numbers;
    phase?: Numbers;
    link_start?: Numbers;
    link?: Numbers;
  };
  overlays?: Overlay[];
  total_ops?: number;
  options?: { max_visible?: number; open_items?: number };
}

export type Key = number | string;

/** Ops are numbered 0 to n-1 in program order. Ops that fold are drawn as a label on their users. */
export interface Graph {
  n: number;
  data: GraphData;
  keys: ArrayLike<Key>;
  indexOf: Map<Key, number>;
  operandStart: Int32Array;
  operands: Int32Array;
  userStart: Int32Array;
  users: Int32Array;
  /** Constants, weights and buffers; of these, those drawn as a label on their users. */
  constant: Uint8Array;
  folded: Uint8Array;
  status: Uint8Array;
  /** The phase of each op (NO_PHASE: none); null without training. */
  phase: Uint8Array | null;
  /** Related ops, possibly without an edge between them, in both directions. */
  linkStart: Int32Array;
  links: Int32Array;
}

export const NO_PHASE = 255;

const FOLDED_KIND = /(^|[._])(constant|weight|parameter|literal|dense_resource)$/;

export function makeGraph(data: GraphData): Graph {
  const { ops } = data;
  const n = ops.key.length;
  const operandStart = Int32Array.from(ops.operand_start);
  const operands = Int32Array.from(ops.operand);
  validate(data, n, operandStart, operands);
  const indexOf = new Map<Key, number>();
  for (let op = 0; op < n; op++) indexOf.set(ops.key[op]!, op);
  const { userStart, users } = findUsers(n, operandStart, operands);
  const foldKind = data.kinds.map((kind) => FOLDED_KIND.test(kind));
  const constant = new Uint8Array(n);
  const folded = new Uint8Array(n);
  for (let op = 0; op < n; op++) {
    const folds = ops.fold ? ops.fold[op]! : foldKind[ops.kind[op]!] ? 1 : 0;
    const leaf = operandStart[op] === operandStart[op + 1];
    const used = userStart[op]! < userStart[op + 1]!;
    constant[op] = folds && leaf ? 1 : 0;
    folded[op] = constant[op] && used ? 1 : 0;
  }
  const status = ops.status ? Uint8Array.from(ops.status) : new Uint8Array(n);
  return {
    n,
    data,
    keys: ops.key,
    indexOf,
    operandStart,
    operands,
    userStart,
    users,
    constant,
    folded,
    status,
    phase: ops.phase ? Uint8Array.from(ops.phase) : null,
    ...symmetricLinks(n, ops.link_start ?? [], ops.link ?? []),
  };
}

/** Links as they are sent, and back. */
function symmetricLinks(n: number, start: Numbers, link: Numbers) {
  const linkStart = new Int32Array(n + 1);
  if (start.length === 0) return { linkStart, links: new Int32Array(0) };
  for (let op = 0; op < n; op++) {
    linkStart[op + 1]! += start[op + 1]! - start[op]!;
    for (let i = start[op]!; i < start[op + 1]!; i++) linkStart[link[i]! + 1]!++;
  }
  for (let op = 0; op < n; op++) linkStart[op + 1]! += linkStart[op]!;
  const fill = linkStart.slice();
  const links = new Int32Array(linkStart[n]!);
  for (let op = 0; op < n; op++) {
    for (let i = start[op]!; i < start[op + 1]!; i++) {
      links[fill[op]!++] = link[i]!;
      links[fill[link[i]!]!++] = op;
    }
  }
  return { linkStart, links };
}

function validate(data: GraphData, n: number, start: Int32Array, operands: Int32Array): void {
  const { ops } = data;
  for (const [name, column] of Object.entries({
    kind: ops.kind,
    type: ops.type,
    scope: ops.scope,
    ...(ops.status ? { status: ops.status } : {}),
    ...(ops.phase ? { phase: ops.phase } : {}),
  })) {
    if (column.length !== n) {
      throw new Error(`column ops.${name} has ${column.length} entries, ops.key has ${n}`);
    }
  }
  if (start.length !== n + 1 || start[n] !== operands.length) {
    throw new Error('ops.operand_start must have one entry more than ops.key and end at the count');
  }
  if ((ops.link_start ?? []).length && ops.link_start![n] !== ops.link?.length) {
    throw new Error('ops.link_start must have one entry more than ops.key and end at the count');
  }
  for (const partner of Array.from(ops.link ?? [])) {
    if (partner < 0 || partner >= n) throw new Error(`link ${partner} is not an op`);
  }
  for (const operand of operands) {
    if (operand < -1 || operand >= n) throw new Error(`operand ${operand} is not an op`);
  }
}

function findUsers(n: number, start: Int32Array, operands: Int32Array) {
  const userStart = new Int32Array(n + 1);
  for (const producer of operands) if (producer >= 0) userStart[producer + 1]!++;
  for (let op = 0; op < n; op++) userStart[op + 1]! += userStart[op]!;
  const fill = userStart.slice();
  const users = new Int32Array(userStart[n]!);
  for (let op = 0; op < n; op++) {
    for (let i = start[op]!; i < start[op + 1]!; i++) {
      const producer = operands[i]!;
      if (producer >= 0) users[fill[producer]!++] = op;
    }
  }
  return { userStart, users };
}

/** Kinds that all views treat as no work: constants, and omitted inputs of ONNX. */
const NO_WORK = /(constant|absent)$/;
const BUFFER = /alloc$/;

/** The category of an op: only `op` counts in the figure "ops", as in the list of passes. */
export function countCategory(graph: Graph, op: number): 'op' | 'constant' | 'buffer' {
  if (!graph.constant[op]) return 'op';
  const kind = kindOf(graph, op);
  return BUFFER.test(kind) ? 'buffer' : NO_WORK.test(kind) ? 'constant' : 'op';
}

export const kindOf = (graph: Graph, op: number): string =>
  graph.data.kinds[graph.data.ops.kind[op]!] ?? '?';
export const typeOf = (graph: Graph, op: number): string =>
  graph.data.types[graph.data.ops.type[op]!] ?? '';
export const changeOf = (graph: Graph, op: number): Change => CHANGES[graph.status[op]!] ?? 'same';
/** The changes of two recordings, those only in A first. */
export const A_FIRST = ['removed', 'added', 'changed', 'moved'] as const;
/** The name of a change. */
export const changeName = (data: GraphData, change: Change): string => data.two?.statuses[change] ?? change;
/** Whether other views do not know an op, because only B has it. */
export const isOnlyInB = (graph: Graph, op: number): boolean =>
  graph.data.two !== undefined && changeOf(graph, op) === 'added';
export const nameOf = (graph: Graph, op: number): string =>
  graph.data.ops.name?.[op] || `%${graph.keys[op]}`;

export function sourceLocation(graph: Graph, op: number): string {
  const { files, ops } = graph.data;
  const file = ops.file ? files?.[ops.file[op]!] : undefined;
  const line = ops.line?.[op];
  return file ? (line ? `${file}:${line}` : file) : '';
}

export function attributesOf(graph: Graph, op: number): string {
  const { attributes, ops } = graph.data;
  return (ops.attribute ? attributes?.[ops.attribute[op]!] : undefined) ?? '';
}

export function operandsOf(graph: Graph, op: number): Int32Array {
  return graph.operands
    .subarray(graph.operandStart[op], graph.operandStart[op + 1])
    .filter((producer) => producer >= 0);
}

export function usersOf(graph: Graph, op: number): Int32Array {
  return graph.users.subarray(graph.userStart[op], graph.userStart[op + 1]);
}

export function phaseOf(graph: Graph, op: number): string {
  return (graph.phase && graph.data.phases?.[graph.phase[op]!]) ?? '';
}

export function linksOf(graph: Graph, op: number): Int32Array {
  return graph.links.subarray(graph.linkStart[op], graph.linkStart[op + 1]);
}
