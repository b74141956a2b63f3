/**
 * The canvas: camera, panning and zooming, and two layers. The scene is drawn once into a bitmap;
 * frames copy it and draw the moving marks on top. While panning or zooming over a scene that is
 * slow to draw, the bitmap is moved and stretched, and redrawn when the pointer rests.
 */

import { fit, layer } from '../shared/stage';
import type { Box, Camera } from './scene';

const SLOW_MS = 14;
const REST_MS = 90;
export const MAX_SCALE = 2.5;

export interface Painter {
  background(): string;
  scene(context: CanvasRenderingContext2D, view: Box, scale: number): number;
  marks(context: CanvasRenderingContext2D, view: Box, scale: number): void;
  bounds(): Box;
  /** Called after every frame, for elements that follow the camera (the map). */
  onFrame(): void;
}

export class Viewport {
  readonly canvas = layer();
  camera: Camera = { x: 0, y: 0, scale: 1 };
  sceneMs = 0;
  frameMs = 0;
  drawn = 0;
  private readonly bitmap = document.createElement('canvas');
  private readonly context = this.canvas.getContext('2d', { alpha: false })!;
  private readonly bitmapContext = this.bitmap.getContext('2d', { alpha: false })!;
  private bitmapCamera: Camera = { x: 0, y: 0, scale: 1 };
  private dirty = true;
  private frameRequested = false;
  private lastGesture = 0;
  private restTimer = 0;
  private animation: ((now: number) => boolean) | null = null;
  private ratio = 1;
  width = 0;
  height = 0;
  /** Whether the user has moved the window since it was placed automatically. */
  movedByUser = false;

  constructor(
    private readonly host: HTMLElement,
    private readonly painter: Painter,
  ) {
    host.prepend(this.canvas);
  }

  /** Follows the size of the host; call once the host is in the page. */
  resize(): void {
    const size = fit(this.host, this.canvas, this.bitmap);
    if (!size || (!size.changed && size.width === this.width && size.height === this.height)) return;
    if (this.width > 0) {
      // Keep the centre.
      this.camera.x += (this.width - size.width) / 2 / this.camera.scale;
      this.camera.y += (this.height - size.height) / 2 / this.camera.scale;
    }
    this.width = size.width;
    this.height = size.height;
    this.ratio = size.ratio;
    this.dirty = true;
    this.draw(performance.now());
  }

  view(): Box {
    const { x, y, scale } = this.camera;
    return { x, y, width: this.width / scale, height: this.height / scale };
  }

  toWorld(x: number, y: number): [number, number] {
    return [this.camera.x + x / this.camera.scale, this.camera.y + y / this.camera.scale];
  }

  toScreen(x: number, y: number): [number, number] {
    return [(x - this.camera.x) * this.camera.scale, (y - this.camera.y) * this.camera.scale];
  }

  /** The scene itself changed. */
  redraw(): void {
    this.dirty = true;
    this.requestFrame();
  }

  /** Only the marks changed. */
  requestFrame(): void {
    if (this.frameRequested) return;
    this.frameRequested = true;
    requestAnimationFrame((now) => {
      this.frameRequested = false;
      this.draw(now);
    });
  }

  /** Runs `step` each frame until it returns false. */
  animate(step: (now: number) => boolean): void {
    this.animation = step;
    this.requestFrame();
  }

  stop(): void {
    this.animation = null;
    clearTimeout(this.restTimer);
  }

  pan(dx: number, dy: number): boolean {
    const before = { ...this.camera };
    this.camera.x += dx / this.camera.scale;
    this.camera.y += dy / this.camera.scale;
    this.clamp();
    const moved = before.x !== this.camera.x || before.y !== this.camera.y;
    if (moved) this.gesture();
    return moved;
  }

  zoom(factor: number, x = this.width / 2, y = this.height / 2): void {
    const [wx, wy] = this.toWorld(x, y);
    const scale = Math.min(MAX_SCALE, Math.max(this.minScale(), this.camera.scale * factor));
    this.camera = { x: wx - x / scale, y: wy - y / scale, scale };
    this.clamp();
    this.gesture();
  }

  minScale(): number {
    const { width, height } = this.painter.bounds();
    return Math.min(0.5, 0.85 * Math.min(this.width / width, this.height / height));
  }

