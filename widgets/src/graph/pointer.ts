/** Mouse, wheel and the map: gestures on the drawing, told as what they mean. */

import type { Viewport } from './viewport';

export interface Gestures {
  hover(x: number, y: number): void;
  click(x: number, y: number, shift: boolean): void;
  open(x: number, y: number, shift: boolean): void;
  moved(): void;
  /** A place of the map was chosen. */
  map(x: number, y: number): void;
}

const CLICK = 4;

export function listenTo(
  stage: HTMLElement,
  viewport: Viewport,
  map: HTMLElement,
  gestures: Gestures,
): void {
  let drag: { x: number; y: number; far: boolean } | null = null;
  const { canvas } = viewport;
  const place = (event: MouseEvent, of: HTMLElement = stage): [number, number] => {
    const box = of.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button > 1) return;
    stage.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    drag = { x: event.clientX, y: event.clientY, far: false };
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!drag) {
      gestures.hover(...place(event));
      return;
    }
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    if (!drag.far && Math.hypot(dx, dy) < CLICK) return;
    if (!drag.far) gestures.moved();
    drag = { x: event.clientX, y: event.clientY, far: true };
    stage.style.cursor = 'grabbing';
    viewport.pan(-dx, -dy);
  });
  canvas.addEventListener('pointerup', (event) => {
    const click = drag && !drag.far;
    drag = null;
    stage.style.cursor = '';
    if (click) gestures.click(...place(event), event.shiftKey);
  });
  canvas.addEventListener('pointercancel', () => (drag = null));
  canvas.addEventListener('pointerleave', () => gestures.hover(-1, -1));
  canvas.addEventListener('dblclick', (event) => gestures.open(...place(event), event.shiftKey));
  stage.addEventListener(
    'wheel',
    (event) => {
      const unit = event.deltaMode === 1 ? 16 : 1;
      if (event.ctrlKey || event.metaKey) {
        viewport.zoom(Math.exp(-event.deltaY * unit * 0.0022), ...place(event));
      } else {
        const sideways = event.shiftKey && event.deltaX === 0;
        const [dx, dy] = sideways ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
        if (!viewport.pan(dx * unit, dy * unit)) return;
      }
      event.preventDefault();
      gestures.moved();
    },
    { passive: false },
  );
  map.addEventListener('pointerdown', (event) => {
    map.setPointerCapture(event.pointerId);
    gestures.map(...place(event, map));
  });
  map.addEventListener('pointermove', (event) => {
    if (event.buttons & 1) gestures.map(...place(event, map));
  });
}
