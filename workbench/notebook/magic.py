"""``%%workbench``: compile the model that a cell defines and show it.

::

    %load_ext workbench

    %%workbench graph --check
    def model(x, w):
        return jnp.tanh(x @ w)

    model, (x, w)                  # the last line: the model and its example inputs

If the last line is not such a pair, the model is the function or the ``torch.nn.Module`` that the
cell defines last, and its inputs are the notebook's variables named like its parameters.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from typing_extensions import override

import core_compiler as cc
from core_compiler.support.errors import UserError, nearest
from workbench.state.view_state import VIEWS

_WHERE = "%%workbench"


@magics_class
class WorkbenchMagics(Magics):
    """The magics of the workbench."""

    @property
    def _shell(self) -> InteractiveShell:
        assert self.shell is not None  # magics are registered with a shell
        return self.shell

    @magic_arguments()
    @argument("view", nargs="?", help="show only this view (default: all of them)")
    @argument("-t", "--target", default="cpu", help="cpu, cuda or another that is installed")
    @argument("--check", action="store_true", help="check every rewrite on the example inputs")
    @argument("--profile", action="store_true", help="execute it and time every kernel")
    @argument("--name", help="the variable that the compilation is kept in")
    @cell_magic
    def workbench(self, line: str, cell: str) -> Any:
        """Run the cell, compile the model that it defines, and show the compilation."""
        chosen = parse_argstring(self.workbench, line)
        if chosen.view is not None and chosen.view not in VIEWS:
            raise UserError(
                f"unknown view {chosen.view!r}",
                _WHERE,
                nearest(chosen.view, VIEWS, f"views: {', '.join(VIEWS)}"),
            )
        last, defined = self._run(cell)
        if isinstance(last, cc.Compilation):
            made = last
        else:
            model, inputs = self._model_and_inputs(last, defined)
            made = cc.compile(model, inputs, target=chosen.target, check=chosen.check)
        if chosen.profile:
            made.profile()
        if chosen.name:
            self._shell.push({chosen.name: made})
        return made.show(chosen.view)

    def _run(self, cell: str) -> tuple[Any, str]:
        """Execute the cell; return the value of its last line and its last definition.

        The value is None if the last line is not an expression; the function or class is "" if
        there is none.
        """
        text = self._shell.transform_cell(cell)
        file = self._shell.compile.cache(text)  # for tracebacks and the model's lines
        lines = ast.parse(text, file)
        kinds = ast.FunctionDef | ast.ClassDef
        names = [node.name for node in lines.body if isinstance(node, kinds)]
        last = lines.body.pop() if lines.body and isinstance(lines.body[-1], ast.Expr) else None
        exec(compile(lines, file, "exec"), self._shell.user_ns)
        value = None
        if last is not None:
            line = compile(ast.Expression(last.value), file, "eval")
            value = eval(line, self._shell.user_ns)
        return value, names[-1] if names else ""

    def _model_and_inputs(self, last: Any, defined: str) -> tuple[Any, Sequence | None]:
        """Return the model and its inputs; UserError if the cell has none."""
        names: Mapping[str, Any] = self._shell.user_ns
        if isinstance(last, tuple) and len(last) == 2 and isinstance(last[1], tuple | list):
            return _of_torch(*last)
        if last is not None and not callable(last):
            raise UserError(
                f"expected a model on the last line, got {type(last).__name__}",
                _WHERE,
                "end the cell with: model, (input, ...)",
            )
        model = names.get(defined) if last is None else last
        if model is None:
            raise UserError(
                "the cell defines neither a function nor a module",
                _WHERE,
                "end it with: model, (input, ...)",
            )
        if isinstance(model, type):
            model = model()
        function = model.forward if hasattr(model, "forward") else model
        input_names = list(inspect.signature(function).parameters)
        missing = [name for name in input_names if name not in names]
        if missing:
            raise UserError(
                f"missing example input {', '.join(missing)}",
                _WHERE,
                "define a variable of that name, or end the cell with: model, (input, ...)",
            )
        return _of_torch(model, [names[name] for name in input_names])


def _of_torch(model: Any, inputs: Sequence) -> tuple[Any, Sequence]:
    """Return a plain function of torch tensors as a module, because torch exports modules."""
    packages = {type(each).__module__.partition(".")[0] for each in inputs}
    if "torch" not in packages or not inspect.isfunction(model):
        return model, inputs
    import torch

    class Function(torch.nn.Module):
        @override
        def forward(self, *given):
            return model(*given)

    made = Function().eval()
    made.__class__.__name__ = model.__name__
    return made, inputs
