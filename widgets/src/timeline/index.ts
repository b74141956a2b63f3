/** The timeline: an execution of one recording, or one of each of two on one time axis. See widgets/README.md. */

import { oneOrTwo } from '../shared/two';
import { define } from '../shared/view';
import type { TimelineData } from './model';
import { TIMELINE_STYLE, TimelineView } from './tracks';
import { type TwoTimelines, TwoTimelinesView, TWO_STYLE } from './two';

export default define<TimelineData | { two: TwoTimelines }>('timeline', TIMELINE_STYLE + TWO_STYLE, (frame) =>
  oneOrTwo<TimelineData, TwoTimelines>(
    frame,
    () => new TimelineView(frame),
    () => new TwoTimelinesView(frame),
  ),
);
