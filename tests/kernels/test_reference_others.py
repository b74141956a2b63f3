"""Sorts, gathers, scatters, random numbers, elementwise operations, digests."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from core_compiler.numerics.functions import FUNCTIONS
from core_compiler.numerics.reference.digest import canonical_bytes, digest, leaf
from core_compiler.numerics.reference.digest import same_bits as same_canonical_bits
from core_compiler.numerics.reference.dtypes import DTYPES, cast
from core_compiler.numerics.reference.elementwise import apply, clamp, select
from core_compiler.numerics.reference.random import normal, random_bits, uniform
from core_compiler.numerics.reference.scatter import (
    embedding_gradient,
    gather,
    gather_elements,
    gather_nd,
    index_add,
    scatter_elements,
    scatter_nd,
    scatter_rows,
)
from core_compiler.numerics.reference.sort import argsort, sort, top_k
from tests.kernels.definitions import add, chunked, same_bits

# --- sorts ------------------------------------------------------------


def test_sort_puts_nan_last_and_keeps_equal_zeros_in_place():
    x = np.array([0.0, -0.0, np.nan, -1, -0.0, np.inf, -np.nan, -np.inf], np.float32)
    assert argsort(x).tolist() == [7, 3, 0, 1, 4, 5, 2, 6]
    assert argsort(x, descending=True).tolist() == [2, 6, 5, 0, 1, 4, 3, 7]
    assert same_bits(sort(x)[2:5], np.array([0.0, -0.0, -0.0], np.float32))
    values, places = top_k(x, 3)
    assert places.tolist() == [2, 6, 5] and values[2] == np.inf
    assert top_k(np.array([3, 1, 3, 1], np.int32), 2, largest=False)[1].tolist() == [1, 3]
    with pytest.raises(ValueError, match="top_k of 9"):
        top_k(x, 9)


@given(
    arrays.arrays(
        np.float32,
        arrays.array_shapes(max_dims=2, max_side=20),
        elements=st.floats(width=32, allow_nan=False),
    )
)
def test_sort_agrees_with_numpy(x):
    assert np.array_equal(sort(x), np.sort(x, kind="stable"))
    assert np.array_equal(argsort(x), np.argsort(x, kind="stable"))


# --- gathers and scatters ------------------------------------------------------------


def test_scatter_add_has_the_bits_of_its_definition():
    rng = np.random.default_rng(0)
    table = rng.standard_normal((6, 3)).astype(np.float32)
    rows = rng.choice([0, 2, 5], 900, p=[0.8, 0.15, 0.05])
    updates = rng.standard_normal((900, 3)).astype(np.float32)
    out = scatter_rows(table, rows, updates, "add")
    for r, j in np.ndindex(table.shape):
        hits = list(updates[rows == r, j])
        expected = add(table[r, j], chunked(hits, 256)) if hits else table[r, j]
        assert same_bits(out[r, j], expected)


def test_a_destination_without_hits_keeps_its_bits():
    table = np.full((2, 1), -0.0, np.float32)
    out = scatter_rows(table, np.array([1]), np.full((1, 1), -0.0, np.float32), "add")
    assert np.signbit(out[0, 0]) and not np.signbit(out[1, 0])  # -0 + (+0 + -0)


@pytest.mark.parametrize(
    ("reduction", "name"),
    [("none", None), ("add", "sum"), ("mul", "prod"), ("max", "amax"), ("min", "amin")],
)
def test_scatter_elements_agrees_with_torch(reduction, name):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    x, updates = (rng.standard_normal(s).astype(np.float32) for s in ((7, 5), (4, 5)))
    indices = (
        rng.integers(0, 7, (4, 5))
        if reduction != "none"
        else np.argsort(rng.standard_normal((7, 5)), 0)[:4]
    )
    tensors = [torch.tensor(v) for v in (x, indices, updates)]
    expected = (
        tensors[0].scatter(0, *tensors[1:])
        if name is None
        else tensors[0].scatter_reduce(0, *tensors[1:], reduce=name)
    )
    out = scatter_elements(x, indices, updates, 0, reduction)
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_the_last_update_stays():
    out = scatter_rows(np.zeros((2, 1)), np.array([1, 0, 1]), np.array([[1.0], [2.0], [3.0]]))
    assert out.tolist() == [[2.0], [3.0]]


def test_gathers_and_their_inverses():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((4, 5, 6)).astype(np.float32)
    assert same_bits(gather(x, np.array([[3, -1]]), 1), np.take(x, [[3, 4]], 1))
    indices = rng.integers(-5, 5, (4, 2, 6))
    assert same_bits(gather_elements(x, indices, 1), np.take_along_axis(x, indices % 5, 1))
    pairs = np.array([[1, 2], [3, -1]])
    assert same_bits(gather_nd(x, pairs), x[[1, 3], [2, 4]])
    added = scatter_nd(x, pairs, np.ones((2, 6), np.float32), "add")
    assert same_bits(added[1, 2], x[1, 2] + 1) and same_bits(added[0], x[0])
    expected = x.copy()
    np.add.at(expected, (slice(None), [0, 0]), np.ones((4, 2, 6), np.float32))
    done = index_add(x, 1, np.array([0, 0]), np.ones((4, 2, 6), np.float32))
    np.testing.assert_allclose(done, expected, rtol=1e-6)
    with pytest.raises(IndexError, match="index 9 is outside an axis of 5"):
        gather(x, np.array([9]), 1)


def test_embedding_gradient_agrees_with_torch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    indices, dy = rng.integers(0, 11, (6, 9)), rng.standard_normal((6, 9, 4)).astype(np.float32)
    weight = torch.zeros(11, 4, requires_grad=True)
    torch.nn.functional.embedding(torch.tensor(indices), weight).backward(torch.tensor(dy))
    np.testing.assert_allclose(embedding_gradient(indices, dy, 11), weight.grad, rtol=0, atol=1e-5)


# --- random numbers ------------------------------------------------------------


def philox(counter, key):
    """Philox4x32-10 from the paper's figure, in Python integers."""
    c, k, mask = list(counter), list(key), 0xFFFFFFFF
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & mask, (p >> 32) ^ c[3] ^ k[1], p & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def test_philox_known_answers():
    """Random123's kat_vectors for philox4x32-10."""
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    assert philox([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    pi = philox([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0])
    assert pi == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    assert random_bits((4,), 0).tolist() == philox([0] * 4, [0] * 2)
    seed = ones << 32 | ones
    assert random_bits((1,), seed, ones, ones, ones, first=4 * ones).tolist() == [0x408F276D]


def test_random_elements_depend_on_their_global_index_only():
    whole = random_bits((5, 7), 99, 3, 2, 1)
    expected = [philox([i // 4, 3, 2, 1], [99, 0])[i % 4] for i in range(35)]
    assert whole.reshape(-1).tolist() == expected
    for first, count in ((0, 5), (3, 9), (33, 2)):
        for draw in (random_bits, uniform, normal):
            part = draw((count,), 99, 3, 2, 1, first=first)
            assert same_bits(part, draw((35,), 99, 3, 2, 1)[first : first + count])


def test_uniform_and_normal():
    from scipy import stats

    u = uniform((1 << 16,), 5)
    assert same_bits(u, ((random_bits((1 << 16,), 5) >> 8) * 2.0**-24).astype(np.float32))
    assert u.min() >= 0 and u.max() < 1 and stats.kstest(u, "uniform").pvalue > 1e-3
    z = normal((1 << 16,), 5)
    assert np.isfinite(z).all() and stats.kstest(z, "norm").pvalue > 1e-3
    words = random_bits((1 << 16,), 5).astype(np.float64)
    u1, u2 = (words[0::2] // 256 + 1) * 2.0**-24, (words[1::2] // 256) * 2.0**-24
    radius = np.sqrt(-2 * np.log(u1))
    np.testing.assert_allclose(z[0::2], radius * np.cos(2 * np.pi * u2), rtol=0, atol=5e-6)
    np.testing.assert_allclose(z[1::2], radius * np.sin(2 * np.pi * u2), rtol=0, atol=5e-6)


# --- elementwise ------------------------------------------------------------


def test_functions_broadcast_and_round_narrow_floats_once():
    rng = np.random.default_rng(4)
    x = rng.uniform(0.1, 0.9, (3, 1)).astype(np.float32)
    y = rng.uniform(0.1, 0.9, 4).astype(np.float32)
    np.testing.assert_allclose(apply("pow", x, y), x**y, rtol=1e-6)
    narrow = x.astype(ml_dtypes.bfloat16)
    wide = apply("exp", narrow.astype(np.float32))
    assert same_bits(apply("exp", narrow), wide.astype(ml_dtypes.bfloat16))
    for name, function in FUNCTIONS.items():
        assert apply(name, *[x] * function.arity).shape == x.shape


def test_narrow_arithmetic_is_one_rounding():
    codes = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    other = np.roll(codes, 12345)
    with np.errstate(all="ignore"):
        for name, oracle in (("add", np.add), ("mul", np.multiply), ("div", np.divide)):
            assert same_bits(apply(name, codes, other), oracle(codes, other))


INT_CASES = np.array([-128, -127, -7, -1, 0, 1, 3, 100, 127], np.int8)


def test_integer_semantics():
    a, b = (v.ravel() for v in np.meshgrid(INT_CASES, INT_CASES))
    for name, rule in {
        "div": lambda x, y: int(x / y) if y else 0,
        "floor_div": lambda x, y: x // y if y else 0,
        "fmod": lambda x, y: x - int(x / y) * y if y else 0,
        "remainder": lambda x, y: x % y if y else 0,
        "add": lambda x, y: x + y,
        "mul": lambda x, y: x * y,
        "shift_left": lambda x, y: x << y if 0 <= y < 8 else 0,
        "shift_right": lambda x, y: x >> (y if 0 <= y < 8 else 7),
        "shift_right_logical": lambda x, y: (x % 256) >> y if 0 <= y < 8 else 0,
        "pow": lambda x, y: x**y if y >= 0 else {1: 1, -1: 1 if y % 2 == 0 else -1}.get(x, 0),
    }.items():
        rows = zip(a.tolist(), b.tolist(), strict=True)
        expected = [(rule(x, y) + 128) % 256 - 128 for x, y in rows]
        assert apply(name, a, b).tolist() == expected, name


def test_comparisons_select_and_clamp():
    x = np.array([1, np.nan, -0.0], np.float32)
    assert apply("equal", x, x).tolist() == [True, False, True]
    assert apply("less", x, np.array([2, 2, 0.0], np.float32)).tolist() == [True, False, False]
    low, high = np.array(-1, np.float32), np.array(0.5, np.float32)
    assert same_bits(clamp(low, x, high), np.array([0.5, np.nan, -0.0], np.float32))
    chosen = select(np.array([True, False, True]), x, -x)
    assert same_bits(chosen, np.array([1, np.nan, -0.0], np.float32))
    assert apply("not", np.array([True, False])).tolist() == [False, True]
    with pytest.raises(TypeError, match="one dtype"):
        apply("add", x, x.astype(np.float64))
    with pytest.raises(TypeError, match="is not defined"):
        apply("exp", np.array([1]))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("source", sorted(DTYPES))
@pytest.mark.parametrize("target", sorted(DTYPES))
def test_casts_of_small_whole_numbers_are_exact(source, target):
    x = np.array([0, 1, 1, 0]).astype(DTYPES[source])
    out = cast(x, DTYPES[target])
    assert out.dtype == DTYPES[target] and out.astype(np.float64).tolist() == [0, 1, 1, 0]


def test_casts_wrap_integers_and_saturate_floats():
    assert cast(np.array([300, -1]), np.uint8).tolist() == [44, 255]
    assert cast(np.array([9, -9]), DTYPES["i4"]).astype(int).tolist() == [-7, 7]
    assert cast(np.array([9.9, -9.9, np.nan], np.float32), DTYPES["i4"]).astype(int).tolist() == [
        7,
        -8,
        0,
    ]
    assert cast(np.array([0.0, np.nan, -0.5], np.float32), np.bool_).tolist() == [False, True, True]


# --- digests ------------------------------------------------------------


def test_digests_know_values_not_payloads():
    quiet = np.array([np.nan, 1], np.float32)
    other = quiet.copy()
    other.view(np.uint32)[0] = 0xFFC12345
    assert digest([quiet]) == digest([other]) and same_canonical_bits(quiet, other)
    assert other.view(np.uint32)[0] == 0xFFC12345
    assert digest([np.array([0.0])]) != digest([np.array([-0.0])])
    assert digest([np.zeros(4, np.int8)]) != digest([np.zeros((2, 2), np.int8)])
    assert digest([np.zeros(1, np.float32)]) != digest([np.zeros(1, np.int32)])
    assert digest([np.asfortranarray(np.eye(3, 2))]) == digest([np.eye(3, 2)])
    assert (
        digest([np.array([1.5], ">f4").astype("<f4")])
        == hashlib.sha256(b"f32[1]\n\x00\x00\xc0\x3f").hexdigest()
    )
    for dtype in DTYPES.values():
        assert len(canonical_bytes(np.zeros((2, 3), dtype))) == 6 * dtype.itemsize


@pytest.mark.parametrize("size", [0, 1, 128, 129, 1000])
def test_the_leaf_hash_has_its_definition(size):
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    raw, golden = x.tobytes(), 0x9E3779B97F4A7C15
    padded = raw + bytes(-len(raw) % 512)
    lanes = [(i + 1) * golden % 2**64 for i in range(64)]
    for at in range(0, len(padded), 8):
        lane = at // 8 % 64
        mixed = (lanes[lane] ^ int.from_bytes(padded[at : at + 8], "little")) * golden % 2**64
        lanes[lane] = mixed ^ mixed >> 32
    total = len(raw)
    for value in lanes:
        total = (total ^ value) * golden % 2**64
        total ^= total >> 29
    assert leaf(x) == total


@pytest.mark.slow
def test_a_second_process_loads_what_the_first_compiled(tmp_path):
    """And compiles what somebody cut off, anew."""
    program = (
        "import numpy as np\n"
        "from core_compiler.numerics.reference.scan import _kernel, cumsum\n"
        "cumsum(np.ones((3, 2), np.float32), 0)\n"
        "stats = _kernel('sum', 'f32').stats\n"
        "print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))\n"
    )
    environment = {**os.environ, "COMPILER_WORKBENCH_CACHE": str(tmp_path)}

    def hits_and_misses() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            text=True,
            capture_output=True,
            check=True,
        )
        return done.stdout.split()

    compiled, loaded = ["0", "1"], ["1", "0"]
    assert [hits_and_misses(), hits_and_misses()] == [compiled, loaded]
    for ending in ("nbc", "nbi"):
        for path in tmp_path.rglob(f"*.{ending}"):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        assert [hits_and_misses(), hits_and_misses()] == [compiled, loaded]
