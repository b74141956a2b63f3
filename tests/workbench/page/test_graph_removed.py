"""What the graph marks of an op that the shown pass removed: the op, which is still drawn."""

from __future__ import annotations

from tests.passes.programs import program
from tests.workbench.page.test_numerics import record
from workbench.queries import flat_graph
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import graph


def test_a_removed_op_is_itself_where_it_is_drawn_and_what_it_became_after_that(tmp_path):
    """Of two equal ops the second one goes, and the first stands for it; nobody stands for what
    nothing read."""

    def twice(b, x):
        b.log(x)
        return b.add(b.exp(x), b.exp(x))

    run = Run(record(tmp_path / "twice.run", program(twice, "4x5xf32"), None, check=False))
    seen = set()
    for stage in run.stages():
        ops = graph.data((run,), ViewState(stage=stage.index))["ops"]
        for key, status in zip(ops["key"].tolist(), ops.get("status", []), strict=False):
            if status != flat_graph.REMOVED:
                continue
            seen.add(run.recording.op(key).kind)
            assert graph.selection((run,), ViewState(stage=stage.index, op=key)) == {"op": key}
            after = graph.selection((run,), ViewState(stage=stage.index + 1, op=key))
            assert after != {"op": key}
    assert {"core.log", "core.exp"} <= seen
    run.close()
