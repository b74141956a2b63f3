"""The headless compiler: frontends, IR, passes, kernels, code generation, runtime, recording.

::

    import core_compiler as cc
    c = cc.compile(model, inputs)      # a torch module, an ONNX file...
    c.stages[7].diff()                 # what a pass did
    c(x)                               # execute
    c.show()                           # live widgets in a notebook
"""

from __future__ import annotations

from typing import Any

__version__ = "0.2.0"

#: Names that are imported when they are first used: the package itself costs nothing.
_NAMES = {
    "compile": "core_compiler.driver.session",
    "show": "core_compiler.driver.show",
    "Compilation": "core_compiler.driver.compilation",
    "Options": "core_compiler.driver.compilation",
    "PipelineEdit": "core_compiler.pipelines.pipeline",
    "Quantization": "core_compiler.pipelines.quantization",
    "Training": "core_compiler.training.config",
    "UserError": "core_compiler.support.errors",
}
__all__ = [
    "Compilation",
    "Options",
    "PipelineEdit",
    "Quantization",
    "Training",
    "UserError",
    "compile",
    "show",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(_NAMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
