/** The search without a drawing, for a page without a server. */

import { shortType } from '../shared/format';
import { decode } from '../shared/wire';
import { changeOf, type GraphData, kindOf, makeGraph, nameOf, placeOf, typeOf } from './model';
import { ask } from './expressions';
import { asked, search } from './search';

export interface Hit {
  key: string | number;
  text: string;
  detail: string;
}

/** The hits of `query` in the packed data of a graph: the number of ops, and the first `most` of them. */
export async function find(
  text: string,
  blob: DataView,
  query: string,
  most: number,
  signal: AbortSignal,
): Promise<{ ops: number; hits: Hit[] }> {
  const graph = makeGraph(decode<GraphData>(text, blob)!);
  const { scopes, ops } = graph.data;
  const answers = await ask(asked(graph, query), signal);
  const found = [...search(graph, query, answers)].filter((op) => changeOf(graph, op) !== 'removed');
  return {
    ops: found.length,
    hits: found.slice(0, most).map((op) => ({
      key: graph.keys[op]!,
      text: `${nameOf(graph, op)} ${kindOf(graph, op)}`,
      detail: [shortType(typeOf(graph, op)), scopes[ops.scope[op]!], placeOf(graph, op)].filter(Boolean).join('  '),
    })),
  };
}
