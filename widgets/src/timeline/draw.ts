/** Drawing: an overview map, a time axis, a lane per thread, and the curve of live bytes. */

import { ink, launches } from '../../colours.json';
import { type Area, type Range, Scale, ticks } from '../shared/axis';
import { bytes, count, quantity } from '../shared/format';
import type { Pen } from '../shared/pen';
import { inTheme, MONO, type ColourPair, type Palette, SANS } from '../shared/theme';
import { categoryOf, kernelOf, lastBefore, type Plan, timeStep, type TimelineData } from './model';

export const LEFT = 86;
const RIGHT = 10;
const MAP = 30;
const AXIS = 20;
const GAP = 3;

/** The shown time, and the scroll position of the lanes (pixels). */
export interface Window extends Range {
  scroll: number;
}

export interface DrawInput {
  data: TimelineData;
  plan: Plan;
  window: Window;
  palette: Palette;
  width: number;
  height: number;
  /** The selected launches. */
  selected: ReadonlySet<number>;
}

export interface Areas {
  map: Area;
  axis: Area;
  lanes: Area;
  curve: Area | null;
  percent: Area | null;
  /** Height of a lane with its gap. */
  lane: number;
}

export function areas(data: TimelineData, width: number, height: number): Areas {
  const inner = Math.max(40, width - LEFT - RIGHT);
  const count = Math.max(1, data.lanes.length);
  const top = 6 + MAP + AXIS;
  const curveHeight = data.live ? Math.min(90, height * 0.3) : 0;
  const lane = Math.max(12, Math.min(40, (height - top - curveHeight - 16) / count));
  const tall = Math.min(lane * count, Math.max(lane, height - top - curveHeight - 16));
  const y = top + tall + 12;
  const left = height - y - 8;
  const share = data.percent && left > 190 ? Math.min(150, left * 0.32) : 0;
  const high = Math.min(280, left - share - (share ? 12 : 0));
  const curve = data.live ? { x: LEFT, y, width: inner, height: Math.max(20, high) } : null;
  const below = curve ? curve.y + curve.height + 12 : y;
  const percent = share ? { x: LEFT, y: below, width: inner, height: share } : null;
  return {
    map: { x: LEFT, y: 6, width: inner, height: MAP },
    axis: { x: LEFT, y: 6 + MAP, width: inner, height: AXIS },
    lanes: { x: LEFT, y: top, width: inner, height: tall },
    curve,
    percent,
    lane,
  };
}

const COLOURS: ColourPair[] = Object.values(launches);

export function categoryColour(palette: Palette, category: number): string {
  return inTheme(palette, COLOURS[category % COLOURS.length]!);
}

/** Returns how many spans were in the window. */
export function draw(pen: Pen, input: DrawInput): number {
  const layout = areas(input.data, input.width, input.height);
  const drawn = drawLanes(pen, input, layout);
  drawMap(pen, input, layout.map);
  axis(pen, input, layout);
  if (layout.curve) drawCurve(pen, input, layout.curve);
  if (layout.percent) drawPercent(pen, input, layout.percent);
  return drawn;
}

// ------------------------------------------------------------------ lanes

function drawLanes(pen: Pen, input: DrawInput, layout: Areas): number {
  const { data, plan, window, palette } = input;
  const { lanes: area, lane } = layout;
  const s = Scale.across(area, window.from, window.to);
  pen.fillStyle = palette.surface;
  pen.fillRect(area.x, area.y, area.width, area.height);
  grid(pen, input, area, s);
  const first = Math.max(0, Math.floor(window.scroll / lane));
  const last = Math.min(data.lanes.length, Math.ceil((window.scroll + area.height) / lane));
  let drawn = 0;
  for (let l = first; l < last; l++) {
    const y = area.y + l * lane - window.scroll;
    drawn += drawLane(pen, input, area, s, plan.lanes[l]!, y + GAP / 2, lane - GAP);
  }
  // Cover what scrolled out of the lanes' area.
  pen.fillStyle = palette.page;
  pen.fillRect(0, 0, input.width, area.y);
  pen.fillRect(0, area.y + area.height, input.width, input.height - area.y - area.height);
  pen.fillRect(0, area.y, LEFT, area.height);
  for (let l = first; l < last; l++) {
    const y = area.y + l * lane - window.scroll + lane / 2 + 4;
    if (y < area.y + 6 || y > area.y + area.height) continue;
    pen.fillStyle = palette.muted;
    pen.textAlign = 'right';
    pen.font = `11px ${SANS}`;
    pen.fillText(data.lanes[l]!, LEFT - 8, y);
  }
  pen.textAlign = 'left';
  return drawn;
}

