/** A text of a kernel of A next to that of the kernel of B with the same computation. */

import { DIFF_STYLE, DiffView, type Wording } from '../diff/index';
import type { DiffData } from '../diff/model';
import { button, h, replace } from '../shared/dom';
import { count, plural, quantity } from '../shared/format';
import type { Selection, ViewLink } from '../shared/host';
import type { Palette } from '../shared/theme';
import { LETTER_STYLE } from '../shared/two';
import type { Frame, View } from '../shared/view';

/** The schema of `two` (widgets/README.md). */
export interface TwoCodes {
  title: string;
  kernel: number;
  names: [string, string];
  /** Kernels of B with the computation of the one of A, most expensive first. */
  partners: { name: string; id: number; launches: number; us: number | null; guessed: boolean }[];
  /** The texts that both have, for each partner. */
  parts: (DiffData & { text: string; partner: number; said: string })[];
  /** Texts that are too long to compare. */
  left_out: string[];
}

export const TWO_STYLE = `
${LETTER_STYLE}${DIFF_STYLE}
.cw-code .both { display: flex; flex-direction: column; flex: 1; min-height: 0; position: relative; }
.cw-code .both .body { background: var(--surface); }
.cw-code .kernels { display: flex; align-items: center; gap: 6px; flex: 0 1 auto !important; min-width: 0; overflow: hidden; white-space: nowrap; }
.cw-code .kernels b { font-weight: 600; overflow: hidden; text-overflow: ellipsis; } .cw-code .kernels .run { color: var(--muted); overflow: hidden; text-overflow: ellipsis; }
.cw-code .kernels select { max-width: 230px; }
.cw-code .said { padding: 4px 10px; flex: none; border-bottom: 1px solid var(--line); background: var(--accentSoft); }
`;

const WORDING: Wording = {
  name: 'Code of both',
  textNoun: 'text',
  downloads: (save) => [
    ['What differs, .diff', () => save('patch')],
    ['The text of A', () => save('before')],
    ['The text of B', () => save('after')],
  ],
};

export class TwoCodesView implements View<TwoCodes> {
  private data_!: TwoCodes;
  private text = '';
  private partner = '';
  private part = -1;
  private readonly kernels = h('span', { class: 'kernels' });
  private readonly match = h('span', { class: 'figure', role: 'status' });
  private readonly textTabs = h('span', { class: 'group', role: 'group', 'aria-label': 'Texts' });
  private readonly message = h('div', { class: 'said', role: 'status', hidden: true });
  private readonly diff: DiffView;

  constructor(private readonly frame: Frame) {
    const { link } = frame;
    const root = h('div', { class: 'both cw-diff' });
    const diffLink: ViewLink = {
      request: (kind, body) => link.request(kind, { ...body, part: this.part }),
      onDispose: (cleanup) => link.onDispose(cleanup),
      dict: (name) => link.dict(name),
      write: (name, value) => {
        if (name === 'state') this.remember(value as Record<string, unknown>);
        else if (name === 'selection') this.select(value as Selection);
        else link.write(name, value);
      },
    };
    const bar = h('div', { class: 'bar', role: 'toolbar', 'aria-label': 'Code of both recordings' }, this.kernels, this.match, h('span', { class: 'gap' }), this.textTabs);
    frame.root.append(bar, this.message, root);
    this.diff = new DiffView({ root, link: diffLink }, WORDING);
    Object.assign(frame.root, { workbench: { shown: () => ({ ...this.data_.parts[this.part], lines: this.data_.parts[this.part]!.lines.length }) } });
  }

  data(data: TwoCodes): void {
    this.data_ = data;
    this.part = -1;
    this.show();
  }

  theme(palette: Palette): void {
    this.diff.theme(palette);
  }

  /** The op of a selected kernel can be listed as several ops: the first one counts. */
  selected(selection: Selection): void {
    const { ops, ...others } = selection;
    this.diff.selected(ops?.length ? { ...others, op: ops[0]! } : others);
  }

  state(state: Record<string, unknown>): void {
    if (typeof state.text === 'string') this.text = state.text;
    if (typeof state.partner === 'string') this.partner = state.partner;
    this.diff.state(state);
    if (this.data_) this.show();
  }

  private remember(more: Record<string, unknown>): void {
    this.frame.link.write('state', { ...this.frame.link.dict<Record<string, unknown>>('state'), ...more });
  }

  private select(selection: Selection): void {
    const { ops: _ops, line: _line, ...next } = selection;
    this.frame.link.write('selection', { ...next, kernel: this.data_.kernel });
  }

  // -------------------------------------------------------------- what is shown

  /** Shows the chosen text of the chosen kernel of B, or the first of each if there is no such choice. */
  private show(): void {
    const { parts, partners } = this.data_;
    const chosen = partners.findIndex(({ name }, i) => name === this.partner && parts.some((part) => part.partner === i));
    const partner = chosen >= 0 ? chosen : parts[0]!.partner;
    const partnerParts = parts.filter((part) => part.partner === partner);
    const shownPart = partnerParts.find(({ text }) => text === this.text) ?? partnerParts[0]!;
    const part = parts.indexOf(shownPart);
    this.showBar(partner, partnerParts.map(({ text }) => text), shownPart.text);
    const { said: message } = shownPart;
    this.message.hidden = !message;
    this.message.textContent = message ? `${shownPart.text}: ${message} in A and in B.` : '';
    if (part === this.part) return;
    this.part = part;
    this.diff.data(shownPart);
  }

  private showBar(partnerIndex: number, texts: string[], shownText: string): void {
    const { title, names, partners, parts, left_out } = this.data_;
    const partner = partners[partnerIndex]!;
    const choice = h('select', { 'aria-label': 'Kernel of B', title: 'Kernels of B with the same computation as the one of A, slowest first', change: () => this.choose({ partner: choice.value }) });
    partners.forEach(({ name, launches, us }, i) => {
      if (!parts.some((part) => part.partner === i)) return;
      const cost = us === null ? '' : `, ${quantity(us, 'us')}`;
      choice.append(h('option', { value: name, selected: i === partnerIndex }, `${name}  (${count(launches)} ×${cost})`));
    });
    const side = (letter: string, name: Node, run: string) => [h('span', { class: `letter ${letter.toLowerCase()}` }, letter), name, h('span', { class: 'run', title: run }, run)];
    const partnerLabel = partners.length > 1 ? choice : h('b', { title: partner.name }, partner.name);
    replace(this.kernels, ...side('A', h('b', { title }, title), names[0]), ...side('B', partnerLabel, names[1]));
    this.match.textContent = partner.guessed ? 'match guessed' : 'match recorded';
    this.match.title = partner.guessed
      ? 'Matched only by flops, bytes and the order of the launches'
      : "Launches of both go back to the same nodes of the framework's graph";
    if (left_out.length) this.match.title += `\nToo long to compare: ${left_out.join(', ')}`;
    if (partners.length > 1) this.match.textContent += `, ${count(partners.length)} kernels of B`;
    if (left_out.length) this.match.textContent += `, ${plural(left_out.length, 'text')} too long`;
    replace(
      this.textTabs,
      ...texts.map((text) => {
        const tab = button(text, `Show: ${text}`, () => this.choose({ text }));
        tab.setAttribute('aria-pressed', String(text === shownText));
        return tab;
      }),
    );
  }

  private choose(chosen: { text?: string; partner?: string }): void {
    this.text = chosen.text ?? this.text;
    this.partner = chosen.partner ?? this.partner;
    this.show();
    this.remember(chosen);
  }
}
