"""Constants, data movement, gathers and scatters, sorts: exact; oracles: NumPy and torch."""

from __future__ import annotations

import numpy as np

from core_compiler.ir import dense
from tests.ops.samples.base import Sample, sample, torch_oracle, values

DTYPES = ("f64", "f32", "f16", "bf16", "i8", "ui8", "i32", "i64", "i1", "i4", "f8E5M2")


def _moves(name: str) -> list[Sample]:
    x = values((2, 3, 4), name, -7, 7)
    scalar = values((), name, 1, 1)
    update = values((1, 3, 2), name, -7, 7, "update")
    starts = [np.asarray(v, np.int32) for v in (1, -5, 9)]
    made = [
        sample("broadcast", x, oracle=lambda x: np.broadcast_to(x[:, None], (2, 5, 3, 4)),
               shape=(2, 5, 3, 4), dims=(0, 2, 3)),
        sample("broadcast", x[:, :1], label="size-1",
               oracle=lambda x: np.broadcast_to(x, (2, 3, 4)), shape=(2, 3, 4), dims=(0, 1, 2)),
        sample("reshape", x, oracle=lambda x: x.reshape(4, 6), shape=(4, 6)),
        sample("transpose", x, oracle=lambda x: np.moveaxis(x, 2, 0), permutation=(2, 0, 1)),
        sample("slice", x, oracle=lambda x: x[1:2, :3:2, 1:4:2], starts=(1, 0, 1),
               limits=(2, 3, 4), strides=(1, 2, 2)),
        sample("reverse", x, oracle=lambda x: x[::-1, :, ::-1], axes=(0, 2)),
        sample("windows", x, oracle=_cut, axes=(1, 2), sizes=(2, 2), strides=(1, 2),
               dilations=(1, 1)),
        sample("stop_gradient", x, oracle=lambda x: x),
        sample("pad", x, scalar, oracle=lambda x, v: np.pad(
            x, ((1, 0), (0, 2), (3, 3)), constant_values=v), low=(1, 0, 3), high=(0, 2, 3),
            interior=(0, 0, 0)),
        sample("concat", x, update.repeat(2, 0).repeat(2, 2), x, label="three",
               oracle=lambda *xs: np.concatenate(xs, 1), axis=1),
        sample("dynamic_slice", x, *starts, oracle=lambda x, *_: x[1:2, :2, 2:], sizes=(1, 2, 2)),
        sample("dynamic_update_slice", x, update, *starts, oracle=_updated),
        sample("constant", oracle=lambda x=x: x, value=dense(x), label=name),
    ]  # fmt: skip
    return [Sample(**{**vars(s), "exact": True}) for s in made]


def _cut(x):
    places = np.lib.stride_tricks.sliding_window_view(
        np.arange(x.size).reshape(x.shape), (2, 2), (1, 2)
    )
    return x.reshape(-1)[places[:, :, ::2]]


def _updated(x, update, *starts):
    made = x.copy()
    made[1:2, 0:3, 2:4] = update
    return made


def _iotas() -> list[Sample]:
    made = []
    for name in ("f32", "bf16", "i32", "ui8", "i64"):
        for axis, shape in ((0, (5,)), (1, (2, 6, 3))):
            wanted = np.moveaxis(
                np.broadcast_to(
                    np.arange(shape[axis]), (*shape[:axis], *shape[axis + 1 :], shape[axis])
                ),
                -1,
                axis,
            )
            made.append(
                sample(
                    "iota",
                    oracle=lambda w=wanted: w,
                    label=f"{name}-{axis}",
                    shape=shape,
                    dtype=name,
                    axis=axis,
                )
            )
    return made


def _pads() -> list[Sample]:
    """Interior padding and cropping against a loop over positions."""

    def oracle(low, high, interior):
        def place(x, value):
            size = [
                n + max(n - 1, 0) * i + a + b
                for n, a, b, i in zip(x.shape, low, high, interior, strict=True)
            ]
            made = np.full(size, value, x.dtype)
            for index in np.ndindex(x.shape):
                at = tuple(a + k * (i + 1) for a, k, i in zip(low, index, interior, strict=True))
                if all(0 <= p < n for p, n in zip(at, size, strict=True)):
                    made[at] = x[index]
            return made

        return place

    x, value = values((5, 4), "f32"), np.float32(9).reshape(())
    made = []
    for low, high, interior in (
        ((0, 1), (2, 0), (1, 2)),
        ((-1, -2), (0, 1), (2, 0)),
        ((-3, 0), (-1, -4), (1, 3)),
        ((4, -5), (-3, 3), (0, 1)),
    ):
        made.append(
            sample(
                "pad",
                x,
                value,
                oracle=oracle(low, high, interior),
                exact=True,
                label=f"{low}{high}{interior}".replace(" ", ""),
                low=low,
                high=high,
                interior=interior,
            )
        )
    return made


