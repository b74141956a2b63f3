"""Caches for results that Numba would recompute for every operation of a source.

Generated source consists of thousands of operations of a few kinds. For each of them, Numba
searches the templates of its function, queries LLVM for the size of its type and builds metadata
for its line. The results never change; caching them reduces the compile time of a kernel by a
quarter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import debuginfo
from numba.core.registry import cpu_target
from numba.core.types.functions import BaseFunction


class _Lines(debuginfo.DIBuilder):
    """Debug information of lines, without that of variables, which would be removed again."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._of_line: dict[tuple[int, int], Any] = {}

    def mark_variable(self, *args: Any, **kwargs: Any) -> None:
        pass

    def _di_location(self, line: int) -> Any:
        key = len(self.subprograms), line
        if key not in self._of_line:
            self._of_line[key] = super()._di_location(line)
        return self._of_line[key]


@contextmanager
def caches_enabled() -> Iterator[None]:
    """Enable the caches in this context, which holds the compiler's lock."""
    target, resolve = cpu_target.target_context, BaseFunction.get_call_type
    BaseFunction.get_call_type = _signatures(resolve)
    target.get_abi_sizeof = _sizes(target.get_abi_sizeof)
    target.DIBuilder = _Lines
    try:
        yield
    finally:
        BaseFunction.get_call_type = resolve
        del target.get_abi_sizeof, target.DIBuilder


#: Signatures by function and types of arguments; sizes by type.
_signature_cache: dict[Any, Any] = {}
_size_cache: dict[str, int] = {}


def _signatures(resolve: Callable) -> Callable:
    def cached(function: Any, context: Any, args: Any, kws: Any) -> Any:
        if kws or context is not cpu_target.typing_context:
            return resolve(function, context, args, kws)
        key = function, tuple(args)
        found = _signature_cache.get(key)
        if found is None:  # a failure is reported again
            found = _signature_cache[key] = resolve(function, context, args, kws)
        return found

    return cached


def _sizes(size_of: Callable) -> Callable:
    def cached(type_: Any) -> int:
        text = str(type_)
        if text not in _size_cache:
            _size_cache[text] = size_of(type_)
        return _size_cache[text]

    return cached
