/** The graph view: the op graph of one stage. See widgets/README.md for data and keys. */

import { copy, debounce, facts, h, tooltip } from '../shared/dom';
import { download, saveText } from '../shared/download';
import { count, plural } from '../shared/format';
import { listenTo, panDistance, zoomFactor } from '../shared/gestures';
import type { Selection } from '../shared/host';
import { STAGE_STYLE } from '../shared/stage';
import { CHANGES, type Palette } from '../shared/theme';
import { define, type Frame } from '../shared/view';
import { Choice } from './choice';
import { CRUMBS_STYLE } from './crumbs';
import { type Snapshot, Drawing } from './drawing';
import { Emphasis } from './emphasis';
import { expose } from './exposed';
import { describeCounts, describe, opFacts, scopeFacts } from './facts';
import { find } from './find';
import { type Direction, nameForSentence, opsInside } from './focus';
import { type Commands, listenToKeys } from './keys';
import { type GraphData, kindOf, nameOf } from './model';
import { KEYS, Legend, PANEL_STYLE, Toolbar } from './panel';
import { MAX_SVG_ITEMS } from './picture';
import { PINS_STYLE } from './pins';
import { searchNames } from './search';
import { GraphState } from './state';

const STYLE = `
.cw-graph .minimap { position: absolute; right: 8px; bottom: 8px; z-index: 2; cursor: crosshair;
  border: 1px solid var(--line); border-radius: 4px; }
.cw-graph .minimap:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
.cw-graph .note { position: absolute; z-index: 3; left: 50%; top: 10px; transform: translateX(-50%);
  background: var(--surface); border: 1px solid var(--line); border-radius: 5px; padding: 4px 10px;
  box-shadow: 0 2px 8px rgb(0 0 0 / 15%); }
${STAGE_STYLE}${CRUMBS_STYLE}${PANEL_STYLE}${PINS_STYLE}`;

/** Two clicks within this time can be a double click (milliseconds). */
const DOUBLE_CLICK_MS = 600;

class GraphView {
  private readonly state = new GraphState();
  private readonly toolbar: Toolbar;
  private readonly emphasis: Emphasis;
  private readonly drawing: Drawing;
  private readonly choice: Choice;
  private readonly legend = new Legend((phase) => this.emphasis.togglePhase(phase));
  private readonly tip;
  private readonly help = h('div', { class: 'help', hidden: true }, facts(KEYS));
  private readonly note = h('div', { class: 'note', role: 'status', hidden: true });
  private noteTimer = 0;
  /** The first click of a possible double click, and the selection before it. */
  private firstClick: { time: number; selectionBefore: Selection } | null = null;
  private palette!: Palette;
  private readonly saveState = debounce(() => this.writeState(), 250);
  private readonly runSearch = debounce(() => this.emphasis.search(this.toolbar.input.value), 100);

  constructor(private readonly frame: Frame) {
    const commands = this.commands();
    this.toolbar = new Toolbar({
      ...commands,
      search: () => this.runSearch(),
      step: (by) => void this.step(by),
      overlay: (at) => this.emphasis.chooseOverlay(at),
      svg: () => this.saveSvg(),
      dot: () => saveText(this.fileName('dot'), this.drawing.dot(), 'text/vnd.graphviz'),
      png: () => this.drawing.viewport.image((blob) => blob && download(this.fileName('png'), blob)),
    });
    const onEmphasis = () => {
      this.recolour();
      this.saveState();
    };
    this.emphasis = new Emphasis(this.state, this.toolbar, onEmphasis, (text) => this.showMessage(text));
    this.drawing = new Drawing(frame, this.state, this.emphasis, (item) => {
      this.choice.select(item);
      this.drawing.showItem(item);
    });
    this.choice = new Choice(frame, this.state, this.drawing, {
      open: (action, save) => this.changeScopes(action, save),
      pinned: () => this.writeState(),
      showMessage: (text) => this.showMessage(text),
    });
    const { stage, crumbs, minimap } = this.drawing;
    const { pins } = this.choice;
    const top = h('div', { class: 'top' }, crumbs.root, this.toolbar.status);
    stage.append(top, this.legend.root, minimap.canvas, pins.root, this.note);
    frame.root.append(this.toolbar.root, stage, this.help);
    this.tip = tooltip(stage);
    const { viewport } = this.drawing;
    listenTo(stage, viewport.canvas, {
      hover: (x, y) => this.hoverAt(x, y),
      click: (x, y, shift) => this.clickAt(x, y, shift),
      open: (x, y, shift) => this.openAt(x, y, shift),
      drag: (dx, dy) => viewport.pan(-dx, -dy),
      wheel: (event, x, y) => {
        if (!event.ctrlKey && !event.metaKey) return viewport.pan(...panDistance(event));
        viewport.zoom(1 / zoomFactor(event), x, y);
        return true;
      },
      moved: () => this.tip.hide(),
    });
    listenToKeys(frame.root, [stage, minimap.canvas], commands);
    expose(frame.root, { state: this.state, drawing: this.drawing, emphasis: this.emphasis, pins });
  }

