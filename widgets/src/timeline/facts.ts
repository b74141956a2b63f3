/** The facts of a span: one launch on one lane. */

import { facts, h } from '../shared/dom';
import { bytes, count, quantity } from '../shared/format';
import { categoryOf, kernelOf, type Plan, type TimelineData } from './model';

/** `more`: additional facts, such as those of two recordings. */
export function spanFacts(data: TimelineData, plan: Plan, span: number, more: (launch: number) => [string, string][] = () => []): Node[] {
  const { spans, launches, places, lanes, live, total } = data;
  const n = spans.launch[span]!;
  const [median, duration] = [launches.median[n]!, spans.duration[span]!];
  const spent = plan.last[n]! - plan.first[n]!;
  const rate = (amount: number, unit: string) => `${(amount / spent / 1e3).toFixed(1)} ${unit}`;
  const rows: [string, string][] = [
    ['start', quantity(spans.start[span]!, 'us')],
    ['duration', `${quantity(duration, 'us')} on ${lanes[spans.lane[span]!] ?? ''}`],
  ];
  if (lanes.length > 1) rows.push(['all threads', quantity(spent, 'us')]);
  rows.push(['share', `${((100 * spent) / Math.max(total, 1e-9)).toFixed(2)} % of the execution`]);
  if (!Number.isNaN(median)) {
    rows.push(['median', `${quantity(median, 'us')}, from ${quantity(launches.min[n]!, 'us')}, 95 of 100 below ${quantity(launches.p95[n]!, 'us')}`]);
  }
  if (launches.flops[n] && spent) rows.push(['rate', `${rate(launches.flops[n]!, 'GFLOP/s')}, ${rate(launches.bytes[n]!, 'GB/s')}`]);
  if (live) rows.push(['live', bytes(live[n]!)]);
  const bound = data.bounds?.[n];
  if (bound) rows.push(['predicted', `bound by ${bound}`]);
  const percent = data.percent?.[n];
  if (percent !== undefined) {
    const why = percent > 100 ? '; it was measured while the machine was busy' : ', by the median';
    rows.push(['of limit', `${percent.toFixed(1)} % of this machine's lower roof${why}`]);
  }
  rows.push(['kind', data.categories[categoryOf(data, n)] ?? '']);
  const location = places[launches.place[n]!];
  if (location) rows.push(['model line', location.split('/').slice(-2).join('/')]);
  rows.push(...more(n));
  return [h('b', {}, `${kernelOf(data, n)}`), h('span', {}, `  launch ${count(n)}`), facts(rows)];
}
