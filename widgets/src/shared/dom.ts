/** Small DOM helpers. Text only ever becomes text nodes, never HTML. */

type Child = Node | string | null | undefined;
type Props = Record<string, string | number | boolean | ((event: never) => void)>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === 'function') {
      node.addEventListener(name, value as unknown as EventListener);
    } else if (value === true) node.setAttribute(name, '');
    else if (value !== false) node.setAttribute(name, String(value));
  }
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}

export function replace(parent: Element, ...children: Child[]): void {
  parent.replaceChildren(...(children.filter((c) => c !== null && c !== undefined) as Node[]));
}

/** Puts text on the clipboard, also on pages without a secure context. */
export async function copy(text: string, near: HTMLElement): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h('textarea', { style: 'position:fixed;opacity:0' });
    area.value = text;
    near.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
}

/** Calls back at most once per frame, however often it is called. */
export function perFrame(callback: () => void): () => void {
  let scheduled = false;
  return () => {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      callback();
    });
  };
}

export function debounce(callback: () => void, milliseconds: number): () => void {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(callback, milliseconds);
  };
}

export interface Tooltip {
  show(x: number, y: number, ...content: Child[]): void;
  hide(): void;
  /** Its text. */
  text(): string;
}

/** A tooltip inside `root`, kept within its edges; x and y are relative to the root. */
export function tooltip(root: HTMLElement): Tooltip {
  const box = h('div', { class: 'tooltip', role: 'tooltip', hidden: true });
  root.append(box);
  return {
    show(x, y, ...content) {
      replace(box, ...content);
      box.hidden = false;
      const [width, height] = [box.offsetWidth, box.offsetHeight];
      const left = x + 14 + width > root.clientWidth ? Math.max(4, x - width - 10) : x + 14;
      const top = y + 14 + height > root.clientHeight ? Math.max(4, y - height - 10) : y + 14;
      box.style.transform = `translate(${Math.round(left)}px,${Math.round(top)}px)`;
    },
    hide() {
      box.hidden = true;
    },
    text: () => box.innerText,
  };
}

/** A two-column table of facts for tooltips. */
export function facts(rows: [string, string][]): HTMLElement {
  return h(
    'dl',
    {},
    ...rows.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]),
  );
}

export function button(label: string, title: string, action: () => void): HTMLButtonElement {
  return h('button', { type: 'button', title, 'aria-label': title, click: action }, label);
}
