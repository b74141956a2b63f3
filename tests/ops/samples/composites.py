"""Composites against torch.nn.functional (in f64) and formulas of the papers."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from core_compiler.ir import dtype
from tests.ops.samples.base import Sample, in_floats, sample, torch_oracle, values

#: activation -> (torch's function, attributes)
ACTIVATIONS = [
    ("relu", functional.relu, {}),
    ("clamp", lambda x: x.clamp(-0.5, 1.25), {"low": -0.5, "high": 1.25}),
    ("clamp", lambda x: x.clamp(min=0.25), {"low": 0.25}),
    ("clamp", functional.relu6, {"low": 0, "high": 6}),
    ("leaky_relu", lambda x: functional.leaky_relu(x, 0.125), {"slope": 0.125}),
    ("hard_sigmoid", functional.hardsigmoid, {}),
    ("hard_sigmoid", lambda x: (0.25 * x + 0.5).clamp(0, 1), {"alpha": 0.25}),
    ("hard_swish", functional.hardswish, {}),
    ("gelu", functional.gelu, {}),
    ("gelu", lambda x: functional.gelu(x, approximate="tanh"), {"approximate": "tanh"}),
    ("silu", functional.silu, {}),
    ("elu", lambda x: functional.elu(x, 0.75), {"alpha": 0.75}),
    ("selu", functional.selu, {}),
    ("celu", lambda x: functional.celu(x, 1.5), {"alpha": 1.5}),
    ("softplus", functional.softplus, {}),
    ("softplus", lambda x: functional.softplus(x, 2.0), {"beta": 2.0}),
    ("mish", functional.mish, {}),
    ("softsign", functional.softsign, {}),
]


def _activations() -> list[Sample]:
    x = values((7, 11), "f32", -8, 8)
    made = []
    for kind, function, attributes in ACTIVATIONS:
        label = "-".join(f"{k}{v}" for k, v in attributes.items())
        made += in_floats(
            kind, x, oracle=torch_oracle(function), label=label, slack=4, **attributes
        )
    whole = values((4, 5), "i32", -9, 9)
    made.append(sample("relu", whole, oracle=lambda x: np.maximum(x, 0), exact=True))
    made.append(sample("clamp", whole, oracle=lambda x: x.clip(-3, 4), exact=True, low=-3, high=4))
    return made


def _softmaxes() -> list[Sample]:
    made = []
    x = values((3, 5, 40), "f32", -30, 30)
    for axis in (0, 1, 2):
        for kind in ("softmax", "log_softmax"):
            function = getattr(functional, kind)
            made += in_floats(
                kind,
                x,
                oracle=torch_oracle(lambda x, f=function, a=axis: f(x, a)),
                axis=axis,
                label=f"axis{axis}",
                slack=8,
            )
    masked = x.copy()
    masked[0, 1, :] = -np.inf
    masked[1, 2, :7] = -np.inf
    made += in_floats(
        "softmax",
        masked,
        axis=2,
        label="masked",
        slack=8,
        oracle=torch_oracle(lambda x: functional.softmax(x, 2)),
    )
    made += in_floats(
        "softmax",
        masked,
        axis=2,
        label="zero",
        slack=8,
        empty_rows="zero",
        oracle=torch_oracle(lambda x: functional.softmax(x, 2).nan_to_num(0.0)),
    )
    for axes in ((2,), (0, 1)):
        made += in_floats(
            "logsumexp",
            masked,
            axes=axes,
            slack=8,
            oracle=torch_oracle(lambda x, a=axes: torch.logsumexp(x, a)),
        )
    infinite = masked.copy()
    infinite[2, 0, 3] = np.inf
    made += in_floats(
        "logsumexp",
        infinite,
        axes=(2,),
        slack=8,
        label="infinite",
        oracle=torch_oracle(lambda x: torch.logsumexp(x, 2)),
    )
    return made


def _statistics() -> list[Sample]:
    x = values((3, 6, 50), "f32", -1, 5)
    made = []
    for axes in ((0,), (2,), (1, 2), (0, 1, 2)):
        made += in_floats("mean", x, oracle=lambda x, a=axes: x.mean(a), axes=axes, slack=4)
        for correction in (0, 1):
            made += in_floats(
                "variance",
                x,
                axes=axes,
                correction=correction,
                slack=8,
                oracle=lambda x, a=axes, c=correction: x.var(a, ddof=c),
            )
            made += in_floats(
                "standard_deviation",
                x,
                axes=axes,
                correction=correction,
                slack=8,
                oracle=lambda x, a=axes, c=correction: x.std(a, ddof=c),
            )
        made += in_floats(
            "variance",
            x,
            axes=axes,
            plain=True,
            slack=8,
            label="plain",
            oracle=lambda x, a=axes: x.var(a),
        )
        made += in_floats(
            "centre", x, axes=axes, slack=8, oracle=lambda x, a=axes: x - x.mean(a, keepdims=True)
        )
    return made


def _normalisations() -> list[Sample]:
    x = values((4, 6, 5, 7), "f32", -1, 5)
    scale, bias = values((6,), "f32", 0.5, 2, "scale"), values((6,), key="bias")
    mean, variance = values((6,), "f32", -1, 3, "mean"), values((6,), "f32", 0.5, 4, "variance")
    made = []
    for axis in (1, 3):
        shape = x.shape[axis:]
        weights = values(shape, "f32", 0.5, 2, "w"), values(shape, key="b")
        for n in (0, 1, 2):
            made += in_floats(
                "layer_norm",
                x,
                *weights[:n],
                axis=axis,
                epsilon=1e-3,
                slack=8,
                label=f"axis{axis}with{n}",
                oracle=torch_oracle(
                    lambda x, *w, s=shape: functional.layer_norm(x, s, *w, eps=1e-3)
                ),
            )
        for n in (0, 1):
            made += in_floats(
                "rms_norm",
                x,
                *weights[:n],
                axis=axis,
                epsilon=1e-3,
                slack=8,
                label=f"axis{axis}with{n}",
                oracle=torch_oracle(lambda x, *w, s=shape: functional.rms_norm(x, s, *w, eps=1e-3)),
            )
    made += in_floats(
        "batch_norm",
        x,
        scale,
        bias,
        mean,
        variance,
        slack=8,
        oracle=torch_oracle(lambda x, s, b, m, v: functional.batch_norm(x, m, v, s, b)),
    )
    rows = values((5, 6), key="rows")
    made += in_floats(
        "batch_norm",
        rows,
        scale,
        bias,
        mean,
        variance,
        slack=8,
        label="rows",
        oracle=torch_oracle(lambda x, s, b, m, v: functional.batch_norm(x, m, v, s, b)),
    )
    for groups in (1, 2, 6):
        made += in_floats(
            "group_norm",
            x,
            scale,
            bias,
            groups=groups,
            slack=8,
            label=f"groups{groups}",
            oracle=torch_oracle(lambda x, s, b, g=groups: functional.group_norm(x, g, s, b)),
        )
    made += in_floats(
        "group_norm",
        x,
        groups=3,
        slack=8,
        label="plain",
        oracle=torch_oracle(lambda x: functional.group_norm(x, 3)),
    )
    made += in_floats(
        "instance_norm",
        x,
        scale,
        bias,
        slack=8,
        oracle=torch_oracle(lambda x, s, b: functional.instance_norm(x, weight=s, bias=b)),
    )
    made += _mixed_normalisations(x, (scale, bias, mean, variance))
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))

    def channels_last(norm):
        return torch_oracle(lambda x, *w: norm(x.movedim(-1, 1), *w).movedim(1, -1))

    made += in_floats(
        "group_norm",
        last,
        scale,
        bias,
        groups=3,
        axis=last.ndim - 1,
        slack=8,
        label="last",
        oracle=channels_last(lambda x, s, b: functional.group_norm(x, 3, s, b)),
    )
    made += in_floats(
        "instance_norm",
        last,
        scale,
        bias,
        axis=last.ndim - 1,
        slack=8,
        label="last",
        oracle=channels_last(lambda x, s, b: functional.instance_norm(x, weight=s, bias=b)),
    )
    return made


def _mixed_normalisations(x, channels) -> list[Sample]:
    """Narrow elements, f32 parameters and statistics."""
    scale, bias, mean, variance = channels
    weights = values((7,), "f32", 0.5, 2, "w"), values((7,), key="b")
    cases = [
        ("layer_norm", weights, {"axis": 3},
         lambda x, *w: functional.layer_norm(x, (7,), *w)),
        ("rms_norm", weights[:1], {"axis": 3, "epsilon": 1e-3},
         lambda x, w: functional.rms_norm(x, (7,), w, eps=1e-3)),
        ("batch_norm", (scale, bias, mean, variance), {},
         lambda x, s, b, m, v: functional.batch_norm(x, m, v, s, b)),
        ("group_norm", (scale, bias), {"groups": 2},
         lambda x, s, b: functional.group_norm(x, 2, s, b)),
        ("instance_norm", (scale, bias), {},
         lambda x, s, b: functional.instance_norm(x, weight=s, bias=b)),
    ]  # fmt: skip
    return [
        sample(
            kind,
            x.astype(dtype(name).numpy),
            *parameters,
            oracle=torch_oracle(function),
            slack=8,
            label=f"mixed-{name}",
            **attributes,
        )
        for kind, parameters, attributes, function in cases
        for name in ("bf16", "f16")
    ]


def _attentions() -> list[Sample]:
    attend = functional.scaled_dot_product_attention
    q, k = values((2, 3, 6, 8), key="q"), values((2, 3, 9, 8), key="k")
    v = values((2, 3, 9, 5), key="v")
    seen, added = values((2, 1, 6, 9), "i1"), values((6, 9), key="mask")
    seen[..., 0] = True
    blind = seen.copy()
    blind[0, 0, 2] = False
    made = in_floats("attention", q, k, v, oracle=torch_oracle(attend), label="plain", slack=8)
    made += in_floats(
        "attention",
        q,
        k,
        v,
        scale=0.3,
        label="scale",
        slack=8,
        oracle=torch_oracle(lambda *a: attend(*a, scale=0.3)),
    )
    made += in_floats(
        "attention", q, k, v, seen, label="seen", slack=8, oracle=torch_oracle(attend)
    )
    made += in_floats(
        "attention",
        q,
        k,
        v,
        blind,
        label="blind",
        slack=8,
        empty_rows="zero",
        oracle=torch_oracle(attend),
    )
    made += in_floats(
        "attention", q, k, v, added, label="added", slack=8, oracle=torch_oracle(attend)
    )
    for name in ("bf16", "f16"):  # a mask of the dtype of the scores
        narrow = (a.astype(dtype(name).numpy) for a in (q, k, v))
        made.append(
            sample("attention", *narrow, added, label="wide", slack=8, oracle=torch_oracle(attend))
        )
    made += in_floats(
        "attention",
        q,
        k,
        v,
        causal=True,
        label="causal",
        slack=8,
        oracle=torch_oracle(lambda *a: attend(*a, is_causal=True)),
    )

    def hidden_by_number(q, k, v, seen):  # all keys hidden: equal shares
        scores = torch.where(seen, q @ k.mT / 8**0.5, -1e4)
        return torch.softmax(scores, -1) @ v

    made += in_floats(
        "attention",
        q,
        k,
        v,
        blind,
        label="hidden",
        slack=8,
        hidden=-1e4,
        oracle=torch_oracle(hidden_by_number),
    )
    return made


def _rotaries() -> list[Sample]:
    """Halves as in transformers, neighbours as in the paper (equation 34); angles of every element,
    and shared by axes of one."""

    def halves(x, cos, sin):
        u, v = x.chunk(2, -1)
        return x * cos + torch.cat([-v, u], -1) * sin

    def neighbours(x, cos, sin):
        u, v = x[..., ::2], x[..., 1::2]
        return x * cos + torch.stack([-v, u], -1).reshape(x.shape) * sin

    x, made = values((2, 3, 5, 8), key="x"), []
    for shape in ((2, 3, 5, 8), (1, 1, 5, 8)):
        cos, sin = values(shape, key="cos"), values(shape, key="sin")
        label = "shared" if shape[0] == 1 else "own"
        made += in_floats(
            "rotary_embedding", x, cos, sin, label=label, slack=4, oracle=torch_oracle(halves)
        )
        made += in_floats(
            "rotary_embedding",
            x,
            cos,
            sin,
            label=f"{label}-neighbours",
            slack=4,
            interleaved=True,
            oracle=torch_oracle(neighbours),
        )
    return made


def _losses() -> list[Sample]:
    made = []
    for tail in ((), (4,), (3, 2)):
        x = values((5, 7, *tail), "f32", -4, 4)
        targets = values((5, *tail), "i64", 0, 6, "targets")
        ignoring = targets.copy()
        ignoring.ravel()[:2] = -100
        weight = values((7,), "f32", 0.5, 2, "weight")
        for reduction in ("mean", "sum", "none"):
            options = {"reduction": reduction}
            for kind in ("nll_loss", "cross_entropy"):
                function = getattr(functional, kind)
                oracle = torch_oracle(lambda *a, f=function, o=options: f(*a, **o))
                for operands in ((x, ignoring), (x, ignoring, weight)):
                    made += in_floats(
                        kind,
                        *operands,
                        oracle=oracle,
                        slack=8,
                        **options,
                        label=f"{reduction}{len(tail)}-{len(operands)}",
                    )
            options = {"reduction": reduction, "label_smoothing": 0.2}
            for with_weight in (False, True):
                operands = (x, ignoring, weight) if with_weight else (x, ignoring)
                made += in_floats(
                    "cross_entropy",
                    *operands,
                    slack=8,
                    **options,
                    label=f"smooth{reduction}",
                    oracle=torch_oracle(lambda *a, o=options: functional.cross_entropy(*a, **o)),
                )
    x, y = values((4, 6), key="x"), values((4, 6), key="y")
    for reduction in ("mean", "sum", "none"):
        made += in_floats(
            "mse_loss",
            x,
            y,
            reduction=reduction,
            slack=8,
            oracle=torch_oracle(lambda x, y, r=reduction: functional.mse_loss(x, y, reduction=r)),
        )
    shares = values((4, 6), "f32", 0.05, 0.95, "shares")
    made += in_floats(
        "binary_cross_entropy",
        shares,
        np.clip(np.abs(y), 0, 1),
        slack=8,
        oracle=torch_oracle(lambda x, y: functional.binary_cross_entropy(x, y, reduction="none")),
    )
    labels = values((3, 4), "i64", 0, 4)
    made.append(
        sample(
            "one_hot",
            labels,
            oracle=torch_oracle(lambda x: functional.one_hot(x, 5)),
            exact=True,
            classes=5,
        )
    )
    made.append(
        sample(
            "one_hot",
            labels.astype(np.int8),
            exact=True,
            classes=3,
            dtype="bf16",
            oracle=lambda x: np.eye(9)[x][..., :3],
            label="out-of-range",
        )
    )
    return made


SAMPLES = [
    *_activations(),
    *_softmaxes(),
    *_statistics(),
    *_normalisations(),
    *_attentions(),
    *_rotaries(),
    *_losses(),
]