/** One lane: spans too thin to see are merged, in the colour of the longest. */
function drawLane(
  pen: Pen,
  input: DrawInput,
  area: Area,
  s: Scale,
  list: Int32Array,
  y: number,
  height: number,
): number {
  const { data, window, palette, selected } = input;
  const { launch, start, duration } = data.spans;
  const right = area.x + area.width;
  const byColour = new Map<number, number[]>();
  const labels: [number, number, number][] = [];
  const marked: [number, number][] = [];
  let [x0, x1, longest, colour] = [NaN, NaN, 0, 0];
  const flush = () => {
    if (Number.isNaN(x0)) return;
    const boxes = byColour.get(colour) ?? [];
    boxes.push(x0, Math.max(0.8, x1 - x0));
    byColour.set(colour, boxes);
  };
  let drawn = 0;
  for (let i = Math.max(0, lastBefore(list, start, window.from)); i < list.length; i++) {
    const span = list[i]!;
    if (start[span]! > window.to) break;
    const end = start[span]! + duration[span]!;
    if (end < window.from) continue;
    drawn++;
    const from = Math.max(area.x, s.at(start[span]!));
    const to = Math.min(right, s.at(end));
    const category = categoryOf(data, launch[span]!);
    if (from - x1 < 0.6 && to - from < 2 && x1 - x0 < 2) {
      x1 = Math.max(x1, to);
      if (duration[span]! > longest) [longest, colour] = [duration[span]!, category];
    } else {
      flush();
      [x0, x1, longest, colour] = [from, to, duration[span]!, category];
    }
    if (to - from > 34 && height > 10) labels.push([span, from, to]);
    if (selected.has(launch[span]!)) marked.push([from, to]);
  }
  flush();
  for (const [category, boxes] of byColour) {
    pen.fillStyle = categoryColour(palette, category);
    pen.beginPath();
    for (let i = 0; i < boxes.length; i += 2) {
      const w = boxes[i + 1]!;
      pen.rect(boxes[i]!, y, w > 4 ? w - 0.7 : w, height);
    }
    pen.fill();
  }
  pen.font = `11px ${MONO}`;
  for (const [span, from, to] of labels) label(pen, input, span, from, to, y, height);
  pen.strokeStyle = palette.accent;
  pen.lineWidth = 2;
  for (const [from, to] of marked) {
    pen.beginPath();
    pen.rect(from, y, Math.max(2, to - from), height);
    pen.stroke();
  }
  return drawn;
}

function label(pen: Pen, input: DrawInput, span: number, from: number, to: number, y: number, height: number): void {
  const { data, palette } = input;
  const name = kernelOf(data, data.spans.launch[span]!);
  const time = quantity(data.spans.duration[span]!, 'us');
  const fits = Math.floor((to - from - 8) / 6.7);
  const text = name.length + time.length + 2 <= fits ? `${name}  ${time}` : name;
  pen.fillStyle = inTheme(palette, ink.onArea);
  pen.fillText(text.length <= fits ? text : `${text.slice(0, Math.max(1, fits - 1))}…`, from + 4, y + height / 2 + 4);
}

// ------------------------------------------------------------------ axis and grid

function stepOf(input: DrawInput, area: Area): number {
  const { from, to } = input.window;
  return timeStep(to - from, area.width / 96);
}

function grid(pen: Pen, input: DrawInput, area: Area, s: Scale): void {
  pen.strokeStyle = input.palette.line;
  pen.lineWidth = 0.6;
  pen.beginPath();
  for (const time of ticks(input.window, stepOf(input, area))) {
    pen.moveTo(s.at(time), area.y);
    pen.lineTo(s.at(time), area.y + area.height);
  }
  pen.stroke();
}

function axis(pen: Pen, input: DrawInput, layout: Areas): void {
  const { axis: area } = layout;
  const { palette, window } = input;
  const s = Scale.across(area, window.from, window.to);
  const step = stepOf(input, area);
  pen.font = `10.5px ${SANS}`;
  pen.fillStyle = palette.muted;
  for (const time of ticks(window, step)) {
    const x = s.at(time);
    pen.textAlign = x > area.x + area.width - 24 ? 'right' : x < area.x + 14 ? 'left' : 'center';
    pen.fillText(axisTime(time, step), x, area.y + 14);
  }
  pen.textAlign = 'left';
}

