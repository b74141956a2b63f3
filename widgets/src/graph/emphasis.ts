/** Emphasis in the drawing: search hits, a heat overlay, phases, lit ops. */

import { count, plural } from '../shared/format';
import { type ExpressionMatches, matchInWorker, BadExpression } from './expressions';
import { type Direction, type Focus, focusOn } from './focus';
import { type Key, nameOf, type Overlay } from './model';
import type { Toolbar } from './panel';
import { makePhases, type Phases } from './phases';
import type { SceneInput } from './scene';
import { textsForExpressions, search } from './search';
import { countInside, type GraphState } from './state';
import { type Heat, makeHeat } from './style';

/** The maximum number of lit ops in a link; more would make it too long. */
const MAX_SAVED_ROOTS = 1000;

export class Emphasis {
  heat: Heat | null = null;
  hits: SceneInput['hits'] = null;
  phases: Phases | null = null;
  focus: Focus | null = null;
  query = '';
  private found: Int32Array = new Int32Array(0);
  /** The last search: aborts it, and resolves when it is done. */
  private searchAbort = new AbortController();
  private searchDone = Promise.resolve();
  /** The visited hit; -1: none yet. */
  private hitIndex = -1;
  /** The chosen overlay, which the shown stage may lack. */
  private overlay = '';
  private readonly dimmed = new Set<string>();

  /** `changed`: redraws the emphasis and saves it with the view; `showMessage`: shows a message. */
  constructor(
    private readonly state: GraphState,
    private readonly toolbar: Toolbar,
    private readonly changed: () => void,
    private readonly showMessage: (text: string) => void,
  ) {}

  /** Keeps the emphasis in another stage. */
  refresh(): void {
    this.refreshHeat();
    this.refreshPhases();
    this.refreshSearch();
    if (this.focus) this.focus = this.findFocus(this.focus.direction, this.focus.roots);
  }

  // -------------------------------------------------------------- search

  search(query: string): void {
    if (query === this.query) return;
    this.query = query;
    this.refreshSearch();
    this.changed();
  }

  private refreshSearch(): void {
    this.hitIndex = -1;
    this.searchAbort.abort();
    this.searchAbort = new AbortController();
    const texts = textsForExpressions(this.state.graph, this.query);
    if (texts.size === 0) {
      this.setFound(search(this.state.graph, this.query, new Map()));
      this.searchDone = Promise.resolve();
      return;
    }
    this.found = new Int32Array(0);
    this.hits = null;
    this.toolbar.setHits('searching');
    this.searchDone = this.finishSearch(matchInWorker(texts, this.searchAbort.signal));
  }

  private async finishSearch(matches: Promise<ExpressionMatches>): Promise<void> {
    try {
      this.setFound(search(this.state.graph, this.query, await matches));
    } catch (error) {
      if (!(error instanceof BadExpression)) throw error;
      const { message, fix } = error;
      this.toolbar.setHits(message.split(':')[0]!, `${message}; ${fix}`);
      this.showMessage(`${message}; ${fix}`);
    }
    this.changed();
  }

  private setFound(found: Int32Array): void {
    this.found = found;
    if (this.query.trim() === '') {
      this.hits = null;
      this.toolbar.setHits('');
      return;
    }
    const ops = new Uint8Array(this.state.graph.n);
    for (const op of found) ops[op] = 1;
    this.hits = { ops, inside: countInside(this.state.tree, this.state.parents, found) };
    this.toolbar.setHits(found.length ? plural(found.length, 'hit') : 'no hits');
  }

  /** The next or the previous hit, once the search is done; -1: none. */
  async step(by: number): Promise<number> {
    this.search(this.toolbar.input.value);
    await this.searchDone;
    const n = this.found.length;
    if (n === 0) return -1;
    this.hitIndex = this.hitIndex < 0 ? (by > 0 ? 0 : n - 1) : (this.hitIndex + by + n) % n;
    this.toolbar.setHits(`${count(this.hitIndex + 1)} of ${count(n)}`);
    return this.found[this.hitIndex]!;
  }

