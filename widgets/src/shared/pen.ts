/** The few drawing calls the scene needs, so that one drawing code serves canvas and SVG. */

export interface Pen {
  fillStyle: string | CanvasGradient | CanvasPattern;
  strokeStyle: string | CanvasGradient | CanvasPattern;
  lineWidth: number;
  font: string;
  globalAlpha: number;
  textAlign: CanvasTextAlign;
  beginPath(): void;
  moveTo(x: number, y: number): void;
  lineTo(x: number, y: number): void;
  bezierCurveTo(a: number, b: number, c: number, d: number, x: number, y: number): void;
  closePath(): void;
  rect(x: number, y: number, w: number, h: number): void;
  roundRect(x: number, y: number, w: number, h: number, radius: number): void;
  fill(): void;
  stroke(): void;
  fillRect(x: number, y: number, w: number, h: number): void;
  fillText(text: string, x: number, y: number): void;
  setLineDash(pattern: number[]): void;
}

/** Replaces what is not valid in XML, such as lone surrogates, by U+FFFD: names in a model can
 * contain anything. */
export const toValidXml = (text: string): string =>
  text.replace(/[^\t\n\r\x20-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, '\ufffd');
const escape = (text: string): string =>
  toValidXml(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const round = (value: number): string => String(Math.round(value * 100) / 100);

/** Collects SVG elements in world coordinates. */
export class SvgPen implements Pen {
  fillStyle: Pen['fillStyle'] = '#000';
  strokeStyle: Pen['strokeStyle'] = '#000';
  lineWidth = 1;
  font = '12px sans-serif';
  globalAlpha = 1;
  textAlign: CanvasTextAlign = 'left';
  private path: string[] = [];
  private dash: number[] = [];
  private readonly elements: string[] = [];

  beginPath(): void {
    this.path = [];
  }
  moveTo(x: number, y: number): void {
    this.path.push(`M${round(x)} ${round(y)}`);
  }
  lineTo(x: number, y: number): void {
    this.path.push(`L${round(x)} ${round(y)}`);
  }
  bezierCurveTo(a: number, b: number, c: number, d: number, x: number, y: number): void {
    this.path.push(`C${[a, b, c, d, x, y].map(round).join(' ')}`);
  }
  closePath(): void {
    this.path.push('Z');
  }
  rect(x: number, y: number, w: number, h: number): void {
    this.path.push(`M${round(x)} ${round(y)}h${round(w)}v${round(h)}h${round(-w)}Z`);
  }
  roundRect(x: number, y: number, w: number, h: number, radius: number): void {
    const r = Math.min(radius, w / 2, h / 2);
    const arc = (dx: number, dy: number) => `a${r} ${r} 0 0 1 ${round(dx)} ${round(dy)}`;
    this.path.push(
      `M${round(x + r)} ${round(y)}h${round(w - 2 * r)}${arc(r, r)}v${round(h - 2 * r)}` +
        `${arc(-r, r)}h${round(2 * r - w)}${arc(-r, -r)}v${round(2 * r - h)}${arc(r, -r)}Z`,
    );
  }
  fill(): void {
    this.emit(`fill="${escape(String(this.fillStyle))}"`);
  }
  stroke(): void {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(' ')}"` : '';
    const width = round(this.lineWidth);
    this.emit(`fill="none" stroke="${escape(String(this.strokeStyle))}" stroke-width="${width}"${dash}`);
  }
  fillRect(x: number, y: number, w: number, h: number): void {
    this.beginPath();
    this.rect(x, y, w, h);
    this.fill();
  }
  fillText(text: string, x: number, y: number): void {
    const parts = /^(?:(\d+) )?([\d.]+)px (.*)$/.exec(this.font);
    const font = parts
      ? `font-size="${parts[2]}" font-family="${escape(parts[3]!)}"` +
        (parts[1] ? ` font-weight="${parts[1]}"` : '')
      : '';
    const anchor = this.textAlign === 'center' ? 'middle' : this.textAlign === 'right' ? 'end' : '';
    this.elements.push(
      `<text x="${round(x)}" y="${round(y)}" fill="${escape(String(this.fillStyle))}" ${font}` +
        `${anchor ? ` text-anchor="${anchor}"` : ''}${this.opacity()}>${escape(text)}</text>`,
    );
  }
  setLineDash(pattern: number[]): void {
    this.dash = pattern;
  }
  document(x: number, y: number, width: number, height: number, background: string): string {
    const box = [x, y, width, height].map(round).join(' ');
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="${box}" width="${round(width)}" ` +
      `height="${round(height)}"><rect x="${round(x)}" y="${round(y)}" width="${round(width)}" ` +
      `height="${round(height)}" fill="${background}"/>${this.elements.join('')}</svg>`
    );
  }
  private emit(paint: string): void {
    this.elements.push(`<path d="${this.path.join('')}" ${paint}${this.opacity()}/>`);
  }
  private opacity(): string {
    return this.globalAlpha < 1 ? ` opacity="${round(this.globalAlpha)}"` : '';
  }
}
