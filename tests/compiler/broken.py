"""Passes with something wrong on purpose, for tests of what the compile says about them."""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass

from core_compiler.ir import Op, Value
from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class Nudge(Pass):
    """Replaces every sigmoid by a tanh and says that bits are kept."""

    def run(self, module, context):
        def edit(rw):
            for op in rw.ops:
                if op.kind == "core.sigmoid":
                    rw.replace(op, op.with_(kind="core.tanh", origin=None), rule="nudge")

        return context.rewrite(module, edit)


@dataclass(frozen=True)
class ForgetSigns(Pass):
    """Takes a lower bound of -0 for one of +0 and says that bits are kept."""

    def run(self, module, context):
        def edit(rw):
            for op in rw.ops:
                if op.kind == "core.clamp" and op.attributes["low"] == 0:
                    bound = {**op.attributes, "low": 0.0}
                    rw.replace(op, op.with_(attributes=bound, origin=None), rule="forget signs")

        return context.rewrite(module, edit)


@dataclass(frozen=True)
class Silent(Pass):
    """Does what Nudge does without telling: no rewrite is logged."""

    def run(self, module, context):
        ops = tuple(
            op.with_(kind="core.tanh") if op.kind == "core.sigmoid" else op
            for op in module.main.body.ops
        )
        return module.with_main(module.main.body.with_(ops=ops))


@dataclass(frozen=True)
class Inexact(Pass):
    """Admits that it changes values, in the half that must not."""

    half = "implementation"
    exact = False

    def run(self, module, context):
        return module


@dataclass(frozen=True)
class Dangling(Pass):
    """Makes an op read a value that nothing defines."""

    def run(self, module, context):
        body = module.main.body
        last = body.ops[-1]
        lost = Op("core.neg", (Value(last.result.type, "lost"),), (Value(last.result.type),))
        return module.with_main(body.with_(ops=(*body.ops, lost)))


@dataclass(frozen=True)
class Unknown(Pass):
    """Makes an op of a kind that there is not."""

    def run(self, module, context):
        body = module.main.body
        odd = Op("core.rulu", body.ops[-1].results, (Value(body.ops[-1].result.type),))
        return module.with_main(body.with_(ops=(*body.ops, odd)))


@dataclass(frozen=True)
class EmptyGroup(Pass):
    """Makes a group without what it groups."""

    def run(self, module, context):
        body = module.main.body
        group = Op("core.group", body.ops[-1].results, (Value(body.ops[-1].result.type),))
        return module.with_main(body.with_(ops=(*body.ops, group)))


@dataclass(frozen=True)
class NoMain(Pass):
    """Loses main."""

    def run(self, module, context):
        return module.with_(functions={})


@dataclass(frozen=True)
class NoModule(Pass):
    """Forgets to return the module."""

    def run(self, module, context):
        return None


@dataclass(frozen=True)
class Raises(Pass):
    """Fails with an exception of its own."""

    def run(self, module, context):
        raise ZeroDivisionError("division by zero in the pass")


#: As PyO3 makes one: no ``Exception``.
_Panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})


@dataclass(frozen=True)
class Panics(Pass):
    """Calls a library in Rust that panics."""

    def run(self, module, context):
        raise _Panic("index out of bounds")


@dataclass(frozen=True)
class NeverEnds(Pass):
    """Waits for what does not come, and may hide every error meanwhile."""

    hides: bool = False

    def run(self, module, context):
        while True:
            with suppress(Exception) if self.hides else nullcontext():
                time.sleep(0.01)


@dataclass(frozen=True)
class Adds(Pass):
    """Doubles the first result (twice): options, order and repeats show in the numbers."""

    times: int = 1
    label: str = "double"

    def run(self, module, context):
        from core_compiler.ops import Builder

        body = module.main.body
        value, ops = body.outputs[0], []
        for _ in range(self.times):
            builder = Builder()
            value = builder.add(value, value)
            ops += builder.ops
        return module.with_main(
            body.with_(ops=(*body.ops, *ops), outputs=(value, *body.outputs[1:]))
        )


@dataclass(frozen=True)
class NeedsLayouts(Pass):
    """Requires what only choose_layouts ensures."""

    half = "implementation"
    requires = frozenset({"layouts"})

    def run(self, module, context):
        return module


@dataclass(frozen=True)
class Overlap(Pass):
    """Places every temporary at the start of the arena."""

    half = "implementation"

    def run(self, module, context):
        def edit(rw):
            for op in rw.ops:
                if op.get("offset"):
                    moved = op.with_(attributes={**op.attributes, "offset": 0}, origin=None)
                    rw.replace(op, moved, rule="overlap")

        return context.rewrite(module, edit, level="target")
