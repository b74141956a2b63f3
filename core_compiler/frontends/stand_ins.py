"""Substitute values for a model without its own: missing weights, and inputs.

They are seeded, and chosen such that the model behaves reasonably: positions are in range, square
roots get no negative values, weights preserve the magnitude of their factors.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from core_compiler.ir import Block, Module, Op, Resource, TensorType, Value
from core_compiler.ir.weights import array_digest
from core_compiler.ops import typed
from core_compiler.ops.base import view
from core_compiler.support.errors import UserError

#: The maximum number of generated elements of all weights, and of all inputs, of one model: 2 GB of
#: f32.
MAX_GENERATED_ELEMENTS = 1 << 29
#: The standard deviation of weights with one axis, which are added to, or scale, large sums.
BIAS_STD = 0.05


@dataclass(frozen=True)
class Requirement:
    """The requirements on a value by its users.

    Integers are ``below`` a size (None: any), numbers are ``positive``.
    """

    below: int | None = None
    positive: bool = False

    def joined(self, other: Requirement) -> Requirement:
        sizes = [n for n in (self.below, other.below) if n is not None]
        return Requirement(min(sizes, default=None), self.positive or other.positive)


#: Kinds of ops -> the operand that indexes into another.
_INDEX_OPERANDS = {
    "core.take": 1,
    "core.take_along": 1,
    "core.scatter_along": 1,
    "core.gather_nd": 1,
    "core.scatter_nd": 1,
    "core.nll_loss": 1,
    "core.cross_entropy": 1,
    "core.one_hot": 0,
}
#: Kinds of ops -> the operands that must not be negative: arguments of roots and logarithms, and
#: the scales of normalised values, which are near 1.
_NON_NEGATIVE_OPERANDS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "core.sqrt",
            "core.rsqrt",
            "core.log",
            "core.log2",
            "core.log10",
            "core.log1p",
            "core.pow",
        ),
        (0,),
    ),
    **dict.fromkeys(
        ("core.layer_norm", "core.rms_norm", "core.group_norm", "core.instance_norm"), (1,)
    ),
    "core.batch_norm": (1, 4),
}
#: Kinds of ops -> the operands whose values are those of the result (None: all of them).
_FORWARDED_OPERANDS: Mapping[str, tuple[int, ...] | None] = {
    **dict.fromkeys(
        (
            "core.reshape",
            "core.broadcast",
            "core.transpose",
            "core.slice",
            "core.reverse",
            "core.stop_gradient",
            "core.distribute",
            "core.cast",
            "core.dynamic_slice",
        ),
        (0,),
    ),
    "core.select": (1, 2),
    "core.pad": (0, 1),
    "core.concat": None,
    "core.max": None,
    "core.min": None,
}
#: Ops whose result is not negative if their operands are not.
_KEEP_SIGN = frozenset(
    {
        "core.add",
        "core.mul",
        "core.div",
        "core.reduce_sum",
        "core.mean",
        "core.reduce_max",
        "core.reduce_min",
    }
)


def requirements(module: Module) -> dict[Value, Requirement]:
    """Return the requirements on the values of ``main``, as far as its ops determine them."""
    found: dict[Value, Requirement] = {}
    for op in reversed(list(module.main.body.walk())):
        for value, need in _operand_requirements(op, found):
            found[value] = found.get(value, Requirement()).joined(need)
    return found


def _operand_requirements(
    op: Op, found: Mapping[Value, Requirement]
) -> list[tuple[Value, Requirement]]:
    required = []
    if op.kind in _INDEX_OPERANDS:
        size = _size(op)
        required += (
            [(op.operands[_INDEX_OPERANDS[op.kind]], Requirement(below=size))] if size else []
        )
    required += [
        (op.operands[i], Requirement(positive=True))
        for i in _NON_NEGATIVE_OPERANDS.get(op.kind, ())
        if i < len(op.operands)
    ]
    wanted = found.get(op.results[0]) if op.results else None
    if wanted is None:
        return required
    if op.kind in _FORWARDED_OPERANDS:
        indices = _FORWARDED_OPERANDS[op.kind]
        forwarded = op.operands if indices is None else [op.operands[i] for i in indices]
        required += [(value, wanted) for value in forwarded]
    elif op.kind in _KEEP_SIGN and wanted.positive and not _is_square(op):
        required += [(value, Requirement(positive=True)) for value in op.operands]
    return required


def _is_square(op: Op) -> bool:
    return op.kind == "core.mul" and op.operands[0] is op.operands[1]


def _size(op: Op) -> int | None:
    """Return the number of valid positions for the indices of ``op``; None if unknown."""
    one_hot, gather = typed.OneHot.match(op), typed.GatherNd.match(op)
    if one_hot is not None:
        return one_hot.classes
    shape = op.operands[0].type.shape
    if gather is not None or op.kind == "core.scatter_nd":
        first = 0 if gather is None else gather.batch_dims
        sizes = shape[first : first + int(op.operands[1].type.shape[-1])]
    elif op.kind in ("core.nll_loss", "core.cross_entropy"):
        sizes = shape[1:2]
    else:
        sizes = (shape[view(op).axis],)
    return min(sizes) if sizes and all(isinstance(size, int) for size in sizes) else None


# -- weights ---------------------------------------------------------------------------------------


def missing_weights(module: Module) -> dict[str, Resource]:
    """Return the weights missing in the module's store, by their digests."""
    return {
        held.digest: held
        for op in module.walk()
        for held in op.attributes.values()
        if isinstance(held, Resource) and held.digest not in module.weights
    }


