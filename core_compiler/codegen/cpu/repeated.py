"""Caches for results that Numba would recompute for every operation of a source.

Generated source consists of thousands of operations of a few kinds. For each of them, Numba
searches the templates of its function, binds its arguments to the parameters' names, inspects the
Python function that emits it, queries LLVM for the size of its type and builds metadata for its
line. The results never change. Types are inferred in rounds over all operations until a round
changes nothing; an operation whose operands have kept their types is skipped.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from numba.core import base, debuginfo, errors, interpreter, ir, lowering, typeinfer
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
    replaced = _replaced()
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in replaced]
    for owner, name, new in replaced:
        setattr(owner, name, new)
    try:
        yield
    finally:
        for owner, name, old in before:
            if old is None:  # inherited
                delattr(owner, name)
            else:
                setattr(owner, name, old)


def _replaced() -> list[tuple[Any, str, Any]]:
    """Return what is replaced: the owner, the attribute's name and its value in the context."""
    target = cpu_target.target_context
    return [
        (BaseFunction, "get_call_type", _signatures(BaseFunction.get_call_type)),
        (typeinfer, "ConstraintNetwork", _Constraints),
        (base, "_has_loc", _takes_location),
        (target, "get_abi_sizeof", _sizes(target.get_abi_sizeof)),
        (target, "DIBuilder", _Lines),
        # It would parse the source again.
        (lowering, "get_func_body_first_lineno", lambda f: f.__code__.co_firstlineno + 1),
        (lowering, "_lit_or_omitted", _literal_or_omitted),
        # What it rewrites (``with``, unpacked arguments) is not in generated source.
        (interpreter.Interpreter, "post_process", lambda self, peepholes, function: function),
    ]


_OMITTED, _NO_NUMBER = lowering._lit_or_omitted, lowering._lit_or_omitted(ir.UNDEFINED)


def _literal_or_omitted(value: Any) -> Any:
    return _NO_NUMBER if value is ir.UNDEFINED else _OMITTED(value)


#: Whether a function that emits code takes the location of the call.
_takes_location = functools.cache(base._has_loc)


class _Constraints(typeinfer.ConstraintNetwork):
    """The typing rules of a function's operations, each run again only if its operands change."""

    def __init__(self) -> None:
        super().__init__()
        self._operands: dict[Any, tuple] = {}

    def propagate(self, typeinfer: Any) -> list:
        failures = []
        for constraint in self.constraints:
            names = _operands(constraint)
            kinds = None if names is None else tuple(typeinfer.typevars[n].type for n in names)
            if kinds is not None and self._operands.get(constraint) == kinds:
                continue
            try:
                constraint(typeinfer)
            except (errors.TypingError, errors.ForceLiteralArg) as error:
                # It may succeed once other types are known.
                failures.append(error)
            else:
                if kinds is not None:
                    self._operands[constraint] = kinds
        return failures


def _operands(constraint: Any) -> Sequence[str] | None:
    """Return the names of the operands that determine the result of a constraint, or None."""
    if isinstance(constraint, typeinfer.Propagate | typeinfer.ArgConstraint):
        return (constraint.src,)
    if isinstance(constraint, typeinfer.CallConstraint):
        if constraint.kws or constraint.vararg is not None:
            return None
        names = [a.name for a in constraint.args]
        is_operator = isinstance(constraint, typeinfer.IntrinsicCallConstraint)
        return names if is_operator else [constraint.func, *names]
    if isinstance(constraint, typeinfer.PairFirstConstraint | typeinfer.PairSecondConstraint):
        return (constraint.pair.name,)
    if isinstance(constraint, typeinfer.SetItemConstraint):
        return [v.name for v in (constraint.target, constraint.index, constraint.value)]
    return None


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
            found = resolve(function, context, args, kws)
            if _is_by_position(found, args):
                found = found.replace(pysig=None)
            _signature_cache[key] = found
        return found

    return cached


def _is_by_position(signature: Any, args: Any) -> bool:
    """Return whether the arguments are the parameters in order: their names are not needed."""
    if signature.pysig is None or len(signature.args) != len(args):
        return False
    kinds = {parameter.kind for parameter in signature.pysig.parameters.values()}
    return kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}


def _sizes(size_of: Callable) -> Callable:
    def cached(type_: Any) -> int:
        text = str(type_)
        if text not in _size_cache:
            _size_cache[text] = size_of(type_)
        return _size_cache[text]

    return cached