/** A time on the axis, as precise as its steps. */
export function axisTime(time: number, step: number): string {
  if (Math.abs(time) < step / 1e6) return '0';
  const [unit, name] = step >= 1e5 ? [1e6, 's'] : step >= 100 ? [1e3, 'ms'] : step >= 0.1 ? [1, 'µs'] : [1e-3, 'ns'];
  const decimals = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
  return `${(time / unit).toFixed(decimals)} ${name}`;
}

// ------------------------------------------------------------------ the overview map

function drawMap(pen: Pen, input: DrawInput, area: Area): void {
  const { data, plan, window, palette } = input;
  pen.fillStyle = palette.surface;
  pen.fillRect(area.x, area.y, area.width, area.height);
  const columns = Math.max(1, Math.floor(area.width / 2));
  const filled = new Float64Array(columns);
  const weight = Array.from(data.categories, () => new Float64Array(columns));
  const scale = columns / Math.max(data.total, 1e-9);
  const { start, duration, launch } = data.spans;
  for (let i = 0; i < start.length; i++) {
    const [from, to] = [start[i]! * scale, (start[i]! + duration[i]!) * scale];
    const kind = weight[categoryOf(data, launch[i]!) % weight.length]!;
    for (let c = Math.floor(from); c < Math.min(columns, to); c++) {
      const part = Math.min(to, c + 1) - Math.max(from, c);
      filled[c]! += part;
      kind[c]! += part;
    }
  }
  // Height: the number of busy lanes; colour: the category of most of them.
  for (let c = 0; c < columns; c++) {
    if (filled[c]! <= 0) continue;
    let kind = 0;
    weight.forEach((w, k) => (kind = w[c]! > weight[kind]![c]! ? k : kind));
    const tall = Math.max(1, (Math.min(1, filled[c]! / data.lanes.length)) * (area.height - 4));
    pen.fillStyle = categoryColour(palette, kind);
    pen.fillRect(area.x + c * 2, area.y + area.height - 2 - tall, 2, tall);
  }
  const s = Scale.across(area, 0, data.total);
  pen.fillStyle = palette.accent;
  for (const n of input.selected) {
    if (Number.isNaN(plan.first[n]!)) continue;
    const x = s.at(plan.first[n]!);
    pen.fillRect(x - 0.5, area.y, Math.max(2, s.at(plan.last[n]!) - x), area.height);
  }
  const [x0, x1] = [s.at(Math.max(0, window.from)), s.at(Math.min(data.total, window.to))];
  pen.fillStyle = palette.page;
  pen.globalAlpha = 0.62;
  pen.fillRect(area.x, area.y, x0 - area.x, area.height);
  pen.fillRect(x1, area.y, area.x + area.width - x1, area.height);
  pen.globalAlpha = 1;
  pen.strokeStyle = palette.accent;
  pen.lineWidth = 1.4;
  pen.beginPath();
  pen.rect(x0, area.y, Math.max(3, x1 - x0), area.height);
  pen.stroke();
  pen.fillStyle = palette.muted;
  pen.font = `11px ${SANS}`;
  pen.textAlign = 'right';
  pen.fillText('whole', LEFT - 8, area.y + area.height / 2 + 4);
  pen.textAlign = 'left';
}

// ------------------------------------------------------------------ share of the limit

