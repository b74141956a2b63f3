/** The keys of the graph view and their actions. */

export type WalkDirection = 'up' | 'down' | 'left' | 'right';

/** The actions on the graph, by a key or by a button. */
export interface Commands {
  walk(direction: WalkDirection): void;
  /** Opens or closes the selected scope, with `force` also above the cap. */
  toggle(force: boolean): void;
  selectParent(): void;
  expand(all: boolean): void;
  collapse(): void;
  fit(): void;
  centre(): void;
  zoom(factor: number): void;
  find(): void;
  stepChange(by: number): void;
  lightInputs(): void;
  lightUsers(): void;
  pin(): void;
  unpin(): void;
  showPath(): void;
  nextOverlay(): void;
  toggleFolded(): void;
  copy(): void;
  help(): void;
  escape(): void;
}

const KEYS: Record<string, (commands: Commands, shift: boolean) => void> = {
  ArrowUp: (commands) => commands.walk('up'),
  ArrowDown: (commands) => commands.walk('down'),
  ArrowLeft: (commands) => commands.walk('left'),
  ArrowRight: (commands) => commands.walk('right'),
  Enter: (commands, shift) => commands.toggle(shift),
  ' ': (commands) => commands.toggle(false),
  Backspace: (commands) => commands.selectParent(),
  e: (commands) => commands.expand(false),
  E: (commands) => commands.expand(true),
  C: (commands) => commands.collapse(),
  f: (commands) => commands.fit(),
  '.': (commands) => commands.centre(),
  '+': (commands) => commands.zoom(1.25),
  '=': (commands) => commands.zoom(1.25),
  '-': (commands) => commands.zoom(0.8),
  '/': (commands) => commands.find(),
  '[': (commands) => commands.stepChange(-1),
  ']': (commands) => commands.stepChange(1),
  i: (commands) => commands.lightInputs(),
  u: (commands) => commands.lightUsers(),
  p: (commands) => commands.pin(),
  P: (commands) => commands.unpin(),
  t: (commands) => commands.showPath(),
  o: (commands) => commands.nextOverlay(),
  w: (commands) => commands.toggleFolded(),
  y: (commands) => commands.copy(),
  '?': (commands) => commands.help(),
};

/** Keys act while one of `targets` has the focus, Escape anywhere in `root`. */
export function listenToKeys(root: HTMLElement, targets: HTMLElement[], commands: Commands): void {
  root.addEventListener('keydown', (event) => {
    const isElsewhere = !targets.includes(event.composedPath()[0] as HTMLElement);
    if (event.key === 'Escape') commands.escape();
    else if (isElsewhere || event.ctrlKey || event.metaKey || event.altKey) return;
    else {
      const action = KEYS[event.key];
      if (!action) return;
      action(commands, event.shiftKey);
    }
    event.preventDefault();
    event.stopPropagation();
  });
}
