"""Synthetic transformer graphs of any size, in the graph view's schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

FILE = "model/transformer.py"


@dataclass
class Builder:
    """Collects ops in program order; `add` returns the new op's index."""

    keys: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    operands: list[tuple[int, ...]] = field(default_factory=list)
    status: list[int] = field(default_factory=list)

    def add(
        self,
        kind: str,
        operands: tuple[int, ...] = (),
        type: str = "tensor<1x128x768xf32>",
        scope: str = "",
        attributes: str = "",
    ) -> int:
        index = len(self.keys)
        self.keys.append(index)
        self.names.append(f"%{index}")
        self.kinds.append(kind)
        self.types.append(type)
        self.scopes.append(scope)
        self.lines.append(10 + len(set(self.kinds[: index % 50])))
        self.attributes.append(attributes)
        self.operands.append(operands)
        self.status.append(0)
        return index

    def data(self, stage: str = "0", title: str = "import", **more: Any) -> dict[str, Any]:
        """The `data` of the graph view; columns are numpy arrays (they travel in the blob)."""
        kinds, kind = _table(self.kinds)
        types, type_ = _table(self.types)
        scopes, scope = _table(self.scopes)
        attributes, attribute = _table(self.attributes)
        counts = [len(operands) for operands in self.operands]
        ops = {
            "key": np.array(self.keys, np.int32),
            "name": self.names,
            "kind": kind,
            "type": type_,
            "scope": scope,
            "file": np.zeros(len(self.keys), np.int32),
            "line": np.array(self.lines, np.int32),
            "attribute": attribute,
            "status": np.array(self.status, np.uint8),
            "operand_start": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            "operand": np.array([o for each in self.operands for o in each], np.int32),
        }
        return {
            "stage": {"id": stage, "title": title},
            "kinds": kinds,
            "types": types,
            "scopes": scopes,
            "files": [FILE],
            "attributes": attributes,
            "ops": ops,
            **more,
        }


def _table(values: list[str]) -> tuple[list[str], np.ndarray]:
    index: dict[str, int] = {}
    column = [index.setdefault(value, len(index)) for value in values]
    return list(index), np.array(column, np.int32)


