"""Repeated calls of a compiled model on the same arrays: ``c.bind(x)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from core_compiler.runtime.device import need_same_memory

if TYPE_CHECKING:
    from core_compiler.driver.compilation import Compilation


class BoundCall:
    """A call of a compiled model on fixed arrays: ``bound()`` computes ``c(*arrays)``, bit for bit.

    The sizes, dtypes and layouts of the inputs are checked once.  Each call reads their present
    contents in place, so positions out of range are still refused by the call.  An input that has
    to be copied (a list, a transposed view, a tensor on a GPU) is refused with a UserError.

    ``outputs`` are the results of the last call, zeros before the first, and belong to this bound
    call: the next one overwrites them.  Copy what has to outlive it, or bind once more.

    The state of the model is the compilation's: ``bound()`` and ``c(x)`` continue each other.
    Calls from several threads run one at a time.  On a device with memory of its own, each call
    copies the inputs and the results, as ``c(x)`` does.
    """

    def __init__(self, compiled: Compilation, arrays: Sequence):
        given = tuple(compiled.leaves(arrays))
        for number, pair in enumerate(zip(given, compiled.leaves(arrays), strict=True)):
            if pair[0] is not pair[1]:
                need_same_memory(*pair, f"bind, input {number}")
        whole = compiled._with_state(arrays)
        bound = compiled._bound_to(arrays, whole)
        self._compiled, self._arrays, self._given = compiled, arrays, given
        self._positions, self._trim = bound.positions, bound.trim
        #: Arrays for the state at the beginning of a call.
        self._state = [np.array(array) for array in whole[len(given) :]]
        self._run = bound.executable.bind(*given, *self._state, *bound.sizes)
        own = tuple(bound.trim(self._run.outputs))
        changes_nothing = not (compiled.state or compiled.written or bound.positions)
        uncut = all(a is b for a, b in zip(own, self._run.outputs, strict=False))
        self._is_plain = changes_nothing and uncut
        hidden = len(compiled.state) + len(compiled.written)
        self.outputs: tuple[np.ndarray, ...] = own[: len(own) - hidden]

    def __call__(self) -> tuple[np.ndarray, ...]:
        """Execute, and return ``outputs``."""
        compiled = self._compiled
        compiled.module.weights.check()
        if self._is_plain:
            self._run()
            return self.outputs
        for slot, array in zip(self._state, compiled.state, strict=False):
            slot[...] = array
        if self._positions is not None:
            self._positions.check((*self._given, *self._state))
        self._run()
        self.outputs = compiled._own_results(self._arrays, self._trim(self._run.outputs))
        return self.outputs
