"""The import of a deep graph: a Llama of 32 layers (hidden 64) beside torch's own export of it.

    python -m benchmarks.imports [-o benchmarks/results/imports.json]

Our part begins with the exported program.  ``shared`` says how many bytes of the weights are the
model's own memory, of all; the smallest of five imports counts, the first one is told apart.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from core_compiler.frontends.pytorch import import_exported


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 32,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
    }
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**sizes, use_cache=False)).eval()
    began = time.perf_counter()
    with torch.no_grad():
        program = torch.export.export(model, (torch.arange(16)[None],), strict=False)
    exported = time.perf_counter() - began
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        made = import_exported(program)
        seconds.append(time.perf_counter() - began)
    parameters = [p.detach().numpy() for p in model.parameters()]
    weights = [made.module.weights[digest] for digest in made.module.weights]
    shared = sum(a.nbytes for a in weights if any(np.shares_memory(a, p) for p in parameters))
    found = {
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": {n: version(n) for n in ("torch", "transformers")},
        "sizes": sizes,
        "ops": len(made.module.main.body.ops),
        "export_seconds": round(exported, 3),
        "first_import_seconds": round(seconds[0], 3),
        "import_seconds": round(min(seconds), 3),
        "shared_bytes": shared,
        "weight_bytes": sum(a.nbytes for a in weights),
    }
    print(json.dumps(found, indent=1))
    if given.output:
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
