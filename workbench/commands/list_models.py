"""``workbench models``: the catalogue of sample models."""

from __future__ import annotations

from workbench.commands.printing import emit, table


def add_arguments(parser) -> None:
    """Add no arguments of its own."""


def run(arguments) -> None:
    from sample_models.catalogue import CATALOGUE

    rows = [
        (
            e.name,
            f"{e.parameters:,}",
            f"{e.flops / 1e9:.3g}",
            "x".join(map(str, e.inputs[0].shape)),
            e.summary,
        )
        for e in CATALOGUE.values()
    ]
    data = [
        {
            "name": e.name,
            "summary": e.summary,
            "parameters": e.parameters,
            "flops": e.flops,
            "inputs": [{"name": i.name, "dtype": i.dtype, "shape": i.shape} for i in e.inputs],
            "depth": e.depth,
            "sizes": dict(e.sizes),
        }
        for e in CATALOGUE.values()
    ]
    text = table(("model", "parameters", "gflop", "input", ""), rows, right=(1, 2))
    emit(arguments, {"models": data}, text)