  /** The actions of keys and buttons. */
  private commands(): Commands {
    return {
      walk: (way) => this.choice.walk(way),
      toggle: (force) => this.toggle(this.drawing.selected, force),
      selectParent: () => this.choice.selectParent(),
      expand: (all) => this.expand(all),
      collapse: () => this.changeScopes(() => this.state.collapse(), true),
      fit: () => {
        const message = this.drawing.fit();
        if (message) this.showMessage(message);
      },
      centre: () => this.drawing.centre(this.drawing.selected),
      zoom: (factor) => this.drawing.viewport.zoom(factor),
      find: () => this.toolbar.input.focus(),
      stepChange: (by) => this.choice.stepChange(by),
      lightInputs: () => this.toggleLight('inputs'),
      lightUsers: () => this.toggleLight('users'),
      pin: () => this.choice.pin(),
      unpin: () => this.choice.pins.clear(),
      showPath: () => this.choice.pathFromPin(),
      nextOverlay: () => this.emphasis.nextOverlay(),
      toggleFolded: () => this.toggleFolded(),
      copy: () => this.copy(),
      help: () => (this.help.hidden = !this.help.hidden),
      escape: () => this.escape(),
    };
  }

  // -------------------------------------------------------------- updates from the host

  data(data: GraphData, first: boolean): void {
    const before = first ? null : this.drawing.snapshot();
    this.state.load(data);
    this.drawing.load();
    this.tip.hide();
    this.emphasis.refresh();
    this.finishChange(before);
    if (first) this.drawing.showFirstView(this.firstChange());
    else this.showChange();
  }

  /** Goes to the first change if nothing is selected and no change is in the window. */
  private showChange(): void {
    const { drawing } = this;
    if (drawing.selected >= 0 || drawing.viewport.width === 0) return;
    const found = this.firstChange((item) => drawing.isInWindow(item));
    if (found >= 0) drawing.bringIntoView(found);
  }

  /** The item of the first change; below 0 if there is none, or if `isSeen` is true of one.  Ops that only moved
   * count only if there are no other changes. */
  private firstChange(isSeen: (item: number) => boolean = () => false): number {
    const { graph } = this.state;
    const moved = CHANGES.indexOf('moved');
    const hasOtherChanges = graph.status.some((status) => status !== 0 && status !== moved);
    let first = -1;
    for (let op = 0; op < graph.n; op++) {
      const status = graph.status[op]!;
      const item = status && !(hasOtherChanges && status === moved) ? this.choice.itemFor(op) : -1;
      if (item < 0) continue;
      if (isSeen(item)) return -1;
      if (first < 0) first = item;
    }
    return first;
  }

  theme(palette: Palette): void {
    this.palette = palette;
    this.drawing.theme(palette);
    if (this.state.layout) this.recolour();
  }

  selected(selection: Selection): void {
    this.choice.applyHostSelection(selection);
  }

  restore(saved: Record<string, unknown>): void {
    if (!this.state.layout) return;
    if (Array.isArray(saved.open)) this.openOnly(new Set(['', ...(saved.open as string[])]));
    else if (Object.keys(saved).length === 0) this.openOnly(this.state.initialOpen());
    this.choice.pins.restore(saved.pins);
    if (this.emphasis.restore(saved)) this.recolour();
  }

