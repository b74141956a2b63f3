"""Choose layouts: the order of each tensor's axes in memory.

Layouts change addresses only, so every rewrite here is exact: accumulation orders are fixed by
logical axes.  Convolutions and pools work channels-last; elementwise ops keep their operand's
layout; a transpose becomes a free view; a product whose only use is a transpose writes its result
so that the transposed tensor is row-major.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op, Value
from core_compiler.ops import typed
from core_compiler.ops.rules import I32
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import CONTROL_FLOW, Pass
from core_compiler.passes.grouping import is_widening
from core_compiler.passes.layouts import VIEWS, Order, normal, view_order

#: From as many channels of a group on, an image is copied to have them last.
CHANNELS = 16


@dataclass(frozen=True)
class ChooseLayouts(Pass):
    """Place axes in memory: convolutions channels-last, transposes as free views where possible.

    With ``channels_last`` off, convolutions keep the layout of the model.
    """

    half = "implementation"
    requires = frozenset({"tensor_ops"})
    ensures = frozenset({"layouts"})
    channels_last: bool = True

    @override
    def run(self, module, context):
        def edit(rw):
            for op in rw.ops:
                _swap_factors(op, rw)
            preferred = preferences(rw)
            relaid: dict[tuple[Value, Order], Value] = {}
            for op in rw.ops:
                op = rw.now(op)
                if self.channels_last:
                    op = self._copy_operands(op, rw, preferred, relaid)
                self._set_order(op, rw, preferred)

        return context.rewrite(module, edit)

    def _copy_operands(
        self,
        op: Op,
        rw,
        preferred: dict[Value, Order],
        relaid: dict[tuple[Value, Order], Value],
    ) -> Op:
        """Copy the operands that a product reads better in another layout, each once.

        These are weights that are not constants and so cannot be packed in advance, images of
        bytes, of which four channels are copied as a word, and those of many channels, which are
        else gathered again for every tap. Images that are padded for a product are turned before.
        """
        new_operands, copies = list(op.operands), []
        orders = operand_orders(op)
        if op.kind == "core.pad" and op.result in preferred:
            orders = {0: preferred[op.result]}
        if op.kind == "core.all_reduce" and rw.is_output(op.result):
            orders = {0: None}  # shards add bytes: both must have the same order in memory
        for index, order in orders.items():
            value = op.operands[index]
            producer = rw.producer(value)
            order = normal(order, value.type.shape)
            cast = producer if producer is not None and is_widening(producer) else None
            if cast is not None:  # a product reads what it widens
                producer = rw.producer(cast.operands[0])
            if order == value.type.order or (
                producer is not None and producer.kind == "core.constant"
            ):
                continue
            if (value, order) not in relaid:
                copied = value if cast is None else cast.operands[0]
                copy = Value(copied.type.with_(order=order), copied.name)
                copies.append(Op("core.reshape", (copied,), (copy,), {"shape": value.type.shape}))
                if cast is not None:
                    wide = Value(value.type.with_(order=order), value.name)
                    copies.append(cast.with_(operands=(copy,), results=(wide,), origin=None))
                    copy = wide
                relaid[value, order] = copy
            new_operands[index] = relaid[value, order]
        if new_operands == list(op.operands):
            return op
        made = op.with_(operands=tuple(new_operands), origin=None)
        *_, made = rw.replace(op, [*copies, made], rule="operands laid out for their product")
        return made

    def _set_order(self, op: Op, rw, preferred: dict[Value, Order]) -> None:
        if len(op.results) != 1 or rw.is_output(op.result):
            return
        if any(user.kind in CONTROL_FLOW for user in rw.users(op.result)):
            return  # loop-carried values have the layout of the loop's arguments
        order, rule = self._order(op, preferred)
        order = normal(order, op.result.type.shape)
        if order == op.result.type.order:
            return
        value = Value(op.result.type.with_(order=order), op.result.name)
        rw.replace(op, op.with_(results=(value,), origin=None), {op.result: value}, rule=rule)

    def _order(self, op: Op, preferred) -> tuple[Order, str]:
        rank = op.result.type.rank
        if has_trait(op, "windowed") and rank > 2 and self.channels_last:
            return (0, *range(2, rank), 1), "convolutions and pools channels-last"
        if op.kind in VIEWS:
            possible, order = view_order(op)
            return (order if possible else None), f"{op.kind.split('.')[1]} as a free view"
        if op.result in preferred:
            return preferred[op.result], "laid out for the transpose that follows"
        if op.kind == "core.pad" and op.operands[0].type.order is not None:
            return op.operands[0].type.order, "padding keeps its operand's layout"
        if has_trait(op, "elementwise") or op.kind == "core.all_reduce":
            for value in op.operands:
                if value.type.shape == op.result.type.shape and value.type.order is not None:
                    return value.type.order, "elementwise ops keep their operand's layout"
        return op.result.type.order, ""


def _swap_factors(op: Op, rw) -> None:
    """Replace a product that is only transposed by one with the operands swapped.

    Its rows are then the columns of the other, and contiguous. The same terms are added in the same
    order.
    """
    transpose = typed.Transpose.match(op)
    product = rw.producer(transpose.x) if transpose is not None else None
    found = typed.Contract.match(product) if product is not None else None
    if transpose is None or product is None or found is None:
        return
    if not rw.has_one_use(transpose.x):
        return
    batch, rank = len(found.batch_a), transpose.x.type.rank
    rows = found.a.type.rank - batch - len(found.contract_a)
    kept, moved = range(batch), range(batch, batch + rows)
    if transpose.permutation != (*kept, *range(batch + rows, rank), *moved):
        return
    swapped = product.with_(
        operands=(found.b, found.a),
        results=op.results,
        attributes=product.attributes
        | {
            f"{role}_{to}": product.attributes[f"{role}_{of}"]
            for role in ("batch", "contract")
            for to, of in (("a", "b"), ("b", "a"))
        },
        origin=None,
    )
    rw.replace((product, op), swapped, rule="a transposed product has its operands swapped")


def operand_orders(op: Op) -> dict[int, Order]:
    """Return the preferred orders of a convolution's operands, by number.

    Images have their channels last, weights the result's channels.
    """
    spatial = tuple(range(2, op.results[0].type.rank)) if op.results else ()
    if op.kind == "core.conv":
        orders: dict[int, Order] = {1: (*spatial, 1, 0)}
        channels = op.operands[1].type.shape[1]
        if channels >= CHANNELS or (channels > 1 and op.result.type.dtype is I32):
            orders[0] = (0, *spatial, 1)
        return orders
    if op.kind == "core.conv_transpose":
        return {1: (0, *spatial, 1)}
    if op.kind == "core.conv_weight_gradient":
        return dict.fromkeys((0, 1), (0, *spatial, 1))
    return {}


def preferences(rw) -> dict[Value, Order]:
    """Return the order of each freely placed value for which its only transpose is row-major."""
    preferred: dict[Value, Order] = {}
    order: Order
    for op in reversed(rw.ops):
        transpose = typed.Transpose.match(op)
        if transpose is not None:
            value, order = transpose.x, transpose.permutation
        elif (op.kind == "core.pad" or has_trait(op, "elementwise")) and op.result in preferred:
            for value in op.operands:
                _prefer(value, preferred[op.result], rw, preferred)
            continue
        elif op.kind == "core.conv" and op.result.type.dtype is I32 and 0 in operand_orders(op):
            value, order = op.operands[0], operand_orders(op)[0]
            cast = rw.producer(value)
            if cast is not None and is_widening(cast):  # it has its operand's layout
                value = cast.operands[0]
        else:
            continue
        _prefer(value, order, rw, preferred)
    return preferred


def _prefer(value: Value, order: Order, rw, preferred) -> None:
    producer = rw.producer(value)
    if order is None or producer is None or not rw.has_one_use(value):
        return
    if value.type.rank != len(order):
        return
    if producer.kind in ("core.matmul", "core.pad") or has_trait(producer, "elementwise"):
        preferred[value] = order
