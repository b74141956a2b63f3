/** Drawing of one tier: rectangles of address by program position, above a curve of live bytes. */

import { buffers, ink } from '../../colours.json';
import { type Area, type Range, Scale, ticks } from '../shared/axis';
import { bytes, count } from '../shared/format';
import type { Pen } from '../shared/pen';
import { inTheme, MONO, type ColourPair, type Palette, SANS } from '../shared/theme';
import { axisStep, type MemoryData, type TierPlan, unpaddedOf } from './model';

export const LEFT = 72;
export const TOP = 8;
const AXIS = 20;
const CURVE = 118;

/** The window: program positions and addresses shown. */
export interface Window extends Range {
  low: number;
  high: number;
}

export interface DrawInput {
  data: MemoryData;
  plan: TierPlan;
  window: Window;
  palette: Palette;
  width: number;
  height: number;
}

const COLOURS: ColourPair[] = Object.values(buffers);

export function categoryColour(palette: Palette, category: number): string {
  return inTheme(palette, COLOURS[category % COLOURS.length]!);
}

export function areas(width: number, height: number): { map: Area; curve: Area } {
  const inner = Math.max(40, width - LEFT - 10);
  const curve = Math.min(CURVE, Math.max(50, height * 0.24));
  const map = { x: LEFT, y: TOP, width: inner, height: Math.max(30, height - TOP - curve - 2 * AXIS) };
  return { map, curve: { x: LEFT, y: map.y + map.height + AXIS, width: inner, height: curve } };
}

/** Program positions across an area, addresses up it. */
export class Scales {
  private readonly steps: Scale;
  private readonly addresses: Scale;

  constructor(area: Area, { from, to, low, high }: Window) {
    this.steps = Scale.across(area, from, to);
    this.addresses = Scale.up(area, low, high);
  }
  x(step: number): number {
    return this.steps.at(step);
  }
  y(address: number): number {
    return this.addresses.at(address);
  }
  step(x: number): number {
    return this.steps.value(x);
  }
  address(y: number): number {
    return this.addresses.value(y);
  }
}

/** Returns how many buffers were in the window. */
export function draw(pen: Pen, input: DrawInput): number {
  const { map, curve } = areas(input.width, input.height);
  const drawn = drawMap(pen, input, map);
  drawCurve(pen, input, curve);
  cover(pen, input, map, curve);
  axes(pen, input, map, curve);
  return drawn;
}

function drawMap(pen: Pen, input: DrawInput, area: Area): number {
  const { data, plan, window, palette } = input;
  const { buffers } = data;
  const s = new Scales(area, window);
  pen.fillStyle = palette.surface;
  pen.fillRect(area.x, area.y, area.width, area.height);
  gridLines(pen, input, area, s);
  free(pen, input, area, s);

  const labels: number[] = [];
  const byColour = new Map<string, number[]>();
  let drawn = 0;
  for (const b of plan.buffers) {
    if (buffers.start[b]! >= window.to) break;
    if (buffers.end[b]! <= window.from) continue;
    if (buffers.offset[b]! >= window.high) continue;
    if (buffers.offset[b]! + buffers.size[b]! <= window.low) continue;
    drawn++;
    const colour = categoryColour(palette, buffers.category?.[b] ?? 0);
    const list = byColour.get(colour);
    if (list) list.push(b);
    else byColour.set(colour, [b]);
  }
  const outlines = drawn < 6000;
  for (const [colour, list] of byColour) {
    pen.fillStyle = colour;
    pen.beginPath();
    for (const b of list) {
      const [x, y, w, h] = rectangle(data, s, area, b);
      pen.rect(x, y, Math.max(0.7, w), Math.max(0.7, h));
      if (w > 56 && h > 13) labels.push(b);
    }
    pen.fill();
    if (!outlines) continue;
    pen.strokeStyle = palette.surface;
    pen.lineWidth = 1;
    pen.beginPath();
    for (const b of list) {
      const [x, y, w, h] = rectangle(data, s, area, b);
      if (w > 5 && h > 5) pen.rect(x, y, w, h);
    }
    pen.stroke();
  }
  padding(pen, input, s, area, byColour);
  pen.font = `11px ${SANS}`;
  pen.textAlign = 'left';
  for (const b of labels.slice(0, 800)) label(pen, input, s, area, b);
  limits(pen, input, area, s);
  border(pen, input, area, s);
  return drawn;
}

