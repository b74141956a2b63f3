/** The graph view: the op graph of one stage. See widgets/README.md for data and keys. */

import { copy, debounce, download, facts, h, tooltip } from '../shared/dom';
import { count, plural } from '../shared/format';
import type { Selection } from '../shared/host';
import type { Palette } from '../shared/theme';
import { announce, define, type Frame } from '../shared/view';
import { describe, opFacts, scopeFacts } from './facts';
import { Crumbs, CRUMBS_STYLE } from './crumbs';
import { type Direction, type Focus, focusOn, nameForSentence, opsInside } from './focus';
import { HEADER, itemAt, type Layout } from './layout';
import { drawMarks, linkedItems, pathBetween } from './marks';
import { Minimap } from './minimap';
import { type GraphData, kindOf, nameOf, usersOf } from './model';
import { KEYS, Legend, PANEL_STYLE, Toolbar } from './panel';
import { makePhases, type Phases, phasesInside } from './phases';
import { dot, MAX_SVG_ITEMS, svg } from './picture';
import { type Pin, Pins, PINS_STYLE } from './pins';
import { listenTo } from './pointer';
import { type Box, drawScene, type Motion, type SceneInput } from './scene';
import { BadExpression, search } from './search';
import { countInside, GraphState, motionBetween } from './state';
import { type Heat, kindClasses, makeHeat, type OpClass } from './style';
import { Viewport } from './viewport';
import { neighbour, sibling } from './walk';

const MOVE_MS = 240;
const MAX_ANIMATED = 4000;

const STYLE = `
.cw-graph .stage { position: relative; flex: 1; min-height: 0; overflow: hidden; outline: none; }
.cw-graph .stage:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.cw-graph .minimap { position: absolute; right: 8px; bottom: 8px; z-index: 2; cursor: crosshair;
  border: 1px solid var(--line); border-radius: 4px; }
.cw-graph .note { position: absolute; z-index: 3; left: 50%; top: 10px; transform: translateX(-50%);
  background: var(--surface); border: 1px solid var(--line); border-radius: 5px; padding: 4px 10px;
  box-shadow: 0 2px 8px rgb(0 0 0 / 15%); }
${CRUMBS_STYLE}${PANEL_STYLE}${PINS_STYLE}`;

class GraphView {
  private readonly state = new GraphState();
  private readonly stage = h('div', {
    class: 'stage',
    tabindex: 0,
    role: 'application',
    'aria-label': 'Op graph: arrow keys walk along edges, Enter opens a scope, ? lists the keys',
  });
  private readonly viewport: Viewport;
  private readonly minimap = new Minimap();
  private readonly toolbar: Toolbar;
  private readonly legend = new Legend((phase) => this.togglePhase(phase));
  private readonly tip;
  private readonly help = h('div', { class: 'help', hidden: true }, facts(KEYS));
  private readonly crumbs = new Crumbs((item) => {
    this.select(item);
    this.viewport.show(this.boxOf(item), this.viewport.camera.scale);
  });
  private readonly note = h('div', { class: 'note', role: 'status', hidden: true });
  private palette!: Palette;
  private classes: OpClass[] = [];
  private heat: Heat | null = null;
  private heatIndex = -1;
  private phases: Phases | null = null;
  private readonly dimmed = new Set<string>();
  private motion: Motion | null = null;
  private selection: Selection = {};
  private selected = -1;
  private hover = -1;
  private path: number[] = [];
  private focus: Focus | null = null;
  private readonly pins = new Pins((key) => {
    const op = this.state.graph.indexOf.get(key);
    if (op === undefined) this.say('This op is not in the stage shown.');
    else this.goTo(op);
  });
  private query = '';
  private found: Int32Array = new Int32Array(0);
  private hits: SceneInput['hits'] = null;
  private at = -1;
  private noteTimer = 0;
  private linkedOf: {
    layout: Layout;
    item: number;
    selection: Selection;
    found: [number, string][];
  } | null = null;
  private readonly saveState = debounce(() => this.writeState(), 250);
  private readonly runSearch = debounce(() => this.search(this.toolbar.input.value), 100);

