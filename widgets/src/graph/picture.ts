/** The visible graph as a file: SVG as drawn, DOT for Graphviz and other tools. */

import { shortType } from '../shared/format';
import { toValidXml, SvgPen } from '../shared/pen';
import type { Palette } from '../shared/theme';
import type { Layout } from './layout';
import { drawMarks, type MarksInput } from './marks';
import { type Graph, kindOf, nameOf, operandsOf, typeOf } from './model';
import { type Box, drawScene, type SceneInput } from './scene';
import type { Tree } from './scopes';
import { classColour, type OpClass } from './style';

export const MAX_SVG_ITEMS = 5000;

/** The whole drawing with its marks (selection, path, linked items) if it is small enough, else
 * the window, else null. */
export function svg(
  input: SceneInput,
  marks: MarksInput,
  bounds: Box,
  view: Box,
): string | null {
  const region = input.layout.count <= MAX_SVG_ITEMS ? bounds : view;
  const pen = new SvgPen();
  const drawn = drawScene(pen, { ...input, motion: null }, region, 1);
  if (drawn > MAX_SVG_ITEMS) return null;
  drawMarks(pen, { ...marks, hover: -1 }, 1);
  return pen.document(region.x, region.y, region.width, region.height, input.palette.page);
}

interface DotInput {
  graph: Graph;
  tree: Tree;
  layout: Layout;
  classes: OpClass[];
  palette: Palette;
}

/** The drawn ops and scopes, open scopes as clusters, with every edge between them, including
 * those too long for the drawing. */
export function dot(input: DotInput): string {
  const { graph, layout } = input;
  const lines = [
    `digraph ${quoted(graph.data.stage.title)} {`,
    '  rankdir=TB; compound=true;',
    '  node [shape=box, style="rounded", fontname="Helvetica", fontsize=10];',
    '  edge [arrowsize=0.6];',
  ];
  cluster(input, 0, '  ', lines);
  const edges = new Set<string>();
  for (let op = 0; op < graph.n; op++) {
    const to = layout.visibleItemOf[op]!;
    if (to < 0) continue;
    for (const producer of operandsOf(graph, op)) {
      const from = layout.visibleItemOf[producer]!;
      if (from >= 0 && from !== to) edges.add(`  n${from} -> n${to};`);
    }
  }
  return [...lines, ...edges, '}', ''].join('\n');
}

function cluster(input: DotInput, at: number, indent: string, lines: string[]): void {
  const { layout, tree } = input;
  for (const item of layout.containers[at]!.items) {
    const inner = layout.opens[item]!;
    if (inner < 0) {
      lines.push(`${indent}n${item} [${attributes(input, item)}];`);
      continue;
    }
    const { label } = tree.scopes[-1 - layout.id[item]!]!;
    lines.push(`${indent}subgraph cluster_${item} {`, `${indent}  label=${quoted(label)};`);
    cluster(input, inner, `${indent}  `, lines);
    lines.push(`${indent}}`);
  }
}

function attributes(input: DotInput, item: number): string {
  const { graph, tree, layout, classes, palette } = input;
  const id = layout.id[item]!;
  if (id < 0) {
    const { label, total } = tree.scopes[-1 - id]!;
    return `label=${quoted(`${label}\n${total} ops`)}, shape=box3d`;
  }
  const text = `${kindOf(graph, id)}\n${nameOf(graph, id)} ${shortType(typeOf(graph, id))}`;
  const colour = classColour(palette, classes[graph.data.ops.kind[id]!]!);
  return `label=${quoted(text)}, color="${colour}"`;
}

/** A quoted string of DOT, which is also valid for tools that convert it to SVG. */
const quoted = (text: string): string =>
  `"${toValidXml(text).replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')}"`;