  private openOnly(scopes: Set<string>): void {
    const { open } = this.state;
    if (scopes.size === open.size && [...scopes].every((scope) => open.has(scope))) return;
    this.changeScopes(() => {
      this.state.open = scopes;
      this.state.place();
    }, false);
  }

  private writeState(): void {
    const open = [...this.state.open].filter(Boolean).slice(0, 200);
    const { all } = this.choice.pins;
    const pins = all.length ? { pins: all } : {};
    this.frame.link.write('state', { open, ...this.emphasis.savedState(), ...pins });
  }

  // -------------------------------------------------------------- open scopes

  /** Opens or closes scopes; items that remain keep their place on the screen. */
  private changeScopes(action: () => void, save: boolean, anchor = -1): void {
    const before = this.drawing.snapshot();
    this.tip.hide(); // its subject can be elsewhere now, or gone
    action();
    this.finishChange(before, anchor);
    if (save) this.saveState();
  }

  private finishChange(before: Snapshot | null, anchor = -1): void {
    this.choice.reselect();
    this.recolour();
    if (before) this.drawing.move(before, anchor);
  }

  /** Opens or closes a scope; does nothing for an op or none (-1). */
  private toggle(item: number, force = false): void {
    const id = item < 0 ? 0 : this.state.layout.id[item]!;
    if (id >= 0) return;
    const scope = -1 - id;
    let done = true;
    this.changeScopes(() => (done = this.state.toggle(scope, force)), true, item);
    if (!done) {
      const total = this.state.tree.scopes[scope]!.ops.length;
      this.showMessage(
        `Opening this draws ${plural(total, 'op')} more; the cap is ` +
          `${count(this.state.maxVisible)}. Shift + Enter opens it anyway.`,
      );
    }
  }

  private expand(all: boolean): void {
    let complete = true;
    this.changeScopes(() => (complete = this.state.expand(all)), true);
    if (complete) return;
    const { drawnOps } = this.state.layout;
    this.showMessage(
      `${count(drawnOps)} of ${count(this.state.graph.n)} ops drawn (cap ` +
        `${count(this.state.maxVisible)}); open single scopes, or search.`,
    );
  }

  private toggleFolded(): void {
    this.changeScopes(() => {
      this.state.showFolded = !this.state.showFolded;
      this.state.place();
    }, false);
  }

  private recolour(): void {
    const { graph, changes } = this.state;
    let guessed = 0;
    const column = graph.data.ops.guessed;
    if (column) for (let op = 0; op < graph.n; op++) guessed += column[op]!;
    const { heat, phases } = this.emphasis;
    this.legend.show(this.palette, graph.data, changes?.subarray(0, 5) ?? null, heat, guessed, phases);
    this.toolbar.setDiff(changes !== null);
    this.toolbar.setFolded(this.state.showFolded);
    this.toolbar.setStatus(...describeCounts(this.state));
    this.drawing.repaint();
  }

  private showMessage(text: string): void {
    this.note.textContent = text;
    this.note.hidden = false;
    clearTimeout(this.noteTimer);
    this.noteTimer = window.setTimeout(() => (this.note.hidden = true), 5000);
  }

  // -------------------------------------------------------------- search and light

  private async step(by: number): Promise<void> {
    const op = await this.emphasis.step(by);
    if (op >= 0) this.choice.goTo(op);
  }

  /** Lights the inputs or the users of the selection, transitively; again: everything. */
  private toggleLight(direction: Direction): void {
    const { graph, tree, layout } = this.state;
    const { selected } = this.drawing;
    if (selected < 0) {
      this.showMessage('Select an op or a scope first.');
      return;
    }
    const id = layout.id[selected]!;
    const roots = id >= 0 ? [id] : opsInside(tree, -1 - id);
    this.emphasis.toggleFocus(direction, roots, nameForSentence(graph, tree, id));
    if (this.emphasis.focus) this.showMessage(this.emphasis.focus.message);
    this.recolour();
    this.writeState();
  }

  // -------------------------------------------------------------- pointer

