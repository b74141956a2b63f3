"""The base class of passes: frozen dataclasses with options, mapping module to module."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from typing_extensions import override

from core_compiler.ir import Block, Function, Module, Op, Rewrite, Rewriter
from core_compiler.ir.events import Diagnostic
from core_compiler.ir.refusal import Refusal
from core_compiler.ir.rewriter import Budget, RewriteLimit
from core_compiler.ir.types import is_empty
from core_compiler.support.errors import UserError, nearest
from core_compiler.support.renamed import refuse_old_names

#: Facts of a compile that begins above the tensor level: the example inputs, in order, and the
#: result of the import (a ``frontends.base.Imported``).
EXAMPLES, IMPORTED = "examples", "imported"


#: Matches a sentence up to its end, or a whole text without one.
_SENTENCE = re.compile(r".*?[.!?](?=\s|$)|.*")


@dataclass
class PassContext:
    """The environment of a running pass: its rewrite log, its budget, the target, and notes.

    ``facts`` are results that later stages of the same compile read (a memory plan, compiled
    kernels); the recorder stores them.  ``options`` are the compile's options (threads, ...).
    """

    target: Any = None
    budget: Budget = field(default_factory=Budget)
    rewrites: list[Rewrite] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[[str, int, int], None] = lambda what, done, total: None

    def claims(self, op: Op) -> bool:
        """Return whether the target executes ``op`` whole: no pass may decompose or fuse it."""
        return self.target is not None and self.target.claims(op)

    def rewriter(self, block: Block, function: str = "main") -> Rewriter:
        """Return a rewriter with the log and the budget of this pass."""
        return Rewriter(block, function, self.rewrites, self.budget)

    def with_function(self, module: Module, function: Function, *, rule: str) -> Module:
        """Return ``module`` with ``function`` in place of the function of the same name.

        An event lists the attributes that changed (aliases, roles of results, ...).
        """
        old = module.functions[function.name].attributes
        changed = {
            k: function.attributes.get(k)
            for k in {**old, **function.attributes}
            if old.get(k) != function.attributes.get(k)
        }
        if changed:
            note = f"attributes of @{function.name}: {', '.join(changed)}"
            self.rewrites.append(
                Rewrite(rule, "", (), (), {}, function.name, note=note, attributes=changed)
            )
        return module.with_function(function)

    def rewrite(self, module: Module, edit: Callable[[Rewriter], None], level: str = "tensor"):
        """Return ``module`` with ``edit`` run on every function of ``level``, inner regions first.

        If the budget is exhausted, the rewrites so far are kept.
        """
        for function in module.functions.values():
            if function.level == level:
                body = self._rewrite_block(function.body, function.name, edit)
                module = (
                    module.with_function(function.with_(body=body))
                    if (body is not function.body)
                    else module
                )
        return module

    def _rewrite_block(self, block: Block, name: str, edit) -> Block:
        if any(op.regions for op in block.ops):
            ops = tuple(self._rewrite_regions(op, name, edit) for op in block.ops)
            if any(a is not b for a, b in zip(ops, block.ops, strict=True)):
                block = block.with_(ops=ops)
        rewriter = self.rewriter(block, name)
        with suppress(RewriteLimit):
            edit(rewriter)
        return rewriter.commit()

    def _rewrite_regions(self, op: Op, name: str, edit) -> Op:
        if not op.regions or not (op.kind in CONTROL_FLOW or op.kind.startswith(MODEL_NODES)):
            return op
        regions = tuple(self._rewrite_block(r, f"{name}/{op.kind}", edit) for r in op.regions)
        if all(a is b for a, b in zip(regions, op.regions, strict=True)):
            return op
        return op.with_(regions=regions)

    def note(self, severity: str, message: str, op: Op | None = None) -> None:
        """Report a diagnostic to the user: ``severity`` is ``note``, ``warning`` or ``error``."""
        nodes = op.origin.nodes() if op is not None and op.origin is not None else ()
        where = next((f"{n.file}:{n.line}" for n in nodes if n.file), "")
        self.notes.append(Diagnostic(severity, message, "main", op, where))


def run_pass(pass_: Pass, module: Module, context: PassContext) -> Module:
    """Return the result of a pass.

    Raises RuntimeError if a Rust library panics in it: PyO3's panic is no ``Exception``.
    """
    try:
        return pass_.run(module, context)
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise RuntimeError(f"a library panicked: {error}") from error


def is_builtin(pass_: Pass) -> bool:
    """Return whether a pass is part of the compiler: an exception in it is a bug of ours."""
    return type(pass_).__module__.partition(".")[0] == __name__.partition(".")[0]


#: Ops whose regions hold ordinary tensor code that passes descend into.
CONTROL_FLOW = frozenset({"core.if", "core.while"})
#: The prefix of nodes of a frontend's own level; their regions are its subgraphs.
MODEL_NODES = "onnx."


def has_only_empty_results(op: Op) -> bool:
    """Return whether an op has results and all of them are empty: they are constants."""
    return bool(op.results) and all(is_empty(v.type) for v in op.results)


@dataclass(frozen=True)
class RefusalContext:
    """The context of a condition that is tested again: a block and the target's claims."""

    module: Module
    rewriter: Rewriter
    claims: Callable[[Op], bool] = lambda op: False


#: Attributes of passes that had other names in version 0.1.
_RENAMED = {
    "anew": "changes_semantics",
    "asks": "refusal_arity",
    "ends": "invalidates",
    "rules": "table",
}


