/** Data of the timeline view (see widgets/README.md), and derived data. */

import { roundStep } from '../shared/axis';
import { csvText } from '../shared/download';

export interface TimelineData {
  title: string;
  /** The definition of each figure, by its name. */
  terms?: Record<string, string>;
  target: string;
  /** The source of the spans' times. */
  note: string;
  recorded: boolean;
  /** No launch was measured: the times are predicted. */
  predicted?: boolean;
  /** From the first start to the last end, in microseconds, as all times here. */
  total: number;
  lanes: string[];
  categories: string[];
  kernels: { name: string[]; key: number[]; category: number[] };
  places: string[];
  launches: {
    op: Int32Array;
    kernel: Int32Array;
    place: Int32Array;
    median: Float64Array;
    min: Float64Array;
    p95: Float64Array;
    flops: Float64Array;
    bytes: Float64Array;
  };
  spans: { launch: Int32Array; lane: Int32Array; start: Float64Array; duration: Float64Array };
  live?: Float64Array;
  /** The share of the machine's limit that each launch reaches, by its median, in percent; above 100: the limit was measured
   * while the machine was busy. */
  percent?: Float64Array;
  /** What bounds each predicted launch. */
  bounds?: string[];
}

/** The spans of each lane ordered by start, and the time of each launch. */
export interface Plan {
  lanes: Int32Array[];
  /** First start and last end of each launch; NaN for one without spans. */
  first: Float64Array;
  last: Float64Array;
  /** The busy time of each lane. */
  busy: Float64Array;
  /** Launches ordered by start. */
  order: Int32Array;
  peak: number;
  peakLaunch: number;
}

export function makePlan(data: TimelineData): Plan {
  const { launch, lane, start, duration } = data.spans;
  const counts = new Int32Array(data.lanes.length);
  for (let i = 0; i < lane.length; i++) counts[lane[i]!]!++;
  const lanes = Array.from(counts, (n) => new Int32Array(n));
  const filled = new Int32Array(data.lanes.length);
  const busy = new Float64Array(data.lanes.length);
  const first = new Float64Array(data.launches.op.length).fill(NaN);
  const last = new Float64Array(data.launches.op.length).fill(NaN);
  for (let i = 0; i < lane.length; i++) {
    const l = lane[i]!;
    lanes[l]![filled[l]!++] = i;
    busy[l]! += duration[i]!;
    const [n, from, to] = [launch[i]!, start[i]!, start[i]! + duration[i]!];
    if (!(first[n]! <= from)) first[n] = from;
    if (!(last[n]! >= to)) last[n] = to;
  }
  const order = Int32Array.from(
    Array.from(first.keys()).filter((n) => !Number.isNaN(first[n]!)),
  ).sort((a, b) => first[a]! - first[b]! || a - b);
  let [peak, peakLaunch] = [0, -1];
  data.live?.forEach((bytes, n) => {
    if (bytes > peak) [peak, peakLaunch] = [bytes, n];
  });
  return { lanes, first, last, busy, order, peak, peakLaunch };
}

/** The index in `list` of the last span that starts at or before `time`; -1: none. */
export function lastBefore(list: Int32Array, start: Float64Array, time: number): number {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[list[middle]!]! <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

export const kernelOf = (data: TimelineData, launch: number): string =>
  data.kernels.name[data.launches.kernel[launch]!] ?? '';
export const categoryOf = (data: TimelineData, launch: number): number =>
  data.kernels.category[data.launches.kernel[launch]!] ?? 0;

/** A step for the time axis so that about `lines` fit: 1, 2 or 5 times a power of ten. */
export const timeStep = (span: number, lines: number): number =>
  roundStep(Math.max(span / Math.max(1, lines), 1e-3));

export function csv(data: TimelineData): string {
  const { spans, launches } = data;
  const names = ['launch', 'kernel', 'lane', 'start_us', 'duration_us', 'median_us', 'flops', 'bytes', 'live_bytes', 'op', 'model_line'];
  const rows = Array.from({ length: spans.launch.length }, (_, i) => {
    const n = spans.launch[i]!;
    return [
      n,
      kernelOf(data, n),
      data.lanes[spans.lane[i]!],
      spans.start[i],
      spans.duration[i],
      launches.median[n],
      launches.flops[n],
      launches.bytes[n],
      data.live?.[n],
      launches.op[n],
      data.places[launches.place[n]!],
    ];
  });
  return csvText(names, rows);
}
