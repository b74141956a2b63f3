"""A small network without products, compiled for the processor and for a GPU that need not be."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from core_compiler.driver.compilation import Options

ROWS, WIDE = 24, 40
NETWORK = """
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDE)

    def forward(self, x):
        y = self.norm(x)
        top = y.amax(0)
        z = torch.relu(y - top) + x
        return z
""".replace("WIDE", str(WIDE))
#: The number of each line by its text.
LINES = {text.strip(): number for number, text in enumerate(NETWORK.split("\n"), 1)}


@dataclass(frozen=True)
class TwoTargets:
    """The network's recordings: executed on this processor; compiled for a GPU, not executed."""

    cpu: Path
    cuda: Path
    source: str


def record(folder: Path) -> TwoTargets:
    """Compiles the network twice, into ``folder``."""
    import torch

    from core_compiler.frontends.pytorch import import_module
    from workbench.model import jobs
    from workbench.model.models import Model
    from workbench.model.spec import Spec

    source = folder / "rows.py"
    source.write_text(NETWORK)
    found = importlib.util.spec_from_file_location("rows", source)
    code = importlib.util.module_from_spec(found)
    found.loader.exec_module(code)
    torch.manual_seed(0)
    x = torch.randn(ROWS, WIDE)
    imported = import_module(code.Network().eval(), (x,), name="rows")
    model = Model(Spec("rows", "function", "torch"), imported, (x.numpy(),), (x.numpy(),))
    jobs.compile(model, "cpu", Options(check=True), path=folder / "cpu.run", execute=True)
    jobs.compile(model, "cuda", path=folder / "cuda.run")
    return TwoTargets(folder / "cpu.run", folder / "cuda.run", str(source))
