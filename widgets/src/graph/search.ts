/** Search over a stage: free text, or `kind:`, `shape:`, `attr:`, `line:`, `name:`, `scope:`, `phase:`. */

import { shortType } from '../shared/format';
import type { Graph } from './model';
import { nameOf } from './model';

type Test = (op: number) => boolean;
type Column = ArrayLike<number> | undefined;

const FIELDS = ['kind', 'shape', 'attr', 'line', 'name', 'scope', 'phase'] as const;
type Field = (typeof FIELDS)[number];

/**
 * The ops that match every word of `query`, in program order. Words look in all fields unless
 * they name one. Each table of strings is searched once, then every op is one lookup.
 */
export function search(graph: Graph, query: string): Int32Array {
  const words = query.trim().toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return new Int32Array(0);
  const tests = words.map((word) => wordTest(graph, word));
  const hits: number[] = [];
  for (let op = 0; op < graph.n; op++) if (tests.every((test) => test(op))) hits.push(op);
  return Int32Array.from(hits);
}

function wordTest(graph: Graph, word: string): Test {
  const colon = word.indexOf(':');
  const field = FIELDS.find((name) => name === word.slice(0, Math.max(0, colon)));
  if (field) return fieldTest(graph, field, word.slice(colon + 1));
  const tests = FIELDS.map((name) => fieldTest(graph, name, word));
  return (op) => tests.some((test) => test(op));
}

function fieldTest(graph: Graph, field: Field, text: string): Test {
  const { data } = graph;
  const { ops } = data;
  const inTable = (table: string[] | undefined, column: Column, wanted = text): Test => {
    if (!table || !column) return () => false;
    const found = Uint8Array.from(table, (entry) => (entry.toLowerCase().includes(wanted) ? 1 : 0));
    return (op) => found[column[op]!] === 1;
  };
  switch (field) {
    case 'kind':
      return inTable(data.kinds, ops.kind);
    case 'shape': {
      const plain = data.types.map((type) => `${type} ${shortType(type).replaceAll('×', 'x')}`);
      return inTable(plain, ops.type, text.replaceAll('×', 'x'));
    }
    case 'attr':
      return inTable(data.attributes, ops.attribute);
    case 'phase':
      return inTable(data.phases, ops.phase);
    case 'scope':
      return inTable(data.scopes, ops.scope);
    case 'line': {
      const parts = /^(.*?)(?::(\d+))?$/.exec(text)!;
      const test = inTable(data.files, ops.file, parts[1]!);
      const line = Number(parts[2]);
      return parts[2] ? (op) => test(op) && ops.line?.[op] === line : test;
    }
    case 'name':
      return (op) => nameOf(graph, op).toLowerCase().includes(text);
  }
}
