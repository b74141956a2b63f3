/**
 * Search over a stage (workbench/queries/op_search.py does the same without a graph): words, "words with spaces", /regular expressions/, each in all fields or in
 * one: `kind:`, `shape:`, `dtype:`, `attr:`, `line:`, `name:`, `scope:`, `phase:`.
 */

import { shortType } from '../shared/format';
import { type ExpressionMatches, matchInWorker, type ExpressionTexts } from './expressions';
import type { Graph } from './model';
import { nameOf } from './model';

type Test = (op: number) => boolean;
type TextTest = (text: string) => boolean;
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
export function textsForExpressions(graph: Graph, query: string): ExpressionTexts {
  const texts = (field: Field) => fieldTable(graph, field).texts;
  return collectTexts(query, (term) => (term.field ? texts(term.field) : FIELDS.flatMap(texts)));
}

/**
 * The ops that match every term of `query`, in program order. Each table of strings is searched
 * once, then every op is one lookup. `matches`: those of `textsForExpressions`.
 */
export function search(graph: Graph, query: string, matches: ExpressionMatches): Int32Array {
  const tests = parseTerms(query).map((term) => termTest(graph, term, matches));
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
  const queryTerms = parseTerms(query);
  if (queryTerms.length === 0 || queryTerms.some(({ field }) => field && field !== 'name')) return [];
  const matches = await matchInWorker(collectTexts(query, () => names), signal);
  const tests = queryTerms.map((term) => expressionTest(term, matches) ?? contains(term.text));
  return [...names.keys()].filter((i) => tests.every((test) => test(names[i]!)));
}

function parseTerms(query: string): Term[] {
  return [...query.matchAll(TERM)].map(([match, prefix, phrase, expression, word]) => {
    const field = FIELDS.find((name) => name === prefix?.toLowerCase());
    // A colon without a known field before it is part of the word: `model.py:12`.
    const isField = field !== undefined || prefix === undefined;
    return {
      field,
      text: (isField ? (phrase ?? word ?? '') : match).toLowerCase(),
      expression: isField ? expression : undefined,
    };
  });
}

function collectTexts(query: string, texts: (term: Term) => readonly string[]): ExpressionTexts {
  const all: ExpressionTexts = new Map();
  for (const term of parseTerms(query)) {
    if (term.expression === undefined) continue;
    all.set(term.expression, [...(all.get(term.expression) ?? []), ...texts(term)]);
  }
  return all;
}

function termTest(graph: Graph, term: Term, expressionMatches: ExpressionMatches): Test {
  if (term.field) return fieldTest(graph, term.field, term, expressionMatches);
  const tests = FIELDS.map((name) => fieldTest(graph, name, term, expressionMatches));
  return (op) => tests.some((test) => test(op));
}

const contains = (part: string): TextTest => (entry) => entry.toLowerCase().includes(part);

/** The test for an expression, from its matches; null: the term is a text. */
function expressionTest({ expression }: Term, expressionMatches: ExpressionMatches): TextTest | null {
  if (expression === undefined) return null;
  const found = expressionMatches.get(expression)!;
  return (entry) => found.has(entry);
}

function fieldTest(graph: Graph, field: Field, term: Term, expressionMatches: ExpressionMatches): Test {
  const { texts, column } = fieldTable(graph, field);
  const testTable = (textTest: TextTest): Test => {
    if (!column) return () => false;
    const found = Uint8Array.from(texts, (entry) => (textTest(entry) ? 1 : 0));
    return (op) => found[column[op]!] === 1;
  };
  const isMatch = expressionTest(term, expressionMatches);
  if (isMatch) return testTable(isMatch);
  const { text } = term;
  switch (field) {
    case 'shape':
      return testTable(contains(text.replaceAll('×', 'x')));
    case 'dtype':
      return testTable((entry) => entry.toLowerCase() === text);
    case 'line': {
      const parts = /^(.*?)(?::(\d+))?$/.exec(text)!;
      const test = testTable(contains(parts[1]!));
      const line = Number(parts[2]);
      return parts[2] ? (op) => test(op) && graph.data.ops.line?.[op] === line : test;
    }
    default:
      return testTable(contains(text));
  }
}

/** The texts of a field, and the index of each op's text. */
function fieldTable(graph: Graph, field: Field): { texts: readonly string[]; column: Column } {
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
