"""Composites as frameworks hand them over: what each of them becomes, before and after recompose.

``python -m tests.passes.forms`` writes the table of docs/recompose.md.  The column "before" was
measured with the rules of commit 3bea66f (forms_before.json holds it).
"""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import core_compiler as cc
from core_compiler.ir import Module

BEFORE = Path(__file__).with_name("forms_before.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "recompose.md"
#: The last stage of the meaning half: what is raised then is what targets see.
LAST = "eliminate_dead_code#2"


@dataclass(frozen=True)
class Form:
    """``make()`` answers (model, inputs); ``kinds`` are the composites that it is, () where it is
    none: ``why`` says so then."""

    source: str
    name: str
    kinds: tuple[str, ...]
    make: Callable[[], tuple[Any, Any]]
    why: str = ""

    @property
    def label(self) -> str:
        return f"{self.source}: {self.name}"


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


X = (2, 3, 64)
TARGETS = np.array([1, 2, 3, 9], np.int64)
DECOMPOSE = "decompose takes it apart on purpose: other passes want to see its parts"
OUT_OF_RANGE = "targets out of range give NaN here, and a number in cross_entropy"

# -- jax -------------------------------------------------------------------------------------------


def _jax_functions() -> Iterator[Form]:
    import jax
    import jax.numpy as jnp
    from jax.nn import dot_product_attention as attention

    def form(name, kinds, function, *arrays, why=""):
        kinds = (kinds,) if isinstance(kinds, str) else kinds
        return Form("jax", name, kinds, lambda: (function, arrays), why)

    def layer_norm(x, scale, bias):
        mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias

    def flax_layer_norm(fast, x, scale, bias):  # as flax.linen.LayerNorm computes it
        mean = jnp.mean(x, -1, keepdims=True)
        if fast:
            square = jnp.mean(jax.lax.square(x), -1, keepdims=True)
            variance = jnp.maximum(0.0, square - jax.lax.square(mean))
        else:
            variance = jnp.mean(jax.lax.square(x - mean), -1, keepdims=True)
        return (x - mean) * (jax.lax.rsqrt(variance + 1e-6) * scale) + bias

    def flax_group_norm(x, scale, bias):
        n, h, w, c = x.shape
        groups = x.reshape(n, h, w, 2, c // 2)
        mean = jnp.mean(groups, (1, 2, 4), keepdims=True)
        square = jnp.mean(jax.lax.square(groups), (1, 2, 4), keepdims=True)
        variance = jnp.maximum(0.0, square - jax.lax.square(mean))
        made = ((groups - mean) * jax.lax.rsqrt(variance + 1e-6)).reshape(x.shape)
        return made * scale + bias

    def flax_batch_norm(x, scale, bias, mean, variance):
        return (x - mean) * (jax.lax.rsqrt(variance + 1e-5) * scale) + bias

    def rms_norm(x, scale):
        return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6) * scale

    def flax_rms_norm(x, scale):
        return x * (jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6) * scale)

    def gemma_rms_norm(x, scale):
        square = jnp.mean(jnp.square(x), -1, keepdims=True)
        return (x * jax.lax.rsqrt(square + 1e-6)) * (1 + scale)

    def rotary_halves(x, cos, sin):
        u, v = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([u * cos - v * sin, v * cos + u * sin], axis=-1)

    def rotary_neighbours(x, cos, sin):
        u, v = x[..., ::2], x[..., 1::2]
        return jnp.stack([u * cos - v * sin, u * sin + v * cos], axis=-1).reshape(x.shape)

    def flax_attention(q, k, v, mask=None):
        q = q / jnp.sqrt(q.shape[-1]).astype(q.dtype)
        scores = jnp.einsum("...qhd,...khd->...hqk", q, k)
        if mask is not None:
            scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
        return jnp.einsum("...hqk,...khd->...qhd", jax.nn.softmax(scores), v)

    def heads_first(q, k, v):
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(8)
        scores = jnp.where(jnp.tril(jnp.ones((5, 5), bool)), scores, -jnp.inf)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)

    def capped(q, k, v):
        scores = 30 * jnp.tanh(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 30)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)

    def loss_of_integers(logits, targets):  # as optax has it
        picked = jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
        return jax.nn.logsumexp(logits, axis=-1) - picked

    def loss_of_one_hot(logits, targets):
        return -jnp.mean(jnp.sum(jax.nn.one_hot(targets, 10) * jax.nn.log_softmax(logits), -1))

    x, c, logits = numbers(*X), numbers(64), numbers(4, 10)
    image, channels = numbers(2, 4, 4, 6), numbers(6)
    q, k = numbers(2, 5, 4, 8), numbers(2, 7, 4, 8, seed=1)
    shared = numbers(2, 5, 2, 8, seed=1)
    plain = [
        ("silu", "silu"),
        ("relu", "relu"),
        ("relu6", "clamp"),
        ("elu", "elu"),
        ("selu", "selu"),
        ("softplus", "softplus"),
        ("mish", "mish"),
        ("soft_sign", "softsign"),
        ("hard_sigmoid", "hard_sigmoid"),
        ("hard_swish", "hard_swish"),
        ("hard_tanh", "clamp"),
        ("leaky_relu", "leaky_relu"),
        ("softmax", "softmax"),
        ("log_softmax", "log_softmax"),
    ]
    for name, kind in plain:
        yield form(f"nn.{name}", kind, getattr(jax.nn, name), x)
    yield form("nn.elu(alpha=0.7)", "elu", lambda x: jax.nn.elu(x, 0.7), x)
    yield form("nn.celu(alpha=0.7)", (), lambda x: jax.nn.celu(x, 0.7), x, why=DECOMPOSE)
    yield form("nn.logsumexp", (), lambda x: jax.nn.logsumexp(x, -1), x, why=DECOMPOSE)
    yield form("nn.gelu(approximate=False)", "gelu", partial(jax.nn.gelu, approximate=False), x)
    yield form("nn.gelu(approximate=True)", "gelu", partial(jax.nn.gelu, approximate=True), x)
    yield form("nn.standardize", "layer_norm", jax.nn.standardize, x)
    yield form("nn.one_hot", "one_hot", lambda i: jax.nn.one_hot(i, 5), TARGETS.astype(np.int32))
    yield form("jnp.mean", "mean", lambda x: jnp.mean(x, 1), x)
    yield form("layer norm with jnp.var", "layer_norm", layer_norm, x, c, c)
    yield form("flax LayerNorm", "layer_norm", partial(flax_layer_norm, True), x, c, c)
    yield form(
        "flax LayerNorm(use_fast_variance=False)",
        "layer_norm",
        partial(flax_layer_norm, False),
        x,
        c,
        c,
    )
    yield form("flax GroupNorm", "group_norm", flax_group_norm, image, channels, channels)
    yield form(
        "flax BatchNorm(use_running_average=True)",
        "batch_norm",
        flax_batch_norm,
        image,
        *[channels] * 3,
        np.abs(channels),
    )
    yield form("RMS norm", "rms_norm", rms_norm, x, c)
    yield form("flax RMSNorm", "rms_norm", flax_rms_norm, x, c)
    yield form("Gemma's RMS norm, 1 + scale", "rms_norm", gemma_rms_norm, x, c)
    yield form("nn.dot_product_attention", "attention", attention, q, k, k)
    causal = partial(attention, is_causal=True)
    yield form("nn.dot_product_attention(is_causal=True)", "attention", causal, q, q, q)
    masked = lambda q, k, v, m: attention(q, k, v, mask=m)  # noqa: E731
    biased = lambda q, k, v, m: attention(q, k, v, bias=m)  # noqa: E731
    seen, bias = numbers(2, 1, 5, 7) > 0, numbers(2, 4, 5, 7)
    yield form("nn.dot_product_attention(mask)", "attention", masked, q, k, k, seen)
    yield form("nn.dot_product_attention(bias)", "attention", biased, q, k, k, bias)
    yield form("nn.dot_product_attention, 2 of 4 heads", "attention", attention, q, shared, shared)
    yield form(
        "nn.dot_product_attention(is_causal=True), 2 of 4 heads",
        "attention",
        causal,
        q,
        shared,
        shared,
    )
    yield form("flax dot_product_attention", "attention", flax_attention, q, k, k)
    yield form(
        "flax dot_product_attention(mask)",
        "attention",
        flax_attention,
        q,
        k,
        k,
        numbers(2, 1, 5, 7) > 0,
    )
    yield form("bhqd, tril", "attention", heads_first, *[numbers(2, 4, 5, 8)] * 3)
    yield form(
        "attention with capped scores",
        (),
        capped,
        q,
        k,
        k,
        why="core.tanh is between the product and its softmax",
    )
    turned, (cos, sin) = numbers(2, 4, 5, 8), numbers(2, 5, 4)
    yield form("rotary embedding of halves", "rotary_embedding", rotary_halves, turned, cos, sin)
    yield form(
        "rotary embedding of neighbours", "rotary_embedding", rotary_neighbours, turned, cos, sin
    )
    yield form("squared error", "mse_loss", lambda a, b: jnp.mean(jnp.square(a - b)), x, x + 1)
    yield form(
        "optax softmax_cross_entropy_with_integer_labels",
        (),
        loss_of_integers,
        logits,
        TARGETS.astype(np.int32),
        why=OUT_OF_RANGE,
    )
    yield form(
        "cross entropy with nn.one_hot",
        (),
        loss_of_one_hot,
        logits,
        TARGETS.astype(np.int32),
        why="a target out of range gives 0 here",
    )
    yield Form(
        "StableHLO",
        "nn.gelu(approximate=False), serialised",
        ("gelu",),
        partial(_serialised, partial(jax.nn.gelu, approximate=False), x),
    )
    yield Form(
        "StableHLO",
        "x (1 + erf) / 2, serialised",
        ("gelu",),
        partial(_serialised, lambda x: 0.5 * x * (1 + jax.lax.erf(x / np.float32(np.sqrt(2)))), x),
    )


