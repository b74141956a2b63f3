"""Post-training quantisation of a compile: its configuration, and the passes it adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from core_compiler.passes.base import Pass, parse_option
from core_compiler.passes.decompose import Decompose
from core_compiler.passes.quantize.correct_bias import CorrectBias
from core_compiler.passes.quantize.equalise_layers import EqualiseLayers
from core_compiler.passes.quantize.hide_scores import HideScores
from core_compiler.passes.quantize.insert_quantization import InsertQuantization
from core_compiler.passes.quantize.integerize import Integerize
from core_compiler.passes.quantize.measure_sensitivity import MeasureSensitivity
from core_compiler.passes.quantize.observe import CALIBRATION, METHODS, Observe
from core_compiler.passes.quantize.parameters import need_choice
from core_compiler.passes.quantize.smooth_activations import SmoothActivations
from core_compiler.passes.quantize.weights import ROUNDINGS, SCALES
from core_compiler.passes.quantize.widen_floats import WidenFloats
from core_compiler.pipelines.pipeline import PipelineEdit, labels, meaning
from core_compiler.support.errors import UserError, nearest

#: Composites whose parts have integer forms, not they themselves.
PARTS = "attention,rotary_embedding,batch_norm"


@dataclass(frozen=True)
class Quantization:
    """Post-training quantisation of a model to bytes.

    ``calibration``  samples, each the model's inputs in order, or the array itself where the model
                     has one input; none: the example inputs.
    ``data``         a ``.npz`` file of samples (see :class:`Observe`), in place of ``calibration``.
    ``method``       how ranges are chosen: ``minmax``, ``percentile``, ``mse`` or ``entropy``.
    ``percentile``   of that method.
    ``symmetric``    activations have the zero point 0.
    ``keep``         beginnings of names of results that stay in floats.
    ``keep_float``   that many products stay in floats: those with the largest loss alone, which is
                     measured for each (0 measures only).
    ``weights``      scales of weights: of the largest (``max``), or of the least squared error
                     (``mse``).
    ``rounding``     of weights: ``nearest``, or ``gptq`` (see :class:`InsertQuantization`).
    ``correct_bias`` take the mean error of weights from the biases.
    ``equalise``     scale the channels between products.
    ``smooth``       above 0: scale the channels after norms, with this strength.
    """

    calibration: Sequence[Sequence[np.ndarray] | np.ndarray] = ()
    data: str = ""
    method: str = "minmax"
    percentile: float = 99.99
    symmetric: bool = False
    keep: tuple[str, ...] = ()
    weights: str = "max"
    rounding: str = "nearest"
    correct_bias: bool = False
    equalise: bool = False
    smooth: float = 0.0
    keep_float: int | None = None

    def __post_init__(self) -> None:
        need_choice("method", self.method, METHODS)
        need_choice("weights", self.weights, SCALES)
        need_choice("rounding", self.rounding, ROUNDINGS)
        if not 0 <= self.smooth <= 1:
            raise UserError(
                f"expected smooth from 0 to 1, got {self.smooth}", "quantisation", "pass 0.5"
            )
        if (self.keep_float or 0) < 0:
            raise UserError(
                f"expected keep_float of 0 or more, got {self.keep_float}", "quantisation", "pass 1"
            )

    @staticmethod
    def of_text(texts: Mapping[str, str]) -> Quantization:
        """Return the configuration with options given as text; UserError names a wrong one."""
        found = Quantization()
        known = [f.name for f in fields(found) if f.name not in ("calibration", "keep")]
        values: dict[str, Any] = {}
        for name, text in texts.items():
            if name not in known:
                fix = nearest(name, known, f"choose one of {', '.join(known)}")
                raise UserError(f"unknown option {name!r}", "quantisation", fix)
            default = 0 if name == "keep_float" else getattr(found, name)
            values[name] = parse_option(text, default, f"quantisation, {name}")
        return replace(found, **values)

    def edited(self, edit: PipelineEdit) -> PipelineEdit:
        """Return ``edit`` with the passes of quantisation at the end of the meaning half."""
        place = f"after:{labels(meaning())[-1]}"
        added = tuple((place, pass_) for pass_ in self._passes())
        return replace(edit, insert=(*edit.insert, *added))

    def _passes(self) -> tuple[Pass, ...]:
        floats = (
            *((EqualiseLayers(),) if self.equalise else ()),
            *((SmoothActivations(strength=self.smooth, data=self.data),) if self.smooth else ()),
        )
        return (
            WidenFloats(),
            Decompose(kinds=PARTS),
            HideScores(data=self.data),
            *floats,
            Observe(method=self.method, percentile=self.percentile, data=self.data),
            *(() if self.keep_float is None else (MeasureSensitivity(keep=self.keep_float),)),
            InsertQuantization(
                symmetric=self.symmetric,
                keep=",".join(self.keep),
                weights=self.weights,
                rounding=self.rounding,
            ),
            *((CorrectBias(),) if self.correct_bias else ()),
            Integerize(),
        )

    def facts(self, inputs: Sequence[np.ndarray] | None) -> Mapping[str, Any]:
        """Return the facts that the passes read; UserError for samples that are not like inputs."""
        if not self.calibration:
            return {}
        single = [(s,) if hasattr(s, "shape") else s for s in self.calibration]
        samples = [tuple(map(np.asarray, sample)) for sample in single]
        for number, sample in enumerate(samples):
            self._check(number, sample, inputs)
        return {CALIBRATION: samples}

    def _check(
        self, number: int, sample: Sequence[np.ndarray], inputs: Sequence[np.ndarray] | None
    ) -> None:
        if inputs is None:
            return
        where = f"calibration sample {number}"
        if len(sample) != len(inputs):
            raise UserError(
                f"{len(sample)} arrays, expected {len(inputs)}", where, "pass one for each input"
            )
        for position, (found, wanted) in enumerate(zip(sample, inputs, strict=True)):
            if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
                raise UserError(
                    f"input {position} is {found.dtype} of shape {found.shape}, "
                    f"expected {wanted.dtype} of shape {wanted.shape}",
                    where,
                    "pass arrays like the example inputs",
                )
