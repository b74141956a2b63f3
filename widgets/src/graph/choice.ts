/** The selected, pinned and marked items of the graph, chosen by the user or by other views. */

import { plural } from '../shared/format';
import type { Selection } from '../shared/host';
import { announce, type Frame } from '../shared/view';
import type { Drawing } from './drawing';
import { describe, opFacts } from './facts';
import type { WalkDirection } from './keys';
import { isOnlyInB, type Key, kindOf, nameOf, usersOf } from './model';
import { type Pin, Pins } from './pins';
import type { GraphState } from './state';
import { neighbour, sibling } from './walk';

interface ViewHooks {
  /** Runs an action that opens scopes; `save`: the view remembers it. */
  open(action: () => void, save: boolean): void;
  /** The pinned ops have changed. */
  pinned(): void;
  showMessage(text: string): void;
}

export class Choice {
  readonly pins: Pins;
  /** The last visited change and the op selected for it, which can be another one: a folded
   * constant selects its user. */
  private lastChange: { change: Key; selected: Key | undefined } | null = null;

  constructor(
    private readonly frame: Frame,
    private readonly state: GraphState,
    private readonly drawing: Drawing,
    private readonly hooks: ViewHooks,
  ) {
    this.pins = new Pins(
      (key) => {
        const op = state.graph.indexOf.get(key);
        if (op === undefined) hooks.showMessage('This op is not in the shown stage.');
        else this.goTo(op);
      },
      () => hooks.pinned(),
    );
  }

  // -------------------------------------------------------------- the selection

  applyHostSelection(selection: Selection): void {
    const { state, drawing } = this;
    drawing.selection = selection;
    const op = selection.op === undefined ? undefined : state.graph.indexOf.get(selection.op);
    if (op === undefined) {
      const scope = state.tree.byId.get(selection.scope ?? '\0') ?? -1;
      if (scope >= 0 && state.layout.itemOfScope[scope]! < 0) {
        this.hooks.open(() => state.revealScope(scope), false);
      }
      drawing.selected = scope < 0 ? -1 : state.layout.itemOfScope[scope]!;
    } else {
      if (state.layout.itemOfOp[op]! < 0 && !state.graph.folded[op]) {
        this.hooks.open(() => state.reveal(op), false);
      }
      drawing.selected = this.itemFor(op);
    }
    drawing.viewport.requestFrame();
    drawing.bringIntoView(drawing.selected);
    this.pins.compare(this.pinOfSelection());
  }

  select(item: number): void {
    const { layout, graph, tree } = this.state;
    const { drawing } = this;
    this.lastChange = null;
    drawing.selected = item;
    drawing.path = [];
    const next: Selection = { ...this.frame.link.dict<Selection>('selection') };
    delete next.op;
    delete next.scope;
    if (item >= 0) {
      const id = layout.id[item]!;
      if (id >= 0) next.op = graph.keys[id]!;
      else next.scope = tree.scopes[-1 - id]!.id;
      announce(this.frame.root, describe(this.state, item));
    }
    drawing.selection = next;
    this.frame.link.write('selection', this.sharedSelection(next));
    this.pins.compare(this.pinOfSelection());
    drawing.viewport.requestFrame();
  }

  /** A copy of the selection, for `restoreSelection`. */
  currentSelection(): Selection {
    return { ...this.drawing.selection };
  }

  restoreSelection(selection: Selection): void {
    this.lastChange = null;
    this.drawing.selection = selection;
    this.reselect();
    this.frame.link.write('selection', this.sharedSelection(selection));
    this.drawing.viewport.requestFrame();
  }

  /** The selection as sent to other views: without ops that they do not know. */
  private sharedSelection(selection: Selection): Selection {
    const { graph } = this.state;
    const op = selection.op === undefined ? undefined : graph.indexOf.get(selection.op);
    if (op === undefined || !isOnlyInB(graph, op)) return selection;
    this.hooks.showMessage(graph.data.two!.apart);
    const { op: _, ...rest } = selection;
    return rest;
  }

  /** Keeps the selection in another layout. */
  reselect(): void {
    const { drawing, state } = this;
    const { op, scope } = drawing.selection;
    const index = op === undefined ? undefined : state.graph.indexOf.get(op);
    if (index !== undefined) drawing.selected = this.itemFor(index);
    else {
      const at = scope === undefined ? undefined : state.tree.byId.get(scope);
      drawing.selected = at === undefined ? -1 : state.layout.itemOfScope[at]!;
    }
    drawing.hover = -1;
    this.pins.compare(this.pinOfSelection());
  }

