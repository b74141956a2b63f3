/** The memory view: the map of one recording, or those of two. See widgets/README.md. */

import { oneOrTwo } from '../shared/two';
import { define } from '../shared/view';
import { MAP_STYLE, MemoryView } from './map';
import type { MemoryData } from './model';
import type { TwoMaps } from './matched';
import { TwoMapsView, TWO_STYLE } from './two';

export default define<MemoryData | { two: TwoMaps }>('memory', MAP_STYLE + TWO_STYLE, (frame) =>
  oneOrTwo<MemoryData, TwoMaps>(
    frame,
    () => new MemoryView(frame),
    () => new TwoMapsView(frame),
  ),
);
