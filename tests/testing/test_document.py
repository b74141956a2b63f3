"""The examples of docs/testing.md, executed as they stand there."""

from __future__ import annotations

import re

import pytest

import workbench.testing
from tests.testing.test_plugin import imported, outcome, project  # noqa: F401  (fixtures)

pytest_plugins = ("pytester",)


@pytest.fixture(scope="module")
def page(repository) -> str:
    return (repository / "docs" / "testing.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.S)


def write(page: str, folder, *names: str) -> None:
    tests = {text.partition("\n")[0].removeprefix("# "): text for text in blocks(page, "python")}
    for name in names:
        (folder / name).write_text(tests[name])


def test_the_pass(page, project):  # noqa: F811
    write(page, project.path, "test_canonicalise.py")
    result = project()
    assert outcome(result) == {"failed": 1, "passed": 2}
    told = re.sub(r" +", " ", result.stdout.str())
    (shown,) = [text for text in blocks(page, "console") if "golden file" in text]
    for line in shown.splitlines()[1:]:
        assert re.sub(r" +", " ", line) in told
    assert outcome(project("--workbench-update")) == {"passed": 3}
    made = project.path / "golden/test_canonicalise/test_two_negations_cancel.mlir"
    assert "core.neg" not in made.read_text()
    assert str(made.relative_to(project.path)) in page
    assert outcome(project()) == {"passed": 3}


@pytest.mark.slow
def test_the_compile_and_what_it_leaves_when_it_fails(page, project):  # noqa: F811
    write(page, project.path, "test_canonicalise.py", "test_network.py")
    path = project.path / "test_network.py"
    (project.path / "conftest.py").write_text("")
    arguments = ("test_network.py", "--import-mode=prepend")
    assert outcome(project(*arguments)) == {"passed": 1}
    path.write_text(f"{path.read_text()}    assert 0\n")
    result = project(*arguments, "--workbench-record=failures")
    (shown,) = [text for text in blocks(page, "console") if "--workbench-record" in text]
    assert set(shown.splitlines()[2:]) <= set(result.outlines)


def test_the_message(page):
    (call,) = [text for text in blocks(page, "python") if text.startswith("assert_same_bits(")]
    (wanted,) = blocks(page, "text")
    import numpy as np

    with pytest.raises(AssertionError) as caught:
        exec(call, {"np": np, "assert_same_bits": workbench.testing.assert_same_bits})
    assert f"{caught.value}\n" == wanted


def test_the_table_has_every_name(page, project):  # noqa: F811
    listed = set(re.findall(r"^\| `(?:pytest )?([\w-]+)", page, re.M))
    options = set(re.findall(r"--workbench-\w+", project("--help").stdout.str()))
    assert listed == {"compiled", "run_pass", "golden_ir", *workbench.testing.__all__, *options}
