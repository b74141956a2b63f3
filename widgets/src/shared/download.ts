/** The downloads of a view, in the menu of one button: texts, tables as CSV, drawings. */

import { h, replace } from './dom';

/** An item of the menu, and its action. */
export type DownloadItem = [title: string, save: () => void | Promise<void>];

export function download(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  const anchor = h('a', { href: url, download: fileName(name) });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export const saveText = (name: string, text: string, type = 'text/plain'): void =>
  download(name, new Blob([text], { type }));

export const saveCanvas = (name: string, canvas: HTMLCanvasElement): void =>
  canvas.toBlob((blob) => blob && download(name, blob));

/** A file name that is valid on every file system; keeps the extension. */
function fileName(text: string): string {
  const plain = text.replace(/[^\w.+=@-]+/g, '_');
  const end = /(\.\w{1,5}){0,2}$/.exec(plain)![0];
  return plain.slice(0, plain.length - end.length).slice(0, 100) + end || 'download';
}

/** Rows of values under `names`, as CSV. Text that a spreadsheet would evaluate as a formula stays text. */
export function csvText(names: readonly string[], rows: readonly (readonly unknown[])[]): string {
  return [names, ...rows].map((row) => row.map(csvCell).join(',')).join('\n');
}

function csvCell(value: unknown): string {
  const plain = Number.isNaN(value) ? '' : String(value ?? '');
  const isFormula = typeof value === 'string' && /^[=+\-@\t\r]/.test(plain) && Number.isNaN(Number(plain));
  const text = isFormula ? `'${plain}` : plain;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const MENU_STYLE = `
.cw .menu { position: fixed; inset: auto; margin: 0; padding: 4px; min-width: 150px; max-width: 340px; background: var(--surface); color: var(--text);
  border: 1px solid var(--line); border-radius: 6px; box-shadow: 0 4px 16px rgb(0 0 0 / 18%); }
.cw .menu button { display: block; width: 100%; text-align: left; border: none; background: none; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.cw .menu button:hover, .cw .menu button:focus-visible { background: var(--accentSoft); }
.cw .menu p { margin: 2px 8px; color: var(--muted); }
.cw button.save { color: var(--muted); background: none; border: none; font-size: 14px; line-height: 1; padding: 0 5px; }
.cw button.save:hover { background: var(--raised); }
`;

/** The button; `items` returns the current items. */
export function downloadMenu(items: () => DownloadItem[]): HTMLElement {
  const menu = h('div', { class: 'menu', role: 'menu', popover: 'auto', 'aria-label': 'Download' });
  const opener = h(
    'button',
    { type: 'button', class: 'save', title: 'Download', 'aria-label': 'Download', 'aria-haspopup': 'menu', 'aria-expanded': 'false' },
    '⤓',
  );
  opener.popoverTargetElement = menu;
  const menuItems = () => [...menu.querySelectorAll('button')];
  let failure = '';
  const pick = async (save: DownloadItem[1]) => {
    menu.hidePopover();
    opener.focus();
    try {
      await save();
    } catch (error) {
      failure = `Cannot save the file: ${(error as Error).message}`;
      menu.showPopover();
    }
  };
  menu.addEventListener('beforetoggle', (event) => {
    if ((event as ToggleEvent).newState !== 'open') return;
    const lines = items().map(([title, save]) =>
      h('button', { type: 'button', role: 'menuitem', tabindex: -1, title, click: () => void pick(save) }, title),
    );
    replace(menu, ...(failure ? [h('p', { role: 'alert' }, failure)] : lines));
    failure = '';
  });
  menu.addEventListener('toggle', (event) => {
    const open = (event as ToggleEvent).newState === 'open';
    opener.setAttribute('aria-expanded', String(open));
    if (!open) return;
    const box = opener.getBoundingClientRect();
    const below = box.bottom + 2 + menu.offsetHeight < innerHeight;
    menu.style.left = `${Math.max(4, Math.min(box.left, innerWidth - menu.offsetWidth - 6))}px`;
    menu.style.top = `${below ? box.bottom + 2 : Math.max(4, box.top - menu.offsetHeight - 2)}px`;
    menuItems()[0]?.focus();
  });
  menu.addEventListener('keydown', (event) => {
    const list = menuItems();
    const at = list.indexOf(event.target as HTMLButtonElement);
    const to = { ArrowDown: (at + 1) % list.length, ArrowUp: (at - 1 + list.length) % list.length, Home: 0, End: list.length - 1 }[event.key];
    event.stopPropagation(); // not a key of the view or its host
    if (event.key === 'Escape' || event.key === 'Tab') {
      menu.hidePopover();
      if (event.key === 'Escape') opener.focus();
    } else if (to === undefined) return;
    else list[to]?.focus();
    event.preventDefault();
  });
  opener.addEventListener('keydown', (event) => {
    // Before the menu gets the focus.
    if (event.key !== 'Escape' || !menu.matches(':popover-open')) return;
    menu.hidePopover();
    event.stopPropagation();
  });
  return h('span', { class: 'saves' }, opener, menu);
}
