/** Emphasis in the drawing: search hits, a heat overlay, phases, lit ops. */

import { count, plural } from '../shared/format';
import { type Answers, ask, BadExpression } from './expressions';
import { type Direction, type Focus, focusOn } from './focus';
import { type Key, nameOf, type Overlay } from './model';
import type { Toolbar } from './panel';
import { makePhases, type Phases } from './phases';
import type { SceneInput } from './scene';
import { asked, search } from './search';
import { countInside, type GraphState } from './state';
import { type Heat, makeHeat } from './style';

/** The maximum number of lit ops in a link; more would make it too long. */
const MOST_KEPT = 1000;

export class Emphasis {
  heat: Heat | null = null;
  hits: SceneInput['hits'] = null;
  phases: Phases | null = null;
  focus: Focus | null = null;
  query = '';
  private found: Int32Array = new Int32Array(0);
  /** The last search: aborts it, and resolves when it is done. */
  private asking = new AbortController();
  private searched = Promise.resolve();
  /** The visited hit; -1: none yet. */
  private at = -1;
  /** The chosen overlay, which the shown stage may lack. */
  private overlay = '';
  private readonly dimmed = new Set<string>();

  /** `changed`: redraws the emphasis and saves it with the view; `say`: shows a message. */
  constructor(
    private readonly state: GraphState,
    private readonly toolbar: Toolbar,
    private readonly changed: () => void,
    private readonly say: (text: string) => void,
  ) {}

  /** Keeps the emphasis in another stage. */
  refresh(): void {
    this.refreshHeat();
    this.refreshPhases();
    this.refreshSearch();
    if (this.focus) this.focus = this.focusOf(this.focus.direction, this.focus.roots);
  }

  // -------------------------------------------------------------- search

  search(query: string): void {
    if (query === this.query) return;
    this.query = query;
    this.refreshSearch();
    this.changed();
  }

  private refreshSearch(): void {
    this.at = -1;
    this.asking.abort();
    this.asking = new AbortController();
    const wanted = asked(this.state.graph, this.query);
    if (wanted.size === 0) {
      this.setFound(search(this.state.graph, this.query, new Map()));
      this.searched = Promise.resolve();
      return;
    }
    this.found = new Int32Array(0);
    this.hits = null;
    this.toolbar.setHits('searching');
    this.searched = this.searchFor(ask(wanted, this.asking.signal));
  }

  private async searchFor(answers: Promise<Answers>): Promise<void> {
    try {
      this.setFound(search(this.state.graph, this.query, await answers));
    } catch (problem) {
      if (!(problem instanceof BadExpression)) throw problem;
      const { message, fix } = problem;
      this.toolbar.setHits(message.split(':')[0]!, `${message}; ${fix}`);
      this.say(`${message}; ${fix}`);
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
    await this.searched;
    const n = this.found.length;
    if (n === 0) return -1;
    this.at = this.at < 0 ? (by > 0 ? 0 : n - 1) : (this.at + by + n) % n;
    this.toolbar.setHits(`${count(this.at + 1)} of ${count(n)}`);
    return this.found[this.at]!;
  }

  // -------------------------------------------------------------- heat and phases

  private get overlays(): Overlay[] {
    return this.state.graph.data.overlays ?? [];
  }

  /** Its index among the overlays of this stage; -1: none. */
  private get overlayAt(): number {
    return this.overlays.findIndex(({ name }) => name === this.overlay);
  }

  setOverlay(name: string): void {
    this.overlay = name;
    this.refreshHeat();
    this.changed();
  }

  /** The overlay at an index of the stage's list, if any. */
  chooseOverlay(at: number): void {
    this.setOverlay(this.overlays[at]?.name ?? '');
  }

  nextOverlay(): void {
    this.chooseOverlay(this.overlayAt + 1);
  }

  private refreshHeat(): void {
    const { overlays, overlayAt } = this;
    const overlay = overlays[overlayAt];
    this.heat = overlay ? makeHeat(overlay, this.state.tree.scopeOf, this.state.parents) : null;
    this.toolbar.setOverlays(overlays, overlayAt);
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
    const again = focus?.direction === direction && focus.roots.has(graph.keys[roots[0]!]!);
    this.focus = again ? null : focusOn(graph, tree, parents, roots, name, direction);
  }

  /** Null if none of the `roots` is in this stage. */
  private focusOf(direction: Direction, roots: Iterable<Key>): Focus | null {
    const { graph, tree, parents } = this.state;
    const found = [...roots].flatMap((key) => graph.indexOf.get(key) ?? []);
    const name = found.length === 1 ? nameOf(graph, found[0]!) : plural(found.length, 'op');
    return found.length ? focusOn(graph, tree, parents, found, name, direction) : null;
  }

  // -------------------------------------------------------------- saved with the view

  /** Restores the state of a link, which is untrusted text.  True: a redraw is needed. */
  restore(kept: Record<string, unknown>): boolean {
    const overlay = typeof kept.overlay === 'string' ? kept.overlay : '';
    if (overlay !== this.overlay) this.setOverlay(overlay);
    const dim = (Array.isArray(kept.dim) ? kept.dim : []).map(String);
    const dims = dim.join() !== [...this.dimmed].join();
    if (dims) {
      this.dimmed.clear();
      for (const phase of dim) this.dimmed.add(phase);
      this.refreshPhases();
    }
    const lights = this.restoreFocus(kept.lit);
    const query = typeof kept.query === 'string' ? kept.query : '';
    if (query !== this.query) {
      this.toolbar.input.value = query;
      this.search(query);
    }
    return dims || lights;
  }

  private restoreFocus(kept: unknown): boolean {
    const [direction, ...roots] = Array.isArray(kept) ? kept : [];
    const there = this.focus && [this.focus.direction, ...this.focus.roots];
    if (JSON.stringify(there) === JSON.stringify(kept ?? null)) return false;
    const known = direction === 'inputs' || direction === 'users';
    this.focus = known ? this.focusOf(direction, roots) : null;
    return true;
  }

  keep(): Record<string, unknown> {
    const { focus } = this;
    return {
      overlay: this.overlay,
      query: this.query,
      ...(this.dimmed.size ? { dim: [...this.dimmed] } : {}),
      ...(focus && focus.roots.size <= MOST_KEPT ? { lit: [focus.direction, ...focus.roots] } : {}),
    };
  }
}