/** Marks the start of the backward pass of a training step. */
function border(pen: Pen, input: DrawInput, area: Area, s: Scales): void {
  const { data, palette } = input;
  if (data.border === undefined) return;
  const x = s.x(data.border + 0.5);
  if (x < area.x || x > area.x + area.width) return;
  pen.strokeStyle = palette.text;
  pen.lineWidth = 1.2;
  pen.beginPath();
  pen.moveTo(x, area.y);
  pen.lineTo(x, area.y + area.height);
  pen.stroke();
  pen.font = `10.5px ${SANS}`;
  for (const [text, align] of [['forward ', 'right'], [' backward', 'left']] as const) {
    const width = text.length * 6 + 4;
    const left = align === 'right' ? x - width : x;
    if (left < area.x || left + width > area.x + area.width) continue;
    pen.globalAlpha = 0.85;
    pen.fillStyle = palette.surface;
    pen.fillRect(left + 1, area.y + 1, width - 2, 14);
    pen.globalAlpha = 1;
    pen.fillStyle = palette.text;
    pen.textAlign = align;
    pen.fillText(text, align === 'right' ? x - 3 : x + 3, area.y + 12);
  }
  pen.textAlign = 'left';
}

export function rectangle(
  data: MemoryData,
  s: Scales,
  area: Area,
  b: number,
): [number, number, number, number] {
  const { buffers } = data;
  const x0 = Math.max(area.x, s.x(buffers.start[b]!));
  const x1 = Math.min(area.x + area.width, s.x(buffers.end[b]!));
  const y0 = Math.max(area.y, s.y(buffers.offset[b]! + buffers.size[b]!));
  const y1 = Math.min(area.y + area.height, s.y(buffers.offset[b]!));
  return [x0, y0, x1 - x0, y1 - y0];
}

/** The buffer at a point of the map; -1: none. */
export function bufferAt(data: MemoryData, plan: TierPlan, s: Scales, map: Area, x: number, y: number): number {
  if (x < map.x || x > map.x + map.width || y < map.y || y > map.y + map.height) return -1;
  const [step, address] = [s.step(x), s.address(y)];
  const { start, end, offset, size } = data.buffers;
  for (const b of plan.buffers) {
    if (start[b]! > step) break;
    const isHit = step < end[b]! && offset[b]! <= address && address < offset[b]! + size[b]!;
    if (isHit) return b;
  }
  return -1;
}

/** Tints the unused memory below the highest live buffer: the cost of fragmentation. */
function free(pen: Pen, input: DrawInput, area: Area, s: Scales): void {
  const { plan, window, palette } = input;
  const first = Math.max(0, Math.floor(window.from));
  const last = Math.min(plan.top.length, Math.ceil(window.to));
  const stride = Math.max(1, Math.floor((last - first) / area.width));
  pen.beginPath();
  pen.moveTo(s.x(first), s.y(0));
  for (let step = first; step < last; step += stride) {
    let top = 0;
    for (let k = step; k < Math.min(last, step + stride); k++) top = Math.max(top, plan.top[k]!);
    const y = Math.max(area.y, s.y(top));
    pen.lineTo(s.x(step), y);
    pen.lineTo(s.x(Math.min(last, step + stride)), y);
  }
  pen.lineTo(s.x(last), s.y(0));
  pen.closePath();
  pen.fillStyle = palette.removed;
  pen.globalAlpha = 0.13;
  pen.fill();
  pen.globalAlpha = 1;
}

/** The padding of a buffer: its upper part, hatched. */
function padding(
  pen: Pen,
  input: DrawInput,
  s: Scales,
  area: Area,
  lists: Map<string, number[]>,
): void {
  const { data, palette } = input;
  if (!data.buffers.unpadded) return;
  pen.strokeStyle = palette.text;
  pen.lineWidth = 1;
  pen.globalAlpha = 0.45;
  pen.beginPath();
  for (const list of lists.values()) {
    for (const b of list) {
      const size = data.buffers.size[b]!;
      const unpadded = unpaddedOf(data, b);
      if (unpadded >= size) continue;
      const [x, y, w, h] = rectangle(data, s, area, b);
      const bottom = Math.min(y + h, s.y(data.buffers.offset[b]! + unpadded));
      const tall = bottom - y;
      if (tall < 1.5 || w < 4) continue;
      for (let at = x; at < x + w; at += 6) {
        const run = Math.min(tall, x + w - at);
        pen.moveTo(at, bottom);
        pen.lineTo(at + run, bottom - run);
      }
      pen.moveTo(x, bottom);
      pen.lineTo(x + w, bottom);
    }
  }
  pen.stroke();
  pen.globalAlpha = 1;
}

