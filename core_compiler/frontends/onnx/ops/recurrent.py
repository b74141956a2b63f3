"""Recurrent layers of ONNX: RNN, GRU and LSTM, unrolled over their steps.

The inputs of all steps are multiplied in one product; each step adds the product with its state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from core_compiler.frontends.onnx.table import NotSupported, onnx_op
from core_compiler.ir import Value

#: The maximum number of unrolled steps.
STEPS = 1024
#: Activation -> (default values of alpha and beta, formula).
ACTIVATIONS: dict[str, tuple[tuple[float, ...], Callable]] = {
    "relu": ((), lambda b, x: b.relu(x)),
    "tanh": ((), lambda b, x: b.tanh(x)),
    "sigmoid": ((), lambda b, x: b.sigmoid(x)),
    "softsign": ((), lambda b, x: b.softsign(x)),
    "softplus": ((), lambda b, x: b.softplus(x)),
    "leakyrelu": ((0.01,), lambda b, x, alpha: b.leaky_relu(x, slope=alpha)),
    "elu": ((1.0,), lambda b, x, alpha: b.elu(x, alpha=alpha)),
    "hardsigmoid": (
        (0.2, 0.5),
        lambda b, x, alpha, beta: b.hard_sigmoid(x, alpha=alpha, beta=beta),
    ),
    "thresholdedrelu": (
        (1.0,),
        lambda b, x, alpha: b.select(b.gt(x, b.scalar_like(alpha, x)), x, b.scalar_like(0, x)),
    ),
    "affine": (
        (1.0, 0.0),
        lambda b, x, alpha, beta: b.add(b.mul(b.scalar_like(alpha, x), x), b.scalar_like(beta, x)),
    ),
    "scaledtanh": (
        (1.0, 1.0),
        lambda b, x, alpha, beta: b.mul(
            b.scalar_like(alpha, x), b.tanh(b.mul(b.scalar_like(beta, x), x))
        ),
    ),
}


@dataclass(frozen=True)
class Layer:
    """A direction of a recurrent node.

    ``given``       the inputs' products of all steps, biases added: (steps, batch, gates * hidden)
    ``recurrent``   (hidden, gates * hidden)
    ``own_bias``    the recurrent biases, (gates * hidden,)
    ``peepholes``   (3 * hidden,) or None
    ``activations`` those of this direction, with their clip applied
    """

    given: Value
    recurrent: Value
    own_bias: Value
    peepholes: Value | None
    activations: tuple[Callable[[Value], Value], ...]
    hidden: int

    def part(self, b, x: Value, gate: int, gates: int = 1) -> Value:
        """Return the columns of one gate, or of several consecutive ones."""
        start = gate * self.hidden
        return b.cut(x, x.type.rank - 1, start, start + gates * self.hidden)


def _rnn_step(b, layer: Layer, x: Value, state: tuple[Value, ...]):
    (activation,) = layer.activations
    own = b.bias(b.matmul(state[0], layer.recurrent), layer.own_bias, 1)
    return (activation(b.add(x, own)),)


def _gru_step(b, layer: Layer, x: Value, state: tuple[Value, ...]):
    """Compute a GRU step; gates z (update), r (reset), h (hidden)."""
    (before,) = state
    gate_activation, cell_activation = layer.activations
    reset_after_product = bool(b.attr("linear_before_reset", 0))
    gates = 3 if reset_after_product else 2
    own = b.bias(
        b.matmul(before, layer.part(b, layer.recurrent, 0, gates)),
        layer.part(b, layer.own_bias, 0, gates),
        1,
    )
    both = gate_activation(b.add(layer.part(b, x, 0, 2), layer.part(b, own, 0, 2)))
    update, reset = layer.part(b, both, 0), layer.part(b, both, 1)
    if reset_after_product:
        inner = b.mul(reset, layer.part(b, own, 2))
    else:
        product = b.matmul(b.mul(reset, before), layer.part(b, layer.recurrent, 2))
        inner = b.bias(product, layer.part(b, layer.own_bias, 2), 1)
    fresh = cell_activation(b.add(layer.part(b, x, 2), inner))
    keep = b.sub(b.scalar_like(1, update), update)
    return (b.add(b.mul(keep, fresh), b.mul(update, before)),)


def _lstm_step(b, layer: Layer, x: Value, state: tuple[Value, ...]):
    """Compute an LSTM step.

    The gates are i (input), o (output), f (forget), c (cell); peepholes are i, o, f.
    """
    before, cell = state
    gate_activation, cell_activation, out = layer.activations
    own = b.bias(b.matmul(before, layer.recurrent), layer.own_bias, 1)
    summed = b.add(x, own)

    def gate(place: int, seen: Value) -> Value:
        value = layer.part(b, summed, place)
        if layer.peepholes is not None:
            peephole = b.expand(layer.part(b, layer.peepholes, place), seen.type.shape)
            value = b.add(value, b.mul(peephole, seen))
        return gate_activation(value)

    input_gate = gate(0, cell)
    forget_gate = (
        b.sub(b.scalar_like(1, input_gate), input_gate)
        if b.attr("input_forget", 0)
        else gate(2, cell)
    )
    kept = b.add(
        b.mul(forget_gate, cell), b.mul(input_gate, cell_activation(layer.part(b, summed, 3)))
    )
    return b.mul(gate(1, kept), out(kept)), kept


@onnx_op("RNN")
def rnn(b, x, w, r, bias=None, lengths=None, start=None):
    return _layers(b, x, w, r, bias, lengths, (start,), None, 1, ("Tanh",), _rnn_step)


@onnx_op("GRU")
def gru(b, x, w, r, bias=None, lengths=None, start=None):
    return _layers(b, x, w, r, bias, lengths, (start,), None, 3, ("Sigmoid", "Tanh"), _gru_step)


@onnx_op("LSTM")
def lstm(b, x, w, r, bias=None, lengths=None, start=None, cell=None, peepholes=None):
    return _layers(
        b,
        x,
        w,
        r,
        bias,
        lengths,
        (start, cell),
        peepholes,
        4,
        ("Sigmoid", "Tanh", "Tanh"),
        _lstm_step,
    )


def _layers(b, x, w, r, bias, lengths, starts, peepholes, gates: int, default, step):
    """Compute all directions: (Y, Y_h, ...) in the node's layout."""
    if b.attr("layout", 0):
        x = b.transpose(x, permutation=(1, 0, 2))
        starts = [None if s is None else b.transpose(s, permutation=(1, 0, 2)) for s in starts]
    steps, batch, features = x.type.shape
    directions, width, _ = w.type.shape
    hidden = width // gates
    direction = b.attr("direction", "forward")
    if directions != (2 if direction == "bidirectional" else 1):
        raise NotSupported(f"weights of {directions} directions for direction {direction!r}")
    if steps > STEPS:
        raise NotSupported(f"a recurrent layer of {steps} steps (at most {STEPS} are unrolled)")
    functions = _activations(b, default, directions)
    inside = _inside(b, lengths, steps, batch, hidden)
    rows = b.reshape(x, shape=(steps * batch, features))
    all_outputs, all_states = [], []
    for d in range(directions):
        biases = _of(b, bias, d) if bias is not None else _zeros(b, x, 2 * width)
        product = b.matmul(rows, b.transpose(_of(b, w, d), permutation=(1, 0)))
        given = b.bias(product, b.cut(biases, 0, 0, width), 1)
        layer = Layer(
            b.reshape(given, shape=(steps, batch, width)),
            b.transpose(_of(b, r, d), permutation=(1, 0)),
            b.cut(biases, 0, width, 2 * width),
            _of(b, peepholes, d),
            functions[d],
            hidden,
        )
        state = tuple(
            _of(b, s, d) if s is not None else _zeros(b, x, batch, hidden) for s in starts
        )
        backwards = direction == "reverse" or d == 1
        outputs, state = _run(b, layer, state, inside, step, backwards)
        all_outputs.append(
            b.concat(*(b.reshape(y, shape=(1, 1, batch, hidden)) for y in outputs), axis=0)
        )
        all_states.append([b.reshape(s, shape=(1, batch, hidden)) for s in state])
    y = b.concat(*all_outputs, axis=1)
    last = [b.concat(*parts, axis=0) for parts in zip(*all_states, strict=True)]
    if b.attr("layout", 0):
        y = b.transpose(y, permutation=(2, 0, 1, 3))
        last = [b.transpose(s, permutation=(1, 0, 2)) for s in last]
    return (y, *last)