  constructor(private readonly frame: Frame) {
    this.viewport = new Viewport(this.stage, {
      background: () => this.palette.page,
      scene: (context, view, scale) => drawScene(context, this.scene(), view, scale),
      marks: (context, _view, scale) =>
        drawMarks(context, { ...this.state, ...this.marked() }, scale),
      bounds: () => this.bounds(),
      framed: () => this.framed(),
    });
    this.toolbar = new Toolbar({
      search: () => this.runSearch(),
      step: (by) => this.step(by),
      overlay: (index) => this.setOverlay(index),
      expand: (all) => this.expand(all),
      collapse: () => this.change(() => this.state.collapse(), true),
      fit: () => this.viewport.show(this.bounds()),
      folded: () => this.toggleFolded(),
      changed: (by) => this.stepChange(by),
      inputs: () => this.toggleFocus('inputs'),
      users: () => this.toggleFocus('users'),
      pin: () => this.pin(),
      svg: () => this.exportSvg(),
      dot: () => download(this.fileName('dot'), new Blob([this.dot()], { type: 'text/vnd.graphviz' })),
      png: () => this.viewport.image((blob) => blob && download(this.fileName('png'), blob)),
      help: () => (this.help.hidden = !this.help.hidden),
    });
    this.stage.append(this.crumbs.root, this.toolbar.status, this.legend.root, this.minimap.canvas, this.pins.root, this.note);
    frame.root.append(this.toolbar.root, this.stage, this.help);
    this.tip = tooltip(this.stage);
    this.listen();
    const observer = new ResizeObserver(() => this.viewport.resize());
    observer.observe(this.stage);
    frame.link.onDispose(() => {
      observer.disconnect();
      this.viewport.stop();
    });
    this.expose();
  }

  // -------------------------------------------------------------- what comes from the host

  data(data: GraphData, first: boolean): void {
    const before = first ? null : this.snapshot();
    this.state.load(data);
    this.classes = kindClasses(this.state.graph);
    this.path = [];
    this.hover = -1;
    this.tip.hide();
    if (this.viewport.width === 0) this.viewport.resize();
    this.refreshHeat();
    this.refreshPhases();
    this.refreshSearch();
    this.refreshFocus();
    this.settle(before);
    if (first) this.firstView();
    else this.showChange();
  }

  /** Where nothing is selected and no change is in the window: goes to the first change. */
  private showChange(): void {
    if (this.selected >= 0 || this.viewport.width === 0) return;
    const { layout, graph } = this.state;
    let first = -1;
    for (let op = 0; op < graph.n; op++) {
      const item = graph.status[op] ? layout.shownBy[op]! : -1;
      if (item < 0) continue;
      if (this.inWindow(item)) return;
      if (first < 0) first = item;
    }
    this.bringIntoView(first);
  }

  theme(palette: Palette): void {
    this.palette = palette;
    this.linkedOf = null;
    if (!this.state.layout) return;
    this.recolour();
  }

  selectedFromHost(selection: Selection): void {
    this.selection = selection;
    this.showSelection();
    this.pins.compare(this.pinOfSelection());
  }

  private showSelection(): void {
    const { selection } = this;
    const op = selection.op === undefined ? undefined : this.state.graph.indexOf.get(selection.op);
    if (op === undefined) {
      const scope = this.state.tree.byId.get(selection.scope ?? '\0') ?? -1;
      if (scope >= 0 && this.state.layout.itemOfScope[scope]! < 0) {
        this.change(() => this.state.revealScope(scope), false);
      }
      this.selected = scope < 0 ? -1 : this.state.layout.itemOfScope[scope]!;
      this.viewport.ask();
      if (this.selected >= 0) this.bringIntoView(this.selected);
      return;
    }
    if (this.state.layout.itemOfOp[op]! < 0 && !this.state.graph.folded[op]) {
      this.change(() => this.state.reveal(op), false);
    }
    this.selected = this.itemFor(op);
    this.viewport.ask();
    this.bringIntoView(this.selected);
  }

