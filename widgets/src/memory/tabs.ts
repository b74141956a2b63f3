/** The tabs of the side panel of a map, or of two: the open one, and the requests to the host
 * and its answers. */

import { button, h, replace } from '../shared/dom';
import { saveText } from '../shared/download';
import type { ViewLink } from '../shared/host';

export const TABS_STYLE = `
.cw-memory aside > header { padding: 6px 10px; border-bottom: 1px solid var(--line); color: var(--muted); display: flex; gap: 8px; align-items: start; }
.cw-memory aside > header > div { flex: 1; min-width: 0; } .cw-memory aside > header b { color: var(--text); font-weight: 600; }
.cw-memory aside p { padding: 8px 10px; margin: 0; color: var(--muted); }
`;

const TABS = ['peak', 'passes', 'planners', 'backward'] as const;
/** The open one; '' for none. */
export type TabName = (typeof TABS)[number] | '';
const TITLES: Record<string, [string, string]> = {
  peak: ['at peak', 'The buffers that are alive at the peak'],
  passes: ['by pass', 'How each pass changed the peak'],
  planners: ['planners', 'The arena that each planner needs for these buffers'],
  backward: ['backward', 'Values saved for the backward pass, and the cost of recomputing some of them'],
};

/** The owner of the tabs: `draw` draws the open one; `tabChanged` is called when the user opens or closes one. */
interface Owner {
  readonly root: HTMLElement;
  draw(): void;
  tabChanged(): void;
}

export class Tabs {
  readonly bar: HTMLElement;
  private chosenTab: TabName = 'peak';
  private isAvailable: (name: TabName) => boolean = () => true;
  private answers = new Map<string, unknown>();
  private commandCount = 0;
  private readonly buttons: HTMLButtonElement[];

  constructor(
    private readonly link: ViewLink,
    private readonly owner: Owner,
  ) {
    this.buttons = TABS.map((name) => {
      const [title, hint] = TITLES[name]!;
      const tab = button(title, hint, () => {
        this.open(this.name === name ? '' : name);
        owner.tabChanged();
      });
      tab.dataset.side = name;
      return tab;
    });
    this.bar = h('span', { class: 'group', role: 'group', 'aria-label': 'Beside the map' }, ...this.buttons);
    this.mark();
  }

  /** The open tab: the first one if these data do not have it. */
  get name(): TabName {
    return this.chosenTab === '' || this.isAvailable(this.chosenTab) ? this.chosenTab : 'peak';
  }

  /** New data, which have the tabs selected by `isAvailable`; discards answers about the old data. */
  setAvailable(isAvailable: (name: TabName) => boolean): void {
    this.isAvailable = isAvailable;
    this.answers = new Map();
    this.mark();
  }

  private mark(): void {
    const { name } = this;
    this.owner.root.hidden = name === '';
    this.buttons.forEach((tab, i) => {
      tab.hidden = !this.isAvailable(TABS[i]!);
      tab.setAttribute('aria-pressed', String(TABS[i] === name));
    });
  }

  private open(name: TabName): void {
    this.chosenTab = name;
    this.mark();
    this.owner.draw();
  }

  /** The tabs' part of the view state. */
  get savedState(): { side?: TabName } {
    return this.chosenTab === 'peak' ? {} : { side: this.chosenTab };
  }

  restore(state: Record<string, unknown>): void {
    const name = (['', ...TABS] as TabName[]).find((each) => each === state.side) ?? 'peak';
    if (name !== this.chosenTab) this.open(name);
  }

  /** Draws the host's answer to `kind`, if the tab (of the same name) is still open. */
  async drawAnswer<T>(kind: string, draw: (answer: T) => void, tab: string = kind): Promise<void> {
    const { answers, owner } = this;
    if (answers.has(kind)) return draw(answers.get(kind) as T);
    const isOpen = () => answers === this.answers && this.name === tab;
    replace(owner.root, h('p', { role: 'status' }, 'Computing… (not available without the workbench server)'));
    try {
      answers.set(kind, await this.link.request<T>(kind, {}));
      if (isOpen()) draw(answers.get(kind) as T);
    } catch (error) {
      if (isOpen()) replace(owner.root, h('p', { role: 'alert' }, `Cannot compute this: ${(error as Error).message}`));
    }
  }

  /** The stage of the whole page. */
  goToStage(stage: number): void {
    this.commandCount += 1;
    this.link.write('command', JSON.stringify({ stage, name: 'go', n: Date.now() * 1000 + (this.commandCount % 1000) }));
  }
}

/** The header of a list: its description and a download button. */
export const header = (description: readonly (Node | string)[], csv: () => string, file: string): HTMLElement =>
  h('header', {}, h('div', {}, ...description), button('CSV', 'Download this list as CSV', () => saveText(file, csv(), 'text/csv')));
