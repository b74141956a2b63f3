"""Recordings in which everything that has a name is called after an attack, made of sound ones: so
each view has everything to draw."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from workbench.model import divergences, first_bad_pass
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import divergence

#: Runs, or leaves an element, where it becomes HTML; or where a link is made of it.
ATTACK = (
    'javascript:hacked=1//"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
    "<b class=injected>'${window.hacked=1}"
)
#: The same without what a search of the library cannot hold.
MODEL = ATTACK.replace('"', "")
#: The same without what a path or an address cannot hold.
NAME = ATTACK.replace("/", "").replace(":", "")

#: What was made of the attack, in any shadow root of a page; [] where nothing was.
FOUND = """() => {
  const found = window.hacked === undefined ? [] : ['a script ran'];
  const look = (root) => {
    for (const node of root.querySelectorAll('*')) {
      if (node.matches('.injected, img[src=x], [onerror], [href^="javascript:"]')) found.push(node.outerHTML);
      if (node.localName === 'script' && node.textContent === 'window.hacked=1') found.push('a script');
      if (node.shadowRoot) look(node.shadowRoot);
    }
  };
  look(document);
  return found;
}"""  # noqa: E501

#: Of a compile: columns and what they become (``attack`` is the parameter).  Names that lead from
#: one table to another change alike; those of every other pass stay, so that both kinds are there.
_COMPILE = """
UPDATE name SET text = :attack || text
  WHERE id IN (SELECT rule FROM rewrite UNION SELECT source FROM rewrite UNION SELECT rule FROM origin);
UPDATE node SET name = :attack || name, kind = :attack || kind, scope = :attack || '/' || scope,
  file = CASE file WHEN '' THEN '' ELSE :attack || file END;
UPDATE source_file SET name = :attack || name;
UPDATE value SET name = :attack || id WHERE name IS NOT NULL OR id % 2;
UPDATE stage SET summary = :attack, options = json_object(:attack, :attack),
  tolerance_class = :attack, pass = CASE id % 2 WHEN 1 THEN :attack || pass ELSE pass END WHERE id > 0;
UPDATE rewrite SET note = :attack;
UPDATE attributes SET json = json_set(json, '$.kernel', :attack || json_extract(json, '$.kernel'))
  WHERE json_type(json, '$.kernel') = 'text';
UPDATE attributes SET json = json_set(json, '$.name', :attack || json_extract(json, '$.name'))
  WHERE json_type(json, '$.name') = 'text';
UPDATE check_result SET note = :attack;
UPDATE kernel SET name = :attack || name, key = :attack,
  facts = json_set(facts, '$.source', :attack, '$.assembly', :attack || 'asm');
UPDATE kernel_step SET name = :attack;
UPDATE launch_time SET kernel = :attack || kernel;
UPDATE buffer SET name = :attack || name;
INSERT INTO diagnostic (stage, severity, message, function, place)
  VALUES (1, 'error', :attack, :attack, :attack), (NULL, 'warning', :attack, '', :attack);
INSERT INTO figure (stage, section, name, value)
  VALUES (NULL, 'run', :attack, :attack), (NULL, 'memory', :attack, :attack), (NULL, 'run', 'not_executed', :attack);
UPDATE figure SET value = :attack
  WHERE typeof(value) = 'text' AND NOT json_valid(value) AND section <> 'check';