def transformer(layers: int, *, long_edges: bool = True, scopes: bool = True) -> Builder:
    """A lowered transformer encoder of about 62 ops a layer, weights included.

    `long_edges` adds the mask and the rotary tables, which every layer reads; without `scopes`
    all ops are in the root, as after a lowering that lost the names.
    """
    g = Builder()
    vector, square, wide = "tensor<768xf32>", "tensor<768x768xf32>", "tensor<768x3072xf32>"
    heads, scores = "tensor<1x12x128x64xf32>", "tensor<1x12x128x128xf32>"

    def at(path: str) -> str:
        return path if scopes else ""

    ids = g.add("argument", (), "tensor<1x128xi32>", "", "")
    shared = []
    if long_edges:
        shared = [g.add("argument", (), t) for t in (scores, heads, heads)]
    table = g.add("weight", (), "tensor<30522x768xf32>", at("embeddings"))
    h = g.add("gather", (table, ids), scope=at("embeddings"), attributes="axis = 0")

    def weight(type_: str, scope: str) -> int:
        return g.add("weight", (), type_, scope)

    def norm(x: int, scope: str) -> int:
        mean = g.add("reduce_mean", (x,), "tensor<1x128x1xf32>", scope, "axes = [2]")
        centred = g.add("subtract", (x, mean), scope=scope)
        squared = g.add("multiply", (centred, centred), scope=scope)
        variance = g.add("reduce_mean", (squared,), "tensor<1x128x1xf32>", scope, "axes = [2]")
        eps = g.add("constant", (), "tensor<f32>", scope, "value = 1e-12")
        shifted = g.add("add", (variance, eps), "tensor<1x128x1xf32>", scope)
        scale = g.add("rsqrt", (shifted,), "tensor<1x128x1xf32>", scope)
        normal = g.add("multiply", (centred, scale), scope=scope)
        scaled = g.add("multiply", (normal, weight(vector, scope)), scope=scope)
        return g.add("add", (scaled, weight(vector, scope)), scope=scope)

    def dense(x: int, scope: str, w: str = square, out: str = "tensor<1x128x768xf32>") -> int:
        product = g.add("matmul", (x, weight(w, scope)), out, scope)
        return g.add("add", (product, weight(vector, scope)), out, scope)

    h = norm(h, at("embeddings/norm"))
    for layer in range(layers):
        base = f"encoder/layer.{layer}"
        attention = at(f"{base}/attention")
        parts = []
        for name in ("query", "key", "value"):
            x = dense(h, at(f"{base}/attention/{name}"))
            x = g.add("reshape", (x,), "tensor<1x128x12x64xf32>", attention)
            parts.append(g.add("transpose", (x,), heads, attention, "permutation = [0, 2, 1, 3]"))
        q, k, v = parts
        if long_edges:
            q = g.add("multiply", (q, shared[1]), heads, attention)
            k = g.add("multiply", (k, shared[2]), heads, attention)
        k = g.add("transpose", (k,), "tensor<1x12x64x128xf32>", attention)
        s = g.add("matmul", (q, k), scores, attention)
        factor = g.add("constant", (), "tensor<f32>", attention, "value = 0.125")
        s = g.add("multiply", (s, factor), scores, attention)
        if long_edges:
            s = g.add("add", (s, shared[0]), scores, attention)
        high = g.add("reduce_max", (s,), "tensor<1x12x128x1xf32>", attention, "axes = [3]")
        s = g.add("subtract", (s, high), scores, attention)
        s = g.add("exp", (s,), scores, attention)
        total = g.add("reduce_sum", (s,), "tensor<1x12x128x1xf32>", attention, "axes = [3]")
        s = g.add("divide", (s, total), scores, attention)
        c = g.add("matmul", (s, v), heads, attention)
        c = g.add("transpose", (c,), "tensor<1x128x12x64xf32>", attention)
        c = g.add("reshape", (c,), scope=attention)
        c = dense(c, at(f"{base}/attention/output"))
        h = norm(g.add("add", (h, c), scope=at(base)), at(f"{base}/norm1"))
        mlp = at(f"{base}/mlp")
        x = dense(h, mlp, wide, "tensor<1x128x3072xf32>")
        half = g.add("constant", (), "tensor<f32>", mlp, "value = 0.70710678")
        e = g.add("multiply", (x, half), "tensor<1x128x3072xf32>", mlp)
        e = g.add("erf", (e,), "tensor<1x128x3072xf32>", mlp)
        one = g.add("constant", (), "tensor<f32>", mlp, "value = 1.0")
        e = g.add("add", (e, one), "tensor<1x128x3072xf32>", mlp)
        x = g.add("multiply", (x, e), "tensor<1x128x3072xf32>", mlp)
        x = dense(x, mlp, "tensor<3072x768xf32>")
        h = norm(g.add("add", (h, x), scope=at(base)), at(f"{base}/norm2"))
    g.add("output", (h,))
    return g


def sized(ops: int, *, long_edges: bool = True, scopes: bool = True) -> Builder:
    """A transformer graph of at least `ops` ops, as near as whole layers allow."""
    per_layer = len(transformer(2, long_edges=long_edges).keys) - len(
        transformer(1, long_edges=long_edges).keys
    )
    layers = -(-ops // per_layer)
    return transformer(layers, long_edges=long_edges, scopes=scopes)


def with_overlays(data: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """The same stage with a time, a byte and an error figure for each op (some not measured)."""
    n = len(data["ops"]["key"])
    random = np.random.default_rng(seed)
    time = (random.lognormal(2.0, 1.5, n)).astype(np.float32)
    time[random.random(n) < 0.2] = np.nan
    return {
        **data,
        "overlays": [
            {"name": "time", "unit": "µs", "values": time, "combine": "sum", "scale": "log"},
            {
                "name": "bytes",
                "unit": "B",
                "values": random.integers(4, 1 << 24, n).astype(np.float64),
                "combine": "sum",
                "scale": "log",
            },
            {
                "name": "error",
                "unit": "ulp",
                "values": random.exponential(3.0, n).astype(np.float32),
                "combine": "max",
                "scale": "linear",
            },
        ],
    }


def trained(layers: int) -> dict[str, Any]:
    """A transformer's graph as if its second half were the backward pass: the last op of the first
    half is the loss, and op n - 1 - i holds the gradient of op i where neither is a constant."""
    data = transformer(layers).data()
    ops = data["ops"]
    n = len(ops["key"])
    half = n // 2
    data["phases"] = ["forward", "loss", "recomputed", "backward", "exchange", "optimizer"]
    phase = np.where(np.arange(n) < half - 1, 0, np.where(np.arange(n) == half - 1, 1, 3))
    ops["phase"] = phase.astype(np.uint8)
    ends = [[n - 1 - i] if i < half else [] for i in range(n)]
    ops["link_start"] = np.concatenate([[0], np.cumsum([len(e) for e in ends])]).astype(np.int32)
    ops["link"] = np.array([end for some in ends for end in some], np.int32)
    return data
