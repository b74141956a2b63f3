"""The models of `benchmarks/models.py` in several dtypes: ours and the peers' form of each.

``f32``           as the catalogue has them.
``bf16``          parameters and inputs in bfloat16; onnxruntime's CPU provider lacks most kernels.
``int8``          products of 8-bit integers: onnxruntime quantises the exported file (weights
                  when it is written, activations in each call), which both then read.
``int8-static``   all in 8-bit integers, with ranges from calibration data: ours quantises the float
                  model (`--quantize int8`); beside it our float model, and what onnxruntime's
                  `quantize_static` writes of the exported file, as operators and as QDQ.
``int8-weights``  linear layers whose weights are 8-bit integers, a scale for each row; products
                  in f32 (as torchao's and gpt-fast's weight-only form writes them).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

#: Text decoders that are not in the catalogue: name -> builders of a prompt's call and of a step.
LARGE = {"llama-1.2b": ("llama_1b", "llama_1b_decode")}
#: The models that consist of linear layers, for the dtypes that only these have.
LINEAR = ("bert-base", "gpt2", "gpt2-decode", "vit-b16", "llama-4l", "digits-mlp")

Function = Callable[..., Sequence[np.ndarray]]


@dataclass(frozen=True, eq=False)
class Variant:
    """A model in a dtype: ``compile(threads)``, example inputs, and ``peers[name](threads)``.

    ``onnx()``: the file that onnxruntime executes, if it does.
    """

    compile: Callable[[int], Any]
    inputs: Sequence[np.ndarray]
    peers: Mapping[str, Callable[[int], Function]]
    onnx: Callable[[], Path] | None = None


def variant(name: str, dtype: str, batch: int) -> Variant | None:
    """Return a model in a dtype; None where there is no such form."""
    linear = "int8" in dtype and dtype != "int8-static"
    if (name in LARGE and dtype != "bf16") or (linear and name not in LINEAR):
        return None
    return DTYPES[dtype](name, batch)


def _f32(name: str, batch: int) -> Variant:
    from core_compiler.driver.compilation import Options
    from sample_models.export import export_onnx
    from workbench.model import jobs, models, peers
    from workbench.model.spec import read_spec

    model = models.load(read_spec(name, batch=None if batch == 1 else batch))
    return Variant(
        lambda threads: jobs.compile(model, "cpu", Options(threads=threads)),
        model.inputs,
        {p: partial(peers.peer, model, p) for p in ("torch", "onnxruntime")},
        lambda: export_onnx(name, **model.spec.sizes),
    )


def _bf16(name: str, batch: int) -> Variant:
    import torch

    module, inputs = built(name, batch)
    module = module.to(torch.bfloat16)
    return of_module(
        module, [t.to(torch.bfloat16) if t.is_floating_point() else t for t in inputs], name
    )


def _int8(name: str, batch: int) -> Variant:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    import core_compiler as cc
    from sample_models.catalogue import build
    from sample_models.export import export_onnx
    from workbench.model import peers

    source = export_onnx(name, batch=batch)
    path = source.with_name(f"{name}-int8.onnx")
    if not path.exists():
        quantize_dynamic(source, path, weight_type=QuantType.QInt8, use_external_data_format=True)
    inputs = _arrays(build(name, batch=batch).example_inputs)
    return Variant(
        lambda threads: cc.compile(str(path), inputs, threads=threads),
        inputs,
        {"onnxruntime": lambda threads: peers.onnxruntime_function(path, threads, name)},
        lambda: path,
    )


def _int8_weights(name: str, batch: int) -> Variant:
    module, inputs = built(name, batch)
    return of_module(with_int8_weights(module), inputs, name)


class _Samples:
    """Calibration data as onnxruntime's quantiser reads it."""

    def __init__(self, names: Sequence[str], samples: Sequence[Sequence[np.ndarray]]):
        self._rest = iter([dict(zip(names, sample, strict=True)) for sample in samples])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._rest, None)


