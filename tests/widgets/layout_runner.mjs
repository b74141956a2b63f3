// Runs the graph view's own layout code over stages read from stdin and prints what it placed.
import { readFileSync } from 'node:fs';

const layoutCode = await import(process.argv[2]);
const { stages, open, query, expand, cone, turns, timed } = JSON.parse(readFileSync(0, 'utf8'));
let state = new layoutCode.GraphState();
const results = [];
for (const [i, { text, blob }] of stages.entries()) {
  // Every so many stages belong to a view of their own.
  if (turns && i % turns === 0) state = new layoutCode.GraphState();
  const bytes = Buffer.from(blob, 'base64');
  const buffer = new Uint8Array(bytes).buffer;
  const began = process.cpuUsage();
  state.load(layoutCode.decode(text, buffer));
  if (open === 'all') state.expand(true);
  else if (Array.isArray(open)) {
    for (const id of open) state.open.add(id);
    state.place();
  }
  if (expand) state.expand(false);
  const { user, system } = process.cpuUsage(began);
  results.push(timed ? { ...report(), seconds: (user + system) / 1e6 } : report());
}
process.stdout.write(JSON.stringify(results));

// In a page a worker answers.
function found(graph) {
  const answers = layoutCode.answer(layoutCode.asked(graph, query));
  return Array.from(layoutCode.search(graph, query, answers), (op) => graph.keys[op]);
}

function report() {
  const { graph, tree, layout } = state;
  const name = (item) => {
    const id = layout.id[item];
    return id >= 0 ? { op: graph.keys[id] } : { scope: tree.scopes[-1 - id].id };
  };
  return {
    items: Array.from({ length: layout.count }, (_, item) => ({
      ...name(item),
      x: layout.x[item],
      y: layout.y[item],
      width: layout.width[item],
      height: layout.height[item],
      container: layout.container[item],
      opens: layout.opens[item],
    })),
    containers: layout.containers.map((c) => ({
      scope: tree.scopes[c.scope].id,
      x: c.x,
      y: c.y,
      width: c.width,
      height: c.height,
      edges: Array.from(c.edgeFrom, (from, e) => [c.items[from], c.items[c.edgeTo[e]], c.rows.stub[e]]),
      bends: c.rows.bends.length,
    })),
    scopes: tree.scopes.map(({ id, label, kind, total, repeats, uniform, children, ops }) => ({
      id, label, kind, total, repeats, uniform, children: children.length, ops: ops.length,
    })),
    drawnOps: layout.drawnOps,
    found: query ? found(graph) : [],
    cone: cone
      ? Array.from(layoutCode.cone(graph, cone.roots.map((key) => graph.indexOf.get(key)), cone.direction),
          (op) => graph.keys[op])
      : [],
    heat: (graph.data.overlays ?? []).map(warm),
  };
}

/** The ends of an overlay's scale, and the colour of each op. */
function warm(overlay) {
  const { low, high, ofOp, position } = layoutCode.makeHeat(overlay, state.tree.scopeOf, state.parents);
  const colour = (_, op) => Object.values(layoutCode.heatColour({ dark: true }, position(ofOp(op))));
  return { low, high, colours: Array.from({ length: state.graph.n }, colour) };
}
