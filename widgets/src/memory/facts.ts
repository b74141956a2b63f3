/** The facts of a buffer. */

import { facts, h } from '../shared/dom';
import { bytes, count, plural } from '../shared/format';
import { type MemoryData, unpaddedOf } from './model';

export function bufferFacts(data: MemoryData, b: number): Node[] {
  const { buffers, categories, tiers, step_label } = data;
  const [start, end] = [buffers.start[b]!, buffers.end[b]!];
  const size = buffers.size[b]!;
  const unpadded = unpaddedOf(data, b);
  const rows: [string, string][] = [
    ['size', `${bytes(size)}  (${count(size)} B)`],
    ['offset', `${bytes(buffers.offset[b]!)}  (${count(buffers.offset[b]!)} B)`],
    ['padding', `${bytes(size - unpadded)}`],
    ['lives', `${count(start)} to ${count(end)}, ${plural(end - start, 'step')}`],
    ['tier', tiers[buffers.tier[b]!]?.name ?? ''],
  ];
  const category = categories?.[buffers.category?.[b] ?? -1];
  if (category) rows.push(['kind', category]);
  if (buffers.type?.[b]) rows.push(['type', buffers.type[b]!]);
  if (step_label?.[start]) rows.push(['first', step_label[start]!]);
  if (step_label?.[end - 1]) rows.push(['last', step_label[end - 1]!]);
  return [h('b', {}, buffers.name[b]!), facts(rows)];
}