function label(pen: Pen, input: DrawInput, s: Scales, area: Area, b: number): void {
  const { data, palette } = input;
  const [x, y, w, h] = rectangle(data, s, area, b);
  const size = bytes(data.buffers.size[b]!);
  const name = data.buffers.name[b]!;
  const fits = Math.floor((w - 10) / 6.4);
  const text = name.length + size.length + 3 <= fits ? `${name}   ${size}` : name;
  pen.fillStyle = inTheme(palette, ink.onArea);
  pen.fillText(text.length <= fits ? text : `${text.slice(0, fits - 1)}…`, x + 5, y + h / 2 + 4);
}

function limits(pen: Pen, input: DrawInput, area: Area, s: Scales): void {
  const { plan, palette } = input;
  const lines: [number | undefined, string, string, number[]][] = [
    [plan.tier.capacity, `capacity ${bytes(plan.tier.capacity ?? 0)}`, palette.removed, []],
    [plan.arena, `arena ${bytes(plan.arena)}`, palette.text, [6, 3]],
    [plan.tier.lower_bound, `lower bound ${bytes(plan.tier.lower_bound ?? 0)}`, palette.added, [2, 3]],
  ];
  pen.font = `10.5px ${SANS}`;
  let lastY = -100;
  for (const [value, text, colour, dash] of lines) {
    if (value === undefined) continue;
    const y = s.y(value);
    if (y < area.y - 1 || y > area.y + area.height) continue;
    pen.strokeStyle = colour;
    pen.lineWidth = 1.4;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(area.x, y);
    pen.lineTo(area.x + area.width, y);
    pen.stroke();
    pen.setLineDash([]);
    pen.textAlign = 'right';
    const textY = Math.abs(y - lastY) < 14 ? lastY + 14 : y < area.y + 14 ? y + 12 : y - 4;
    const width = text.length * 6.1 + 8;
    pen.globalAlpha = 0.85;
    pen.fillStyle = palette.surface;
    pen.fillRect(area.x + area.width - width - 2, textY - 10, width, 13);
    pen.globalAlpha = 1;
    pen.fillStyle = colour;
    pen.fillText(text, area.x + area.width - 6, textY);
    pen.textAlign = 'left';
    lastY = textY;
  }
}

function drawCurve(pen: Pen, input: DrawInput, area: Area): void {
  const { plan, window, palette } = input;
  const maximum = Math.max(plan.arena, plan.tier.lower_bound ?? 0, 1) * 1.08;
  const s = new Scales(area, { ...window, low: 0, high: maximum });
  pen.fillStyle = palette.surface;
  pen.fillRect(area.x, area.y, area.width, area.height);
  step(pen, plan.top, window, area, s);
  pen.strokeStyle = palette.removed;
  pen.lineWidth = 1;
  pen.setLineDash([3, 2]);
  pen.stroke();
  pen.setLineDash([]);
  step(pen, plan.live, window, area, s);
  pen.strokeStyle = palette.accent;
  pen.lineWidth = 1.6;
  pen.stroke();
  const bound = plan.tier.lower_bound;
  if (bound !== undefined) {
    pen.strokeStyle = palette.added;
    pen.setLineDash([2, 3]);
    pen.beginPath();
    pen.moveTo(area.x, s.y(bound));
    pen.lineTo(area.x + area.width, s.y(bound));
    pen.stroke();
    pen.setLineDash([]);
  }
  peak(pen, input, area, s);
}

function step(pen: Pen, values: Float64Array, window: Window, area: Area, s: Scales): void {
  const first = Math.max(0, Math.floor(window.from));
  const last = Math.min(values.length, Math.ceil(window.to));
  const stride = Math.max(1, Math.floor((last - first) / (area.width * 1.5)));
  pen.beginPath();
  for (let at = first; at < last; at += stride) {
    let highest = 0;
    for (let k = at; k < Math.min(last, at + stride); k++) highest = Math.max(highest, values[k]!);
    const [x0, x1, y] = [s.x(at), s.x(Math.min(last, at + stride)), s.y(highest)];
    if (at === first) pen.moveTo(x0, y);
    else pen.lineTo(x0, y);
    pen.lineTo(x1, y);
  }
}

