// What was found of the first bad pass in two recordings, one beside the other. It stands in one
// module with bisect.js.

const TWO_STYLE = `${PAIR}
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(380px, 100%), 1fr)); gap: 0 24px; } .sides section { min-width: 0; }
h2.of { display: flex; gap: 8px; align-items: center; overflow-wrap: anywhere; }
`;

/** `data` of both; `drawn` draws a result, `command` a command line. */
function foundInBoth(data, drawn, command) {
  const { two } = data;
  const side = (letter, name, shown) => h('section', { 'aria-label': `What was found in ${letter.toUpperCase()}` },
    h('h2', { class: 'of' }, h('span', { class: `letter ${letter}` }, letter.toUpperCase()), name), shown);
  const none = (text, more) => h('div', {}, h('p', { class: 'muted' }, text), more);
  const mine = data.result ? drawn(data.result) : none('It was not searched so far: press Look.');
  const theirs = two.result ? drawn(two.result) : two.problem ? none(two.problem.what) : none('It was not searched so far. Open it and press Look, or:', command(two.command));
  return [two.told && h('p', { class: 'told', role: 'status' }, two.told), h('div', { class: 'sides' }, side('a', data.name, mine), side('b', two.name, theirs))];
}
