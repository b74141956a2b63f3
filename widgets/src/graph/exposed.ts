/** The interface of a graph view for tests and benchmarks: `element.workbench`. */

import type { Drawing } from './drawing';
import type { Emphasis } from './emphasis';
import { describe } from './facts';
import type { Key } from './model';
import { phasesInside } from './phases';
import type { Pins } from './pins';
import type { GraphState } from './state';

interface Parts {
  state: GraphState;
  drawing: Drawing;
  emphasis: Emphasis;
  pins: Pins;
}

export function expose(root: HTMLElement, { state, drawing, emphasis, pins }: Parts): void {
  const phases = () => {
    const { phases } = emphasis;
    if (!phases) return [];
    const inside = phasesInside(phases, 0);
    return inside.map(([i, n]) => ({ name: phases.names[i]!, count: n, dim: phases.dim[i] === 1 }));
  };
  Object.assign(root, {
    workbench: {
      placeOfOp: (key: Key) => {
        const op = state.graph.indexOf.get(key);
        return op === undefined ? null : drawing.pagePosition(state.layout.itemOfOp[op]!);
      },
      placeOfScope: (id: string) => {
        const scope = state.tree.byId.get(id);
        return scope === undefined ? null : drawing.pagePosition(state.layout.itemOfScope[scope]!);
      },
      boxOfScope: (id: string) => {
        const item = state.layout.itemOfScope[state.tree.byId.get(id) ?? 0]!;
        const [left, top] = drawing.viewport.toScreen(state.layout.x[item]!, state.layout.y[item]!);
        const stage = drawing.stage.getBoundingClientRect();
        return { left: stage.left + left, top: stage.top + top };
      },
      scopes: () => state.tree.scopes.map(({ id, label, total }) => ({ id, label, total })),
      shown: () => ({ items: state.layout.count, ops: state.layout.drawnOps }),
      camera: () => ({ ...drawing.viewport.camera }),
      sharp: () => drawing.viewport.isSharp,
      phases,
      linked: () => drawing.linked().map(([item]) => state.keyOf(item)),
      selected: () => (drawing.selected < 0 ? '' : describe(state, drawing.selected)),
      lit: () => (emphasis.focus ? emphasis.focus.ops.reduce((sum, lit) => sum + lit, 0) : null),
      pinned: () => pins.keys,
      svg: () => drawing.svg(),
      dot: () => drawing.dot(),
    },
  });
}