/** Marks a point from above, in the pen's colour. */
export function mark(pen: Pen, x: number, y: number): void {
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(x - 5, y - 8);
  pen.lineTo(x + 5, y - 8);
  pen.closePath();
  pen.fill();
}

function peak(pen: Pen, input: DrawInput, area: Area, s: Scales): void {
  const { plan, palette } = input;
  const x = s.x(plan.peakStep + 0.5);
  if (x < area.x || x > area.x + area.width) return;
  const y = s.y(plan.peak);
  pen.fillStyle = palette.accent;
  mark(pen, x, y);
  const text = `peak ${bytes(plan.peak)} at ${count(plan.peakStep)}`;
  const right = x + 12 + text.length * 6.2 > area.x + area.width;
  pen.font = `600 11px ${SANS}`;
  const width = text.length * 6.6 + 8;
  const textY = Math.max(area.y + 11, y - 2);
  pen.globalAlpha = 0.85;
  pen.fillStyle = palette.surface;
  pen.fillRect(right ? x - 6 - width : x + 6, textY - 10, width, 13);
  pen.globalAlpha = 1;
  pen.fillStyle = palette.accent;
  pen.textAlign = right ? 'right' : 'left';
  pen.fillText(text, right ? x - 9 : x + 9, textY);
  pen.textAlign = 'left';
}

function gridLines(pen: Pen, input: DrawInput, area: Area, s: Scales): void {
  const { window, palette } = input;
  pen.strokeStyle = palette.raised;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const value of gridValues(window.low, window.high, area.height / 46, true)) {
    pen.moveTo(area.x, s.y(value));
    pen.lineTo(area.x + area.width, s.y(value));
  }
  for (const value of gridValues(window.from, window.to, area.width / 90, false)) {
    pen.moveTo(s.x(value), area.y);
    pen.lineTo(s.x(value), area.y + area.height);
  }
  pen.stroke();
}

/** The positions of grid lines; for bytes at powers of two. */
function gridValues(from: number, to: number, lineCount: number, binary: boolean): number[] {
  return ticks({ from, to }, axisStep(to - from, lineCount, binary));
}

/** Hides the parts drawn outside the two areas. */
function cover(pen: Pen, { palette, width, height }: DrawInput, map: Area, curve: Area): void {
  pen.fillStyle = palette.page;
  pen.fillRect(0, 0, map.x, height);
  pen.fillRect(0, 0, width, map.y);
  pen.fillRect(map.x + map.width, 0, width, height);
  pen.fillRect(0, map.y + map.height, width, curve.y - map.y - map.height);
  pen.fillRect(0, curve.y + curve.height, width, height);
  pen.strokeStyle = palette.line;
  pen.lineWidth = 1;
  for (const { x, y, width: w, height: h } of [map, curve]) {
    pen.beginPath();
    pen.rect(x - 0.5, y - 0.5, w + 1, h + 1);
    pen.stroke();
  }
}

function axes(pen: Pen, input: DrawInput, map: Area, curve: Area): void {
  const { window, palette, plan } = input;
  const s = new Scales(map, window);
  pen.font = `10.5px ${MONO}`;
  pen.fillStyle = palette.muted;
  pen.textAlign = 'right';
  for (const value of gridValues(window.low, window.high, map.height / 46, true)) {
    pen.fillText(bytes(value), map.x - 6, Math.min(map.y + map.height, s.y(value) + 4));
  }
  const maximum = Math.max(plan.arena, plan.tier.lower_bound ?? 0, 1) * 1.08;
  const c = new Scales(curve, { ...window, low: 0, high: maximum });
  for (const value of gridValues(0, maximum, curve.height / 34, true)) {
    pen.fillText(bytes(value), curve.x - 6, c.y(value) + 4);
  }
  pen.textAlign = 'center';
  for (const value of gridValues(window.from, window.to, map.width / 90, false)) {
    if (value !== Math.round(value)) continue;
    pen.fillText(count(value), s.x(value), curve.y + curve.height + 14);
  }
  pen.textAlign = 'left';
  pen.font = `10.5px ${SANS}`;
  pen.fillStyle = palette.muted;
  const legend = map.y + map.height + 14;
  pen.fillText('live bytes', map.x + 4, legend);
  pen.fillText('program position →', map.x + map.width - 118, legend);
  if (map.width > 620) {
    pen.fillText('(dashed: end of the highest live buffer; between them: fragmentation)', map.x + 62, legend);
  }
}