/** A bar per launch, from its first start to its last end, with its share of the limit as height; one above the limit has a mark. */
function drawPercent(pen: Pen, input: DrawInput, area: Area): void {
  const { data, plan, window, palette } = input;
  const s = Scale.across(area, window.from, window.to);
  const right = area.x + area.width;
  const y = (value: number) => area.y + area.height * (1 - Math.min(100, value) / 100);
  pen.fillStyle = palette.surface;
  pen.fillRect(area.x, area.y, area.width, area.height);
  grid(pen, input, area, s);
  const byColour = new Map<number, number[]>();
  const beyond: number[] = [];
  let lastRight = -1;
  for (const n of plan.order) {
    if (plan.last[n]! < window.from || plan.first[n]! > window.to) continue;
    const from = Math.max(area.x, s.at(plan.first[n]!));
    const to = Math.min(right, s.at(plan.last[n]!));
    if (to < lastRight + 0.3) continue; // too thin to see
    lastRight = to;
    const boxes = byColour.get(categoryOf(data, n)) ?? [];
    boxes.push(from, Math.max(0.8, to - from), data.percent![n]!);
    byColour.set(categoryOf(data, n), boxes);
    if (data.percent![n]! > 100) beyond.push((from + to) / 2);
  }
  for (const [category, boxes] of byColour) {
    pen.fillStyle = categoryColour(palette, category);
    pen.beginPath();
    for (let i = 0; i < boxes.length; i += 3) {
      const top = y(boxes[i + 2]!);
      pen.rect(boxes[i]!, top, boxes[i + 1]! > 4 ? boxes[i + 1]! - 0.7 : boxes[i + 1]!, area.y + area.height - top);
    }
    pen.fill();
  }
  pen.font = `11px ${SANS}`;
  pen.fillStyle = palette.muted;
  pen.textAlign = 'right';
  pen.fillText('100 % of limit', LEFT - 8, area.y + 10);
  pen.fillText('0', LEFT - 8, area.y + area.height);
  if (beyond.length) {
    pen.fillStyle = palette.warn;
    pen.fillText(`▲ ${count(beyond.length)} above it`, LEFT - 8, area.y + 24);
    pen.beginPath();
    for (const x of beyond) {
      pen.moveTo(x - 4, area.y + 7);
      pen.lineTo(x, area.y);
      pen.lineTo(x + 4, area.y + 7);
    }
    pen.fill();
  }
  pen.textAlign = 'left';
}

// ------------------------------------------------------------------ live bytes

function drawCurve(pen: Pen, input: DrawInput, area: Area): void {
  const { data, plan, window, palette } = input;
  const live = data.live!;
  const s = Scale.across(area, window.from, window.to);
  const y = (value: number) => area.y + area.height - (value / Math.max(1, plan.peak * 1.12)) * area.height;
  pen.fillStyle = palette.surface;
  pen.fillRect(area.x, area.y, area.width, area.height);
  grid(pen, input, area, s);
  const right = area.x + area.width;
  // Spans of less than half a pixel are merged, with the height of the highest.
  const points: [number, number][] = [];
  plan.order.forEach((n, i) => {
    const next = plan.order[i + 1];
    const [from, to] = [plan.first[n]!, next === undefined ? plan.last[n]! : plan.first[next]!];
    if (to < window.from || from > window.to) return;
    const x = Math.max(area.x, Math.min(right, s.at(from)));
    const before = points[points.length - 1];
    if (before && x - before[0] < 0.5) before[1] = Math.max(before[1], live[n]!);
    else points.push([x, live[n]!]);
  });
  const end = Math.max(area.x, Math.min(right, s.at(data.total)));
  const outline = (close: boolean) => {
    pen.beginPath();
    points.forEach(([x, value], i) => {
      if (i === 0) pen.moveTo(x, close ? y(0) : y(value));
      pen.lineTo(x, y(value));
      pen.lineTo(points[i + 1]?.[0] ?? end, y(value));
    });
    if (close) {
      pen.lineTo(end, y(0));
      pen.closePath();
    }
  };
  if (points.length) {
    outline(true);
    pen.fillStyle = palette.accent;
    pen.globalAlpha = 0.14;
    pen.fill();
    pen.globalAlpha = 1;
    outline(false);
    pen.strokeStyle = palette.accent;
    pen.lineWidth = 1.5;
    pen.stroke();
  }
  pen.font = `11px ${SANS}`;
  pen.fillStyle = palette.muted;
  pen.textAlign = 'right';
  pen.fillText('live bytes', LEFT - 8, area.y + 12);
  pen.fillText(bytes(plan.peak), LEFT - 8, Math.max(area.y + 26, y(plan.peak) + 4));
  pen.fillText('0', LEFT - 8, area.y + area.height);
  pen.textAlign = 'left';
  if (plan.peakLaunch < 0 || Number.isNaN(plan.first[plan.peakLaunch]!)) return;
  const x = s.at(plan.first[plan.peakLaunch]!);
  if (x < area.x || x > right) return;
  const text = `peak ${bytes(plan.peak)}`;
  const turn = x + 12 + text.length * 6.4 > right;
  pen.fillStyle = palette.accent;
  pen.beginPath();
  pen.moveTo(x, y(plan.peak));
  pen.lineTo(x - 4, y(plan.peak) - 7);
  pen.lineTo(x + 4, y(plan.peak) - 7);
  pen.closePath();
  pen.fill();
  pen.textAlign = turn ? 'right' : 'left';
  pen.font = `600 11px ${SANS}`;
  pen.fillText(text, turn ? x - 7 : x + 7, Math.max(area.y + 10, y(plan.peak) - 1));
  pen.textAlign = 'left';
}
