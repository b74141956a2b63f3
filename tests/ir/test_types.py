"""Types, attributes and weights: interning, spelling, layouts, content addresses."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from core_compiler.ir import (
    Dense,
    Op,
    Resource,
    Value,
    WeightStore,
    as_array,
    attributes_key,
    buffer,
    dense,
    dtype,
    tensor,
    vector,
)
from core_compiler.ir.types import DTYPES, ordered_strides, row_major
from core_compiler.ir.weights import array_digest
from core_compiler.support.errors import UserError
from tests.ir.modules import F32, attributes, same_attribute, types


@given(types)
def test_types_are_interned_and_survive_copying(type_):
    assert copy.deepcopy(type_) is type_
    assert pickle.loads(pickle.dumps(type_)) is type_


NAMED_BUFFER = (
    "memref<?xui8, strided<[?], offset: ?>, "
    '{dims = ["M"], offset = "o", space = "scratch", strides = ["s"]}>'
)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (tensor((2, 3), "f32"), "tensor<2x3xf32>"),
        (tensor((), "i1"), "tensor<i1>"),
        (tensor(("batch", 4), "bf16"), 'tensor<?x4xbf16, {dims = ["batch", 4]}>'),
        (tensor((2, 3), "f32", (1, 0)), "tensor<2x3xf32, {order = [1, 0]}>"),
        (tensor((2, 3), "f32", (0, 1)), "tensor<2x3xf32>"),
        (buffer((2, 3), "f64"), 'memref<2x3xf64, strided<[3, 1], offset: 0>, "dram">'),
        (buffer(("M",), "ui8", ("s",), "o", "scratch"), NAMED_BUFFER),
        (vector(16, "f32"), "vector<16xf32>"),
    ],
)
def test_types_are_spelled_as_mlir(type_, text):
    assert str(type_) == text


def test_dtypes_come_from_names_numpy_and_aliases():
    assert dtype("bool") is dtype(np.bool_) is dtype("i1")
    assert dtype("u8") is dtype(np.uint8) is DTYPES["ui8"]
    assert dtype(ml_dtypes.bfloat16) is DTYPES["bf16"]
    with pytest.raises((KeyError, TypeError)):
        dtype("float99")


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_names_its_numpy_type(name):
    declared = DTYPES[name]
    assert dtype(declared.numpy) is declared
    assert declared.bytes == max(1, declared.bits // 8)


def test_negative_sizes_are_refused():
    with pytest.raises(ValueError, match="negative dimension"):
        tensor((2, -1), "f32")


@pytest.mark.parametrize("order", [(0, 0), (0,), (0, 1, 2), (1, 2), (-1, 0)])
def test_an_order_is_a_permutation_of_the_axes(order):
    with pytest.raises(ValueError, match="is not a permutation of 2 axes"):
        tensor((2, 3), "f32", order)


@given(
    st.lists(st.integers(1, 5), max_size=4).flatmap(
        lambda shape: st.tuples(st.just(shape), st.permutations(range(len(shape))))
    )
)
def test_ordered_strides_are_those_of_a_transposed_numpy_array(case):
    shape, order = case
    packed = np.zeros([shape[a] for a in order], np.int8)
    expected = packed.transpose(np.argsort(order)).strides if shape else ()
    strides = ordered_strides(shape, order)
    for size, ours, theirs in zip(shape, strides, expected, strict=True):
        assert size == 1 or ours == theirs
    assert ordered_strides(shape, None) == row_major(shape)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=3), st.sampled_from(["f32", "i8", "i1"]))
def test_sizes_in_elements_and_bytes(shape, name):
    array = np.zeros(shape, dtype(name).numpy)
    for type_ in (tensor(shape, name), buffer(shape, name)):
        assert (type_.elements, type_.bytes) == (array.size, array.nbytes)


# -- attributes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [[1], np.float32(1), np.int64(1), {"a": 1}, None, b"x", (1, [2])])
def test_what_is_no_attribute_is_refused(value):
    with pytest.raises(TypeError, match="not an attribute"):
        Op("core.x", (), (), {"a": value})


def test_ops_cannot_be_changed():
    op = Op("core.x", (), (), {"b": 1, "a": (2,)})
    assert list(op.attributes) == ["a", "b"]
    with pytest.raises(AttributeError):
        op.kind = "core.y"
    with pytest.raises(TypeError):
        op.attributes["a"] = 3
    assert op.with_(kind="core.y").attributes == op.attributes


def test_a_change_of_what_it_does_not_read_leaves_an_op_alone():
    x, y, z = (Value(F32) for _ in range(3))
    op = Op("core.add", (x, y), (z,))
    assert op.substitute({z: x}) is op
    assert op.substitute({x: y}).operands == (y, y)


# -- weights -------------------------------------------------------------------------------------

arrays = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.int8, np.bool_, np.uint16]),
    hnp.array_shapes(min_dims=0, max_dims=3, max_side=12),
)


@given(arrays)
def test_constants_come_back_bit_for_bit(array):
    store = WeightStore()
    handle = store.add(array)
    assert isinstance(handle, Dense if array.nbytes <= 256 else Resource)
    again = as_array(handle, store)
    assert again.dtype == array.dtype and again.shape == array.shape
    assert again.tobytes() == array.tobytes()
    assert store.add(array.copy()) == handle and len(store) <= 1


def test_digests_tell_dtype_and_shape_apart():
    zeros = np.zeros((4, 2), np.float32)
    others = [zeros.reshape(2, 4), zeros.view(np.int32), zeros.reshape(8)]
    assert len({array_digest(a) for a in (zeros, *others)}) == 4
    assert array_digest(np.asfortranarray(zeros)) == array_digest(zeros)


def test_weights_are_read_only_and_independent_of_the_callers_array():
    store = WeightStore()
    array = np.arange(100, dtype=np.float32)
    handle = store.add(array)
    array[0] = 7
    held = store[handle.digest]
    assert held[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        held[0] = 1


def test_missing_weights_are_a_user_error():
    with pytest.raises(UserError, match="not in the store"):
        WeightStore()["ab" * 32]


def test_dense_is_exact():
    assert dense(np.float32(0.1)).array() == np.float32(0.1)


# -- attributes ------------------------------------------------------------------------------------

ALIKE = (0, 0.0, -0.0, False, 1, 1.0, True, float("nan"), -float("nan"), "", (), (0,), (0.0,),
         (-0.0,), (False,), ((0.0, 1),), ((-0.0, 1),))  # fmt: skip


@given(*[st.one_of(st.sampled_from(ALIKE), attributes)] * 2)
def test_attributes_have_one_key_where_they_are_the_same_to_the_bit(a, b):
    keys = [attributes_key([("name", value)]) for value in (a, b)]
    assert (keys[0] == keys[1]) is same_attribute(a, b)
    assert hash(keys[0]) == hash(attributes_key([("name", copy.deepcopy(a))]))
