// The guided tour: a card that describes an outlined part, step by step; workbench/app/tour.py has the
// text.  Arrow keys and Enter while the card has the focus, Esc from anywhere.

const STYLE = `
.ring { position: fixed; z-index: 80; pointer-events: none; border: 2px solid var(--accent); border-radius: 4px; box-shadow: 0 0 0 200vmax rgb(0 0 0 / 16%); }
.card { position: fixed; z-index: 81; width: 258px; box-sizing: border-box; background: var(--surface); color: var(--text); border: 1px solid var(--line); border-radius: 8px;
  box-shadow: var(--shadow); padding: 12px 14px; font: 12px/1.5 var(--sans); outline: none; }
.card h2 { font-size: 13px; font-weight: 650; margin: 0 22px 4px 0; } .card p { margin: 0 0 10px; }
.card .line { display: flex; gap: 6px; align-items: center; } .card .line span { flex: 1; color: var(--muted); font-variant-numeric: tabular-nums; }
.card .close { position: absolute; right: 6px; top: 8px; }
`;
const GAP = 10; // px
const WAITING = {
  title: 'A short tour', place: '#cw-rail',
  text: 'The tour compiles the sample model digits-cnn, checks every rewrite on real tensors, then executes it and times every kernel. Passes appear in the list on the left as they finish; the first time takes up to a minute.',
};

const sheet = h('style');
sheet.textContent = BASE + STYLE;
const ring = h('div', { class: 'ring' });
const title = h('h2', { id: 'title' });
const text = h('p', { id: 'text' });
const progressText = h('span');
const back = h('button', { 'data-tour': 'back', click: () => moveBy(-1) }, 'Back');
const next = h('button', { class: 'primary', 'data-tour': 'next', click: () => moveBy(1) });
const card = h('div', { class: 'card', role: 'dialog', tabindex: -1, 'aria-labelledby': 'title', 'aria-describedby': 'text' },
  title, text, h('div', { class: 'line' }, progressText, back, next),
  h('button', { class: 'plain close', title: 'End the tour  (Esc)', 'aria-label': 'End the tour', 'data-tour': 'close', click: () => end() }, '×'));
const host = h('div', { id: 'cw-tour' });
host.attachShadow({ mode: 'open' }).append(sheet, h('div', {}, ring, card));

let tour = null;   // {n, steps} as the page sent it
let closedTour = null;  // the number of the tour that was closed
let step = 0;
let requestedQuery = '';
let showQuery = () => {};

const currentStep = () => tour.steps[step] ?? WAITING;

function moveBy(by) {
  if (step + by >= tour.steps.length) { end(); return; }
  step = Math.max(0, step + by);
  draw();
}

/** Requests a view state, unless it is the shown one: then no answer would come. */
function visit(query) {
  if (requestedQuery === query && location.search === `?${query}`) return;
  requestedQuery = query;
  showQuery(query);
}

function draw() {
  const isWaiting = !tour.steps.length;
  title.textContent = currentStep().title;
  text.textContent = currentStep().text;
  progressText.textContent = isWaiting ? 'compiling …' : `${step + 1} of ${tour.steps.length}`;
  for (const button of [back, next]) button.hidden = isWaiting;
  back.disabled = step === 0;
  next.textContent = step === tour.steps.length - 1 ? 'Done' : 'Next';
  if (!isWaiting) visit(currentStep().query);
  positionCard();
  (isWaiting ? card : next).focus({ preventScroll: true });
}

/** Draws the outline around its element and the card beside it, or in its corner where no side has room. */
function positionCard() {
  if (!tour) return;
  const targetBox = document.querySelector(currentStep().place)?.getBoundingClientRect();
  ring.hidden = !targetBox?.width;
  const box = targetBox?.width ? targetBox : { left: 0, top: 0, right: innerWidth, bottom: innerHeight, width: innerWidth, height: innerHeight };
  Object.assign(ring.style, { left: `${box.left}px`, top: `${box.top}px`, width: `${box.width - 4}px`, height: `${box.height - 4}px` });
  const [width, height] = [card.offsetWidth, card.offsetHeight];
  const right = box.right + GAP + width <= innerWidth;
  const left = !right && box.left - GAP - width >= 0 && box.right > innerWidth - width;
  const x = right ? box.right + GAP : left ? box.left - GAP - width : box.right - GAP - width;
  const y = right || left ? box.top + GAP : box.bottom - GAP - height;
  Object.assign(card.style, { left: `${Math.max(0, x)}px`, top: `${Math.min(Math.max(48, y), innerHeight - height - GAP)}px` });
}

function onKey(event) {
  const inside = event.composedPath().includes(card);
  const by = inside ? { ArrowRight: 1, ArrowLeft: -1 }[event.key] : undefined;
  if (event.key === 'Escape' && !event.composedPath().some((node) => ['DIALOG', 'INPUT'].includes(node.tagName))) end();
  else if (by && tour.steps.length) moveBy(by);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

function end() {
  closedTour = tour?.n ?? closedTour;
  tour = null;
  host.remove();
  document.removeEventListener('keydown', onKey, true);
  window.removeEventListener('resize', positionCard);
}

export default {
  /** Takes the page's tour (null: none); `show(query)` opens the view state of a step. */
  take(newTour, show) {
    if (!newTour || newTour.n === closedTour) {
      if (tour) end();
      return;
    }
    showQuery = show;
    const changed = tour?.n !== newTour.n || tour.steps.length !== newTour.steps.length;
    if (!tour) {
      document.body.append(host);
      document.addEventListener('keydown', onKey, true);
      window.addEventListener('resize', positionCard);
    }
    if (tour?.n !== newTour.n) [step, requestedQuery] = [0, location.search.slice(1)];
    tour = newTour;
    if (changed) draw();
    else positionCard();
  },
};