def _gathers() -> list[Sample]:
    made = []
    for name in ("f32", "bf16", "i64", "i1"):
        x = values((4, 5, 3), name, -7, 7)
        rows = values((2, 3), "i64", 0, 4, "rows")
        along = values((4, 2, 3), "i64", 0, 4, "along")
        outside = np.array([[-3, 9], [0, 4]], np.int32)
        pairs = np.stack([values((6,), "i32", 0, 3, "p"), values((6,), "i32", 0, 4, "q")], -1)
        huge = np.array([1, 2**63, 2**64 - 1], np.uint64)  # as indices they would be negative
        made += [
            sample("take", x, rows, oracle=lambda x, i: np.take(x, i, 1), exact=True, axis=1),
            sample("take", x, outside, oracle=lambda x, i: np.take(x, i, 1, mode="clip"),
                   exact=True, axis=1, label="clamps"),
            sample("take", x, huge, oracle=lambda x, i: x[:, [1, 4, 4]], exact=True, axis=1,
                   label="huge"),
            sample("take_along", x, along, exact=True, axis=1,
                   oracle=lambda x, i: np.take_along_axis(x, i, 1)),
            sample("take_along", x.astype(np.float64) if name == "bf16" else x, along[:2, :, :1],
                   oracle=torch_oracle(lambda x, i: x.gather(1, i)), exact=True, axis=1,
                   label="smaller"),
            sample("gather_nd", x, pairs, oracle=lambda x, i: x[i[:, 0], i[:, 1]], exact=True),
            sample("gather_nd", x, values((4, 6, 1), "i32", 0, 4), exact=True, label="batch",
                   oracle=lambda x, i: np.stack([x[n, i[n, :, 0]] for n in range(4)]),
                   batch_dims=1),
        ]  # fmt: skip
    return made


#: mode -> (torch's scatter_reduce name, NumPy's ufunc)
REDUCE = {
    "add": ("sum", np.add),
    "mul": ("prod", np.multiply),
    "max": ("amax", np.maximum),
    "min": ("amin", np.minimum),
}


def _at(ufunc):
    """NumPy's unbuffered ``ufunc.at`` on whole rows."""

    def oracle(x, indices, updates):
        made = x.copy()
        ufunc.at(made, indices[:, 0], updates)
        return made

    return oracle


def _scatters() -> list[Sample]:
    made = []
    for name in ("f32", "f64", "i64"):
        x = values((4, 5), name, -7, 7)
        indices = values((3, 5), "i64", 0, 3, "rows")
        distinct = np.argsort(values((4, 5), "f32", 0, 1, "distinct"), 0)[:3]
        updates = values((3, 5), name, -7, 7, "updates")
        made.append(
            sample(
                "scatter_along",
                x,
                distinct,
                updates,
                exact=True,
                axis=0,
                mode="set",
                oracle=torch_oracle(lambda x, i, u: x.scatter(0, i, u)),
            )
        )
        nd = np.argwhere(np.arange(20).reshape(4, 5) % 3 == 0)
        chosen = values((len(nd),), name, -7, 7, "chosen")
        made.append(sample("scatter_nd", x, nd, chosen, oracle=_index_put, exact=True, mode="set"))
        rows = np.array([[2], [0], [2]])
        row_updates = values((3, 5), name, -7, 7, "rows")
        for mode, (reduce, ufunc) in REDUCE.items():
            along = torch_oracle(lambda x, i, u, r=reduce: x.scatter_reduce(0, i, u, r))
            made += [
                sample(
                    "scatter_along",
                    x,
                    indices,
                    updates,
                    axis=0,
                    mode=mode,
                    label=mode,
                    oracle=along,
                ),
                sample(
                    "scatter_nd", x, rows, row_updates, mode=mode, label=mode, oracle=_at(ufunc)
                ),
            ]
    return made


def _index_put(x, indices, updates):
    made = x.copy()
    made[tuple(indices.T)] = updates
    return made


def _sorts() -> list[Sample]:
    made = []
    for name in ("f32", "f64", "f16", "bf16", "i8", "ui8", "i64"):
        x = values((3, 9, 2), name, -4, 4)
        if name[0] in "fb":
            x[0, 2, 0], x[1, 3, 1], x[2, 1, 0] = np.nan, np.inf, -np.inf
        for descending in (False, True):
            options = {"axis": 1, "descending": descending, "label": str(descending)}
            ordered, order = (_torch_sort(descending, part) for part in (0, 1))
            made.append(sample("sort", x, exact=True, oracle=_like(ordered, x), **options))
            made.append(sample("argsort", x, exact=True, oracle=order, **options))
        clean = values((3, 9), name, -4, 4, "topk")
        for largest in (True, False):
            made.append(
                sample(
                    "topk",
                    clean,
                    exact=True,
                    axis=1,
                    k=4,
                    largest=largest,
                    label=str(largest),
                    oracle=_top(4, largest),
                )
            )
    return made


def _torch_sort(descending: bool, part: int):
    import torch

    def oracle(x):
        x = x.astype(np.float64) if x.dtype.kind not in "iu" else x
        x = torch.from_numpy(x)
        return torch.sort(x, dim=1, descending=descending, stable=True)[part].numpy()

    return oracle


def _like(oracle, x):
    return lambda a: oracle(a).astype(x.dtype)


def _top(k: int, largest: bool):
    """NumPy's stable sort; descending by negated ranks, so that the first of equals comes first."""

    def oracle(x):
        _, ranks = np.unique(x.astype(np.float64), return_inverse=True)
        ranks = ranks.reshape(x.shape)
        order = np.argsort(-ranks if largest else ranks, 1, kind="stable")[:, :k]
        return np.take_along_axis(x, order, 1), order

    return oracle


SAMPLES = [
    *(s for name in DTYPES for s in _moves(name)),
    *_iotas(),
    *_pads(),
    *_gathers(),
    *_scatters(),
    *_sorts(),
]