  /** The item that shows an op (for a folded constant, that of its user); -1: none. */
  itemFor(op: number): number {
    const { layout, graph } = this.state;
    if (layout.visibleItemOf[op]! >= 0) return layout.visibleItemOf[op]!;
    const user = usersOf(graph, op)[0];
    return user === undefined ? -1 : layout.visibleItemOf[user]!;
  }

  /** The selected op; -1 if the selection is not an op. */
  private get op(): number {
    const { selected } = this.drawing;
    return selected < 0 ? -1 : Math.max(-1, this.state.layout.id[selected]!);
  }

  // -------------------------------------------------------------- moving between items

  walk(direction: WalkDirection): void {
    const { layout, graph } = this.state;
    const { selected } = this.drawing;
    let next: number;
    if (selected < 0) next = layout.containers[0]!.items[0] ?? -1;
    else if (direction === 'up' || direction === 'down') next = neighbour(graph, layout, selected, direction === 'down');
    else next = sibling(layout, selected, direction === 'left' ? -1 : 1);
    this.selectAndShow(next);
  }

  /** Selects the enclosing scope. */
  selectParent(): void {
    const { layout } = this.state;
    const { selected } = this.drawing;
    this.selectAndShow(selected < 0 ? -1 : layout.containers[layout.container[selected]!]!.item);
  }

  private selectAndShow(item: number): void {
    if (item < 0) return;
    this.select(item);
    this.drawing.bringIntoView(item);
  }

  goTo(op: number): void {
    const { graph, layout } = this.state;
    if (layout.itemOfOp[op]! < 0) {
      const target = graph.folded[op] ? usersOf(graph, op)[0]! : op;
      this.hooks.open(() => this.state.reveal(target), true);
    }
    this.select(this.itemFor(op));
    const { viewport } = this.drawing;
    if (viewport.camera.scale < 0.5) viewport.camera.scale = 0.9;
    this.drawing.bringIntoView(this.drawing.selected);
    viewport.redraw();
  }

  /** Goes to the next or the previous op that the pass changed. */
  stepChange(by: number): void {
    const { graph } = this.state;
    const before = by > 0 ? -1 : graph.n;
    const from = this.changeOrSelected();
    const current = from === undefined ? before : (graph.indexOf.get(from) ?? before);
    for (let i = 1; i <= graph.n; i++) {
      const op = (((current + by * i) % graph.n) + graph.n) % graph.n;
      if (graph.status[op] === 0) continue;
      this.goTo(op);
      this.lastChange = { change: graph.keys[op]!, selected: this.drawing.selection.op };
      return;
    }
  }

  /** The change to step from: the last one, unless something else was selected since.  A host
   * that does not know it selects nothing. */
  private changeOrSelected(): Key | undefined {
    const { op } = this.drawing.selection;
    const { lastChange } = this;
    return lastChange && (op === undefined || op === lastChange.selected) ? lastChange.change : op;
  }

  // -------------------------------------------------------------- pins and paths

  pin(): void {
    const chosen = this.pinOfSelection();
    if (chosen) this.pins.toggle(chosen);
    else this.hooks.showMessage('Select an op to pin it, then select another one to compare.');
  }

  /** The selection as a pin; null if it is not an op. */
  private pinOfSelection(): Pin | null {
    const { op } = this;
    const { graph } = this.state;
    if (op < 0) return null;
    return {
      key: graph.keys[op]!,
      title: `${kindOf(graph, op)} ${nameOf(graph, op)}`,
      stage: graph.data.stage.title,
      facts: opFacts(graph, op),
    };
  }

  pathFromPin(): void {
    const { op: to } = this;
    const pinnedOps = this.pins.keys.map((key) => this.state.graph.indexOf.get(key));
    const from = pinnedOps.filter((op) => op !== to && op !== undefined).at(-1);
    if (from === undefined || to < 0) {
      this.hooks.showMessage('Pin an op (p) and select another one; t then shows the path.');
    } else this.showPath(from, to);
  }

  /** Marks the shortest path between two ops; does nothing if one of them is a scope (below 0). */
  showPath(a: number, b: number): void {
    if (a < 0 || b < 0) return;
    const found = this.drawing.showPath(a, b);
    const { path } = this.drawing;
    const name = (at: number) => nameOf(this.state.graph, path.at(at)!);
    this.hooks.showMessage(
      found
        ? `Path of ${plural(path.length, 'op')} from ${name(0)} to ${name(-1)}`
        : 'No path between these two ops.',
    );
  }
}
