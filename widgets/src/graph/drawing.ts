/** The drawing and its window: scene, marks, map, and the transition between layouts. */

import { h } from '../shared/dom';
import type { Selection } from '../shared/host';
import type { Palette } from '../shared/theme';
import type { Frame } from '../shared/view';
import { Crumbs } from './crumbs';
import type { Emphasis } from './emphasis';
import { HEADER, itemAt, type Layout } from './layout';
import { drawMarks, linkedItems, pathBetween } from './marks';
import { Minimap, type Moves } from './minimap';
import type { Key } from './model';
import { dot, svg } from './picture';
import { type Box, drawScene, type Motion, type SceneInput } from './scene';
import { type GraphState, motionBetween } from './state';
import { kindClasses, type OpClass } from './style';
import { Viewport } from './viewport';

const MOVE_MS = 240;
const MAX_ANIMATED = 4000;
/** Height at the top for the breadcrumbs and the count of ops (pixels). */
const TOP = 28;
/** Pixels left free around the whole graph. */
const MARGIN = 24;
/** The smallest scale at which the text of an op (10 to 12 pixels at scale 1) is readable. */
const READABLE = 0.9;
/** Below this scale an op of the whole graph is a hairline. */
const HAIRLINE = 0.1;
/** Windows smaller than this (pixels) do not show the map. */
const MAP_FITS = [340, 280] as const;

/** A drawn layout, and the keys of its items, which are the same in every layout. */
export interface Snapshot {
  layout: Layout;
  keyOf(item: number): Key;
}

export class Drawing {
  readonly stage = h('div', {
    class: 'stage',
    tabindex: 0,
    role: 'application',
    'aria-label': 'Op graph: arrow keys walk along edges, Enter opens a scope, ? lists the keys',
  });
  readonly viewport: Viewport;
  readonly minimap = new Minimap();
  readonly crumbs: Crumbs;
  palette!: Palette;
  /** Items, -1: none. */
  selected = -1;
  hover = -1;
  /** Ops from one op to another, in order. */
  path: number[] = [];
  /** The selection of all views; it can be an op that is not drawn. */
  selection: Selection = {};
  /** The first view waits for a window size: the graph arrived while it was hidden. */
  private firstViewPending = false;
  /** The last automatic placement of the window: repeated if its size changes before the user
   * moves it. */
  private repeatPlacement: (() => void) | null = null;
  /** Whether the window shows the whole width because the whole graph would be a hairline. */
  private fitsWidth = false;
  private classes: OpClass[] = [];
  private motion: Motion | null = null;
  private linkedCache: {
    layout: Layout;
    item: number;
    selection: Selection;
    found: [number, string][];
  } | null = null;

  /** `go`: called when a scope around the window was chosen. */
  constructor(
    private readonly frame: Frame,
    private readonly state: GraphState,
    private readonly emphasis: Emphasis,
    go: (item: number) => void,
  ) {
    this.crumbs = new Crumbs(go);
    this.viewport = new Viewport(this.stage, {
      background: () => this.palette.page,
      scene: (context, view, scale) => drawScene(context, this.scene(), view, scale),
      marks: (context, _view, scale) => drawMarks(context, this.marks(), scale),
      bounds: () => this.bounds(),
      onFrame: () => this.afterFrame(),
    });
    this.minimap.listen(this.moves());
    const observer = new ResizeObserver(() => this.resized());
    observer.observe(this.stage);
    frame.link.onDispose(() => {
      observer.disconnect();
      this.viewport.stop();
    });
  }

  /** Prepares for another stage. */
  load(): void {
    this.classes = kindClasses(this.state.graph);
    this.path = [];
    this.hover = -1;
    if (this.viewport.width === 0) this.viewport.resize();
  }

  theme(palette: Palette): void {
    this.palette = palette;
    this.linkedCache = null;
  }

  /** Redraws the scene in the window and on the map. */
  repaint(): void {
    this.minimap.paint(this.scene());
    this.viewport.redraw();
  }

  private scene(): SceneInput {
    const { graph, tree, layout, changes, showFolded } = this.state;
    const { palette, classes, motion } = this;
    const { heat, hits, phases, focus } = this.emphasis;
    const dimmed = { graph, tree, layout, changes, showFolded, phases, focus };
    return { ...dimmed, palette, classes, heat, hits, motion };
  }

