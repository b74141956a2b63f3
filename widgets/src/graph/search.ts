/**
 * Search over a stage (workbench/queries/op_search.py does the same without a graph): words, "words with spaces", /regular expressions/, each in all fields or in
 * one: `kind:`, `shape:`, `dtype:`, `attr:`, `line:`, `name:`, `scope:`, `phase:`.
 */

import { shortType } from '../shared/format';
import { type Answers, ask, type Asked } from './expressions';
import type { Graph } from './model';
import { nameOf } from './model';

type Test = (op: number) => boolean;
type Matches = (text: string) => boolean;
type Column = ArrayLike<number> | undefined;

const FIELDS = ['kind', 'shape', 'dtype', 'attr', 'line', 'name', 'scope', 'phase'] as const;
type Field = (typeof FIELDS)[number];
/** A word, a quoted text, or an expression between slashes, with an optional field before it. */
const TERM = /(?:([a-z]+):)?(?:"([^"]*)"|\/((?:\\.|[^/\\])+)\/(?=\s|$)|(\S+))/gi;

/** A term to find in one field or in all: a text in lower case, or an expression. */
interface Term {
  field: Field | undefined;
  text: string;
  expression: string | undefined;
}

/** The texts in which to search the expressions of `query`; empty without expressions. */
export function asked(graph: Graph, query: string): Asked {
  const texts = (field: Field) => tableOf(graph, field).texts;
  return askedOf(query, (term) => (term.field ? texts(term.field) : FIELDS.flatMap(texts)));
}

/**
 * The ops that match every term of `query`, in program order. Each table of strings is searched
 * once, then every op is one lookup. `answers`: the answers to `asked`.
 */
export function search(graph: Graph, query: string, answers: Answers): Int32Array {
  const tests = terms(query).map((term) => termTest(graph, term, answers));
  if (tests.length === 0) return new Int32Array(0);
  const hits: number[] = [];
  for (let op = 0; op < graph.n; op++) if (tests.every((test) => test(op))) hits.push(op);
  return Int32Array.from(hits);
}

/** The indices of `names` that match every term: for objects that only have a name, such as passes. */
export async function searchNames(
  names: readonly string[],
  query: string,
  signal: AbortSignal,
): Promise<number[]> {
  const wanted = terms(query);
  if (wanted.length === 0 || wanted.some(({ field }) => field && field !== 'name')) return [];
  const answers = await ask(askedOf(query, () => names), signal);
  const tests = wanted.map((term) => answered(term, answers) ?? contains(term.text));
  return [...names.keys()].filter((i) => tests.every((test) => test(names[i]!)));
}

function terms(query: string): Term[] {
  return [...query.matchAll(TERM)].map(([whole, prefix, phrase, expression, word]) => {
    const field = FIELDS.find((name) => name === prefix?.toLowerCase());
    // A colon without a known field before it is part of the word: `model.py:12`.
    const known = field !== undefined || prefix === undefined;
    return {
      field,
      text: (known ? (phrase ?? word ?? '') : whole).toLowerCase(),
      expression: known ? expression : undefined,
    };
  });
}

function askedOf(query: string, texts: (term: Term) => readonly string[]): Asked {
  const all: Asked = new Map();
  for (const term of terms(query)) {
    if (term.expression === undefined) continue;
    all.set(term.expression, [...(all.get(term.expression) ?? []), ...texts(term)]);
  }
  return all;
}

function termTest(graph: Graph, term: Term, answers: Answers): Test {
  if (term.field) return fieldTest(graph, term.field, term, answers);
  const tests = FIELDS.map((name) => fieldTest(graph, name, term, answers));
  return (op) => tests.some((test) => test(op));
}

const contains = (wanted: string): Matches => (entry) => entry.toLowerCase().includes(wanted);

/** The test for an expression, from its answer; null: the term is a text. */
function answered({ expression }: Term, answers: Answers): Matches | null {
  if (expression === undefined) return null;
  const found = answers.get(expression)!;
  return (entry) => found.has(entry);
}

function fieldTest(graph: Graph, field: Field, term: Term, answers: Answers): Test {
  const { texts, column } = tableOf(graph, field);
  const inTable = (matches: Matches): Test => {
    if (!column) return () => false;
    const found = Uint8Array.from(texts, (entry) => (matches(entry) ? 1 : 0));
    return (op) => found[column[op]!] === 1;
  };
  const given = answered(term, answers);
  if (given) return inTable(given);
  const { text } = term;
  switch (field) {
    case 'shape':
      return inTable(contains(text.replaceAll('×', 'x')));
    case 'dtype':
      return inTable((entry) => entry.toLowerCase() === text);
    case 'line': {
      const parts = /^(.*?)(?::(\d+))?$/.exec(text)!;
      const test = inTable(contains(parts[1]!));
      const line = Number(parts[2]);
      return parts[2] ? (op) => test(op) && graph.data.ops.line?.[op] === line : test;
    }
    default:
      return inTable(contains(text));
  }
}

/** The texts of a field, and the index of each op's text. */
function tableOf(graph: Graph, field: Field): { texts: readonly string[]; column: Column } {
  const { data } = graph;
  const { ops } = data;
  switch (field) {
    case 'kind':
      return { texts: data.kinds, column: ops.kind };
    case 'shape': {
      const plain = data.types.map((type) => `${type} ${shortType(type).replaceAll('×', 'x')}`);
      return { texts: plain, column: ops.type };
    }
    case 'dtype': {
      const dtypes = data.types.map((type) => shortType(type).split(' ').at(-1) ?? '');
      return { texts: dtypes, column: ops.type };
    }
    case 'attr':
      return { texts: data.attributes ?? [], column: ops.attribute };
    case 'phase':
      return { texts: data.phases ?? [], column: ops.phase };
    case 'scope':
      return { texts: data.scopes, column: ops.scope };
    case 'line':
      return { texts: data.files ?? [], column: ops.file };
    case 'name': {
      const all = Int32Array.from({ length: graph.n }, (_, op) => op);
      return { texts: Array.from(all, (op) => nameOf(graph, op)), column: all };
    }
  }
}
