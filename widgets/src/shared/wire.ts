/** Decoding of `data` (JSON) and `blob` (typed arrays); the other side is widgets/encode.py. */

export type Numbers = ArrayLike<number>;

const READERS: Record<string, (buffer: ArrayBuffer, at: number, n: number) => Numbers> = {
  u8: (b, at, n) => new Uint8Array(b, at, n),
  u16: (b, at, n) => new Uint16Array(b, at, n),
  u32: (b, at, n) => new Uint32Array(b, at, n),
  i8: (b, at, n) => new Int8Array(b, at, n),
  i16: (b, at, n) => new Int16Array(b, at, n),
  i32: (b, at, n) => new Int32Array(b, at, n),
  f32: (b, at, n) => new Float32Array(b, at, n),
  f64: (b, at, n) => new Float64Array(b, at, n),
};

function aligned(blob: unknown): ArrayBuffer {
  if (blob instanceof ArrayBuffer) return blob;
  if (ArrayBuffer.isView(blob)) {
    if (blob.byteOffset % 8 === 0) {
      if (blob.byteOffset === 0) return blob.buffer as ArrayBuffer;
    }
    const { buffer, byteOffset, byteLength } = blob;
    return buffer.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer;
  }
  return new ArrayBuffer(0);
}

/**
 * The decoded data; null while there are none, or while the two traits do not match
 * (one of them has not arrived yet).
 */
export function decode<T>(text: unknown, blob: unknown): T | null {
  if (typeof text !== 'string' || text === '') return null;
  const data = JSON.parse(text) as { stamp?: number };
  if (data.stamp === undefined) return data as T;
  const buffer = aligned(blob);
  if (buffer.byteLength < 8 || new Uint32Array(buffer, 0, 1)[0] !== data.stamp) return null;
  return resolve(data, buffer) as T;
}

function resolve(value: unknown, buffer: ArrayBuffer): unknown {
  if (Array.isArray(value)) {
    // Long lists are columns of plain strings or numbers: nothing to resolve inside.
    if (value.length > 64 && typeof value[0] !== 'object') return value;
    return value.map((item) => resolve(item, buffer));
  }
  if (value === null || typeof value !== 'object') return value;
  const record = value as Record<string, unknown>;
  if (typeof record.$ === 'string') {
    const read = READERS[record.$];
    if (!read) throw new Error(`unknown array type ${record.$}`);
    return read(buffer, record.at as number, record.n as number);
  }
  for (const key of Object.keys(record)) record[key] = resolve(record[key], buffer);
  return record;
}