  private marks() {
    const { palette, selected, hover, path } = this;
    const { graph, layout } = this.state;
    return { graph, layout, palette, selected, hover, path, linked: this.linked() };
  }

  /** Items related to the selected one without an edge, with the colour of their phase. */
  linked(): [number, string][] {
    const { layout, graph } = this.state;
    const { selection, selected } = this;
    const cached = this.linkedCache;
    if (cached?.layout !== layout || cached.item !== selected || cached.selection !== selection) {
      const op = selection.op === undefined ? undefined : graph.indexOf.get(selection.op);
      const found = linkedItems(this.state, this.palette, selected, op ?? -1);
      this.linkedCache = { layout, item: selected, selection, found };
    }
    return this.linkedCache!.found;
  }

  /** Marks the shortest path between two ops; false if there is none. */
  showPath(a: number, b: number): boolean {
    this.path = pathBetween(this.state.graph, a, b);
    this.viewport.requestFrame();
    return this.path.length > 0;
  }

  private afterFrame(): void {
    const { dataset } = this.frame.root;
    dataset.sceneMs = this.viewport.sceneMs.toFixed(1);
    dataset.frameMs = this.viewport.frameMs.toFixed(1);
    dataset.drawn = String(this.viewport.drawn);
    this.minimap.frame(this.palette, this.viewport.view(), this.state.layout);
    const { width } = this.viewport;
    const [x, y] = this.viewport.toWorld(width / 2, this.viewport.height * 0.15);
    this.crumbs.show(this.state, x, y, width);
  }

  // -------------------------------------------------------------- the window

  bounds(): Box {
    const { x, y, width, height } = this.state.layout.containers[0]!;
    return { x, y: y + HEADER - 12, width, height: height - HEADER + 24 };
  }

  /** The scale at which the whole graph fits the window. */
  private fitScale(): number {
    const bounds = this.bounds();
    const { width, height } = this.viewport;
    return Math.min(
      (width - 2 * MARGIN) / bounds.width,
      (height - 2 * MARGIN - TOP) / bounds.height,
    );
  }

  /** Shows the whole graph; if that would be a hairline, its whole width, and at the second call all of
   * it.  Returns the message for the user. */
  fit(): string {
    const bounds = this.bounds();
    const { viewport } = this;
    const widthScale = (viewport.width - 2 * MARGIN) / bounds.width;
    this.fitsWidth = !this.fitsWidth && this.fitScale() < HAIRLINE && widthScale >= HAIRLINE;
    if (this.fitsWidth) {
      const view = viewport.view();
      const tall = (viewport.height - TOP) / Math.min(1, widthScale);
      const y = view.y + view.height / 2 - tall / 2;
      const top = Math.min(Math.max(y, bounds.y), Math.max(bounds.y, bounds.y + bounds.height - tall));
      viewport.show({ x: bounds.x, y: top, width: bounds.width, height: 1 }, Math.min(1, widthScale), MARGIN);
      viewport.camera.y = top - TOP / viewport.camera.scale;
      viewport.redraw();
    } else viewport.show(bounds, 1.1, MARGIN, TOP);
    viewport.movedByUser = false;
    this.repeatPlacement = this.fitsWidth ? null : () => this.viewport.show(this.bounds(), 1.1, MARGIN, TOP);
    return this.fitsWidth ? 'Fitted to the width: the whole graph would be too small to see. Press f again to show all.' : '';
  }

  /** Shows the whole graph if it is readable, else the item `change` (below 0: the top) at a
   * readable size. */
  showFirstView(change = -1): void {
    const bounds = this.bounds();
    const { width } = this.viewport;
    this.firstViewPending = width === 0;
    this.viewport.movedByUser = false;
    this.repeatPlacement = () => this.showFirstView(change);
    if (this.firstViewPending) return;
    if (this.fitScale() >= READABLE) {
      this.viewport.show(bounds, 1.1, MARGIN, TOP);
      return;
    }
    const scale = Math.max(READABLE, Math.min(1, (width - 2 * MARGIN) / bounds.width));
    const { x, y, width: wide, height } = this.state.layout;
    const item = change >= 0 ? change : this.topmostItem();
    const view = { width: width / scale, height: (this.viewport.height - TOP) / scale };
    // Centre the item, but not beyond the ends of the graph, which is centred itself if it is
    // smaller than the window.
    const within = (middle: number, low: number, size: number, window: number) =>
      size <= window
        ? low + (size - window) / 2
        : Math.min(Math.max(middle - window / 2, low), low + size - window);
    const margin = MARGIN / scale;
    const left = within(
      x[item]! + wide[item]! / 2, bounds.x - margin, bounds.width + 2 * margin, view.width,
    );
    const top = within(
      y[item]! + height[item]! / 2, bounds.y, bounds.height + margin, view.height,
    );
    this.viewport.camera = { x: left, y: top - TOP / scale, scale };
    this.viewport.redraw();
  }

