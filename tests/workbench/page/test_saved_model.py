"""A folder with a SavedModel in the page: as far as the frontend, which reads it where TensorFlow
is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from core_compiler.support.errors import UserError
from workbench.app.workspace import Workspace


@pytest.fixture
def folder(tmp_path) -> Path:
    made = tmp_path / "saved_model"
    made.mkdir()
    (made / "saved_model.pb").write_bytes(b"no model")
    return made


def test_it_is_a_model_of_the_page(folder, monkeypatch):
    root = folder.parent
    monkeypatch.chdir(root)
    job = Workspace(root=root).job("saved_model", {"frontend": "torch", "width": 0.5})
    assert (job["model"], job["frontend"], job["sizes"]) == (str(folder), None, {})
    assert Path(job["out"]).name.startswith("saved_model-")
    worker = subprocess.run(
        [sys.executable, "-m", "workbench.app.worker"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    error = json.loads(worker.stdout.strip().rsplit("\n", 1)[-1])["error"]
    assert re.match("(tensorflow|jax) (is not installed|cannot read it)", error["what"])


def test_on_a_public_address_it_is_as_if_it_were_not_there(folder):
    root = folder.parent / "store"
    away, own = Workspace(local=False, root=root), Workspace(local=False, root=root)
    told = []
    for model in (folder, folder.parent / "absent"):
        with pytest.raises(UserError, match="unknown model") as raised:
            away.job(str(model), {})
        told.append((raised.value.what, raised.value.fix))
    assert told[0] == told[1]
    assert own.own_job(str(folder), {})["model"] == str(folder), "who started it named it"


@pytest.mark.parametrize("model", ["absent", "x" * 5000])
def test_what_is_none_is_told(tmp_path, model):
    with pytest.raises(UserError, match="unknown model"):
        Workspace(root=tmp_path).job(model, {})


def test_the_command_opens_it_and_no_other_folder(folder, command, monkeypatch):
    opened = []
    monkeypatch.setattr("workbench.app.serve", lambda model, *_, **how: opened.append(model))
    code, _, err = command("open", folder, "--port", "0", "--no-browser")
    assert (code, opened) == (0, [str(folder)]), err
    code, _, err = command("open", folder.parent, "--port", "0", "--no-browser")
    assert code == 2 and "got a folder" in err and "saved_model.pb" in err