def _serialised(function, x):
    """The function as a program that anybody may have written to a file."""
    import jax

    exported = jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct(x.shape, x.dtype))
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"form-{os.getpid()}.mlir"
    path.write_text(exported.mlir_module())
    return path, (x,)


# -- keras -----------------------------------------------------------------------------------------


def _keras_layers() -> Iterator[Form]:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras
    from keras import layers

    def form(name, kinds, layer, shape, why=""):
        def make():
            given = keras.Input(shape)
            model = keras.Model(given, layer()(given))
            random = np.random.default_rng(0)
            for weight in model.weights:
                weight.assign(random.uniform(0.5, 1.5, weight.shape).astype("float32"))
            return model, (numbers(2, *shape),)

        kinds = (kinds,) if isinstance(kinds, str) else kinds
        return Form("keras", name, kinds, make, why)

    def attended(layer, **options):
        return lambda: lambda x: layer(x, x, **options)

    rows, image = (3, 64), (4, 4, 6)
    yield form("LayerNormalization", "layer_norm", layers.LayerNormalization, rows)
    both = partial(layers.LayerNormalization, axis=(1, 2))
    yield form("LayerNormalization(axis=(1, 2))", "layer_norm", both, rows)
    yield form("RMSNormalization", "rms_norm", layers.RMSNormalization, rows)
    yield form("GroupNormalization(2)", "group_norm", partial(layers.GroupNormalization, 2), image)
    yield form(
        "GroupNormalization(2, axis=1)",
        "group_norm",
        partial(layers.GroupNormalization, 2, axis=1),
        (6, 4, 4),
    )
    yield form(
        "GroupNormalization(-1)", "instance_norm", partial(layers.GroupNormalization, -1), image
    )
    yield form(
        "BatchNormalization",
        (),
        layers.BatchNormalization,
        image,
        why="its statistics are constants: folded to one product and one sum",
    )
    yield form("Softmax", "softmax", layers.Softmax, rows)
    for name, kind in (
        ("gelu", "gelu"),
        ("silu", "silu"),
        ("hard_silu", "hard_swish"),
        ("elu", "elu"),
        ("selu", "selu"),
        ("mish", "mish"),
        ("relu6", "clamp"),
        ("softplus", "softplus"),
        ("log_softmax", "log_softmax"),
    ):
        yield form(f"Activation({name!r})", kind, partial(layers.Activation, name), rows)
    for causal in (False, True):
        text = "use_causal_mask=True" if causal else ""
        options = {"use_causal_mask": True} if causal else {}
        yield form(
            f"MultiHeadAttention(2, 4), {text or 'all'}",
            "attention",
            attended(layers.MultiHeadAttention(2, 4), **options),
            (5, 64),
        )
        yield form(
            f"GroupQueryAttention(4, 4, 2), {text or 'all'}",
            "attention",
            attended(layers.GroupQueryAttention(4, 4, 2), **options),
            (5, 64),
        )
    yield form("Attention", "attention", lambda: lambda x: layers.Attention()([x, x]), (5, 64))


