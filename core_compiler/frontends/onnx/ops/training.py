"""Optimiser steps of ONNX (``ai.onnx.preview.training``): several parameters in one node.

The inputs are the rate R, the step count T, then all parameters, all gradients, and the state (one
or two groups of tensors); the outputs are the new parameters and states.
"""

from __future__ import annotations

from core_compiler.frontends.onnx.table import NotSupported, onnx_op

_DOMAIN = "ai.onnx.preview.training"


def _groups(tensors, count: int) -> list[tuple]:
    """Return (parameter, gradient, state...) for each parameter."""
    if len(tensors) % count:
        raise NotSupported(f"expected a multiple of {count} tensors, got {len(tensors)}")
    each = len(tensors) // count
    return [tuple(tensors[i::each]) for i in range(each)]


def _scaled(b, number: float, x):
    return b.mul(b.scalar_like(number, x), x)


def _regularised(b, x, gradient):
    """Return the gradient plus ``norm_coefficient`` times that of half the squared norm."""
    return b.add(_scaled(b, b.attr("norm_coefficient", 0.0), x), gradient)


def _wide(b, scalar, like):
    return b.expand(b.to(b.reshape(scalar, shape=()), like.type.dtype), like.type.shape)


def _in_order(found: list[tuple]) -> tuple:
    return tuple(tensor for group in zip(*found, strict=True) for tensor in group)


@onnx_op(f"{_DOMAIN}::Adagrad")
def adagrad(b, rate, count, *tensors):
    """Apply Adagrad (Duchi et al., 2011); the rate decays by ``decay_factor``."""
    found = []
    for x, gradient, squares in _groups(tensors, 3):
        slope = _regularised(b, x, gradient)
        late = _scaled(b, b.attr("decay_factor", 0.0), _wide(b, count, x))
        step = b.div(_wide(b, rate, x), b.add(b.scalar_like(1, x), late))
        summed = b.add(squares, b.mul(slope, slope))
        scale = b.add(b.sqrt(summed), b.scalar_like(b.attr("epsilon", 0.0), x))
        found.append((b.sub(x, b.div(b.mul(step, slope), scale)), summed))
    return _in_order(found)


@onnx_op(f"{_DOMAIN}::Adam")
def adam(b, rate, count, *tensors):
    """Apply Adam (Kingma and Ba, 2014).

    ``norm_coefficient_post`` decays the parameters afterwards (AdamW).
    """
    alpha, beta = b.attr("alpha", 0.9), b.attr("beta", 0.999)
    found = []
    for x, gradient, mean, squares in _groups(tensors, 4):
        slope = _regularised(b, x, gradient)
        mean = b.add(_scaled(b, alpha, mean), _scaled(b, 1 - alpha, slope))
        squares = b.add(_scaled(b, beta, squares), _scaled(b, 1 - beta, b.mul(slope, slope)))
        scale = b.add(b.sqrt(squares), b.scalar_like(b.attr("epsilon", 0.0), x))
        steps, one, step = _wide(b, count, x), b.scalar_like(1, x), _wide(b, rate, x)
        first, second = (b.sub(one, b.pow(b.scalar_like(c, x), steps)) for c in (alpha, beta))
        unbiased = b.div(b.mul(step, b.sqrt(second)), first)
        step = b.select(b.gt(steps, b.scalar_like(0, steps)), unbiased, step)
        moved = b.sub(x, b.div(b.mul(step, mean), scale))
        found.append((_scaled(b, 1 - b.attr("norm_coefficient_post", 0.0), moved), mean, squares))
    return _in_order(found)


@onnx_op(f"{_DOMAIN}::Momentum")
def momentum(b, rate, count, *tensors):
    """Apply Polyak's (``mode`` standard) or Nesterov's momentum."""
    alpha, beta, mode = b.attr("alpha"), b.attr("beta"), b.attr("mode")
    if mode not in ("standard", "nesterov"):
        raise NotSupported(f"mode {mode!r}")
    found = []
    for x, gradient, velocity in _groups(tensors, 3):
        slope = _regularised(b, x, gradient)
        steps = _wide(b, count, x)
        weight = b.select(
            b.gt(steps, b.scalar_like(0, steps)), b.scalar_like(beta, x), b.scalar_like(1, x)
        )
        velocity = b.add(_scaled(b, alpha, velocity), b.mul(weight, slope))
        ahead = velocity if mode == "standard" else b.add(slope, _scaled(b, alpha, velocity))
        found.append((b.sub(x, b.mul(_wide(b, rate, x), ahead)), velocity))
    return _in_order(found)
