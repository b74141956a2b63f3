"""A small network whose source has calls, shared lines and a folded norm, and its recordings."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from core_compiler.driver.compilation import Options

ROWS, WIDE, OUT = 32, 48, 8
NETWORK = f"""
import torch

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d({WIDE})
        self.dense = torch.nn.Linear({WIDE}, width)

    def forward(self, x):
        x = self.norm(x)
        x = self.dense(x)
        return torch.relu(x)

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Block({WIDE})
        self.second = Block({OUT})
        self.conv = torch.nn.Conv1d(1, 4, 3)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        y = self.first(x)
        y = self.second(y)
        z = self.conv(y[:, None, :])
        z = self.norm(z)
        return z
"""
#: The number of each line by its text (of the last one where it stands twice).
LINES = {text.strip(): number for number, text in enumerate(NETWORK.split("\n"), 1)}


@dataclass(frozen=True)
class TwoBlocks:
    """The network's recordings: checked and executed, and only compiled (without its source)."""

    run: Path
    plain: Path
    source: str


def network(folder: Path):
    """The network, imported from a file in ``folder``."""
    import torch

    from core_compiler.frontends.pytorch import import_module
    from workbench.model.models import Model
    from workbench.model.spec import Spec

    source = folder / "network.py"
    source.write_text(NETWORK)
    found = importlib.util.spec_from_file_location("network", source)
    code = importlib.util.module_from_spec(found)
    found.loader.exec_module(code)
    torch.manual_seed(0)
    x = torch.randn(ROWS, WIDE)
    imported = import_module(code.Network().eval(), (x,), name="network")
    return Model(Spec("network", "function", "torch"), imported, (x.numpy(),), (x.numpy(),))


def record(folder: Path) -> TwoBlocks:
    """Compiles the network twice, into ``folder``."""
    from workbench.model import jobs

    model = network(folder)
    jobs.compile(model, "cpu", Options(check=True), path=folder / "run.run", execute=True)
    jobs.compile(model, "cpu", path=folder / "plain.run", source_text=False)
    return TwoBlocks(folder / "run.run", folder / "plain.run", str(folder / "network.py"))
