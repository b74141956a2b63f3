"""Modules as Graphviz drawings: read back by Graphviz itself."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.exporters import dot
from core_compiler.support.errors import UserError
from tests.passes.programs import program

graphviz = pytest.importorskip("pygraphviz", reason="drawings are laid out by pygraphviz")


def chain(b, x):
    return b.exp(b.neg(b.matmul(x, x)))


def stage(name: str) -> cc.Compilation:
    return next(s for s in cc.compile(program(chain, "8x8xf32")).stages if s.name == name)


def titles(graph) -> list[str]:
    return [node.attr["label"].split("<b>")[1].split("<")[0] for node in graph.nodes()]


def test_every_op_is_a_box_and_every_use_an_arrow():
    drawing = stage("import").draw()
    graph = graphviz.AGraph(string=drawing.dot)
    assert titles(graph) == ["x", "matmul", "neg", "exp", "output 0"]
    assert len(graph.nodes()) == 5  # three ops, an input, an output
    assert graph.edges() == [("in0", "n0"), ("n0", "n1"), ("n1", "n2"), ("n2", "out0")]
    assert "f32 8x8" in drawing.dot


def test_a_group_is_a_frame_around_its_ops():
    graph = graphviz.AGraph(string=stage("fuse_elementwise").draw().dot)
    (frame,) = graph.subgraphs()
    assert titles(frame) == ["neg", "exp"]
    assert len(graph.edges()) == 4


def test_constants_stand_in_the_boxes_of_their_readers():
    module = program(lambda b, x: b.add(x, b.constant(np.ones((4,), np.float32))), "4xf32")
    text = dot.draw(module).dot
    assert "constant f32 4" in text
    assert len(graphviz.AGraph(string=text).nodes()) == 3


def test_the_drawing_is_a_picture_without_scripts():
    svg = stage("import").draw().svg
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg") and "<script" not in svg
    assert "matmul" in "".join(root.itertext())


@pytest.mark.parametrize("odd", ["\0", "\x01", "\x1f", "\ud800", "\ufffe", "\uffff"])
def test_a_name_that_is_no_xml_is_drawn_all_the_same(odd):
    """Names come from models: Graphviz and readers of SVG get U+FFFD instead."""
    module = program(chain, "8x8xf32")
    module.main.body.arguments[0].name = f"a{odd}b"
    drawing = dot.draw(module)
    assert drawing.dot.encode() and "a\ufffdb" in drawing.dot
    assert "a\ufffdb" in "".join(ElementTree.fromstring(drawing.svg).itertext())


@pytest.mark.slow
def test_a_small_stage_in_a_notebook_is_drawn_and_a_large_one_is_not():
    compiled = cc.compile(program(chain, "8x8xf32"))
    assert "<svg" in compiled.stages[0]._repr_mimebundle_()["text/html"]

    def long(b, x):
        for _ in range(50):
            x = b.exp(x)
        return x

    shown = cc.compile(program(long, "8x8xf32")).stages[0]
    assert "<svg" not in shown._repr_mimebundle_()["text/html"]
    assert "exp" in shown.draw().dot
    with pytest.raises(UserError, match="cannot draw 50 ops"):
        dot.draw(shown.module, most=10)


def test_without_graphviz_there_is_the_text(monkeypatch):
    monkeypatch.setattr(dot, "graphviz", lambda: "")
    drawing = stage("import").draw()
    assert "digraph" in str(drawing)
    assert set(drawing._repr_mimebundle_()) == {"text/plain"}
    with pytest.raises(UserError, match="pygraphviz") as error:
        _ = drawing.svg
    assert error.value.exit_code == 3