def _run(b, layer: Layer, state, inside, step, backwards: bool):
    """Run the steps of one direction; return the outputs by position.

    After the end of a sequence the state stays and the output is zero.
    """
    steps, batch, width = layer.given.type.shape
    outputs: list = [None] * steps
    for t in reversed(range(steps)) if backwards else range(steps):
        x = b.reshape(b.cut(layer.given, 0, t, t + 1), shape=(batch, width))
        made = step(b, layer, x, state)
        outputs[t] = made[0]
        if inside is not None:
            made = tuple(
                b.select(inside[t], new, old) for new, old in zip(made, state, strict=True)
            )
            outputs[t] = b.select(inside[t], outputs[t], b.scalar_like(0, outputs[t]))
        state = made
    return outputs, state


def _inside(b, lengths, steps: int, batch: int, hidden: int) -> list[Value] | None:
    """Return for each step the elements of (batch, hidden) inside their sequence; None for all."""
    if lengths is None:
        return None
    known = b.known(lengths)
    if known is not None and (known >= steps).all():
        return None
    wide = b.broadcast(lengths, shape=(batch, hidden), dims=(0,))
    return [b.lt(b.scalar_like(t, wide), wide) for t in range(steps)]


def _of(b, x: Value | None, direction: int) -> Value | None:
    """Return the part of one direction without that axis (None stays None)."""
    if x is None:
        return None
    part = b.cut(x, 0, direction, direction + 1)
    return b.reshape(part, shape=x.type.shape[1:])


