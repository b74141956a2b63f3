"""Gradients that are ops of their own; oracle: torch.autograd in f64."""

from __future__ import annotations

import numpy as np

from tests.ops.samples.arithmetic import CONV
from tests.ops.samples.base import Sample, in_floats, sample, torch_oracle, values


def _weights(shape, strides, low, high, dilations, groups):
    """The gradient of torch's convolution for its weights."""

    def function(x, dy):
        import torch
        from torch.nn import functional

        pads = [p for pair in reversed(list(zip(low, high, strict=True))) for p in pair]
        w = torch.zeros(shape, dtype=x.dtype, requires_grad=True)
        conv = getattr(functional, CONV[x.ndim - 2])
        made = conv(functional.pad(x, pads), w, None, strides, 0, dilations, groups)
        return torch.autograd.grad(made, w, dy)[0]

    return torch_oracle(function)


def _of_weights() -> list[Sample]:
    made = []
    cases = (  # x, dy, kernel, strides, low, high, dilations, groups
        ((2, 3, 9), (2, 4, 9), (3,), (1,), (1,), (1,), (1,), 1),
        ((2, 3, 7, 8), (2, 4, 7, 8), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
        ((3, 5, 9, 12), (3, 6, 5, 6), (3, 3), (2, 2), (1, 0), (1, 2), (1, 1), 1),
        ((1, 4, 9, 9), (1, 6, 9, 5), (3, 3), (1, 2), (2, 2), (2, 2), (2, 2), 2),
        ((2, 6, 5, 5), (2, 6, 5, 5), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 6),
        ((2, 30, 3, 3), (2, 4, 3, 3), (1, 1), (1, 1), (0, 0), (0, 0), (1, 1), 1),
        (
            (1, 2, 5, 6, 4),
            (1, 3, 4, 3, 5),
            (2, 3, 2),
            (1, 2, 1),
            (0, 1, 1),
            (0, 1, 1),
            (1, 1, 1),
            1,
        ),
    )
    for x, dy, kernel, strides, low, high, dilations, groups in cases:
        shape = (dy[1], x[1] // groups, *kernel)
        made += in_floats(
            "conv_weight_gradient",
            values(x, key="x"),
            values(dy, key="dy"),
            slack=8,
            oracle=_weights(shape, strides, low, high, dilations, groups),
            kernel=kernel,
            strides=strides,
            low=low,
            high=high,
            dilations=dilations,
            groups=groups,
            label=f"{x}{kernel}".replace(" ", ""),
        )
    return made


def _pooled(name: str, shape, *arguments):
    def function(dy):
        import torch
        from torch.nn import functional

        x = torch.zeros(shape, dtype=dy.dtype, requires_grad=True)
        made = getattr(functional, f"{name}{len(shape) - 2}d")(x, *arguments)
        return torch.autograd.grad(made, x, dy)[0]

    return torch_oracle(function)


def _of_largest(shape, window, stride, pad):
    """Where torch finds the largest, and what it gives back for positions and dy."""
    import torch
    from torch.nn import functional

    largest = getattr(functional, f"max_pool{len(shape) - 2}d")

    def places(x):
        return largest(x, window, stride, pad, return_indices=True)[1]

    def given(positions, dy):
        flat = torch.zeros((*shape[:2], int(np.prod(shape[2:]))), dtype=dy.dtype)
        rows = dy.reshape(*shape[:2], -1)
        return flat.scatter_add(2, positions.reshape(rows.shape), rows).reshape(shape)

    return places, given


def _of_pools() -> list[Sample]:
    made = []
    for shape, window, stride, pad in (
        ((2, 3, 9), (3,), (2,), (1,)),
        ((2, 3, 8, 7), (3, 2), (2, 1), (1, 1)),
        ((1, 2, 5, 6, 4), (2, 2, 2), (2, 2, 2), (0, 1, 0)),
        ((1, 1, 20, 20), (17, 18), (1, 1), (8, 9)),
    ):
        rank = len(window)
        options = {
            "window": window,
            "strides": stride,
            "low": pad,
            "high": pad,
            "dilations": (1,) * rank,
        }
        places, given = _of_largest(shape, window, stride, pad)
        x = values(shape, key="x")
        found = torch_oracle(places)(x)
        dy = values(found.shape, key="dy")
        made.append(
            sample("max_pool_positions", x, oracle=torch_oracle(places), exact=True, **options)
        )
        made += in_floats(
            "max_pool_gradient",
            found,
            dy,
            slack=16,
            shape=shape,
            oracle=torch_oracle(given),
            label=f"{window}",
            **options,
        )
        for counted in (False, True):
            made += in_floats(
                "avg_pool_gradient",
                dy,
                slack=16,
                shape=shape,
                count_padding=counted,
                oracle=_pooled("avg_pool", shape, window, stride, pad, False, counted),
                label=f"{window}{counted}",
                **options,
            )
    made += in_floats(
        "avg_pool_gradient",
        values((1, 1, 1), key="dy"),
        shape=(1, 1, 1),
        window=(2,),
        label="far",
        strides=(2,),
        low=(2,),
        high=(2,),
        dilations=(3,),
        oracle=lambda dy: np.zeros((1, 1, 1)),
    )
    return made


SAMPLES = [*_of_weights(), *_of_pools()]