def _int8_static(name: str, batch: int) -> Variant:
    import core_compiler as cc
    from sample_models.catalogue import build
    from workbench.model import peers

    made = build(name, batch=batch)
    inputs = _arrays(made.example_inputs)
    samples = [inputs, *(_arrays(made.make_inputs(seed)) for seed in (1, 2))]

    def ours(threads: int, quantize: Any = None) -> Any:
        return cc.compile(made.module, inputs, threads=threads, quantize=quantize)

    def theirs(form: str, threads: int) -> Function:
        path = statically_quantised(name, batch, form, made, samples)
        return peers.onnxruntime_function(path, threads, name)

    return Variant(
        lambda threads: ours(threads, cc.Quantization(calibration=samples)),
        inputs,
        {
            "ours f32": ours,
            "onnxruntime": partial(theirs, "QOperator"),
            "onnxruntime QDQ": partial(theirs, "QDQ"),
        },
    )


def statically_quantised(
    name: str, batch: int, form: str, made: Any, samples: Sequence[Sequence[np.ndarray]]
) -> Path:
    """Return the file that onnxruntime's `quantize_static` writes: min to max, weights a channel.

    Of a file by torch's first exporter: in those of its second, operands are computed that this
    quantiser expects to be constant.
    """
    import onnx
    import torch
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    from sample_models.export import export_onnx

    source = export_onnx(name, batch=batch)
    path = source.with_name(f"{name}-{batch}-static-{form}.onnx")
    if path.exists():
        return path
    names, inputs = list(made.input_names), made.example_inputs
    with tempfile.TemporaryDirectory() as folder:
        exported, prepared = Path(folder, "model.onnx"), Path(folder, "prepared.onnx")
        torch.onnx.export(
            made.module, inputs, exported, dynamo=False, opset_version=17, input_names=names
        )
        quant_pre_process(onnx.load(exported), prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            path,
            _Samples(names, samples),
            quant_format=QuantFormat[form],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    return path


DTYPES: Mapping[str, Callable[[str, int], Variant]] = {
    "f32": _f32,
    "bf16": _bf16,
    "int8": _int8,
    "int8-static": _int8_static,
    "int8-weights": _int8_weights,
}


def built(name: str, batch: int, decode: bool = False) -> tuple[Any, Sequence[Any]]:
    """Return a model as a torch module, and its example inputs."""
    from sample_models import catalogue, decoders

    if name in LARGE:
        return getattr(decoders, LARGE[name][decode])(batch=batch)
    made = catalogue.build(name, batch=batch)
    return made.module, made.example_inputs


def of_module(module: Any, inputs: Sequence[Any], name: str) -> Variant:
    """Return a torch module beside torch eager."""
    import core_compiler as cc
    from workbench.model import peers

    arrays = _arrays(inputs)
    return Variant(
        lambda threads: cc.compile(module, arrays, threads=threads),
        arrays,
        {"torch": lambda threads: peers.torch_function(module, threads, name)},
    )


def with_int8_weights(module: Any) -> Any:
    """Replace the linear layers of a module, in place, by such with weights of 8-bit integers."""
    import torch
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    class Int8Linear(nn.Module):
        def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None):
            super().__init__()
            scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
            self.register_buffer("weight", (weight / scale).round().to(torch.int8))
            self.register_buffer("scale", scale[:, 0].clone())
            self.register_buffer("bias", bias)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = nn.functional.linear(x, self.weight.to(x.dtype)) * self.scale
            return made if self.bias is None else made + self.bias

    with torch.no_grad():
        for parent in list(module.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.Linear | Conv1D):
                    weight = child.weight.T if isinstance(child, Conv1D) else child.weight
                    bias = None if child.bias is None else child.bias.detach()
                    setattr(parent, name, Int8Linear(weight.detach().contiguous(), bias))
    return module


def bandwidth_share(program: Any, seconds: float, threads: int) -> dict[str, Any]:
    """The bytes that each execution needs once, and the share of the measured rate of copies."""
    needed = sum(x.bytes for x in (*program.constants, *program.inputs, *program.outputs))
    rate = copy_rate(threads)
    return {
        "needed_bytes": needed,
        "copy_bytes_per_s": rate,
        "bandwidth_share": needed / rate / seconds,
    }


@cache
def copy_rate(threads: int) -> float:
    """Bytes per second, read and written, of copies in 1 GiB, which no cache holds."""
    from core_compiler.runtime.limits import measure

    return measure(threads, (1 << 30,)).copy[0][1]


def _arrays(tensors: Sequence[Any]) -> list[np.ndarray]:
    from core_compiler.frontends.pytorch.tensors import to_numpy

    return [to_numpy(tensor) for tensor in tensors]
