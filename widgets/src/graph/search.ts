/**
 * Search over a stage (workbench/views/op_search.py is the same where no graph is drawn): words, "words with spaces", /regular expressions/, each in all fields or in
 * one: `kind:`, `shape:`, `dtype:`, `attr:`, `line:`, `name:`, `scope:`, `phase:`.
 */

import { shortType } from '../shared/format';
import type { Graph } from './model';
import { nameOf } from './model';

type Test = (op: number) => boolean;
type Matches = (text: string) => boolean;
type Column = ArrayLike<number> | undefined;

const FIELDS = ['kind', 'shape', 'dtype', 'attr', 'line', 'name', 'scope', 'phase'] as const;
type Field = (typeof FIELDS)[number];
/** A word, what is in quotes, or what stands between slashes, with or without a field before it. */
const TERM = /(?:([a-z]+):)?(?:"([^"]*)"|\/((?:\\.|[^/\\])+)\/(?=\s|$)|(\S+))/gi;

/** What is looked for, in one field or in all: a text in lower case, or an expression. */
interface Term {
  field: Field | undefined;
  text: string;
  expression: Matches | null;
}

/** A regular expression that is none. */
export class BadExpression extends Error {}

/**
 * The ops that match every term of `query`, in program order. Each table of strings is searched
 * once, then every op is one lookup. BadExpression where a regular expression cannot be read.
 */
export function search(graph: Graph, query: string): Int32Array {
  const tests = terms(query).map((term) => termTest(graph, term));
  if (tests.length === 0) return new Int32Array(0);
  const hits: number[] = [];
  for (let op = 0; op < graph.n; op++) if (tests.every((test) => test(op))) hits.push(op);
  return Int32Array.from(hits);
}

/** Which of `names` match every term: things that have but a name, such as passes. */
export function searchNames(names: readonly string[], query: string): number[] {
  const wanted = terms(query);
  if (wanted.length === 0 || wanted.some(({ field }) => field && field !== 'name')) return [];
  const tests = wanted.map(({ text, expression }) => expression ?? contains(text));
  return [...names.keys()].filter((i) => tests.every((test) => test(names[i]!)));
}

function terms(query: string): Term[] {
  return [...query.matchAll(TERM)].map(([whole, prefix, phrase, expression, word]) => {
    const field = FIELDS.find((name) => name === prefix?.toLowerCase());
    // A colon that names no field is part of the word: `model.py:12`.
    const known = field !== undefined || prefix === undefined;
    return {
      field,
      text: (known ? (phrase ?? word ?? '') : whole).toLowerCase(),
      expression: expression !== undefined && known ? byExpression(expression) : null,
    };
  });
}

function termTest(graph: Graph, { field, text, expression }: Term): Test {
  if (field) return fieldTest(graph, field, text, expression);
  const tests = FIELDS.map((name) => fieldTest(graph, name, text, expression));
  return (op) => tests.some((test) => test(op));
}

const contains = (wanted: string): Matches => (entry) => entry.toLowerCase().includes(wanted);

function byExpression(source: string): Matches {
  try {
    const expression = new RegExp(source, 'i');
    return (text) => expression.test(text);
  } catch (problem) {
    throw new BadExpression(String((problem as Error).message));
  }
}

function fieldTest(graph: Graph, field: Field, text: string, given: Matches | null): Test {
  const { data } = graph;
  const { ops } = data;
  const inTable = (table: string[] | undefined, column: Column, matches: Matches): Test => {
    if (!table || !column) return () => false;
    const found = Uint8Array.from(table, (entry) => (matches(entry) ? 1 : 0));
    return (op) => found[column[op]!] === 1;
  };
  const matches = given ?? contains(text);
  switch (field) {
    case 'kind':
      return inTable(data.kinds, ops.kind, matches);
    case 'shape': {
      const plain = data.types.map((type) => `${type} ${shortType(type).replaceAll('×', 'x')}`);
      return inTable(plain, ops.type, given ?? contains(text.replaceAll('×', 'x')));
    }
    case 'dtype': {
      const dtypes = data.types.map((type) => shortType(type).split(' ').at(-1) ?? '');
      return inTable(dtypes, ops.type, given ?? ((entry) => entry.toLowerCase() === text));
    }
    case 'attr':
      return inTable(data.attributes, ops.attribute, matches);
    case 'phase':
      return inTable(data.phases, ops.phase, matches);
    case 'scope':
      return inTable(data.scopes, ops.scope, matches);
    case 'line': {
      if (given) return inTable(data.files, ops.file, given);
      const parts = /^(.*?)(?::(\d+))?$/.exec(text)!;
      const test = inTable(data.files, ops.file, contains(parts[1]!));
      const line = Number(parts[2]);
      return parts[2] ? (op) => test(op) && ops.line?.[op] === line : test;
    }
    case 'name':
      return (op) => matches(nameOf(graph, op));
  }
}
