"""A finished compile, as the tests of the session have it."""

from tests.compiler.conftest import arrays, finished, network

__all__ = ["arrays", "finished", "network"]
