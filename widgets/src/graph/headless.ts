/** The layout without a page, for tests: what a browser computes, as plain values. */

export { makeGraph } from './model';
export { makeTree, repeatedBlocks } from './scopes';
export { initialOpen, itemAt, layoutGraph, recordPositions } from './layout';
export { cone } from './focus';
export { matchTexts as answer } from './expressions';
export { textsForExpressions as asked, search } from './search';
export { decode } from '../shared/wire';
export { GraphState, motionBetween } from './state';
export { heatColour, makeHeat } from './style';