  // -------------------------------------------------------------- heat and phases

  private get overlays(): Overlay[] {
    return this.state.graph.data.overlays ?? [];
  }

  /** Its index among the overlays of this stage; -1: none. */
  private get overlayIndex(): number {
    return this.overlays.findIndex(({ name }) => name === this.overlay);
  }

  setOverlay(name: string): void {
    this.overlay = name;
    this.refreshHeat();
    this.changed();
  }

  /** The overlay at an index of the stage's list, if any. */
  chooseOverlay(index: number): void {
    this.setOverlay(this.overlays[index]?.name ?? '');
  }

  nextOverlay(): void {
    this.chooseOverlay(this.overlayIndex + 1);
  }

  private refreshHeat(): void {
    const { overlays, overlayIndex } = this;
    const overlay = overlays[overlayIndex];
    this.heat = overlay ? makeHeat(overlay, this.state.tree.scopeOf, this.state.parents) : null;
    this.toolbar.setOverlays(overlays, overlayIndex);
  }

  togglePhase(phase: string): void {
    if (!this.dimmed.delete(phase)) this.dimmed.add(phase);
    this.refreshPhases();
    this.changed();
  }

  private refreshPhases(): void {
    const { graph, tree, parents } = this.state;
    this.phases = makePhases(graph, tree, parents, this.dimmed);
  }

  // -------------------------------------------------------------- lit ops

  /** Lights the inputs or the users of `roots` (ops), transitively; again: everything. */
  toggleFocus(direction: Direction, roots: number[], name: string): void {
    const { graph, tree, parents } = this.state;
    const { focus } = this;
    const isSame = focus?.direction === direction && focus.roots.has(graph.keys[roots[0]!]!);
    this.focus = isSame ? null : focusOn(graph, tree, parents, roots, name, direction);
  }

  /** Null if none of the `roots` is in this stage. */
  private findFocus(direction: Direction, roots: Iterable<Key>): Focus | null {
    const { graph, tree, parents } = this.state;
    const found = [...roots].flatMap((key) => graph.indexOf.get(key) ?? []);
    const name = found.length === 1 ? nameOf(graph, found[0]!) : plural(found.length, 'op');
    return found.length ? focusOn(graph, tree, parents, found, name, direction) : null;
  }

  // -------------------------------------------------------------- saved with the view

  /** Restores the state of a link, which is untrusted text.  True: a redraw is needed. */
  restore(saved: Record<string, unknown>): boolean {
    const overlay = typeof saved.overlay === 'string' ? saved.overlay : '';
    if (overlay !== this.overlay) this.setOverlay(overlay);
    const dim = (Array.isArray(saved.dim) ? saved.dim : []).map(String);
    const phasesChanged = dim.join() !== [...this.dimmed].join();
    if (phasesChanged) {
      this.dimmed.clear();
      for (const phase of dim) this.dimmed.add(phase);
      this.refreshPhases();
    }
    const focusChanged = this.restoreFocus(saved.lit);
    const query = typeof saved.query === 'string' ? saved.query : '';
    if (query !== this.query) {
      this.toolbar.input.value = query;
      this.search(query);
    }
    return phasesChanged || focusChanged;
  }

  private restoreFocus(saved: unknown): boolean {
    const [direction, ...roots] = Array.isArray(saved) ? saved : [];
    const current = this.focus && [this.focus.direction, ...this.focus.roots];
    if (JSON.stringify(current) === JSON.stringify(saved ?? null)) return false;
    const isDirection = direction === 'inputs' || direction === 'users';
    this.focus = isDirection ? this.findFocus(direction, roots) : null;
    return true;
  }

  savedState(): Record<string, unknown> {
    const { focus } = this;
    return {
      overlay: this.overlay,
      query: this.query,
      ...(this.dimmed.size ? { dim: [...this.dimmed] } : {}),
      ...(focus && focus.roots.size <= MAX_SAVED_ROOTS ? { lit: [focus.direction, ...focus.roots] } : {}),
    };
  }
}