  /** The first drawn op or closed scope of the program. */
  private topmostItem(): number {
    const { layout } = this.state;
    let found = -1;
    for (let item = 0; item < layout.count; item++) {
      if (layout.opens[item]! >= 0) continue;
      if (found < 0 || layout.y[item]! < layout.y[found]!) found = item;
    }
    return found;
  }

  private resized(): void {
    this.viewport.resize();
    const [wide, high] = MAP_FITS;
    this.minimap.canvas.hidden = this.viewport.width < wide || this.viewport.height < high;
    if (this.viewport.width === 0 || this.viewport.movedByUser || !this.repeatPlacement) return;
    this.repeatPlacement();
    this.bringIntoView(this.selected);
  }

  /** The movements of the map. */
  private moves(): Moves {
    const { viewport } = this;
    const show = (last: boolean) => {
      const [view, bounds] = [viewport.view(), this.bounds()];
      const middle = last ? bounds.y + bounds.height - view.height / 2 : bounds.y + view.height / 2;
      viewport.centre(view.x + view.width / 2, middle);
    };
    return {
      centre: (x, y) => {
        viewport.movedByUser = true;
        viewport.centre(...this.minimap.toGraph(x, y, this.state.layout));
      },
      move: (dx, dy) => void viewport.pan(dx * viewport.width, dy * viewport.height),
      top: () => show(false),
      end: () => show(true),
      zoom: (factor) => viewport.zoom(factor),
      describeWindow: () => this.describeWindow(),
    };
  }

  private describeWindow(): string {
    const [view, bounds] = [this.viewport.view(), this.bounds()];
    const part = (at: number, size: number) => Math.round(100 * Math.min(1, Math.max(0, at / size)));
    const along = (from: number, to: number, size: number, dimension: string) =>
      from <= 0 && to >= size ? `all of its ${dimension}` : `${part(from, size)} to ${part(to, size)} % of its ${dimension}`;
    const [left, top] = [view.x - bounds.x, view.y - bounds.y];
    return (
      `The window shows ${along(top, top + view.height, bounds.height, 'height')}, ` +
      along(left, left + view.width, bounds.width, 'width')
    );
  }

  /** Shows the whole of a scope that is larger than the window. */
  showItem(item: number): void {
    const { x, y, width, height } = this.state.layout;
    const box = { x: x[item]!, y: y[item]!, width: width[item]!, height: height[item]! };
    this.viewport.show(box, this.viewport.camera.scale, MARGIN, TOP);
  }

  isInWindow(item: number): boolean {
    const { layout } = this.state;
    const view = this.viewport.view();
    const { scale } = this.viewport.camera;
    const margin = 20 / scale;
    const [x, y] = [layout.x[item]!, layout.y[item]!];
    return (
      x > view.x + margin &&
      y > view.y + TOP / scale &&
      x + Math.min(layout.width[item]!, 120) < view.x + view.width - margin &&
      y + Math.min(layout.height[item]!, 60) < view.y + view.height - margin
    );
  }

  bringIntoView(item: number): void {
    if (item < 0 || this.viewport.width === 0 || this.isInWindow(item)) return;
    const { layout } = this.state;
    const [x, y] = [layout.x[item]!, layout.y[item]!];
    if (this.viewport.camera.scale < 0.45) this.viewport.camera.scale = READABLE;
    const height = Math.min(layout.height[item]!, 60);
    this.viewport.centre(x + layout.width[item]! / 2, y + height / 2);
  }

  /** If nothing drawn is in the window, goes to the nearest item. */
  private leaveEmptyArea(): void {
    const { layout } = this.state;
    const view = this.viewport.view();
    let [nearest, smallest] = [-1, Infinity];
    for (let item = 0; item < layout.count && smallest > 0; item++) {
      if (layout.opens[item]! >= 0) continue;
      const gapTo = (at: number, size: number, from: number, window: number) =>
        Math.max(0, at - from - window, from - at - size);
      const distance =
        gapTo(layout.x[item]!, layout.width[item]!, view.x, view.width) +
        gapTo(layout.y[item]!, layout.height[item]!, view.y, view.height);
      if (distance < smallest) [nearest, smallest] = [item, distance];
    }
    if (smallest > 0) this.centre(nearest);
  }