# -- torch, after run_decompositions() -------------------------------------------------------------


def _torch_modules() -> Iterator[Form]:
    import torch
    from torch import nn
    from torch.nn import functional
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as rotary

    class Of(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def forward(self, *given):
            return self.function(*given)

    def form(name, kinds, module, *arrays, why=""):
        def make():
            for parameter in module.parameters():
                nn.init.uniform_(parameter, 0.5, 1.5)
            given = tuple(map(torch.from_numpy, arrays))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = torch.export.export(module.eval(), given)
                return program.run_decompositions(), arrays

        kinds = (kinds,) if isinstance(kinds, str) else kinds
        return Form("torch", name, kinds, make, why)

    def complex_rotary(x, angles):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        turns = torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(pairs * turns).flatten(-2)

    x, image = numbers(*X), numbers(2, 6, 4, 4)
    q, k = numbers(2, 4, 5, 8), numbers(2, 4, 7, 8, seed=1)
    logits, sdpa = numbers(4, 10), functional.scaled_dot_product_attention
    modules = [
        (nn.LayerNorm(64), "layer_norm", x),
        (nn.RMSNorm(64), "rms_norm", x),
        (nn.BatchNorm2d(6), "batch_norm", image),
        (nn.GroupNorm(2, 6), "group_norm", image),
        (nn.InstanceNorm2d(6, affine=True), "instance_norm", image),
        (nn.Softmax(-1), "softmax", x),
        (nn.GELU(), "gelu", x),
        (nn.GELU("tanh"), "gelu", x),
        (nn.SiLU(), "silu", x),
        (nn.Hardswish(), "hard_swish", x),
        (nn.Hardsigmoid(), "hard_sigmoid", x),
        (nn.ReLU6(), "clamp", x),
        (nn.SELU(), "selu", x),
        (nn.ELU(0.7), "elu", x),
        (nn.Softplus(), "softplus", x),
        (nn.Softplus(2.0), "softplus", x),
        (nn.Mish(), "mish", x),
        (nn.Softsign(), "softsign", x),
        (nn.LeakyReLU(0.1), "leaky_relu", x),
    ]
    for module, kind, given in modules:
        yield form(str(module), kind, module, given)
    yield form("Softmin()", (), nn.Softmin(-1), x, why=DECOMPOSE)
    for options in (
        {},
        {"reduction": "sum"},
        {"reduction": "none"},
        {"label_smoothing": 0.1},
        {"weight": torch.linspace(0.5, 1.5, 10)},
    ):
        told = ", ".join(f"{n}=.." if n == "weight" else f"{n}={v!r}" for n, v in options.items())
        yield form(
            f"CrossEntropyLoss({told})",
            "cross_entropy",
            nn.CrossEntropyLoss(**options),
            logits,
            TARGETS,
        )
    yield form("NLLLoss()", "nll_loss", nn.NLLLoss(), logits, TARGETS)
    yield form("MSELoss()", "mse_loss", nn.MSELoss(), logits, logits + 1)
    yield form("one_hot", "one_hot", Of(lambda i: functional.one_hot(i, 10)), TARGETS)
    yield form("scaled_dot_product_attention", "attention", Of(sdpa), q, k, k)
    causal = Of(lambda q, k, v: sdpa(q, k, v, is_causal=True))
    yield form("scaled_dot_product_attention(is_causal)", "attention", causal, q, q, q)
    masked, seen = Of(lambda q, k, v, m: sdpa(q, k, v, m)), numbers(2, 1, 5, 7) > 0
    yield form("scaled_dot_product_attention(mask)", "attention", masked, q, k, k, seen)
    yield form(
        "scaled_dot_product_attention(enable_gqa)",
        "attention",
        Of(lambda q, k, v: sdpa(q, k, v, enable_gqa=True)),
        q,
        k[:, :2].copy(),
        k[:, :2].copy(),
    )
    turned, angles = numbers(2, 4, 5, 8), numbers(2, 5, 8)
    yield form(
        "transformers apply_rotary_pos_emb",
        "rotary_embedding",
        Of(rotary),
        turned,
        turned,
        angles,
        angles + 1,
    )
    yield form(
        "rotary embedding by complex numbers",
        "rotary_embedding",
        Of(complex_rotary),
        turned,
        numbers(5, 4),
    )
    yield form(
        "MultiheadAttention, which returns its shares too",
        (),
        nn.MultiheadAttention(8, 2, batch_first=True),
        *[numbers(2, 3, 8)] * 3,
        why="the result of this core.softmax has other uses",
    )


# -- ONNX: the bodies that the standard gives its functions, and old exports -----------------------


def _body(kind: str, opset: int, arrays, body: int = 0, **attributes):
    """A model of one node, its standard's body in its place; ``body``: the opset that it is of."""
    import onnx
    from onnx import TensorProto, helper, inliner

    names = [f"i{i}" for i in range(len(arrays))]
    node = helper.make_node(kind, names, ["o"], **attributes)
    types = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, arrays, strict=True)
    ]
    schema = onnx.defs.get_schema(kind, opset)
    if schema.has_context_dependent_function:
        text = schema.get_context_dependent_function_with_opset_version(
            schema.since_version,
            node.SerializeToString(),
            [t.type.SerializeToString() for t in types],
        )
    else:
        text = schema.get_function_with_opset_version(body or schema.since_version)
    function = onnx.FunctionProto.FromString(text)
    function.domain, node.domain = "form", "form"
    given = {a.name for a in node.attribute}
    node.attribute.extend(
        a.default_value
        for a in schema.attributes.values()
        if a.name not in given and a.default_value.type
    )
    graph = helper.make_graph(
        [node], "g", types, [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)]
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("form", 1)]
    model = helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=10)
    inlined = inliner.inline_local_functions(model)
    assert all(n.domain != "form" for n in inlined.graph.node)
    return inlined, arrays


