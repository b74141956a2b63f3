/** The search without a drawing, for a page without a server. */

import { shortType } from '../shared/format';
import { decode } from '../shared/wire';
import { changeOf, type GraphData, kindOf, makeGraph, nameOf, sourceLocation, typeOf } from './model';
import { matchInWorker } from './expressions';
import { textsForExpressions, search } from './search';

export interface Hit {
  key: string | number;
  text: string;
  detail: string;
}

/** The hits of `query` in the packed data of a graph: the number of ops, and the first `limit` of them. */
export async function find(
  text: string,
  blob: DataView,
  query: string,
  limit: number,
  signal: AbortSignal,
): Promise<{ ops: number; hits: Hit[] }> {
  const graph = makeGraph(decode<GraphData>(text, blob)!);
  const { scopes, ops } = graph.data;
  const matches = await matchInWorker(textsForExpressions(graph, query), signal);
  const found = [...search(graph, query, matches)].filter((op) => changeOf(graph, op) !== 'removed');
  return {
    ops: found.length,
    hits: found.slice(0, limit).map((op) => ({
      key: graph.keys[op]!,
      text: `${nameOf(graph, op)} ${kindOf(graph, op)}`,
      detail: [shortType(typeOf(graph, op)), scopes[ops.scope[op]!], sourceLocation(graph, op)].filter(Boolean).join('  '),
    })),
  };
}
