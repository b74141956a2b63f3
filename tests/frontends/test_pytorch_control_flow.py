"""``torch.cond`` and ``torch.while_loop``: imported as regions, executed on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.scan import scan

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.frontends.pytorch import import_exported
from core_compiler.frontends.pytorch.tensors import to_numpy
from core_compiler.support.errors import UserError
from tests.frontends.programs import agrees, execute, exported


def same(module, examples, *, kinds) -> None:
    """The import gives torch's results for every example, by the reference and by machine code,
    and holds control flow of these kinds."""
    with torch.no_grad():
        imported = import_exported(exported(module, *examples[0]))
    found = [op for op in imported.module.walk() if op.kind in ("core.if", "core.while")]
    assert [op.kind for op in found] == kinds
    arrays = [to_numpy(x) for x in examples[0]]
    made = compilation.start(
        imported.module, "cpu", Options(check=True, threads=2), arrays
    ).finish()
    assert all(r.verdict != "failed" for stage in made.checks.values() for r in stage)
    for example in examples:
        wanted = module(*example)
        wanted = wanted if isinstance(wanted, tuple | list) else (wanted,)
        ours = execute(imported, *example)
        compiled = made(*map(to_numpy, example))
        for a, b, c in zip(ours, compiled, wanted, strict=True):
            torch.testing.assert_close(a, c)
            torch.testing.assert_close(torch.from_numpy(b), c)


class Gate(torch.nn.Module):
    """Branches with parameters of the module, one of them with a branch inside."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        def small(x):
            return self.first(x), x + 1

        def large(x):
            inner = torch.cond(x.sum() > 10, lambda x: x * 2, lambda x: self.second(x), (x,))
            return inner, x - 1

        return torch.cond(x.sum() > 0, large, small, (x,))


@pytest.mark.slow
def test_branches_with_parameters_and_branches_inside():
    examples = [(torch.full((3, 4), v),) for v in (-1.0, 0.5, 2.0)]
    same(Gate().eval(), examples, kinds=["core.if", "core.if"])


@pytest.mark.slow
def test_what_is_written_in_place_in_a_branch_is_seen():
    def function(x):
        def yes(x):
            y = x.clone()
            y[0].mul_(3)
            return y.relu_()

        return torch.cond(x[0, 0] > 0, yes, lambda x: x.sin(), (x,))

    for value in (1.0, -1.0):
        agrees(function, torch.full((2, 3), value))


class Power(torch.nn.Module):
    """Multiplies until a norm is passed; the weight is read from around the loop."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(5, 5) + torch.eye(5))

    def forward(self, x, limit):
        def go(i, x):
            return (x.norm() < limit) & (i < 20)

        def body(i, x):
            return i + 1, x @ self.weight

        return torch.while_loop(go, body, (torch.tensor(0), x))


@pytest.mark.slow
def test_a_loop_ends_when_its_data_say_so():
    x = torch.arange(10.0).reshape(2, 5) / 10
    examples = [(x, torch.tensor(v)) for v in (50.0, 0.0, 1e30)]
    same(Power().eval(), examples, kinds=["core.while"])


class Scanned(torch.nn.Module):
    """A recurrence over the second axis, from its end, with a weight and two results a step."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.cell = torch.nn.Linear(3, 3).requires_grad_(False)

    def step(self, h, x):
        h = torch.tanh(self.cell(h) + x)
        return h, (h * 2, x.sum() > 0)

    def forward(self, xs):
        h, (ys, positive) = scan(self.step, xs.new_zeros(4, 3), xs, dim=1, reverse=True)
        return h, ys, positive


def test_a_scan_is_a_loop():
    module, xs = Scanned().eval(), torch.randn(4, 6, 3)
    imported = import_exported(exported(module, xs))
    (loop,) = [op for op in imported.module.walk() if op.kind == "core.while"]
    h, rows = torch.zeros(4, 3), []
    for x in reversed(xs.unbind(1)):
        h, row = module.step(h, x)
        rows.insert(0, row)
    ys, positive = torch.stack([y for y, _ in rows], 1), torch.stack([p for _, p in rows])
    for ours, wanted in zip(execute(imported, xs), (h, ys, positive), strict=True):
        torch.testing.assert_close(ours, wanted)
    (node,) = loop.origin.nodes()  # torch keeps the line of the call, for all that is inside
    line = Scanned.forward.__code__.co_firstlineno + 1
    assert (node.file, node.line) == (__file__, line)


def test_an_unsupported_op_inside_is_named_with_its_line():
    def function(x):
        return torch.cond(x.sum() > 0, torch.lgamma, lambda x: x + 1, (x,))

    with pytest.raises(UserError, match="lgamma"):
        import_exported(exported(function, torch.eye(3)))
