"""The encoding that carries data to the browser, and the build of the modules."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from widgets import build, module_path, pack, page


def unpack(text: str, blob: bytes) -> Any:
    """What the browser's `decode` does, written again from the description in encode.py."""
    types = {"u8": "u1", "u16": "<u2", "u32": "<u4", "i8": "i1", "i16": "<i2", "i32": "<i4"}
    types |= {"f32": "<f4", "f64": "<f8"}

    def resolve(value: Any) -> Any:
        if isinstance(value, list):
            return [resolve(item) for item in value]
        if isinstance(value, dict) and "$" in value:
            assert value["at"] % 8 == 0
            return np.frombuffer(blob, types[value["$"]], value["n"], value["at"])
        if isinstance(value, dict):
            return {key: resolve(item) for key, item in value.items()}
        return value

    return resolve(json.loads(text))


DTYPES = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8", ">i4", ">f8", "bool")


@given(st.data())
def test_round_trip(data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    elements = None
    if dtype.kind in "iu" and dtype.itemsize == 8:
        elements = st.integers(0 if dtype.kind == "u" else -(2**53), 2**53)
    columns = [
        data.draw(arrays.arrays(dtype, data.draw(st.integers(0, 9)), elements=elements))
        for _ in range(3)
    ]
    text, blob = pack(
        {"a": columns[0], "in": [{"b": columns[1]}, columns[2]], "name": "x</script>"}
    )
    result = unpack(text, blob)
    got = [result["a"], result["in"][0]["b"], result["in"][1]]
    for column, decoded in zip(columns, got, strict=True):
        np.testing.assert_array_equal(decoded, column.astype(decoded.dtype))
        np.testing.assert_array_equal(decoded.astype(dtype), column)
    # Empty arrays have a header too: the browser must know that it has all there is.
    assert len(blob) >= 8
    assert result["stamp"] == int.from_bytes(blob[:4], "little") == zlib.crc32(blob[8:])


def test_equal_data_gives_equal_bytes() -> None:
    data = {"x": np.arange(5), "y": [1.5, None, "µ"]}
    assert pack(data) == pack({"x": np.arange(5), "y": [1.5, None, "µ"]})


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 2)), "1-d"),
        (np.array([2**60]), "2\\*\\*53"),
        (np.array(["a"]), "dtype"),
        (np.zeros(3, np.float16), "dtype"),
    ],
)
def test_what_cannot_be_packed(array: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack({"x": array})


def test_what_json_has_not_is_null_outside_arrays() -> None:
    given = {"x": float("nan"), "y": [-float("inf"), 1.5, {"z": np.float32("inf")}], "n": True}
    text, blob = pack(given)
    assert json.loads(text) == {"x": None, "y": [None, 1.5, {"z": None}], "n": True}
    assert blob == b""


def test_build_does_nothing_when_fresh(bundles: list[Path]) -> None:
    before = [path.stat().st_mtime_ns for path in bundles]
    assert build.build() == bundles
    assert [path.stat().st_mtime_ns for path in bundles] == before


def test_modules_are_self_contained(bundles: list[Path]) -> None:
    for path in bundles:
        source = path.read_text(encoding="utf-8")
        assert "http://www.w3.org/2000/svg" in source or path.stem in ("diff", "code")
        assert "https://" not in source
        assert "require(" not in source


def test_missing_bundle_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("widgets.views.BUNDLE", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"python -m widgets\.build"):
        module_path("graph")


def test_unknown_view() -> None:
    with pytest.raises(ValueError, match="no view named 'grahp'"):
        module_path("grahp")


def test_page_holds_no_reference_outside(bundles: list[Path]) -> None:
    text = page([("code", {"panes": [], "groups": [], "title": "</script><b>"})], title="<x>")
    assert "src=" not in text and "href=" not in text.replace("createElementNS", "")
    assert "</script><b>" not in text and "<title>&lt;x&gt;</title>" in text