  stateFromHost(state: Record<string, unknown>): void {
    if (!this.state.layout) return;
    if (Array.isArray(state.open)) {
      this.change(() => {
        this.state.open = new Set(['', ...(state.open as string[])]);
        this.state.place();
      }, false);
    }
    const overlays = this.state.graph.data.overlays ?? [];
    if (typeof state.overlay === 'string') {
      this.setOverlay(overlays.findIndex((overlay) => overlay.name === state.overlay));
    }
    if (Array.isArray(state.dim)) {
      this.dimmed.clear();
      for (const phase of state.dim) this.dimmed.add(String(phase));
      this.refreshPhases();
      this.recolour();
    }
    if (typeof state.query === 'string' && state.query !== this.query) {
      this.toolbar.input.value = state.query;
      this.search(state.query);
    }
  }

  private writeState(): void {
    const overlay = this.state.graph.data.overlays?.[this.heatIndex]?.name ?? '';
    const open = [...this.state.open].filter(Boolean).slice(0, 200);
    const dim = this.dimmed.size ? { dim: [...this.dimmed] } : {};
    this.frame.link.write('state', { open, overlay, query: this.query, ...dim });
  }

  // -------------------------------------------------------------- layout changes

  private snapshot() {
    const { layout, graph, tree } = this.state;
    const keyOf = (item: number) => {
      const id = layout.id[item]!;
      return id >= 0 ? graph.keys[id]! : `§${tree.scopes[-1 - id]!.id}`;
    };
    return { layout, keyOf };
  }

  /** Runs a change of what is open; what stays keeps its place on the screen. */
  private change(action: () => void, save: boolean, anchor = -1): void {
    const before = this.snapshot();
    const anchorKey = anchor >= 0 ? before.keyOf(anchor) : null;
    action();
    this.settle(before, anchorKey, anchor);
    if (save) this.saveState();
  }

  private settle(
    before: ReturnType<GraphView['snapshot']> | null,
    anchorKey: string | number | null = null,
    anchor = -1,
  ): void {
    this.reselect();
    this.recolour();
    if (!before || this.viewport.width === 0) return;
    const view = this.viewport.view();
    const seen = (x: number, y: number) =>
      x > view.x - 200 && x < view.x + view.width && y > view.y - 60 && y < view.y + view.height;
    const { motion, dx, dy, moved } = motionBetween(before, this.state, seen);
    let shift: [number, number] = [dx, dy];
    if (anchorKey !== null) {
      for (let item = 0; item < this.state.layout.count; item++) {
        if (this.state.keyOf(item) !== anchorKey) continue;
        const { layout } = this.state;
        shift = [
          layout.x[item]! - before.layout.x[anchor]!,
          layout.y[item]! - before.layout.y[anchor]!,
        ];
        for (let i = 0; i < layout.count; i++) {
          if (motion.fresh[i]) continue;
          motion.fromX[i]! += shift[0] - dx;
          motion.fromY[i]! += shift[1] - dy;
        }
        break;
      }
    }
    this.viewport.camera.x += shift[0];
    this.viewport.camera.y += shift[1];
    this.frame.root.dataset.moved = String(moved);
    const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
    const fresh = motion.fresh.includes(1);
    if (still || this.state.layout.count > MAX_ANIMATED || (moved === 0 && !fresh)) return;
    this.run(motion);
  }

