"""``%%workbench``: the cell is executed, what it defines compiled and shown."""

from __future__ import annotations

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.support.errors import UserError

notebook = pytest.importorskip("workbench.notebook", reason="notebooks need ipywidgets")
pytest.importorskip("jax", reason="the functions of these cells are JAX's")
compiler = pytest.importorskip("ipykernel.compiler")
InteractiveShell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell


@pytest.fixture(scope="module")
def shell():
    made = InteractiveShell.instance()
    made.compile = compiler.XCachingCompiler()  # as in a notebook: a cell's text has a file name
    made.run_line_magic("load_ext", "workbench")
    made.push({"x": np.ones((4, 8), np.float32), "w": np.ones((8, 8), np.float32)})
    made.run_cell("import jax.numpy as jnp", store_history=False)
    yield made
    InteractiveShell.clear_instance()


FUNCTION = "def model(x, w):\n    return jnp.tanh(x @ w)\n"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "model", "model, (x, w)", "model, [x, 2 * w]"])
def test_the_function_of_a_cell_is_compiled_and_shown(shell, end):
    shown = shell.run_cell_magic("workbench", "--check --name c", FUNCTION + end)
    made = shell.user_ns["c"]
    assert shown.compilation is made and made.options.check
    lines = {n.line for op in made.stages[0].module.main.body.ops for n in op.origin.nodes()}
    assert 2 in lines, "of the cell"
    (y,) = made(shell.user_ns["x"], shell.user_ns["w"])
    np.testing.assert_allclose(y, np.tanh(np.full((4, 8), 8.0)), rtol=1e-6)


@pytest.mark.slow
def test_one_view_of_a_torch_function_and_of_a_module(shell):
    torch = pytest.importorskip("torch", reason="a cell may define a torch function")
    shell.push({"torch": torch, "t": torch.ones(3, 4)})
    pane = shell.run_cell_magic("workbench", "diff", "def double(t):\n    return torch.relu(t) * 2")
    assert isinstance(pane, notebook.Pane)
    cell = (
        "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a = torch.nn.Linear(4, 2)\n    def forward(self, t):\n"
        "        return self.a(t)\n"
    )
    shell.run_cell_magic("workbench", "graph --name n", cell)
    assert shell.user_ns["n"](torch.ones(3, 4))[0].shape == (3, 2)


def test_a_compilation_is_shown_as_it_is(shell):
    shell.push({"cc": cc})
    shown = shell.run_cell_magic("workbench", "--name d", FUNCTION + "cc.compile(model, (x, w))")
    assert shown.compilation is shell.user_ns["d"]


@pytest.mark.parametrize(
    ("line", "cell", "said"),
    [
        ("graff", FUNCTION, "graph"),
        ("", "y = 3", "defines neither a function"),
        ("", "3", "got int"),
        ("", "def f(nothing_like_it): pass", "nothing_like_it"),
    ],
)
def test_what_is_wrong_is_said(shell, line, cell, said):
    with pytest.raises(UserError, match=said):
        shell.run_cell_magic("workbench", line, cell)


def test_an_error_of_the_cell_is_its_own(shell):
    with pytest.raises(ZeroDivisionError):
        shell.run_cell_magic("workbench", "", "1 / 0\n3")