@dataclass(frozen=True)
class Pass:
    """The base class of passes.

    Subclasses are frozen dataclasses; fields are options with defaults.  A field's metadata may
    list its ``choices``.

    ``half``       ``meaning`` (values may change; one list for all targets) or ``implementation``;
                   before both ``source``: the model in its frontend's own ops.
    ``exact``      the bits of every result are kept; required in the implementation half.
    ``tolerance``  for a pass that is not exact: the class of change and why, for the user.
    ``changes_semantics``  it changes the semantics on purpose (clipped gradients, a narrower
                   precision): bisection does not compare the outputs with those before it.
                   Its rules are still held to the bounds that they state.
    ``mandatory``  the compile needs it (bisection does not remove it).
    ``refusal_arity``  the number of ops that :meth:`refusal` is about (0: no such condition).
    ``requires`` / ``ensures``  names of facts about the module; the pipeline builder checks them.
    ``invalidates``  the facts that no longer hold after it (at first, ``tensor_ops`` and
                   ``values`` hold).

    The first line of the docstring says what the pass does; it is shown to users.
    """

    half: ClassVar[str] = "meaning"
    exact: ClassVar[bool] = True
    tolerance: ClassVar[str] = ""
    changes_semantics: ClassVar[bool] = False
    mandatory: ClassVar[bool] = False
    refusal_arity: ClassVar[int] = 0
    requires: ClassVar[frozenset[str]] = frozenset()
    ensures: ClassVar[frozenset[str]] = frozenset()
    invalidates: ClassVar[frozenset[str]] = frozenset()

    @override
    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_old_names(cls, _RENAMED)

    def run(self, module: Module, context: PassContext) -> Module:
        """Return the module after the pass; a fusion pass merges what its conditions allow."""
        fusion = self.fusion()
        if fusion is None:
            raise NotImplementedError(f"{type(self).__name__}.run")
        return context.rewrite(module, lambda rw: fusion.apply(rw, context.claims))

    # The conditions that decide are also those that explain a refusal ("why not?").

    def table(self) -> tuple:
        """Return the rules that this pass applies, for explanations; empty for other passes."""
        return ()

    def fusion(self) -> Any:
        """Return the :class:`~core_compiler.passes.grouping.Fusion` of a fusion pass, or None.

        A fusion pass merges producers with their consumers.
        """
        return None

    def pair(self, one: Op, other: Op) -> tuple[Op, Op] | None:
        """Return two ops in the order that :meth:`refusal` expects, or None.

        None if this pass does not handle such a pair.
        """
        return None

    def refusal(self, ops: Sequence[Op], context: RefusalContext) -> Refusal | None:
        """Return why a pass with ``refusal_arity`` leaves these ops unchanged.

        Return None if it would change them.
        """
        raise NotImplementedError(f"{type(self).__name__}.refusal")

    @classmethod
    def name(cls) -> str:
        """Return the pass's name shown to users: ``FoldConstants`` -> ``fold_constants``."""
        out = []
        for i, letter in enumerate(cls.__name__):
            if letter.isupper() and i:
                out.append("_")
            out.append(letter.lower())
        return "".join(out)

    @classmethod
    def summary(cls) -> str:
        """Return the first sentence of the docstring; "" if a user's pass has none of its own."""
        own = cls.__dict__.get("__doc__") or ""
        if own.startswith(f"{cls.__name__}("):  # the text that `dataclass` generates
            return ""
        paragraph = " ".join(inspect.cleandoc(own).split("\n\n", 1)[0].split())
        return _SENTENCE.match(paragraph)[0]  # type: ignore[index]

    def options(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def serializable_options(self) -> dict[str, Any]:
        """Return the options that a recording can hold: numbers and strings, and lists of them."""
        return {k: v for k, v in self.options().items() if _is_plain(v)}

    def to_text(self) -> str:
        """Return the pass with its non-default options: ``fuse_elementwise{limit=8}``."""
        changed = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if getattr(self, f.name) != f.default
        }
        inner = ",".join(f"{k}={v}" for k, v in changed.items())
        return self.name() + (f"{{{inner}}}" if inner else "")


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def with_options(pass_: Pass, texts: Mapping[str, str]) -> Pass:
    """Return ``pass_`` with options given as text; UserError names a wrong one.

    The text comes from the command line or the page.
    """
    known = {f.name: f for f in fields(pass_)}
    values = {name: getattr(pass_, name) for name in known}
    for key, text in texts.items():
        if key not in known:
            raise UserError(
                f"unknown option {key!r}",
                f"pass {pass_.name()}",
                f"choose one of {', '.join(known)}" if known else "it has no options",
            )
        where = f"{pass_.name()}.{key}"
        values[key] = parse_option(str(text), values[key], where)
        choices = known[key].metadata.get("choices")
        if choices and values[key] not in choices:
            fix = nearest(str(text), choices, f"choose one of {', '.join(choices)}")
            raise UserError(f"invalid value {text!r}", where, fix)
    return type(pass_)(**values)


def parse_option(text: str, like: Any, where: str) -> Any:
    """Return the value of an option given as text, of the type of ``like``, or raise UserError."""
    if not _is_plain(like):
        raise UserError(
            f"an option of type {type(like).__name__} cannot be set from text",
            where,
            "set it from Python, with the object itself",
        )
    try:
        if isinstance(like, bool):
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        if isinstance(like, int | float):
            return type(like)(text)
        return text
    except (KeyError, ValueError):
        raise UserError(
            f"expected {type(like).__name__}, got {text!r}", where, f"pass a value like {like!r}"
        ) from None


def tensor_ops(module: Module) -> Iterator[Op]:
    """Yield the ops of ``main`` and of its control flow, but not those inside groups."""
    stack = [iter(module.main.body.ops)]
    while stack:
        for op in stack[-1]:
            yield op
            if op.kind in CONTROL_FLOW:
                stack.append(o for block in op.regions for o in block.ops)
                break
        else:
            stack.pop()