  /** Shows a box as large as fits below `top` pixels, at a scale of at most `max`. */
  show(box: Box, max = 1.1, margin = 24, top = 0): void {
    const width = Math.max(1, this.width - 2 * margin);
    const height = Math.max(1, this.height - 2 * margin - top);
    const scale = Math.min(max, width / box.width, height / box.height);
    this.camera = {
      x: box.x + box.width / 2 - this.width / 2 / scale,
      y: box.y + box.height / 2 - (this.height + top) / 2 / scale,
      scale,
    };
    this.redraw();
  }

  centre(x: number, y: number): void {
    this.camera.x = x - this.width / 2 / this.camera.scale;
    this.camera.y = y - this.height / 2 / this.camera.scale;
    this.clamp();
    this.redraw();
  }

  /** Keeps at least a part of the drawing in the window. */
  private clamp(): void {
    const { scale } = this.camera;
    const bounds = this.painter.bounds();
    const [w, hgt] = [this.width / scale, this.height / scale];
    const margin = 0.6;
    const limit = (at: number, low: number, size: number, window: number) => {
      const min = low - window * margin;
      const max = low + size - window * (1 - margin);
      return Math.min(Math.max(at, Math.min(min, max)), Math.max(min, max));
    };
    this.camera.x = limit(this.camera.x, bounds.x, bounds.width, w);
    this.camera.y = limit(this.camera.y, bounds.y, bounds.height, hgt);
  }

  /** Whether the scene is drawn for the current camera, and not a moved bitmap. */
  get isSharp(): boolean {
    return !this.dirty && !this.hasCameraMoved();
  }

  private hasCameraMoved(): boolean {
    const [to, from] = [this.camera, this.bitmapCamera];
    return to.x !== from.x || to.y !== from.y || to.scale !== from.scale;
  }

  private gesture(): void {
    this.movedByUser = true;
    this.lastGesture = performance.now();
    this.requestFrame();
  }

  private draw(now: number): void {
    if (this.width === 0) return;
    const started = performance.now();
    if (this.animation) {
      if (this.animation(now)) this.requestFrame();
      else this.animation = null;
      this.dirty = true;
    }
    const cameraMoved = this.hasCameraMoved();
    const gesturing = started - this.lastGesture < REST_MS;
    const reuse = cameraMoved && gesturing && this.sceneMs > SLOW_MS && !this.animation;
    if ((this.dirty || cameraMoved) && !reuse) this.drawScene();
    else if (reuse) {
      clearTimeout(this.restTimer);
      this.restTimer = window.setTimeout(() => this.requestFrame(), REST_MS + 10);
    }
    this.compose();
    this.frameMs = performance.now() - started;
    this.painter.onFrame();
  }

  private drawScene(): void {
    const started = performance.now();
    const context = this.bitmapContext;
    const { x, y, scale } = this.camera;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.globalAlpha = 1;
    context.fillStyle = this.painter.background();
    context.fillRect(0, 0, this.bitmap.width, this.bitmap.height);
    const k = scale * this.ratio;
    context.setTransform(k, 0, 0, k, -x * k, -y * k);
    this.drawn = this.painter.scene(context, this.view(), scale);
    this.bitmapCamera = { ...this.camera };
    this.dirty = false;
    this.sceneMs = performance.now() - started;
  }

  private compose(): void {
    const { context, ratio } = this;
    const from = this.bitmapCamera;
    const { x, y, scale } = this.camera;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.globalAlpha = 1;
    const grow = scale / from.scale;
    const dx = (from.x - x) * scale * ratio;
    const dy = (from.y - y) * scale * ratio;
    if (grow !== 1 || dx !== 0 || dy !== 0) {
      context.fillStyle = this.painter.background();
      context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    }
    context.drawImage(this.bitmap, dx, dy, this.bitmap.width * grow, this.bitmap.height * grow);
    const k = scale * ratio;
    context.setTransform(k, 0, 0, k, -x * k, -y * k);
    this.painter.marks(context, this.view(), scale);
  }

  /** A copy of the screen, with a background. */
  image(done: (blob: Blob | null) => void): void {
    this.drawScene();
    this.compose();
    this.canvas.toBlob(done, 'image/png');
  }
}
