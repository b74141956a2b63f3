"""RNN, GRU and LSTM of ONNX against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.frontends.onnx import import_proto
from core_compiler.support.errors import UserError
from tests.examples import examples
from tests.frontends.onnx_models import agrees, one_node

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, FEATURES, HIDDEN = 4, 3, 5, 6
DIRECTIONS = ("forward", "reverse", "bidirectional")


def _arrays(kind, directions, *, bias=True, lengths=None, start=True, peepholes=False):
    rng = np.random.default_rng(7)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32) / 2

    wide = GATES[kind] * HIDDEN
    arrays = {
        "x": normal(STEPS, BATCH, FEATURES),
        "w": normal(directions, wide, FEATURES),
        "r": normal(directions, wide, HIDDEN),
        "b": normal(directions, 2 * wide) if bias else None,
        "lengths": None if lengths is None else np.array(lengths, np.int32),
        "h": normal(directions, BATCH, HIDDEN) if start else None,
    }
    if kind == "LSTM":
        arrays["c"] = normal(directions, BATCH, HIDDEN) if start else None
        arrays["p"] = normal(directions, 3 * HIDDEN) if peepholes else None
    return arrays


def _check(kind, direction="forward", arrays=None, **attributes):
    directions = 2 if direction == "bidirectional" else 1
    arrays = arrays or _arrays(kind, directions)
    outputs = "y yh yc" if kind == "LSTM" else "y yh"
    proto = one_node(kind, arrays, outputs, hidden_size=HIDDEN, direction=direction, **attributes)
    agrees(proto, arrays)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", GATES)
def test_every_direction_with_sequences_of_different_lengths(kind, direction):
    directions = 2 if direction == "bidirectional" else 1
    _check(kind, direction, _arrays(kind, directions, lengths=[4, 1, 2]))


@pytest.mark.parametrize("kind", GATES)
def test_biases_and_states_may_be_left_out(kind):
    _check(kind, arrays=_arrays(kind, 1, bias=False, start=False))


def test_the_reset_gate_before_or_after_the_product():
    _check("GRU", linear_before_reset=1)


def test_peepholes_and_a_forget_gate_that_is_the_input_gates_rest():
    _check("LSTM", arrays=_arrays("LSTM", 1, peepholes=True))
    _check("LSTM", input_forget=1)


@settings(max_examples=examples(12), deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "Relu",
                "Tanh",
                "Sigmoid",
                "Affine",
                "LeakyRelu",
                "ThresholdedRelu",
                "HardSigmoid",
                "Elu",
                "Softsign",
                "Softplus",
            ]
        ),
        min_size=2,
        max_size=2,
    ),
    st.sampled_from([None, 0.5]),
)
def test_any_activations_and_a_clip(names, clip):
    takes_beta = ("Affine", "HardSigmoid")
    takes_alpha = (*takes_beta, "LeakyRelu", "ThresholdedRelu", "Elu")
    attributes = {
        "activations": names,
        "activation_alpha": [0.3 for name in names if name in takes_alpha],
        "activation_beta": [0.4 for name in names if name in takes_beta],
    }
    attributes = {k: v for k, v in attributes.items() if v}
    _check("GRU", **attributes, **({} if clip is None else {"clip": clip}))


def test_bad_input_is_refused_in_words():
    arrays = _arrays("LSTM", 1)
    for attributes, reason in (
        ({"direction": "bidirectional"}, "weights of 1 directions for direction 'bidirectional'"),
        ({"activations": ["Sigmoid", "Tanh"]}, "expected 3 activations, got 2"),
        ({"activations": ["Sigmoid", "Tanh", "Sine"]}, "activation 'Sine'"),
    ):
        proto = one_node("LSTM", arrays, "y", hidden_size=HIDDEN, **attributes)
        with pytest.raises(UserError, match=reason):
            import_proto(proto)
