"""Test utilities for passes, targets and kernels: bitwise comparison, checked passes, golden IR.

::

    from workbench.testing import assert_same_bits, check_passes

    def test_my_pass(compiled, golden_ir):
        made = compiled(module, (x,), check=True)
        check_passes(made)
        golden_ir(made.stages[3])
        assert_same_bits(made(x), (expected,))

The fixtures come from the pytest plugin, :mod:`workbench.testing.plugin`, which an installed
workbench registers. ``docs/testing.md`` shows all of it.
"""

from __future__ import annotations

from typing import Any

#: Names that are imported on first use: pytest loads the plugin, and with it this package, in every
#: session.
_NAMES = {
    "assert_same_bits": "workbench.testing.bits",
    "check_passes": "workbench.testing.checks",
    "filecheck": "workbench.testing.file_check",
}
__all__ = ["assert_same_bits", "check_passes", "filecheck"]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_NAMES[name]), name)
