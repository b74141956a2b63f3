"""What a CUDA compile says where the machine's parts do not fit: one line, what to do about it."""

from __future__ import annotations

import pytest

from core_compiler.codegen.cuda import toolchain
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.runtime import cuda_driver
from core_compiler.runtime.compile_worker import respond
from core_compiler.support.errors import CANNOT_HERE, UserError
from core_compiler.targets.cuda import CUDA
from tests.cuda.simulated_driver import SimulatedDriver
from tests.passes.programs import program


def _module():
    return program(lambda b, x: [b.exp(x)], "3xf32")


def test_parts_of_different_releases_are_named_with_the_pin(monkeypatch):
    versions = dict.fromkeys(toolchain.PACKAGES, "13.5.37") | {"nvidia-nvvm": "13.6.2"}
    monkeypatch.setattr(toolchain, "_version", {"numba-cuda": "0.30.4", **versions}.get)
    with pytest.raises(UserError) as caught:
        compilation.start(_module(), CUDA(), Options())
    assert "different CUDA releases: nvidia-nvvm 13.6.2, " in caught.value.what
    assert "nvidia-cuda-nvcc 13.5.37" in caught.value.what
    assert "'nvidia-nvvm==13.5.*'" in caught.value.fix
    assert caught.value.exit_code == CANNOT_HERE


def test_a_part_that_is_not_installed_is_named(monkeypatch):
    versions = dict.fromkeys(toolchain.PACKAGES[:-1], "13.5.37")
    monkeypatch.setattr(toolchain, "_version", {"numba-cuda": "0.30.4", **versions}.get)
    with pytest.raises(UserError, match=r"not installed: nvidia-cuda-nvdisasm.*workbench\[cuda\]"):
        compilation.start(_module(), CUDA(), Options())


def test_ptx_that_is_too_new_for_ptxas():
    ptx = ".version 99.1\n.target sm_90\n.address_size 64\n"
    with pytest.raises(UserError, match=r"ptxas \S+ rejects PTX from nvvm \S+: ") as caught:
        toolchain.assemble(ptx, "sm_90")
    assert f"'nvidia-nvvm=={toolchain._release('nvidia-cuda-nvcc')}.*'" in caught.value.fix


def test_an_architecture_that_ptxas_does_not_know():
    assert {"sm_75", "sm_90", "sm_120"} <= set(toolchain.architectures())
    with pytest.raises(UserError, match=r"does not support sm_70") as caught:
        compilation.start(_module(), CUDA(), Options(target={"architecture": "sm_70"}))
    assert "sm_75, sm_80" in caught.value.fix


def test_a_gpu_that_is_too_old(monkeypatch):
    old = SimulatedDriver((7, 0)).gpu
    monkeypatch.setattr(cuda_driver, "gpu", lambda: old)
    with pytest.raises(UserError, match=r"compute capability \(sm_70\)") as caught:
        compilation.start(_module(), CUDA(), Options())
    assert caught.value.where == "Simulated GPU"
    assert caught.value.exit_code == CANNOT_HERE


def test_what_a_compile_process_refuses_is_told_with_its_fix():
    source = 'NAME = "k"\nBUFFERS = 0\nARGUMENTS = 0\nTHREADS = 1\n\n\ndef kernel():\n    return\n'
    asked = {"compiler": "core_compiler.codegen.cuda.worker:sm_91", "name": "k", "source": source}
    what, fix = respond(asked)["refused"]
    assert "sm_91" in what and fix == "choose another compute capability"
