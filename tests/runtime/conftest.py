"""A kernel cache of its own for each test."""

from __future__ import annotations

import pytest

from core_compiler.runtime.cache_folder import CacheFolder
from core_compiler.runtime.kernel_cache import KernelCache


@pytest.fixture
def folder(tmp_path) -> CacheFolder:
    return CacheFolder(tmp_path / "cache")


@pytest.fixture
def kernels(folder) -> KernelCache:
    """A kernel cache of its own whose compiler reads LLVM IR."""
    return KernelCache(folder, workers=2, compiler="tests.runtime.toy_compiler:compile_text")