"""  # noqa: E501
#: What sets a second compile apart.
_CHANGED = """
UPDATE value SET name = 'b' || name WHERE id % 2;
UPDATE rewrite SET rule = source WHERE id % 4 = 1;
UPDATE kernel SET source = assembly;
UPDATE buffer SET size = size + 64 WHERE id % 2;
UPDATE launch_time SET median = 2 * median;
UPDATE tensor_stats SET maximum = maximum + 1
"""
_META = ("model", "versions", "machine", "message", "frontend", "mode_note", "spec_note")


def compiled(recording: Path, path: Path) -> Path:
    """A copy of a compile, with what was found to be its first bad pass."""
    shutil.copy(recording, path)
    _change(path, _COMPILE)
    _set_meta(path, dict.fromkeys(_META, ATTACK) | {"versions": {ATTACK: ATTACK}})
    found: dict[str, Any] = {
        "model": ATTACK, "target": ATTACK, "tolerance": 1e-3, "inputs": ATTACK, "value": ATTACK,
        "stood_in": ATTACK,
        "first_bad_pass": ATTACK, "stage": 1, "how": ATTACK, "note": ATTACK, "error": 0.5,
        "index": [1], "numbers": [1.0, 2.0], "absolute": 1.0, "ulps": 7, "model_lines": [ATTACK],
        "first_bad_rewrite": {"number": 0, "rule": ATTACK, "source": ATTACK, "function": ATTACK,
                              "note": ATTACK, "old": [ATTACK], "new": [ATTACK]},
        "looked": {"passes": 1, "of": 2, "verdicts": {ATTACK: 1}, "error": 0.0,
                   "worst_pass": ATTACK, "launches": 1, "not_executed": ATTACK},
        "reduced": {"problem": "", "ops_before": 3, "ops_after": 1, "tried": 2, "seconds": 1.0,
                    "stopped": ATTACK, "runs_alone": False, "says": ATTACK, "files": [ATTACK],
                    "text": ATTACK, "download": {"name": ATTACK, "base64": ""}},
    }  # fmt: skip
    run = Run(path)
    first_bad_pass.RESULTS.keep(path, first_bad_pass.key_of(run.identity, 1e-3, ""), found)
    run.close()
    return path


def changed(compiled: Path, path: Path) -> Path:
    """A copy of an attacking compile that differs from it wherever two are compared: in names,
    rules, code, buffers, times and numbers."""
    shutil.copy(compiled, path)
    _change(path, _CHANGED)
    return path


def trained(runs: Any, folder: Path) -> tuple[Path, Path]:
    """Copies of two training runs that part (a `TrainingRuns`), with their receipts, and with what
    was found to part them."""
    made = []
    for original in (runs.a, runs.b):
        path = folder / f"{original.stem}{NAME[:60]}.run"
        shutil.copy(original, path)
        shutil.copytree(original.with_suffix(""), folder / original.stem)
        receipts = folder / original.stem / "receipts.jsonl"
        first, *rows = receipts.read_text().splitlines()
        head = json.loads(first)
        head["names"] = [[row[0], ATTACK, *row[2:-1], ATTACK] for row in head["names"]]
        receipts.write_text("\n".join([json.dumps(head), *rows, ""]))
        with sqlite3.connect(path) as database:
            (held,) = database.execute(
                "SELECT value FROM meta WHERE key = 'training_run'"
            ).fetchone()
        database.close()
        plan = {**json.loads(held), "folder": str(folder / original.stem), "inject": ATTACK}
        _set_meta(path, {"model": MODEL, "message": ATTACK, "training_run": plan})
        made.append(path)
    a, b = Run(made[0]), Run(made[1])
    key = divergence.job(a, b)["key"]
    a.close()
    b.close()
    divergences.RESULTS.keep(
        made[0],
        key,
        {
            "iteration": 3,
            "lasting": True,
            "op": ATTACK,
            "value": ATTACK,
            "element": [1],
            "numbers": [1.0, 2.0],
            "ulps": 1,
            "count": 1,
            "origin": ATTACK,
            "history": [ATTACK],
            "kernels": [ATTACK, ATTACK],
        },
    )
    assert divergence.data((Run(made[0]), Run(made[1])), ViewState())["result"]["op"] == ATTACK
    return made[0], made[1]


def _change(path: Path, statements: str) -> None:
    with sqlite3.connect(path) as database:
        for statement in statements.split(";\n"):
            database.execute(statement, {"attack": ATTACK} if ":attack" in statement else {})
    database.close()


def _set_meta(path: Path, facts: dict[str, Any]) -> None:
    with sqlite3.connect(path) as database:
        rows = [(name, json.dumps(value)) for name, value in facts.items()]
        database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)
    database.close()
