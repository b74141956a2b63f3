/** Pinned ops, side by side with the selected one, with their differences highlighted. */

import { button, h, replace } from '../shared/dom';
import type { Fact } from './facts';
import type { Key } from './model';

export const PINS_STYLE = `
.cw-graph .pins { position: absolute; z-index: 3; left: 8px; top: 34px; max-width: calc(100% - 16px); max-height: 60%;
  overflow: auto; background: var(--surface); border: 1px solid var(--line); border-radius: 5px;
  box-shadow: 0 2px 8px rgb(0 0 0 / 15%); outline: none; }
.cw-graph .pins:focus-visible { outline: 2px solid var(--accent); }
.cw-graph .pins table { border-collapse: collapse; }
.cw-graph .pins th, .cw-graph .pins td { text-align: left; vertical-align: top; padding: 2px 8px; font-weight: 400;
  max-width: 300px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.cw-graph .pins thead th { position: sticky; top: 0; background: var(--raised); }
.cw-graph .pins tbody th { color: var(--muted); }
.cw-graph .pins .differs td { background: var(--accentSoft); }
.cw-graph .pins button { border: none; background: none; padding: 0 3px; font-weight: 600; color: inherit; }
`;

export interface Pin {
  key: Key;
  title: string;
  /** The stage of this op: the same op can look different before and after a pass. */
  stage: string;
  facts: Fact[];
}

const MAX_PINS = 4;

export class Pins {
  readonly root = h('div', {
    class: 'pins', role: 'region', 'aria-label': 'Pinned ops', tabindex: 0, hidden: true,
  });
  private pins: Pin[] = [];
  private chosen: Pin | null = null;

  /** `changed`: called when the pinned ops change. */
  constructor(
    private readonly go: (key: Key) => void,
    private readonly changed: () => void,
  ) {}

  /** The pins, to be saved with the view. */
  get all(): readonly Pin[] {
    return this.pins;
  }

  /** Restores saved pins; a link is untrusted text. */
  restore(saved: unknown): void {
    const pins = (Array.isArray(saved) ? saved : []).filter(isPin).slice(-MAX_PINS);
    if (JSON.stringify(pins) === JSON.stringify(this.pins)) return;
    this.pins = pins;
    this.draw();
  }

  get keys(): Key[] {
    return this.pins.map((pin) => pin.key);
  }

  /** Pins an op, or unpins it if it is already pinned (in this stage). */
  toggle(pin: Pin): void {
    const at = this.pins.findIndex((other) => isSamePin(other, pin));
    if (at >= 0) this.pins.splice(at, 1);
    else this.pins = [...this.pins, pin].slice(-MAX_PINS);
    this.draw();
    this.changed();
  }

  /** The current selection; null if it is not an op. */
  compare(chosen: Pin | null): void {
    this.chosen = chosen;
    if (this.pins.length) this.draw();
  }

  clear(): void {
    this.pins = [];
    this.draw();
    this.changed();
  }

  private draw(): void {
    this.root.hidden = this.pins.length === 0;
    const { chosen } = this;
    const extra = chosen && !this.pins.some((pin) => isSamePin(pin, chosen)) ? [chosen] : [];
    const columns = [...this.pins, ...extra];
    const names = [...new Set(columns.flatMap((pin) => pin.facts.map(([name]) => name)))];
    const head = h(
      'tr',
      {},
      h('th', {}, h('span', { class: 'faint' }, 'pinned')),
      ...columns.map((pin, i) => {
        const title = button(pin.title, `Select ${pin.title}`, () => this.go(pin.key));
        const subtitle = h('div', { class: 'faint' }, i < this.pins.length ? pin.stage : 'selected');
        const unpinButton = button('×', `Unpin ${pin.title}`, () => this.toggle(pin));
        return h('th', { scope: 'col' }, title, i < this.pins.length ? unpinButton : null, subtitle);
      }),
    );
    const rows = names.map((name) => {
      const texts = columns.map((pin) => pin.facts.find(([other]) => other === name)?.[1] ?? '–');
      const differs = new Set(texts).size > 1;
      const cells = texts.map((text) => h('td', { title: text }, text));
      return h('tr', differs ? { class: 'differs' } : {}, h('th', { scope: 'row' }, name), ...cells);
    });
    replace(this.root, h('table', {}, h('thead', {}, head), h('tbody', {}, ...rows)));
  }
}

function isPin(value: unknown): value is Pin {
  const { key, title, stage, facts } = (value ?? {}) as Partial<Pin>;
  const texts = (row: unknown) => Array.isArray(row) && row.length === 2 && row.every((t) => typeof t === 'string');
  return (
    ['number', 'string'].includes(typeof key) && typeof title === 'string' &&
    typeof stage === 'string' && Array.isArray(facts) && facts.every(texts)
  );
}

const isSamePin = (a: Pin, b: Pin): boolean => a.key === b.key && a.stage === b.stage;