  centre(item: number): void {
    if (item < 0) return;
    const { x, y, width, height } = this.state.layout;
    this.viewport.centre(x[item]! + width[item]! / 2, y[item]! + height[item]! / 2);
  }

  /** The item at a point of the stage, -1: none. */
  itemAt(x: number, y: number): number {
    return itemAt(this.state.layout, ...this.viewport.toWorld(x, y));
  }

  /** Whether a point of the stage is on the triangle in front of a scope's name. */
  onTriangle(item: number, x: number, y: number): boolean {
    const { layout } = this.state;
    const [wx, wy] = this.viewport.toWorld(x, y);
    return wx - layout.x[item]! < 22 && wy - layout.y[item]! < HEADER;
  }

  /** The position of an item in the page; null: it is not drawn. */
  pagePosition(item: number): { x: number; y: number } | null {
    if (item < 0) return null;
    const { layout } = this.state;
    const [x, y] = this.viewport.toScreen(
      layout.x[item]! + layout.width[item]! / 2,
      layout.y[item]! + Math.min(layout.height[item]!, 20) / 2,
    );
    const box = this.stage.getBoundingClientRect();
    return { x: x + box.left, y: y + box.top };
  }

  // -------------------------------------------------------------- transitions

  snapshot(): Snapshot {
    const { layout, graph, tree } = this.state;
    const keyOf = (item: number) => {
      const id = layout.id[item]!;
      return id >= 0 ? graph.keys[id]! : `§${tree.scopes[-1 - id]!.id}`;
    };
    return { layout, keyOf };
  }

  /** Keeps items that remain in place on the screen: the item `anchor` of the previous layout, if given,
   * else those in the window.  Movements are animated. */
  move(before: Snapshot, anchor = -1): void {
    if (this.viewport.width === 0) return;
    const view = this.viewport.view();
    const isSeen = (x: number, y: number) =>
      x > view.x - 200 && x < view.x + view.width && y > view.y - 60 && y < view.y + view.height;
    const { motion, dx, dy, moved } = motionBetween(before, this.state, isSeen);
    const { layout } = this.state;
    let shift: [number, number] = [dx, dy];
    const anchored = anchor < 0 ? -1 : this.itemOfKey(before.keyOf(anchor));
    if (anchored >= 0) {
      shift = [layout.x[anchored]! - before.layout.x[anchor]!, layout.y[anchored]! - before.layout.y[anchor]!];
      for (let i = 0; i < layout.count; i++) {
        if (motion.fresh[i]) continue;
        motion.fromX[i]! += shift[0] - dx;
        motion.fromY[i]! += shift[1] - dy;
      }
    }
    this.viewport.camera.x += shift[0];
    this.viewport.camera.y += shift[1];
    this.leaveEmptyArea();
    this.frame.root.dataset.moved = String(moved);
    const reducedMotion = matchMedia('(prefers-reduced-motion: reduce)').matches;
    const fresh = motion.fresh.includes(1);
    if (reducedMotion || layout.count > MAX_ANIMATED || (moved === 0 && !fresh)) return;
    this.runAnimation(motion);
  }

  private itemOfKey(key: Key): number {
    for (let item = 0; item < this.state.layout.count; item++) {
      if (this.state.keyOf(item) === key) return item;
    }
    return -1;
  }

  private runAnimation(motion: Motion): void {
    this.motion = motion;
    let started = -1;
    this.viewport.animate((now) => {
      if (started < 0) started = now;
      const t = Math.min(1, (now - started) / MOVE_MS);
      motion.t = 1 - (1 - t) ** 3;
      if (t < 1 && this.motion === motion) return true;
      if (this.motion === motion) this.motion = null;
      return false;
    });
  }

  // -------------------------------------------------------------- as a file

  /** Null if the drawing is too large. */
  svg(): string | null {
    return svg(this.scene(), this.marks(), this.bounds(), this.viewport.view());
  }

  dot(): string {
    const { graph, tree, layout } = this.state;
    return dot({ graph, tree, layout, classes: this.classes, palette: this.palette });
  }
}