def _legacy(module, opset: int, *arrays):
    """What torch's first exporter writes, from the days of opset 9."""
    import onnx
    import torch

    for parameter in module.parameters():
        torch.nn.init.uniform_(parameter, 0.5, 1.5)
    held = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            tuple(map(torch.from_numpy, arrays)),
            held,
            opset_version=opset,
            dynamo=False,
        )
    return onnx.load_from_string(held.getvalue()), arrays


def _onnx_models() -> Iterator[Form]:
    x, c, image, channels = numbers(*X), numbers(64), numbers(2, 6, 4, 4), numbers(6)
    q, k = numbers(2, 4, 5, 8), numbers(2, 4, 7, 8, seed=1)
    logits = numbers(4, 10)
    bodies = [
        ("Softmax", 13, "softmax", [x], {}),
        ("LogSoftmax", 13, "log_softmax", [x], {}),
        ("LayerNormalization", 17, "layer_norm", [x, c, c], {}),
        ("LayerNormalization", 17, "layer_norm", [x, numbers(3, 64), numbers(3, 64)], {"axis": 1}),
        ("RMSNormalization", 23, "rms_norm", [x, c], {}),
        ("GroupNormalization", 21, "group_norm", [image, channels, channels], {"num_groups": 2}),
        ("GroupNormalization", 18, "instance_norm", [image, c[:2], c[:2]], {"num_groups": 2}),
        ("Gelu", 20, "gelu", [x], {}),
        ("Gelu", 20, "gelu", [x], {"approximate": "tanh"}),
        ("Elu", 18, "elu", [x], {"alpha": 0.7}),
        ("Selu", 18, "selu", [x], {}),
        ("HardSigmoid", 18, "hard_sigmoid", [x], {}),
        ("HardSwish", 14, "hard_swish", [x], {}),
        ("LeakyRelu", 16, "leaky_relu", [x], {"alpha": 0.1}),
        ("Mish", 18, "mish", [x], {}),
        ("Relu", 18, "relu", [x], {}),
        ("Softsign", 18, "softsign", [x], {}),
        ("Swish", 24, "silu", [x], {}),
        ("NegativeLogLikelihoodLoss", 13, "nll_loss", [logits, TARGETS], {}),
        ("SoftmaxCrossEntropyLoss", 13, "cross_entropy", [logits, TARGETS], {}),
        ("RotaryEmbedding", 23, "rotary_embedding", [q, *[numbers(2, 5, 4)] * 2], {}),
        (
            "RotaryEmbedding",
            23,
            "rotary_embedding",
            [q, *[numbers(2, 5, 4)] * 2],
            {"interleaved": 1},
        ),
        ("Attention", 23, "attention", [q, k, k], {}),
        ("Attention", 23, "attention", [q, q, q], {"is_causal": 1}),
        ("Attention", 23, "attention", [q, q, q, numbers(5, 5)], {}),
        ("Attention", 23, "attention", [q, q[:, :2].copy(), q[:, :2].copy()], {}),
    ]
    for kind, opset, composite, arrays, attributes in bodies:
        told = ", ".join(
            [
                *(f"{n}={v!r}" for n, v in attributes.items()),
                *(["mask"] if kind == "Attention" and len(arrays) == 4 else []),
                *(["2 of 4 heads"] if kind == "Attention" and arrays[1].shape[1] == 2 else []),
            ]
        )
        name = f"body of {kind} {opset}" + (f" ({told})" if told else "")
        body = 18 if opset == 18 else 0
        make = partial(_body, kind, opset, arrays, body, **attributes)
        yield Form("ONNX", name, (composite,), make)
    yield Form(
        "ONNX",
        "body of Softplus 18",
        (),
        partial(_body, "Softplus", 18, [x], 18),
        "log(exp(x) + 1) overflows where softplus does not",
    )
    yield Form("ONNX", "body of Celu 12", (), partial(_body, "Celu", 12, [x]), DECOMPOSE)

    from torch import nn

    exports = [
        (nn.LayerNorm(64), 9, "layer_norm", x),
        (nn.GELU(), 9, "gelu", x),
        (nn.GELU("tanh"), 9, "gelu", x),
        (nn.SiLU(), 9, "silu", x),
        (nn.Hardswish(), 9, "hard_swish", x),
        (nn.Mish(), 9, "mish", x),
        (nn.GroupNorm(2, 6), 9, "group_norm", image),
        (nn.Softsign(), 9, "softsign", x),
        (nn.ReLU6(), 9, "clamp", x),
    ]
    for module, opset, composite, given in exports:
        make = partial(_legacy, module, opset, given)
        yield Form("ONNX", f"export of {module} to opset {opset}", (composite,), make)

    class Causal(nn.Module):
        def forward(self, q, k, v):
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    yield Form(
        "ONNX",
        "export of scaled_dot_product_attention(is_causal) to opset 14",
        ("attention",),
        partial(_legacy, Causal(), 14, q, q, q),
    )


