/** Translates pointer events on a drawing into gestures; positions are relative to the stage. */

export interface Gestures {
  /** Below 0: the pointer has left. */
  hover(x: number, y: number): void;
  click(x: number, y: number, shift: boolean): void;
  /** A double click. */
  open?(x: number, y: number, shift: boolean): void;
  drag(dx: number, dy: number): void;
  /** A part of the drawing was grabbed: returns the handler of the drag, else null. */
  grab?(x: number, y: number): ((x: number, y: number) => void) | null;
  /** True: the drawing has moved, so the page must not scroll. */
  wheel(event: WheelEvent, x: number, y: number): boolean;
  /** The drawing moves under the pointer. */
  moved(): void;
}

/** A press that moves at most this far is a click (pixels). */
const CLICK = 4;

interface Press {
  x: number;
  y: number;
  isDrag: boolean;
  follow: ((x: number, y: number) => void) | null;
}

export function listenTo(stage: HTMLElement, canvas: HTMLElement, gestures: Gestures): void {
  let press: Press | null = null;
  const positionOf = (event: MouseEvent): [number, number] => {
    const box = stage.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button > 1) return;
    stage.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    const follow = gestures.grab?.(...positionOf(event)) ?? null;
    press = { x: event.clientX, y: event.clientY, isDrag: false, follow };
    follow?.(...positionOf(event));
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!press) return gestures.hover(...positionOf(event));
    if (press.follow) return press.follow(...positionOf(event));
    const [dx, dy] = [event.clientX - press.x, event.clientY - press.y];
    if (!press.isDrag && Math.hypot(dx, dy) < CLICK) return;
    if (!press.isDrag) gestures.moved();
    press = { x: event.clientX, y: event.clientY, isDrag: true, follow: null };
    stage.style.cursor = 'grabbing';
    gestures.drag(dx, dy);
  });
  canvas.addEventListener('pointerup', (event) => {
    const click = press && !press.isDrag && !press.follow;
    press = null;
    stage.style.cursor = '';
    if (click) gestures.click(...positionOf(event), event.shiftKey);
  });
  canvas.addEventListener('pointercancel', () => (press = null));
  canvas.addEventListener('pointerleave', () => gestures.hover(-1, -1));
  canvas.addEventListener('dblclick', (event) => gestures.open?.(...positionOf(event), event.shiftKey));
  stage.addEventListener(
    'wheel',
    (event) => {
      if (!gestures.wheel(event, ...positionOf(event))) return;
      event.preventDefault();
      gestures.moved();
    },
    { passive: false },
  );
}

/** Pixels of a wheel's unit, which may be lines. */
const pixelsPerUnit = (event: WheelEvent): number => (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1);

/** How far a wheel pans, in pixels: to the side with Shift. */
export function panDistance(event: WheelEvent): [dx: number, dy: number] {
  const sideways = event.shiftKey && event.deltaX === 0;
  const [dx, dy] = sideways ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
  return [dx * pixelsPerUnit(event), dy * pixelsPerUnit(event)];
}

/** The zoom factor of a wheel event. */
export const zoomFactor = (event: WheelEvent): number => Math.exp(event.deltaY * pixelsPerUnit(event) * 0.0022);
