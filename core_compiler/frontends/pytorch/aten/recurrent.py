"""Recurrent layers of ATen: each step is a product, an addition and the cell's elementwise ops.

As in torch's decompositions (``torch/_decomp/decompositions.py``), the inputs of all steps are
multiplied at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core_compiler.frontends.pytorch.aten.table import NotSupported, aten
from core_compiler.ir import Value

#: Advances one step: (gates of the input, state, product with the state) -> the next state.
Cell = Callable[[Value, tuple[Value, ...], Callable[[Value], Value]], tuple[Value, ...]]


@aten("lstm.input")
def lstm(b, x, states, weights, *options):
    if states[0].type.shape[-1] != states[1].type.shape[-1]:
        raise NotSupported("an LSTM whose results are projected")

    def cell(gates, state, multiplied):
        made = b.add(multiplied(state[0]), gates)
        i, f, g, o = _parts(b, made, 4)
        memory = b.add(b.mul(b.sigmoid(f), state[1]), b.mul(b.sigmoid(i), b.tanh(g)))
        return b.mul(b.sigmoid(o), b.tanh(memory)), memory

    return _recurrent(b, cell, x, states, weights, *options)


@aten("gru.input")
def gru(b, x, state, weights, *options):
    def cell(gates, state, multiplied):
        (before,) = state
        reset, update, new = _parts(b, gates, 3)
        hidden = _parts(b, multiplied(before), 3)
        reset = b.sigmoid(b.add(hidden[0], reset))
        update = b.sigmoid(b.add(hidden[1], update))
        new = b.tanh(b.add(new, b.mul(hidden[2], reset)))
        return (b.add(b.mul(b.sub(before, new), update), new),)

    return _recurrent(b, cell, x, (state,), weights, *options)


@aten("rnn_tanh.input")
def rnn_tanh(b, x, state, weights, *options):
    return _recurrent(b, _plain(b, b.tanh), x, (state,), weights, *options)


@aten("rnn_relu.input")
def rnn_relu(b, x, state, weights, *options):
    return _recurrent(b, _plain(b, b.relu), x, (state,), weights, *options)


def _plain(b, function: Callable[[Value], Value]) -> Cell:
    return lambda gates, state, multiplied: (function(b.add(multiplied(state[0]), gates)),)


def _recurrent(
    b,
    cell: Cell,
    x: Value,
    states: Sequence[Value],
    weights: Sequence[Value],
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
):
    """Return what torch's ops do: the results of all steps, and the last states of all layers."""
    if train and dropout and layers > 1:
        raise NotSupported("dropout between recurrent layers")
    x = b.transpose(x, permutation=(1, 0, 2)) if batch_first else x
    if not x.type.is_static or not x.type.elements:
        raise NotSupported("a sequence without steps, or of a size that the data decide")
    directions, count = 1 + bidirectional, 4 if biases else 2
    last: list[tuple[Value, ...]] = []
    for layer in range(layers):
        made = []
        for direction in range(directions):
            number = layer * directions + direction
            given = weights[count * number : count * (number + 1)]
            state = tuple(_at(b, s, number) for s in states)
            outputs, state = _sequence(b, cell, x, state, given, backwards=direction == 1)
            made.append(outputs)
            last.append(state)
        x = b.concat(*made, axis=2) if bidirectional else made[0]
    x = b.transpose(x, permutation=(1, 0, 2)) if batch_first else x
    return x, *(_stacked(b, each) for each in zip(*last, strict=True))


def _sequence(b, cell: Cell, x: Value, state, weights, *, backwards: bool):
    """Return the results of one direction of a layer, in the order of the steps, and its state."""
    w_input, w_state, *added = weights
    bias_input, bias_state = added or (None, None)
    gates, multiplied = _product(b, w_input, bias_input)(x), _product(b, w_state, bias_state)
    steps, outputs = range(x.type.shape[0]), {}
    for step in reversed(steps) if backwards else steps:
        state = cell(_at(b, gates, step), state, multiplied)
        outputs[step] = state[0]
    return _stacked(b, [outputs[step] for step in steps]), state


def _product(b, w: Value, bias: Value | None) -> Callable[[Value], Value]:
    turned = b.transpose(w, permutation=(1, 0))
    return lambda x: b.linear(x, turned, *(() if bias is None else (bias,)))


def _at(b, x: Value, number: int) -> Value:
    return b.cut(x, 0, number, number + 1)


def _stacked(b, values: Sequence[Value]) -> Value:
    return b.concat(*values, axis=0) if len(values) > 1 else values[0]


def _parts(b, x: Value, count: int) -> list[Value]:
    size = x.type.shape[-1] // count
    axis = x.type.rank - 1
    return [b.cut(x, axis, i * size, (i + 1) * size) for i in range(count)]