SOURCES = {
    "jax": _jax_functions,
    "keras": _keras_layers,
    "torch": _torch_modules,
    "onnx": _onnx_models,
}


def forms(*sources: str) -> list[Form]:
    return [form for source in sources or SOURCES for form in SOURCES[source]()]


# -- what becomes of them --------------------------------------------------------------------------


def compiled(form: Form, check: bool = False) -> cc.compiler.Compilation:
    """The compilation of a form up to the end of the meaning half."""
    model, arrays = form.make()
    made = cc.compile(model, arrays, finish=False, check=check)
    while made.stages[-1].name != LAST:
        made.step()
    return made


def kinds(module: Module) -> set[str]:
    return {op.kind.partition(".")[2] for op in module.main.body.ops}


def is_raised(form: Form, module: Module) -> bool:
    return bool(form.kinds) and set(form.kinds) <= kinds(module)


_HEAD = "| from | form | composite | before | now |\n|---|---|---|---|---|\n"


def table(now: dict[str, bool]) -> str:
    """The table of docs/recompose.md from what is raised now."""
    before = json.loads(BEFORE.read_text())
    rows = []
    for form in forms():
        answer = {True: "raised", False: "no"}
        end = answer[now[form.label]] if form.kinds else f"no: {form.why}"
        composite = ", ".join(form.kinds) or "none"
        rows.append(
            f"| {form.source} | {form.name} | {composite} | "
            f"{answer[before[form.label]]} | {end} |\n"
        )
    return _HEAD + "".join(rows)


def main() -> None:
    """Measure all forms and put the table into the page (or, of other rules, write the JSON)."""
    import sys

    now = {form.label: is_raised(form, compiled(form).stages[-1].module) for form in forms()}
    if sys.argv[1:] == ["--before"]:
        BEFORE.write_text(json.dumps(now, indent=1) + "\n")
        return
    head, mark, rest = PAGE.read_text().partition("<!-- forms -->\n")
    _, end, tail = rest.partition("<!-- end -->\n")
    PAGE.write_text(head + mark + table(now) + end + tail)


if __name__ == "__main__":
    main()