  private run(motion: Motion): void {
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

  /** What is selected, as it would be pinned; null where that is no op. */
  private pinOfSelection(): Pin | null {
    const { graph, layout } = this.state;
    const op = this.selected < 0 ? -1 : layout.id[this.selected]!;
    if (op < 0) return null;
    const rows = opFacts(graph, op);
    return {
      key: graph.keys[op]!,
      title: `${kindOf(graph, op)} ${nameOf(graph, op)}`,
      stage: graph.data.stage.title,
      facts: rows,
    };
  }

  private pin(): void {
    const chosen = this.pinOfSelection();
    if (chosen) this.pins.toggle(chosen);
    else this.say('Select an op to pin it; then select another one to compare.');
  }

  private reselect(): void {
    const { op, scope } = this.selection;
    const index = op === undefined ? undefined : this.state.graph.indexOf.get(op);
    if (index !== undefined) this.selected = this.itemFor(index);
    else {
      const at = scope === undefined ? undefined : this.state.tree.byId.get(scope);
      this.selected = at === undefined ? -1 : this.state.layout.itemOfScope[at]!;
    }
    this.hover = -1;
    this.pins.compare(this.pinOfSelection());
  }

  private itemFor(op: number): number {
    const { layout, graph } = this.state;
    if (layout.shownBy[op]! >= 0) return layout.shownBy[op]!;
    const user = usersOf(graph, op)[0];
    return user === undefined ? -1 : layout.shownBy[user]!;
  }

  private recolour(): void {
    const { graph, layout, changes } = this.state;
    this.minimap.paint(this.scene());
    let guessed = 0;
    const column = graph.data.ops.guessed;
    if (column) for (let op = 0; op < graph.n; op++) guessed += column[op]!;
    this.legend.show(
      this.palette,
      changes?.subarray(0, 5) ?? null,
      this.heat,
      guessed,
      this.phases,
    );
    this.toolbar.setDiff(changes !== null);
    this.toolbar.setFolded(this.state.showFolded);
    const total = graph.data.total_ops ?? graph.n;
    const sent = total > graph.n ? `, ${count(graph.n)} sent` : '';
    this.toolbar.setStatus(
      `${count(layout.drawnOps)} of ${count(total)} ops${sent}`,
      `${plural(layout.drawnOps, 'op')} drawn as nodes; the others are inside closed scopes or fold ` +
        `into their user. ${plural(layout.stubs, 'long or wide edge')} shown on hover only.`,
    );
    this.viewport.changed();
  }

  private firstView(): void {
    const bounds = this.bounds();
    const { width, height } = this.viewport;
    if (width === 0) return;
    const whole = Math.min((width - 40) / bounds.width, (height - 40) / bounds.height);
    if (whole >= 0.6) {
      this.viewport.show(bounds);
      return;
    }
    // Too tall to read at once: begin at the top, at a size that can be read.
    const scale = Math.max(0.55, Math.min(1, (width - 40) / bounds.width));
    this.viewport.camera = {
      x: bounds.x + bounds.width / 2 - width / 2 / scale,
      y: bounds.y - 12 / scale,
      scale,
    };
    this.viewport.changed();
  }

  private bounds(): Box {
    const { x, y, width, height } = this.state.layout.containers[0]!;
    return { x, y: y + HEADER - 12, width, height: height - HEADER + 24 };
  }

  private scene(): SceneInput {
    const { graph, tree, layout, changes, showFolded } = this.state;
    const { palette, classes, heat, hits, motion, phases } = this;
    const dimmed = { graph, tree, layout, changes, showFolded, phases, focus: this.focus };
    return { ...dimmed, palette, classes, heat, hits, motion };
  }

  private marked() {
    const { palette, selected, hover, path } = this;
    const { graph, layout } = this.state;
    return { graph, layout, palette, selected, hover, path, linked: this.linked() };
  }

  private linked(): [number, string][] {
    const { layout, graph } = this.state;
    const { selection, selected } = this;
    const known = this.linkedOf;
    if (known?.layout !== layout || known.item !== selected || known.selection !== selection) {
      const op = selection.op === undefined ? undefined : graph.indexOf.get(selection.op);
      const found = linkedItems(this.state, this.palette, selected, op ?? -1);
      this.linkedOf = { layout, item: selected, selection, found };
    }
    return this.linkedOf!.found;
  }

  private framed(): void {
    const { dataset } = this.frame.root;
    dataset.sceneMs = this.viewport.sceneMs.toFixed(1);
    dataset.frameMs = this.viewport.frameMs.toFixed(1);
    dataset.drawn = String(this.viewport.drawn);
    this.minimap.frame(this.palette, this.viewport.view(), this.state.layout);
    const { width } = this.viewport;
    const [x, y] = this.viewport.toWorld(width / 2, this.viewport.height * 0.15);
    this.crumbs.show(this.state, x, y, width);
  }

  private boxOf(item: number): Box {
    const { x, y, width, height } = this.state.layout;
    return { x: x[item]!, y: y[item]!, width: width[item]!, height: height[item]! };
  }

  // -------------------------------------------------------------- selection

  private select(item: number): void {
    const { layout, graph, tree } = this.state;
    this.selected = item;
    this.path = [];
    const next: Selection = { ...this.frame.link.dict<Selection>('selection') };
    delete next.op;
    delete next.scope;
    if (item >= 0) {
      const id = layout.id[item]!;
      if (id >= 0) next.op = graph.keys[id]!;
      else next.scope = tree.scopes[-1 - id]!.id;
      announce(this.frame.root, describe(this.state, item));
    }
    this.selection = next;
    this.frame.link.write('selection', next);
    this.pins.compare(this.pinOfSelection());
    this.viewport.ask();
  }

  private inWindow(item: number): boolean {
    const { layout } = this.state;
    const view = this.viewport.view();
    const margin = 20 / this.viewport.camera.scale;
    const [x, y] = [layout.x[item]!, layout.y[item]!];
    return (
      x > view.x + margin &&
      y > view.y + margin &&
      x + Math.min(layout.width[item]!, 120) < view.x + view.width - margin &&
      y + Math.min(layout.height[item]!, 60) < view.y + view.height - margin
    );
  }

  private bringIntoView(item: number): void {
    if (item < 0 || this.viewport.width === 0 || this.inWindow(item)) return;
    const { layout } = this.state;
    const [x, y] = [layout.x[item]!, layout.y[item]!];
    if (this.viewport.camera.scale < 0.45) this.viewport.camera.scale = 0.8;
    const height = Math.min(layout.height[item]!, 60);
    this.viewport.centre(x + layout.width[item]! / 2, y + height / 2);
  }

  private walk(direction: 'up' | 'down' | 'left' | 'right'): void {
    const { layout } = this.state;
    if (this.selected < 0) {
      const first = layout.containers[0]!.items[0];
      if (first !== undefined) this.select(first);
    } else {
      const next =
        direction === 'left' || direction === 'right'
          ? sibling(layout, this.selected, direction === 'left' ? -1 : 1)
          : neighbour(this.state.graph, layout, this.selected, direction === 'down');
      if (next < 0) return;
      this.select(next);
    }
    this.bringIntoView(this.selected);
  }

  private around(): void {
    const { layout } = this.state;
    if (this.selected < 0) return;
    const outer = layout.containers[layout.container[this.selected]!]!.item;
    if (outer < 0) return;
    this.select(outer);
    this.bringIntoView(outer);
  }

  private toggle(item: number, force = false): void {
    const id = this.state.layout.id[item]!;
    if (id >= 0) return;
    const scope = -1 - id;
    let done = true;
    this.change(() => (done = this.state.toggle(scope, force)), true, item);
    if (!done) {
      const total = this.state.tree.scopes[scope]!.ops.length;
      this.say(
        `Opening this draws ${plural(total, 'op')} more; the cap is ` +
          `${count(this.state.maxVisible)}. Shift + Enter opens it anyway.`,
      );
    }
  }

  private expand(all: boolean): void {
    let whole = true;
    this.change(() => (whole = this.state.expand(all)), true);
    if (whole) return;
    const { drawnOps } = this.state.layout;
    this.say(
      `${count(drawnOps)} of ${count(this.state.graph.n)} ops drawn (cap ` +
        `${count(this.state.maxVisible)}); open single scopes, or search.`,
    );
  }

  private toggleFolded(): void {
    this.change(() => {
      this.state.showFolded = !this.state.showFolded;
      this.state.place();
    }, false);
  }

  private say(text: string): void {
    this.note.textContent = text;
    this.note.hidden = false;
    clearTimeout(this.noteTimer);
    this.noteTimer = window.setTimeout(() => (this.note.hidden = true), 5000);
  }

  // -------------------------------------------------------------- search, changes, heat

  private search(query: string): void {
    this.query = query;
    this.refreshSearch();
    this.recolour();
    this.saveState();
  }

  private refreshSearch(): void {
    this.at = -1;
    try {
      this.found = search(this.state.graph, this.query);
    } catch (problem) {
      if (!(problem instanceof BadExpression)) throw problem;
      this.found = new Int32Array(0);
      this.hits = null;
      this.toolbar.setHits('no expression', problem.message);
      return;
    }
    if (this.query.trim() === '') {
      this.hits = null;
      this.toolbar.setHits('');
      return;
    }
    const ops = new Uint8Array(this.state.graph.n);
    for (const op of this.found) ops[op] = 1;
    this.hits = { ops, inside: countInside(this.state.tree, this.state.parents, this.found) };
    this.toolbar.setHits(this.found.length ? plural(this.found.length, 'hit') : 'no hit');
  }

  private step(by: number): void {
    if (this.toolbar.input.value !== this.query) this.search(this.toolbar.input.value);
    const n = this.found.length;
    if (n === 0) return;
    this.at = this.at < 0 ? (by > 0 ? 0 : n - 1) : (this.at + by + n) % n;
    this.goTo(this.found[this.at]!);
    this.toolbar.setHits(`${count(this.at + 1)} of ${count(n)}`);
  }

  private stepChange(by: number): void {
    const { graph } = this.state;
    const current = this.selection.op === undefined ? -1 : graph.indexOf.get(this.selection.op) ?? -1;
    for (let i = 1; i <= graph.n; i++) {
      const op = (((current + by * i) % graph.n) + graph.n) % graph.n;
      if (graph.status[op] === 0) continue;
      this.goTo(op);
      return;
    }
  }

  private goTo(op: number): void {
    const { graph, layout } = this.state;
    if (layout.itemOfOp[op]! < 0) {
      const target = graph.folded[op] ? usersOf(graph, op)[0]! : op;
      this.change(() => this.state.reveal(target), true);
    }
    this.select(this.itemFor(op));
    if (this.viewport.camera.scale < 0.5) this.viewport.camera.scale = 0.8;
    this.bringIntoView(this.selected);
    this.viewport.changed();
  }

  private setOverlay(index: number): void {
    this.heatIndex = index;
    this.refreshHeat();
    this.recolour();
    this.saveState();
  }

  private togglePhase(phase: string): void {
    if (!this.dimmed.delete(phase)) this.dimmed.add(phase);
    this.refreshPhases();
    this.recolour();
    this.saveState();
  }

  /** Lights what the selection is computed from, or what depends on it; again: everything. */
  private toggleFocus(direction: Direction): void {
    const { graph, tree, layout } = this.state;
    if (this.selected < 0) {
      this.say('Select an op or a scope first.');
      return;
    }
    const id = layout.id[this.selected]!;
    const roots = id >= 0 ? [id] : opsInside(tree, -1 - id);
    const { focus } = this;
    const again = focus?.direction === direction && focus.roots.has(graph.keys[roots[0]!]!);
    if (again) this.focus = null;
    else {
      const name = nameForSentence(graph, tree, id);
      this.focus = focusOn(graph, tree, this.state.parents, roots, name, direction);
      this.say(this.focus.told);
    }
    this.recolour();
  }

  /** In another stage: of the same ops, where they are still there. */
  private refreshFocus(): void {
    if (!this.focus) return;
    const { graph, tree, parents } = this.state;
    const { direction, roots } = this.focus;
    const found = [...roots].flatMap((key) => graph.indexOf.get(key) ?? []);
    const name = found.length === 1 ? nameOf(graph, found[0]!) : plural(found.length, 'op');
    this.focus = found.length ? focusOn(graph, tree, parents, found, name, direction) : null;
  }

  private refreshPhases(): void {
    const { graph, tree, parents } = this.state;
    this.phases = makePhases(graph, tree, parents, this.dimmed);
  }

  private refreshHeat(): void {
    const overlays = this.state.graph.data.overlays ?? [];
    if (this.heatIndex >= overlays.length) this.heatIndex = -1;
    const overlay = overlays[this.heatIndex];
    this.heat = overlay ? makeHeat(overlay, this.state.tree.scopeOf, this.state.parents) : null;
    this.toolbar.setOverlays(overlays, this.heatIndex);
  }

  // -------------------------------------------------------------- pointer and keys

  private listen(): void {
    listenTo(this.stage, this.viewport, this.minimap.canvas, {
      hover: (x, y) => this.hoverAt(x, y),
      click: (x, y, shift) => this.clickAt(x, y, shift),
      open: (x, y, shift) => {
        const item = this.itemAt(x, y);
        if (item >= 0) this.toggle(item, shift);
      },
      moved: () => this.tip.hide(),
      map: (x, y) => this.viewport.centre(...this.minimap.at(x, y, this.state.layout)),
    });
    this.frame.root.addEventListener('keydown', (event) => this.key(event));
  }

  private itemAt(x: number, y: number): number {
    return itemAt(this.state.layout, ...this.viewport.toWorld(x, y));
  }

  private hoverAt(x: number, y: number): void {
    const item = x < 0 ? -1 : this.itemAt(x, y);
    const open = item >= 0 && this.state.layout.opens[item]! >= 0;
    const target = open ? -1 : item;
    if (target !== this.hover) {
      this.hover = target;
      this.viewport.ask();
    }
    if (target < 0) this.tip.hide();
    else this.tip.show(x, y, ...this.facts(target));
  }

  private clickAt(x: number, y: number, shift: boolean): void {
    const item = this.itemAt(x, y);
    const { layout } = this.state;
    if (shift && item >= 0 && this.selected >= 0) {
      this.showPath(layout.id[this.selected]!, layout.id[item]!);
      return;
    }
    this.select(item);
    if (item < 0 || layout.id[item]! >= 0) return;
    // The triangle in front of a scope's name opens and closes with one click.
    const [wx, wy] = this.viewport.toWorld(x, y);
    if (wx - layout.x[item]! < 22 && wy - layout.y[item]! < HEADER) this.toggle(item);
  }

  private showPath(a: number, b: number): void {
    const { graph } = this.state;
    if (a < 0 || b < 0) return;
    this.path = pathBetween(graph, a, b);
    this.say(
      this.path.length
        ? `Path of ${plural(this.path.length, 'op')} from ${nameOf(graph, this.path[0]!)} to ` +
            nameOf(graph, this.path[this.path.length - 1]!)
        : 'No path between these two ops.',
    );
    this.viewport.ask();
  }

  private pathFromPin(): void {
    const { graph, layout } = this.state;
    const to = this.selected < 0 ? -1 : layout.id[this.selected]!;
    const drawn = this.pins.keys.map((key) => graph.indexOf.get(key)).filter((op) => op !== to);
    const from = drawn.filter((op) => op !== undefined).at(-1);
    if (from === undefined || to < 0) this.say('Pin an op (p) and select another one: t shows the path.');
    else this.showPath(from, to);
  }

  private facts(item: number): Node[] {
    const { layout, graph, tree } = this.state;
    const id = layout.id[item]!;
    if (id < 0) {
      const rows = scopeFacts(this.state, -1 - id, this.heat, this.phases);
      return [h('b', {}, tree.scopes[-1 - id]!.label || 'module'), facts(rows)];
    }
    const name = document.createTextNode(` ${nameOf(graph, id)}`);
    return [h('b', {}, kindOf(graph, id)), name, facts(opFacts(graph, id))];
  }

  private key(event: KeyboardEvent): void {
    const inField = event.composedPath()[0] !== this.stage;
    if (event.key === 'Escape') this.escape();
    else if (inField || event.ctrlKey || event.metaKey || event.altKey) return;
    else if (!this.press(event)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  private press(event: KeyboardEvent): boolean {
    const actions: Record<string, () => void> = {
      ArrowUp: () => this.walk('up'),
      ArrowDown: () => this.walk('down'),
      ArrowLeft: () => this.walk('left'),
      ArrowRight: () => this.walk('right'),
      Enter: () => this.selected >= 0 && this.toggle(this.selected, event.shiftKey),
      ' ': () => this.selected >= 0 && this.toggle(this.selected),
      Backspace: () => this.around(),
      e: () => this.expand(false),
      E: () => this.expand(true),
      C: () => this.change(() => this.state.collapse(), true),
      f: () => this.viewport.show(this.bounds()),
      '.': () => this.centreSelection(),
      '+': () => this.viewport.zoom(1.25),
      '=': () => this.viewport.zoom(1.25),
      '-': () => this.viewport.zoom(0.8),
      '/': () => this.toolbar.input.focus(),
      '[': () => this.stepChange(-1),
      ']': () => this.stepChange(1),
      i: () => this.toggleFocus('inputs'),
      u: () => this.toggleFocus('users'),
      p: () => this.pin(),
      P: () => this.pins.clear(),
      t: () => this.pathFromPin(),
      o: () => this.nextOverlay(),
      w: () => this.toggleFolded(),
      y: () => this.selected >= 0 && void copy(describe(this.state, this.selected), this.frame.root),
      '?': () => (this.help.hidden = !this.help.hidden),
    };
    const action = actions[event.key];
    action?.();
    return action !== undefined;
  }

  private nextOverlay(): void {
    const n = this.state.graph.data.overlays?.length ?? 0;
    this.setOverlay(this.heatIndex + 1 >= n ? -1 : this.heatIndex + 1);
  }

  private centreSelection(): void {
    if (this.selected < 0) return;
    const { layout } = this.state;
    this.viewport.centre(
      layout.x[this.selected]! + layout.width[this.selected]! / 2,
      layout.y[this.selected]! + layout.height[this.selected]! / 2,
    );
  }

  private escape(): void {
    this.note.hidden = true;
    if (!this.help.hidden) this.help.hidden = true;
    else if (this.query !== '') {
      this.toolbar.input.value = '';
      this.search('');
    } else if (this.path.length) this.path = [];
    else if (this.focus) {
      this.focus = null;
      this.recolour();
    } else this.select(-1);
    this.stage.focus({ preventScroll: true });
    this.viewport.ask();
  }

  // -------------------------------------------------------------- export

  private fileName(extension: string): string {
    const title = this.state.graph.data.stage.title.replace(/[^\w.-]+/g, '_') || 'graph';
    return `${title}.${extension}`;
  }

  private exportSvg(): void {
    const text = this.svg();
    if (text === null) {
      this.say(`Too much for an SVG: at most ${count(MAX_SVG_ITEMS)} items; zoom in or close scopes.`);
      return;
    }
    download(this.fileName('svg'), new Blob([text], { type: 'image/svg+xml' }));
  }

  private svg(): string | null {
    return svg(this.scene(), this.bounds(), this.viewport.view());
  }

  private dot(): string {
    const { graph, tree, layout } = this.state;
    return dot({ graph, tree, layout, classes: this.classes, palette: this.palette });
  }

  /** What tests and benchmarks read. */
  private expose(): void {
    const place = (item: number): { x: number; y: number } | null => {
      if (item < 0) return null;
      const { layout } = this.state;
      const [x, y] = this.viewport.toScreen(
        layout.x[item]! + layout.width[item]! / 2,
        layout.y[item]! + Math.min(layout.height[item]!, 20) / 2,
      );
      const box = this.stage.getBoundingClientRect();
      return { x: x + box.left, y: y + box.top };
    };
    Object.assign(this.frame.root, {
      workbench: {
        placeOfOp: (key: string | number) => {
          const op = this.state.graph.indexOf.get(key);
          return op === undefined ? null : place(this.state.layout.itemOfOp[op]!);
        },
        placeOfScope: (id: string) => {
          const scope = this.state.tree.byId.get(id);
          return scope === undefined ? null : place(this.state.layout.itemOfScope[scope]!);
        },
        scopes: () => this.state.tree.scopes.map(({ id, label, total }) => ({ id, label, total })),
        shown: () => ({ items: this.state.layout.count, ops: this.state.layout.drawnOps }),
        camera: () => ({ ...this.viewport.camera }),
        phases: () =>
          this.phases
            ? phasesInside(this.phases, 0).map(([i, n]) => ({
                name: this.phases!.names[i]!,
                count: n,
                dim: this.phases!.dim[i] === 1,
              }))
            : [],
        linked: () => this.linked().map(([item]) => this.state.keyOf(item)),
        selected: () => (this.selected < 0 ? '' : describe(this.state, this.selected)),
        lit: () => (this.focus ? this.focus.ops.reduce((sum, lit) => sum + lit, 0) : null),
        pinned: () => this.pins.keys,
        svg: () => this.svg(),
        dot: () => this.dot(),
      },
    });
  }
}

export default define<GraphData>('graph', STYLE, (frame) => {
  const view = new GraphView(frame);
  return {
    data: (data, first) => {
      view.data(data, first);
      if (first) view.stateFromHost(frame.link.dict('state'));
    },
    theme: (palette) => view.theme(palette),
    selected: (selection) => view.selectedFromHost(selection),
    state: (state) => view.stateFromHost(state),
  };
});
