/** The host as a view sees it: the AFM model, the same in Panel, in notebooks and on a page. */

export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, callback: () => void): void;
  off?(event: string, callback: () => void): void;
}

export interface RenderContext {
  model: Model;
  el: HTMLElement;
}

export interface Selection {
  op?: string | number;
  scope?: string;
  buffer?: string | number;
  kernel?: string | number;
  ops?: (string | number)[];
  line?: { pane: number; line: number };
}

/** A selection as it is sent: `n` numbers the view's choices, if the host does so too. */
type NumberedSelection = Selection & { n?: number };

/** Panel passes dictionaries as Map; the views use plain objects. */
function toPlainValue(value: unknown): unknown {
  if (value instanceof Map) {
    return Object.fromEntries([...value].map(([key, item]) => [String(key), toPlainValue(item)]));
  }
  if (Array.isArray(value)) return value.map(toPlainValue);
  return value;
}

interface Pending {
  body: Record<string, unknown>;
  resolve: (value: unknown) => void;
  reject: (error: Error) => void;
}

/** The part of a link that a part of a view needs: each of two maps has one for its own recording. */
export type ViewLink = Pick<Link, 'dict' | 'write' | 'request' | 'onDispose'>;

/** Reads, writes and watches traits; undoes its subscriptions when the view is closed. */
export class Link {
  private readonly cleanups: (() => void)[] = [];
  private readonly pending = new Map<number, Pending>();
  private readonly session = Math.random().toString(36).slice(2, 10);
  private nextId = 1;
  private written = new Map<string, string>();
  /** The last choice made here, which the host may not know yet. */
  private lastSelection: NumberedSelection = {};

  constructor(readonly model: Model) {
    this.watch('response', () => this.receive());
  }

  read<T>(name: string): T {
    if (name !== 'selection') return toPlainValue(this.model.get(name)) as T;
    const { n: _n, ...selection } = this.isStale() ? this.lastSelection : this.hostSelection();
    return selection as T;
  }

  private hostSelection(): NumberedSelection {
    return (toPlainValue(this.model.get('selection')) ?? {}) as NumberedSelection;
  }

  /** Whether the selection is older than the last choice made here, whose answer is still to come.  A
   * host without numbers has no order. */
  private isStale(): boolean {
    const { n } = this.hostSelection();
    return n !== undefined && n < (this.lastSelection.n ?? 0);
  }

  dict<T extends object>(name: string): T {
    const value = this.read<unknown>(name);
    return (value && typeof value === 'object' ? value : {}) as T;
  }

  write(name: string, value: unknown): void {
    const text = JSON.stringify(value);
    if (JSON.stringify(this.read(name)) === text) return;
    this.written.set(name, text);
    this.model.set(name, name === 'selection' ? this.withNumber(value as Selection) : value);
    this.model.save_changes();
  }

  private withNumber(selection: Selection): NumberedSelection {
    const { n } = this.hostSelection();
    if (n === undefined) return selection;
    this.lastSelection = { ...selection, n: Math.max(n, this.lastSelection.n ?? 0) + 1 };
    return this.lastSelection;
  }

  /** Calls back when the host changed the trait; our own writes do not come back, nor do answers to
   * a selection that is no longer the last one made here: keys are quicker than any host. */
  watch(name: string, callback: () => void): void {
    const event = `change:${name}`;
    const guarded = () => {
      if (name === 'selection' && this.isStale()) return;
      const lastWritten = this.written.get(name);
      if (lastWritten !== undefined && lastWritten === JSON.stringify(this.read(name))) return;
      this.written.delete(name);
      callback();
    };
    this.model.on(event, guarded);
    this.cleanups.push(() => this.model.off?.(event, guarded));
  }

  onDispose(cleanup: () => void): void {
    this.cleanups.push(cleanup);
  }

  dispose(): void {
    for (const cleanup of this.cleanups.splice(0).reverse()) cleanup();
    for (const { reject } of this.pending.values()) reject(new Error('the view was closed'));
    this.pending.clear();
  }

  /** One numbered request; resolves with the host's answer. A static page never answers. */
  request<T>(kind: string, body: Record<string, unknown>): Promise<T> {
    const id = this.nextId++;
    return new Promise<T>((resolve, reject) => {
      const pending = { body: { id, session: this.session, kind, ...body }, resolve, reject };
      this.pending.set(id, pending as Pending);
      this.post();
    });
  }

  private post(): void {
    this.write('request', JSON.stringify([...this.pending.values()].map((item) => item.body)));
  }

  private receive(): void {
    const answers = JSON.parse(this.read<string>('response') || '[]') as {
      id: number;
      session?: string;
      value?: unknown;
      error?: string;
    }[];
    for (const answer of answers) {
      if (answer.session !== this.session) continue;
      const pending = this.pending.get(answer.id);
      if (!pending) continue;
      this.pending.delete(answer.id);
      if (answer.error) pending.reject(new Error(answer.error));
      else pending.resolve(answer.value);
    }
  }
}
