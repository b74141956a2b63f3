"""Equality saturation beside the pipeline's greedy passes: costs of the sample models.

    python -m benchmarks.saturation [MODEL ...] [-t cpu] [-o benchmarks/results/saturation.json]

Costs are those of the target's model (core_compiler/hardware/costs.py), in bytes: the time in which
its main memory moves one.  For each model:

    imported    the module as the frontend hands it over
    greedy      after the meaning half of the pipeline
    exact       the same, then `saturate` with its exact rules
    applied     the same as `greedy`, then those exact rules applied wherever they match
    instead     the meaning half with `saturate` in the places of canonicalise, simplify_shapes
                and eliminate_common_subexpressions
    tolerant    greedy, then `saturate` with all rules

`kernels` and `moved` (bytes) are those of the fused module that the target makes of it.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from core_compiler import targets
from core_compiler.driver.stage import module_figures
from core_compiler.ir import Module, Rewriter
from core_compiler.passes.base import Pass, PassContext
from core_compiler.passes.decompose import Decompose
from core_compiler.passes.eliminate_dead_code import EliminateDeadCode
from core_compiler.passes.fold_batch_norm import FoldBatchNorm
from core_compiler.passes.fold_constants import FoldConstants
from core_compiler.passes.recompose import Recompose
from core_compiler.passes.rules import apply_rules
from core_compiler.passes.saturation import Saturate, live, rules_of
from core_compiler.passes.saturation.prices import total
from core_compiler.pipelines.pipeline import meaning
from core_compiler.support.errors import InternalError

INSTEAD = (
    EliminateDeadCode(),
    Saturate(),
    Decompose(),
    Recompose(),
    FoldBatchNorm(),
    FoldConstants(),
    Saturate(),
    EliminateDeadCode(),
)
#: The last pass before groups become kernels.
FUSED = "fuse_reductions"


class ApplyExactRules(Pass):
    """Applies the exact rules of `saturate` wherever they match, in program order."""

    def run(self, module: Module, context: PassContext) -> Module:
        rules = rules_of("exact")
        return context.rewrite(module, lambda rw: apply_rules(rw, rules, module.weights))


def main() -> None:
    from sample_models.catalogue import CATALOGUE
    from workbench.model import models
    from workbench.model.spec import read_spec

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=list(CATALOGUE))
    parser.add_argument("-t", "--target", default="cpu")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    target = targets.target(given.target)
    rows = []
    for name in given.models:
        rows.append(row(name, models.load(read_spec(name)).imported.module, target))
        print(json.dumps(rows[-1]), flush=True)
    if given.output:
        found = {
            "machine": f"{platform.system()} {platform.machine()}",
            "target": target.name,
            "balance": target.costs.balance,
            "versions": {"egglog": version("egglog"), "python": platform.python_version()},
            "models": rows,
        }
        given.output.write_text(json.dumps(found, indent=1) + "\n")


def row(name: str, module: Module, target: Any) -> dict[str, Any]:
    """What each way makes of a model's module."""
    imported = measure_costs(module, target)
    greedy, figures = after(meaning(), module, target)
    made = {
        "imported": imported,
        "greedy": figures,
        "exact": after((Saturate(),), greedy, target)[1],
        "applied": after((ApplyExactRules(),), greedy, target)[1],
        "instead": after(INSTEAD, module, target)[1],
        "tolerant": after((Saturate(rules="tolerant"),), greedy, target)[1],
    }
    return {"model": name, **made}


def after(passes: Sequence[Pass], module: Module, target: Any) -> tuple[Module, dict[str, Any]]:
    """The module after ``passes``, with its figures, their seconds and the last e-graph's."""
    context = PassContext(target=target)
    began = time.perf_counter()
    try:
        for pass_ in passes:
            module = pass_.run(module, context)
    except InternalError as endless:
        return module, {"stopped": str(endless)}
    figures: dict[str, Any] = {"seconds": round(time.perf_counter() - began, 2)}
    blocks = [f for f in context.facts.get("saturation", ()) if f["function"] == "main"]
    for found in blocks:
        figures |= {
            key: found[key] for key in ("forms", "classes", "iterations", "changed", "stopped")
        } | {"merged": len(found["merged"])}
    return module, measure_costs(module, target) | figures


def measure_costs(module: Module, target: Any) -> dict[str, Any]:
    ops = [op for op in live(Rewriter(module.main.body)) if op.kind != "core.constant"]
    costs = total(live(Rewriter(module.main.body)), target.costs)
    return {"cost": costs, "ops": len(ops), **fused(module, target)}


def fused(module: Module, target: Any) -> dict[str, int]:
    """Kernels, and the bytes that they read and write."""
    context = PassContext(target=target)
    for pass_ in target.pipeline({}):
        module = pass_.run(module, context)
        if pass_.name() == FUSED:
            break
    figures = module_figures(module)
    return {"kernels": int(figures["ops"]), "moved": int(figures["bytes"])}


if __name__ == "__main__":
    main()
