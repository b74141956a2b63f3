"""Shard the batch: create the program of one shard, and its exchanges with the others.

Data parallelism with whole-batch statistics (Ioffe and Szegedy, 2015, over all shards). The bits
depend on the configured number of shards, not on the workers that run them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from core_compiler.ir import Module, Op, Rewriter, Value
from core_compiler.ir.claims import Formula
from core_compiler.ops import typed
from core_compiler.ops.base import view
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype
from core_compiler.ops.evaluation import constant_array
from core_compiler.ops.loss import totals
from core_compiler.ops.traits import has_trait, kinds_with
from core_compiler.passes.base import Pass, PassContext
from core_compiler.passes.decompose import expand
from core_compiler.support.errors import UserError
from core_compiler.training.audit.probes import shard_dependent_values
from core_compiler.training.graph.roles import SHARD, Roles

#: Largest relative difference between the mean over equal shards and that of one shard.
_ROUNDING = 2.0**-20
_MEAN = "the loss is the mean over all shards"
#: Ops whose result is a signed sum of their operands.
_LINEAR = frozenset({"core.add", "core.sub", "core.neg", "core.cast", "core.reshape"})


@dataclass(frozen=True)
class ShardBatch(Pass):
    """Cut the batch into shards, and sum over all shards wherever the whole batch counts.

    The loss is the mean over all shards' examples. Parameters are distributed to every shard, so
    that their gradients are summed. Random numbers are those of the whole batch. The statistics of
    batch normalisation are those of all shards (``sync_batch_norm``); without it each shard has its
    own, and the running statistics are averaged.
    """

    exact = False
    changes_semantics = True
    tolerance = "sums over the batch are computed shard by shard"
    mandatory = True
    requires = frozenset({"tensor_ops"})
    shards: int = 2
    sync_batch_norm: bool = True

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        main = module.main
        roles = Roles.of(main)
        rw = context.rewriter(main.body)
        sharder = _Sharder(rw, module, self.shards, self.sync_batch_norm)
        batch_wide = ["core.batch_norm"] if self.sync_batch_norm else []
        sharder.reject_inside((*kinds_with("random"), *batch_wide))
        sharder.loss(roles.result("loss"))
        sharder.random(main.arguments[roles.number("shard", SHARD)])
        own = [main.arguments[i] for i in roles.numbers("batch", "shard")]
        if self.sync_batch_norm:
            sharder.batch_norms(own)
        for place in roles.numbers("parameter"):
            sharder.distribute(main.arguments[place])
        for place, (role, of) in enumerate(roles.results):
            if role == "next":
                sharder.average_buffer(place, roles.arguments[of][1], own)
        for name, op in sharder.approximate_buffers:
            context.note(
                "warning",
                f"the buffer {name} becomes the mean of what the shards "
                "compute from their own examples; for a sum or an extreme over the "
                "batch, that differs from the value of a single shard",
                op,
            )
        return module.with_function(main.with_(body=rw.commit()))


@dataclass
class _Sharder:
    rw: Rewriter
    module: Module
    shards: int
    sync: bool
    #: Buffers whose mean over all shards may differ from the whole batch's, with their op.
    approximate_buffers: list[tuple[str, Op | None]] = field(default_factory=list)
    #: Means over all shards by the summed value, the axes and the divisor.
    means: dict[tuple, Value] = field(default_factory=dict)

    def builder(self) -> Builder:
        return Builder(self.module.weights)

    def reject_inside(self, kinds: Iterable[str]) -> None:
        """Raise UserError for whole-batch ops of these kinds in loops and branches.

        Only ops outside of them are made to cover the whole batch.
        """
        for op in self.rw.ops:
            for inner in (o for region in op.regions for o in region.walk()):
                if inner.kind in kinds and len(inner.operands) > 1:
                    nodes = inner.origin.nodes() if inner.origin is not None else ()
                    place = next((f" ({n.file}:{n.line})" for n in nodes if n.file), "")
                    raise UserError(
                        f"{inner.kind} inside {op.kind}{place} would differ between shards",
                        "shards",
                        "move it out of the loop or branch, or train with one shard",
                    )

    def loss(self, place: int | None) -> None:
        """Replace every term of the loss by its total over all shards divided by their count.

        A term of the model's own loss that is not a total divided by a count has the count 1 per
        shard.
        """
        assert place is not None
        value, path = self.rw.outputs[place], set[Value]()
        for term in dict.fromkeys(self._terms(value, path)):
            op, b = self.rw.producer(term), self.builder()
            if op is not None and op.kind == "core.div":
                made = b.div(*(b.all_reduce(v, shards=self.shards) for v in op.operands))
                self.rw.replace(op, b.ops, {term: made}, rule=_MEAN)
            elif op is not None and _is_class_mean(op):
                made = b.div(*(b.all_reduce(v, shards=self.shards) for v in totals(b, view(op))))
                made = as_dtype(b, made, term.type.dtype)
                self.rw.replace(op, b.ops, {term: made}, rule=_MEAN)
            elif self._number(term) is None:
                total = b.all_reduce(term, shards=self.shards)
                self._replace_by_mean(
                    term, b.div(total, b.scalar_like(self.shards, total)), b, place, path
                )

    def _replace_by_mean(
        self, term: Value, made: Value, b: Builder, place: int, path: set[Value]
    ) -> None:
        """Replace ``term`` in the loss by ``made``, the mean over all shards."""
        users = [op for op in self.rw.users(term) if not path.isdisjoint(op.results)]
        before = users[0] if users else None
        self.rw.insert(
            b.ops,
            before=before,
            rule=_MEAN,
            reason="of the model's own loss",
            claim=_equal_shards_claim(term, made),
        )
        for user in users:
            fresh = user.substitute({term: made})
            self.rw.replace(user, fresh, {v: v for v in user.results}, rule=_MEAN)
        if self.rw.outputs[place] is term:
            self.rw.set_output(place, made, rule=_MEAN, tolerance=_ROUNDING)

    def _terms(self, value: Value, path: set[Value]) -> Iterator[Value]:
        """Yield the terms of the sum that is the loss, each scaled; ``path`` has partial sums."""
        op = self.rw.producer(value)
        inner: list[Value] = []
        if op is not None and op.kind in _LINEAR:
            inner = list(op.operands)
        elif op is not None and op.kind in ("core.mul", "core.div"):
            x, y = op.operands
            if self._number(y) is not None:
                inner = [x]
            elif op.kind == "core.mul" and self._number(x) is not None:
                inner = [y]
        found = [term for each in inner for term in self._terms(each, path)]
        if op is None or not found or (op.kind == "core.div" and not self._has_means(found)):
            yield value
            return
        path.add(value)
        yield from found

    def _has_means(self, terms: Iterable[Value]) -> bool:
        makers = map(self.rw.producer, terms)
        return any(o is not None and (o.kind == "core.div" or _is_class_mean(o)) for o in makers)

    def random(self, shard: Value) -> None:
        for op in self.rw.ops:
            if has_trait(op, "random") and len(op.operands) == 2:
                fresh = tuple(Value(v.type, v.name) for v in op.results)
                operands = (*op.operands, shard)
                made = op.with_(operands=operands, results=fresh, origin=None)
                rule = "a shard's part of the whole batch's random numbers"
                self.rw.replace(op, made, {op.result: made.result}, rule=rule)

    def distribute(self, parameter: Value) -> None:
        """Let every op read the parameter through one ``distribute``."""
        users = self.rw.users(parameter)
        if not users:
            return
        b = self.builder()
        made = b.distribute(parameter, shards=self.shards)
        rule = "every shard reads the parameter"
        self.rw.insert(
            b.ops,
            before=users[0],
            rule=rule,
            reason="its gradients are summed",
            claim=_equal_shards_claim(parameter, made),
        )
        for user in users:
            fresh = user.substitute({parameter: made})
            self.rw.replace(user, fresh, {v: v for v in user.results}, rule=rule)

    # -- batch normalisation ----------------------------------------------------------------------

    def batch_norms(self, own: Iterable[Value]) -> None:
        """Compute the batch statistics over all shards; raise UserError if their form is unknown.

        ``own`` are the arguments that differ between shards.
        """
        for op in self.rw.ops:
            if op.kind == "core.batch_norm":
                self._synchronise(op)
        varied = shard_dependent_values(self.rw.ops, own)
        left = [
            op
            for op in self.rw.ops
            if op.kind == "core.batch_norm" and not varied.isdisjoint(op.operands[3:5])
        ]
        if left:
            nodes = [n for op in left if op.origin is not None for n in op.origin.nodes()]
            places = dict.fromkeys(f"{n.file}:{n.line}" if n.file else n.name for n in nodes)
            raise UserError(
                f"the statistics of {len(left)} batch normalisations cannot be computed over all "
                f"shards ({', '.join(list(places)[:3])})",
                "shards",
                "train with sync_batch_norm=False, or with one shard",
            )

    def _synchronise(self, norm: Op) -> None:
        x, result = norm.operands[0], norm.result
        while True:
            (norm,) = (o for o in self.rw.ops if result in o.results)
            between = _between(self.rw.ops, x, norm.operands[3:5])
            whole = [o for o in between if o.kind in ("core.mean", "core.variance")]
            if not whole:
                break
            for op in whole:
                expand(op, self.rw, self.module.weights)
        for op in between:
            if op.kind == "core.reduce_sum":
                self._sum_over_shards(op)

    def _sum_over_shards(self, total: Op) -> None:
        """Replace ``total / n`` by the sum over all shards divided by their n."""
        current = next(o for o in self.rw.ops if total.result in o.results)
        (x,), axes = current.operands, typed.ReduceSum.of(current).axes
        shard_count = int(np.prod([x.type.shape[a] for a in axes]))
        for division in self.rw.users(current.result):
            number = self._number(division.operands[1]) if division.kind == "core.div" else None
            if number is None or division.operands[0] is not current.result:
                continue
            b = self.builder()
            made = self.means.get((x, axes, number))
            if made is None:
                count = b.scalar_like(number + (self.shards - 1) * shard_count, division.result)
                mean = b.div(b.all_reduce(current.result, shards=self.shards), count)
                made = self.means[x, axes, number] = b.distribute(mean, shards=self.shards)
            of = {"shape": x.type.shape, "axes": axes, "divisor": number, "shards": self.shards}
            claim = Formula("a mean over all shards", {"total": current.result}, {"made": made}, of)
            self.rw.replace(
                division,
                b.ops,
                {division.result: made},
                rule="a statistic over all shards",
                claim=claim if b.ops else None,
                tolerance=_ROUNDING if number == shard_count else None,
            )
            self._rescale_unbiased(made, shard_count)

    def _rescale_unbiased(self, variance: Value, shard_count: int) -> None:
        """Let n / (n - 1) of a running variance count all shards' examples too."""
        if shard_count < 2:
            return
        for user in self.rw.users(variance):
            number = self._number(user.operands[1]) if user.kind == "core.mul" else None
            kind = user.result.type.dtype.numpy
            if number is not None and kind.type(number) == kind.type(
                shard_count / (shard_count - 1)
            ):
                total_count = shard_count * self.shards
                b = self.builder()
                made = b.mul(variance, b.scalar_like(total_count / (total_count - 1), variance))
                claim = Formula(
                    "an unbiased variance over all shards",
                    {"variance": variance},
                    {"made": made},
                    {"of": shard_count, "shards": self.shards},
                )
                self.rw.replace(
                    user,
                    b.ops,
                    {user.result: made},
                    rule="n / (n - 1) over all shards",
                    claim=claim,
                )

    def _number(self, value: Value) -> float | None:
        """Return the single value of a constant (or of its broadcast), or None."""
        maker = self.rw.producer(value)
        if maker is not None and maker.kind == "core.broadcast":
            maker = self.rw.producer(maker.operands[0])
        if maker is None or maker.kind != "core.constant":
            return None
        array = constant_array(maker, self.module.weights)
        same = array.size and (array == array.flat[0]).all()
        return float(array.flat[0]) if same else None

    # -- state ------------------------------------------------------------------------------------

    def average_buffer(self, place: int, name: str, own: Iterable[Value]) -> None:
        """Make the next value of a buffer equal on every shard: average it if it is not."""
        value = self.rw.outputs[place]
        varied = shard_dependent_values(self.rw.ops, own)
        if value not in varied:
            return
        if not value.type.dtype.is_float:
            raise UserError(
                f"the {value.type.dtype} buffer {name} is computed from the examples and would "
                "differ between shards",
                "shards",
                "train with one shard",
            )
        b = self.builder()
        total = b.all_reduce(value, shards=self.shards)
        made = b.div(total, b.scalar_like(self.shards, total))
        if not self._is_mean(value, varied):
            self.approximate_buffers.append((name, self.rw.producer(value)))
        self.rw.insert(
            b.ops,
            rule="the mean of the shards' statistics",
            reason=f"of {name}",
            claim=_equal_shards_claim(value, made),
        )
        self.rw.set_output(
            place, made, rule="the mean of the shards' statistics", tolerance=_ROUNDING
        )

    def _is_mean(self, value: Value, varied: Container[Value]) -> bool:
        """Return whether the mean over all shards of a value is the whole batch's.

        It is if the value is linear in means over the batch.
        """
        op = self.rw.producer(value)
        if value not in varied:
            return True
        if op is None:
            return False
        if op.kind == "core.mean" or (op.kind == "core.variance" and not self.sync):
            return 0 in view(op).axes
        if op.kind in ("core.mul", "core.div"):
            x, y = op.operands
            if self._number(y) is None:
                x, y = (y, x) if op.kind == "core.mul" else (x, y)
            summed = typed.ReduceSum.match(self.rw.producer(x))
            if summed is not None and 0 in summed.axes:
                count = float(np.prod([summed.x.type.shape[a] for a in summed.axes]))
                number = self._number(y)
                return number in ((count,) if op.kind == "core.div" else (1 / count,))
            return self._number(y) is not None and self._is_mean(x, varied)
        return op.kind in _LINEAR and all(self._is_mean(v, varied) for v in op.operands)


def _equal_shards_claim(value: Value, made: Value) -> Formula:
    """Return the claim that the mean over equal shards is the value itself."""
    return Formula("the value itself", {"x": value}, {"made": made})


def _is_class_mean(op: Op) -> bool:
    """Return whether an op divides by a number of targets, which may differ between shards."""
    losses = typed.NllLoss.match(op), typed.CrossEntropy.match(op)
    return any(loss is not None and loss.reduction == "mean" for loss in losses)


def _between(ops: Iterable[Op], start: Value, ends: Iterable[Value]) -> list[Op]:
    """Return the ops on the paths from ``start`` to ``ends``, in program order."""
    ops = list(ops)
    after, before = {start}, set(ends)
    forward = []
    for op in ops:
        if not after.isdisjoint(op.uses()):
            after.update(op.results)
            forward.append(op)
    found = []
    for op in reversed(forward):
        if not before.isdisjoint(op.results):
            before.update(op.uses())
            found.append(op)
    return found[::-1]