def _zeros(b, like: Value, *shape: int) -> Value:
    return b.expand(b.constant(0, like.type.dtype), shape)


def _activations(b, default, directions: int) -> list[tuple[Callable, ...]]:
    """Return the activations of each direction.

    Values of alpha and beta are assigned in order to the activations that accept them.  ``clip``
    bounds the sums of the gates, not the cell that the third activation of an LSTM reads: "the
    input of activations" in the standard's text is broader, but onnxruntime does this.
    """
    names = b.attr("activations") or list(default) * directions
    if len(names) != len(default) * directions:
        raise NotSupported(f"expected {len(default) * directions} activations, got {len(names)}")
    alphas, betas = iter(b.attr("activation_alpha") or ()), iter(b.attr("activation_beta") or ())
    limit = b.attr("clip")

    def bound(name: str, clips: bool) -> Callable:
        if name.lower() not in ACTIVATIONS:
            raise NotSupported(f"activation {name!r}")
        defaults, formula = ACTIVATIONS[name.lower()]
        values = [
            float(next(given, value))
            for given, value in zip((alphas, betas), defaults, strict=False)
        ]

        def apply(x: Value) -> Value:
            if limit is not None and clips:
                x = b.min(b.max(x, b.scalar_like(-limit, x)), b.scalar_like(limit, x))
            return formula(b, x, *values)

        return apply

    count = len(default)
    made = [bound(name, place % count < 2) for place, name in enumerate(names)]
    return [tuple(made[d * count : (d + 1) * count]) for d in range(directions)]
