"""The models that mutants are compiled with: tiny ones, each with a few ops, rules or schedules.

Small sizes keep a compile below a second or two; together they reach most rules, lowerings,
schedules, dtypes and translations.  ``build`` writes the files; their names are what is recorded.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutations.classes import AGAINST, CHECK, TRAIN


@dataclass(frozen=True)
class Entry:
    """A model of the corpus: ``text`` is what the command line names it by, ``extra`` further words
    of the command, ``tokens`` what its source calls its ops, ``key`` a digest of how it is made."""

    name: str
    text: str
    framework: str
    commands: tuple[str, ...]
    extra: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    key: str = ""


def build(folder: Path, names: Sequence[str] = ()) -> list[Entry]:
    """Write the models (``names``: only these) into ``folder``; the entries name them."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        *_torch_entries(folder, names),
        *_onnx_entries(folder, names),
        *_jax_entries(names),
        *_stablehlo_entries(folder, names),
        *_training_entries(names),
        *_training_files(folder, names),
    ]


def _torch_entries(folder: Path, names: Sequence[str]) -> Iterator[Entry]:
    import torch

    from tests.mutations import near_models, opinfo_suite, quantised_models, torch_models

    assert quantised_models.INT8  # its models are among those of torch_models

    for spec in (
        *torch_models.models(names),
        *near_models.models(torch_models.models(), names),
        *opinfo_suite.models(names),
    ):
        path = folder / f"{spec.name}.pt2"
        program = torch.export.export(spec.module, spec.inputs)
        torch.export.save(program, path)
        calls = {_aten(n.target) for n in program.graph.nodes if n.op == "call_function"}
        yield Entry(
            spec.name,
            str(path),
            "torch",
            spec.commands,
            spec.extra,
            tuple(sorted(calls)),
            _key(spec.source),
        )


def _aten(target: Any) -> str:
    """``aten.add.Tensor`` -> ``add``."""
    parts = str(target).split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def _onnx_entries(folder: Path, names: Sequence[str]) -> Iterator[Entry]:
    import onnx

    from tests.mutations import onnx_models, onnx_suite

    for name, model in (*onnx_models.models(), *onnx_suite.models(names)):
        if names and name not in names:
            continue
        path = folder / f"{name}.onnx"
        onnx.save(model, path)
        kinds = {n.op_type for n in model.graph.node}
        commands = (CHECK,) if name in onnx_models.OPEN else (CHECK, AGAINST)
        yield Entry(
            name, str(path), "onnxruntime", commands, (), tuple(sorted(kinds)), _key(str(model))
        )


def _jax_entries(names: Sequence[str]) -> Iterator[Entry]:
    from tests.mutations import jax_suite

    for name, parts in jax_suite.models(names).items():
        yield Entry(
            name,
            f"tests.mutations.jax_suite:{name}",
            "jax",
            (CHECK, AGAINST),
            (),
            jax_suite.words(name),
            _key(" ".join(parts)),
        )


def _stablehlo_entries(folder: Path, names: Sequence[str]) -> Iterator[Entry]:
    from tests.mutations import stablehlo_models

    for name, text in stablehlo_models.models(names):
        path = folder / f"{name}.mlir"
        path.write_text(text)
        tokens = tuple(sorted(set(re.findall(r"\b(?:stable|c)hlo\.(\w+)", text))))
        yield Entry(name, str(path), "jax", (CHECK, AGAINST), (), tokens, _key(text))


def _training_entries(names: Sequence[str]) -> Iterator[Entry]:
    from tests.mutations import training_tasks

    for name, (make, extra) in training_tasks.every().items():
        if names and f"train_{name}" not in names:
            continue
        text, source = f"{make.__module__}:{name}", inspect.getsource(make)
        yield Entry(
            f"train_{name}", text, "torch", (CHECK, TRAIN, AGAINST), tuple(extra), (), _key(source)
        )


def _training_files(folder: Path, names: Sequence[str]) -> Iterator[Entry]:
    import numpy as np
    import torch

    from tests.mutations import opinfo_training

    for task in opinfo_training.models(names):
        path, data = folder / f"{task.name}.pt2", folder / f"{task.name}.npz"
        program = torch.export.export(task.module, tuple(map(torch.from_numpy, task.data.values())))
        torch.export.save(program, path)
        np.savez(data, **task.data)
        calls = {_aten(n.target) for n in program.graph.nodes if n.op == "call_function"}
        yield Entry(
            task.name,
            str(path),
            "torch",
            (CHECK, TRAIN, AGAINST),
            ("--loss", "own", "--data", str(data)),
            tuple(sorted(calls)),
            _key(task.source),
        )


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def words(command: str, entry: Entry, flags: Sequence[str]) -> list[str]:
    """The command line that must notice a fault of class ``command`` on this model.

    ``flags``: the checking options that ``workbench train`` knows.
    """
    return [*_WORDS[command](entry, flags), *entry.extra, "--threads", "1", "--json"]


def _check(entry: Entry, flags: Sequence[str]) -> list[str]:
    if TRAIN in entry.commands:  # what checks its compile checks its gradients too
        return _train(entry, flags)
    return ["compile", entry.text, "--check", "--no-import-cache", "--pass-timeout", PASS_SECONDS]


def _against(entry: Entry, flags: Sequence[str]) -> list[str]:
    return [*_check(entry, flags), "--against", entry.framework]


def _train(entry: Entry, flags: Sequence[str]) -> list[str]:
    return ["train", entry.text, "--iterations", "1", "--batch", "4", *flags]


#: What no pass needs for a model of this size: one that takes longer does not end.
PASS_SECONDS = "60"
#: One function a checking command: the words that run it on an entry of the corpus.
_WORDS: dict[str, Callable[[Entry, Sequence[str]], list[str]]] = {
    CHECK: _check,
    AGAINST: _against,
    TRAIN: _train,
}
#: Options of ``workbench train`` that check: those that it knows are given.
TRAIN_FLAGS = ("--check",)
