"""Machine descriptions: every figure has a source, mistakes named by place, the host seen."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from core_compiler.hardware import host
from core_compiler.hardware.machine import SOURCES, Figure, load, parse, shipped
from core_compiler.support.errors import UserError
from core_compiler.targets.cpu import own_width

GOOD = {
    "name": "toy",
    "summary": "a toy",
    "units": [
        {
            "name": "array",
            "kind": "systolic_array",
            "count": {"value": 1, "source": "paper"},
            "dtypes": ["i8"],
            "rows": {"value": 16, "source": "datasheet"},
            "columns": {"value": 4, "source": "datasheet"},
            "dataflows": ["os"],
        }
    ],
    "tiers": [
        {"name": "sram", "capacity": {"value": 128, "unit": "KiB", "source": "paper", "note": "x"}}
    ],
    "interconnect": {
        "kind": "mesh",
        "energy": {"value": 2, "unit": "pJ/bit", "source": "estimate"},
    },
}


def changed(path: str, value):
    data = copy.deepcopy(GOOD)
    *way, last = [int(p) if p.isdigit() else p for p in path.split(".")]
    place = data
    for key in way:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return data


def test_a_machine_is_read_with_its_units():
    machine = parse(GOOD)
    assert machine.tier("sram").capacity.base == 128 * 1024
    assert machine.unit("array").rows == Figure(16.0, "", "datasheet")
    assert machine.interconnect.energy.base == pytest.approx(16e-12)  # joules a byte
    assert str(machine.tier("sram").capacity) == "128 KiB (paper: x)"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("name", None, "m.yaml: missing entry 'name'"),
        ("colour", "red", "m.yaml: unknown entry 'colour'"),
        ("units", [], "m.yaml: units: expected at least one entry"),
        ("units", {}, "m.yaml: units: expected a list, got dict"),
        ("units.0.kind", "gpu", r"units\[0\].kind: unknown value 'gpu'; use one of 'systolic_"),
        ("units.0.count", 3, r"units\[0\].count: expected a mapping, got int"),
        ("units.0.dtypes", ["f31"], r"units\[0\].dtypes: unknown value 'f31'"),
        ("units.0.rows.value", -1, r"units\[0\].rows: invalid value -1"),
        ("units.0.rows.value", float("nan"), r"units\[0\].rows: invalid value nan"),
        ("units.0.rows.value", True, r"units\[0\].rows: invalid value True"),
        ("units.0.rows.source", None, r"units\[0\].rows: missing entry 'source'"),
        ("units.0.rows.source", "hearsay", "use one of 'datasheet', 'paper', 'measured'"),
        ("tiers.0.capacity.unit", "KB", r"tiers\[0\].capacity.unit: unknown value 'KB'"),
        ("tiers.0.speed", 3, r"tiers\[0\]: unknown entry 'speed'"),
        ("interconnect.kind", "pigeon", "interconnect.kind: unknown value 'pigeon'"),
    ],
)
def test_mistakes_are_named_by_place(path, value, message):
    with pytest.raises(UserError, match=message):
        parse(changed(path, value), "m.yaml")


def test_two_of_one_name_are_refused():
    with pytest.raises(UserError, match="duplicate name 'sram'"):
        parse(changed("tiers", GOOD["tiers"] * 2))


def test_files_that_are_not_machines(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("name: [\n")
    with pytest.raises(UserError, match=r"bad.yaml line 2: invalid YAML"):
        load(tmp_path / "bad.yaml")
    (tmp_path / "code.yaml").write_text("!!python/object/apply:os.system [echo]\n")
    with pytest.raises(UserError, match="invalid YAML"):
        load(tmp_path / "code.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(UserError, match="expected a mapping, got list"):
        load(tmp_path / "list.yaml")
    with pytest.raises(UserError, match="unknown machine 'x'; choose one of a100, cpu"):
        shipped("x")


def test_the_host_replaces_defaults_and_says_so():
    machine = host.machine()
    assert machine.name == "cpu" and machine.tiers[-1].name == "dram"
    unit = machine.unit("core")
    assert unit.count.source == "detected" and unit.lanes(32) >= 4
    figures = [machine.tiers[0].capacity, unit.width_bytes, *machine.figures.values()]
    assert all(f.source in SOURCES for f in figures)


def test_caches_are_read_from_sysfs(tmp_path):
    rows = {
        "index0": ("1", "Data", "32K", "64", "0"),
        "index1": ("1", "Instruction", "32K", "64", "0"),
        "index2": ("2", "Unified", "1024K", "64", "0,4"),
        "index3": ("3", "Unified", "36M", "64", "0-7"),
    }
    for name, values in rows.items():
        (tmp_path / name).mkdir()
        files = ("level", "type", "size", "coherency_line_size", "shared_cpu_list")
        for file, value in zip(files, values, strict=True):
            (tmp_path / name / file).write_text(value + "\n")
    assert host.caches(tmp_path) == (
        host.Cache(1, 32 << 10, 64, 1),
        host.Cache(2, 1 << 20, 64, 2),
        host.Cache(3, 36 << 20, 64, 8),
    )
    assert host.caches(tmp_path / "nothing") == ()


@pytest.mark.parametrize(("vector_bytes", "lanes"), [(64, 16), (32, 8), (16, 8)])
def test_kernels_take_vectors_as_wide_as_the_processor(monkeypatch, vector_bytes, lanes):
    found = replace(host.detect(), vector_bytes=vector_bytes)
    monkeypatch.setattr(host, "detect", lambda: found)
    assert own_width.__wrapped__() == lanes
