"""Loss of post-training quantisation beside onnxruntime's quantize_static, in decibels.

    python -m benchmarks.quantisation [MODEL ...] [-o benchmarks/results/quantisation.json]

Each sample model is quantised on the same samples with the same method by both, and compared with
torch in f32 on other inputs: the mean signal-to-noise ratio of the first result. onnxruntime has
QDQ nodes, bytes with signs, a scale for each channel of symmetric weights, and runs without its
rewrites. ``gain`` is the mean of the differences to onnxruntime on each input, ``uncertainty`` its
standard error. The rows with other options have no counterpart: their gain is to the same method.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.pipelines.quantization import Quantization

#: Samples that ranges are observed on, and inputs that losses are measured on.
SAMPLES, HELD_OUT = 4, 96
#: Sizes at which each model is quantised.
SIZES: Mapping[str, Mapping[str, Any]] = {
    "resnet18": {},
    "vit-b16": {"width": 0.5, "depth": 4, "image": 96},
    "bert-base": {"width": 0.5, "depth": 4, "sequence": 64},
    "gpt2": {"width": 0.5, "depth": 4, "sequence": 64},
}
Samples = Sequence[tuple[np.ndarray, ...]]
PERCENTILE = 99.99
METHODS = {"minmax": "MinMax", "percentile": "Percentile", "entropy": "Entropy"}
#: Options of ours without a counterpart, all with minmax ranges.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "gptq": {"rounding": "gptq"},
    "keep 2": {"keep_float": 2},
    "gptq, keep 4": {"rounding": "gptq", "keep_float": 4},
    "all, keep 4": {
        "rounding": "gptq",
        "correct_bias": True,
        "equalise": True,
        "smooth": 0.5,
        "keep_float": 4,
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(SIZES))
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in given.models:
        for row in _rows(name):
            rows.append(row)
            print(" ".join(f"{k} {v}" for k, v in row.items()), flush=True)
            if given.output:
                _write(given.output, rows)


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to those in a file, in the place of those of the same model and method."""
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    by_key = {(row["model"], row["method"]): row for row in (*before, *rows)}
    found = {
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": {n: version(n) for n in ("numpy", "onnx", "onnxruntime", "torch")},
        "samples": SAMPLES,
        "held_out": HELD_OUT,
        "percentile": PERCENTILE,
        "sizes": SIZES,
        "rows": list(by_key.values()),
    }
    path.write_text(json.dumps(found, indent=1) + "\n")


def _rows(name: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each method and each further configuration."""
    from sample_models.catalogue import build

    sizes = SIZES.get(name, {})
    built = build(name, **sizes)
    every = [
        tuple(t.numpy() for t in built.make_inputs(seed)) for seed in range(SAMPLES + HELD_OUT)
    ]
    samples, held_out = every[:SAMPLES], every[SAMPLES : SAMPLES + HELD_OUT]
    exact = [_first(built.module(*built.make_inputs(SAMPLES + i))) for i in range(HELD_OUT)]
    theirs: dict[str, np.ndarray] = {}
    for method in METHODS:
        options = {"method": method, "percentile": PERCENTILE}
        ours = _losses(exact, _ours(built, options, samples, held_out))
        try:
            theirs[method] = _losses(exact, _onnxruntime(name, built, method, samples, held_out))
        except ValueError as error:  # a histogram of a mask
            row = {"model": name, "method": method, "onnxruntime": str(error)}
            yield {**row, "ours_db": round(float(ours.mean()), 2)}
            continue
        yield _row(name, method, theirs[method], ours)
    for label, options in OPTIONS.items():
        ours = _losses(exact, _ours(built, options, samples, held_out))
        yield _row(name, f"minmax, {label}", theirs["minmax"], ours)


def _row(name: str, label: str, theirs: np.ndarray, ours: np.ndarray) -> dict[str, Any]:
    gain = ours - theirs
    return {
        "model": name,
        "method": label,
        "onnxruntime_db": round(float(theirs.mean()), 2),
        "ours_db": round(float(ours.mean()), 2),
        "gain_db": round(float(gain.mean()), 2),
        "uncertainty_db": round(float(gain.std(ddof=1) / len(gain) ** 0.5), 2),
    }


def _first(result: Any) -> np.ndarray:
    return (result[0] if isinstance(result, tuple) else result).detach().numpy()


def _losses(exact: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> np.ndarray:
    """Return the signal-to-noise ratio in decibels for each input."""
    ratios = [
        (a.astype(np.float64) ** 2).sum() / ((b - a.astype(np.float64)) ** 2).sum()
        for a, b in zip(exact, found, strict=True)
    ]
    return 10 * np.log10(ratios)


def _ours(
    built: Any, options: Mapping[str, Any], samples: Samples, held_out: Samples
) -> list[np.ndarray]:
    import core_compiler as cc

    quantize = Quantization(calibration=samples, **options)
    made = cc.compile(built.module, samples[0], quantize=quantize)
    return [np.array(made(*arrays)[0]) for arrays in held_out]


def _onnxruntime(
    name: str, built: Any, method: str, samples: Samples, held_out: Samples
) -> list[np.ndarray]:
    import onnxruntime
    from onnxruntime import quantization as q

    from sample_models.export import export_onnx

    class Reader(q.CalibrationDataReader):
        def __init__(self):
            self.left = iter([dict(zip(built.input_names, s, strict=True)) for s in samples])

        def get_next(self):
            return next(self.left, None)

    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quantised.onnx"
        q.quantize_static(
            str(export_onnx(name, optimize=True, **SIZES.get(name, {}))),
            str(path),
            Reader(),
            quant_format=q.QuantFormat.QDQ,
            per_channel=True,
            activation_type=q.QuantType.QInt8,
            weight_type=q.QuantType.QInt8,
            calibrate_method=getattr(q.CalibrationMethod, METHODS[method]),
            extra_options={"CalibPercentile": PERCENTILE},
        )
        session = onnxruntime.InferenceSession(
            str(path), settings, providers=["CPUExecutionProvider"]
        )
        return [
            session.run(None, dict(zip(built.input_names, s, strict=True)))[0] for s in held_out
        ]


if __name__ == "__main__":
    main()