def fill_missing_weights(module: Module, source: str) -> tuple[Module, int]:
    """Return ``module``, read from ``source``, with values for missing weights, and their number.

    The same digest always yields the same values, under a separate digest.  Raise UserError if
    there are too many.
    """
    absent = missing_weights(module)
    if not absent:
        return module, 0
    if sum(_elements(held.type) for held in absent.values()) > MAX_GENERATED_ELEMENTS:
        raise UserError(
            f"more than {MAX_GENERATED_ELEMENTS:,} weights are not in {source}",
            "weights",
            "record the model with them (`workbench compile MODEL -o FILE.run --weights`), or "
            "export the stage with its weights (stage.export)",
        )
    needed = requirements(module)
    wanted: dict[str, Requirement] = {}
    for op in module.main.body.walk():
        constant = op.attributes.get("value")
        if isinstance(constant, Resource) and op.results:
            need = needed.get(op.result, Requirement())
            wanted[constant.digest] = wanted.get(constant.digest, Requirement()).joined(need)
    change = {}
    for digest, held in absent.items():
        random = np.random.default_rng(zlib.crc32(digest.encode()))
        array = weight(random, held.type, wanted.get(digest, Requirement()))
        change[digest] = Resource(held.type, array_digest(array))
        module.weights.put(change[digest].digest, array)
    for function in module.functions.values():
        body = _replace_weights(function.body, change)
        module = module.with_function(function.with_(body=body))
    return module, len(absent)


def _replace_weights(block: Block, change: Mapping[str, Resource]) -> Block:
    """Return ``block`` with other weights."""
    ops = []
    for op in block.ops:
        held = {
            name: change[value.digest]
            for name, value in op.attributes.items()
            if isinstance(value, Resource) and value.digest in change
        }
        if held:
            op = op.with_(attributes={**op.attributes, **held})
        if op.regions:
            regions = tuple(_replace_weights(region, change) for region in op.regions)
            if any(a is not b for a, b in zip(regions, op.regions, strict=True)):
                op = op.with_(regions=regions)
        ops.append(op)
    same = all(a is b for a, b in zip(ops, block.ops, strict=True))
    return block if same else block.with_(ops=tuple(ops))


def weight(random: np.random.Generator, type_: TensorType, need: Requirement) -> np.ndarray:
    """Draw normal values that preserve the magnitude of their factors, or integers.

    The values are around 1 if they must be positive.
    """
    if not type_.dtype.is_float:
        return _integers(random, type_, need.below)
    shape = _shape(type_)
    scale = max(prod(shape[1:]), 1) ** -0.5 if len(shape) > 1 else BIAS_STD
    numbers = random.standard_normal(shape, np.float32) * np.float32(scale)
    return (numbers + np.float32(need.positive)).astype(type_.dtype.numpy)


def _integers(random: np.random.Generator, type_: TensorType, below: int | None) -> np.ndarray:
    kind = type_.dtype.numpy
    most = 2 if below is None else max(below, 1)
    if kind.kind in "iu":
        most = min(most, int(np.iinfo(kind).max))
    return random.integers(0, most, _shape(type_)).astype(kind)


def _shape(type_: TensorType) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else 1 for size in type_.shape)


def _elements(type_: TensorType) -> int:
    return prod(_shape(type_))


# -- inputs ----------------------------------------------------------------------------------------


def inputs(
    module: Module, seed: int = 0, like: Sequence[np.ndarray] = ()
) -> tuple[np.ndarray, ...]:
    """Draw values for the arguments of ``main``.

    Floats are normal; integers are in the range of ``like`` if it is passed, else of the tensor
    that they index, else 0 and 1.  Raise UserError if an argument is not a tensor, or if there are
    too many values.
    """
    random = np.random.default_rng(seed)
    needed = requirements(module)
    made, count = [], 0
    for place, value in enumerate(module.main.arguments):
        if not isinstance(value.type, TensorType):
            raise UserError(
                f"input {value.name or place} is {value.type}, expected a tensor",
                "inputs",
                "pass the model's inputs",
            )
        count += _elements(value.type)
        if count > MAX_GENERATED_ELEMENTS:
            raise UserError(
                f"the inputs have more than {MAX_GENERATED_ELEMENTS:,} elements",
                "inputs",
                "compile the model for a smaller batch",
            )
        given = like[place] if place < len(like) else None
        made.append(draw(random, value.type, needed.get(value, Requirement()), given))
    return tuple(made)


def draw(
    random: np.random.Generator,
    type_: TensorType,
    need: Requirement = Requirement(),
    like: np.ndarray | None = None,
) -> np.ndarray:
    """Draw values of one type, in the range of ``like`` or as required by ``need``."""
    if type_.dtype.is_float:
        numbers = random.standard_normal(_shape(type_))
        return (np.abs(numbers) if need.positive else numbers).astype(type_.dtype.numpy)
    below = need.below
    if like is not None and like.size:
        below = int(like.max()) + 1
    return _integers(random, type_, below)