  private hoverAt(x: number, y: number): void {
    const { drawing } = this;
    const item = x < 0 ? -1 : drawing.itemAt(x, y);
    const isOpen = item >= 0 && this.state.layout.opens[item]! >= 0;
    const target = isOpen ? -1 : item;
    if (target !== drawing.hover) {
      drawing.hover = target;
      drawing.viewport.requestFrame();
    }
    if (target < 0) this.tip.hide();
    else this.tip.show(x, y, ...this.facts(target));
  }

  private facts(item: number): Node[] {
    const { layout, graph, tree } = this.state;
    const id = layout.id[item]!;
    if (id < 0) {
      const rows = scopeFacts(this.state, -1 - id, this.emphasis.heat, this.emphasis.phases);
      return [h('b', {}, tree.scopes[-1 - id]!.label || 'module'), facts(rows)];
    }
    const name = document.createTextNode(` ${nameOf(graph, id)}`);
    return [h('b', {}, kindOf(graph, id)), name, facts(opFacts(graph, id))];
  }

  private clickAt(x: number, y: number, shift: boolean): void {
    const { drawing } = this;
    const item = drawing.itemAt(x, y);
    const { id } = this.state.layout;
    if (shift && item >= 0 && drawing.selected >= 0) {
      this.choice.showPath(id[drawing.selected]!, id[item]!);
      return;
    }
    // The triangle in front of a scope's name opens and closes it with one click; the selection
    // does not change.
    if (item >= 0 && id[item]! < 0 && drawing.onTriangle(item, x, y)) {
      this.toggle(item);
      this.firstClick = null;
      return;
    }
    const now = performance.now();
    if (!this.firstClick || now - this.firstClick.time > DOUBLE_CLICK_MS) {
      this.firstClick = { time: now, selectionBefore: this.choice.currentSelection() };
    }
    this.choice.select(item);
  }

  /** A double click on a scope opens or closes it.  Its first click selected the scope, which is
   * undone: the previous selection is restored. */
  private openAt(x: number, y: number, shift: boolean): void {
    const item = this.drawing.itemAt(x, y);
    if (item < 0 || this.state.layout.id[item]! >= 0) return;
    if (this.drawing.onTriangle(item, x, y) && !this.firstClick) return; // two single clicks
    const selectionBefore = this.firstClick?.selectionBefore;
    this.firstClick = null;
    this.toggle(item, shift);
    if (selectionBefore?.op !== undefined) this.choice.restoreSelection(selectionBefore);
  }

  // -------------------------------------------------------------- further keys

  private copy(): void {
    const { selected } = this.drawing;
    if (selected >= 0) void copy(describe(this.state, selected), this.frame.root);
  }

  private escape(): void {
    const { drawing, emphasis } = this;
    this.note.hidden = true;
    if (!this.help.hidden) this.help.hidden = true;
    else if (emphasis.query !== '') {
      this.toolbar.input.value = '';
      emphasis.search('');
    } else if (drawing.path.length) drawing.path = [];
    else if (emphasis.focus) {
      emphasis.focus = null;
      this.recolour();
      this.writeState();
    } else this.choice.select(-1);
    drawing.stage.focus({ preventScroll: true });
    drawing.viewport.requestFrame();
  }

  // -------------------------------------------------------------- as a file

  private fileName(extension: string): string {
    return `${this.state.graph.data.stage.title || 'graph'}.${extension}`;
  }

  private saveSvg(): void {
    const text = this.drawing.svg();
    if (text !== null) saveText(this.fileName('svg'), text, 'image/svg+xml');
    else this.showMessage(`Too much for an SVG: at most ${count(MAX_SVG_ITEMS)} items; zoom in or close scopes.`);
  }
}

const graphView = define<GraphData>('graph', STYLE, (frame) => {
  const view = new GraphView(frame);
  return {
    data: (data, first) => {
      view.data(data, first);
      if (first) view.restore(frame.link.dict('state'));
    },
    theme: (palette) => view.theme(palette),
    selected: (selection) => view.selected(selection),
    state: (state) => view.restore(state),
  };
});

// The search of a page without a server.
export default { ...graphView, find, searchNames };
