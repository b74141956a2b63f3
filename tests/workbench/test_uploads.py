"""The quota of uploads: what counts, whose it is, and what is left of an upload that ends."""

from __future__ import annotations

import pytest

from core_compiler.record.recorder import Recorder
from core_compiler.support.errors import UserError
from workbench.app.library import Library
from workbench.app.uploads import Uploads


@pytest.fixture
def library(tmp_path) -> Library:
    return Library(tmp_path / "store")


def sent(uploads: Uploads, name: str, size: int, user: str = "") -> None:
    path = uploads.begin(name, size, user)
    path.write_bytes(b"x" * size)
    uploads.end(path)


def recording(path, size: int):
    with Recorder(path) as recorder:
        recorder.begin({"model": "x"})
        recorder.end("finished")
    assert path.stat().st_size < size
    return path


def test_a_file_beyond_the_quota_is_refused_with_the_figures(library):
    uploads = Uploads(library, 3 << 20)
    sent(uploads, "a.onnx", 2 << 20)
    with pytest.raises(UserError) as refused:
        uploads.begin("b.onnx", (1 << 20) + 512)
    told = refused.value.to_json()["error"]
    assert "512 B too large" in told["what"] and "2.0 MiB of 3.0 MiB" in told["what"]
    assert told["where"] == "b.onnx" and "trash" in told["fix"]
    with pytest.raises(UserError) as refused:
        uploads.check("c.onnx", 4 << 20)
    assert "trash" not in refused.value.fix, "that would not do"
    assert len(list(library.uploads.folder.iterdir())) == 1, "nothing is made for it"
    sent(uploads, "b.onnx", 1 << 20)


@pytest.mark.parametrize("per_user", [True, False])
def test_each_user_has_a_quota_where_people_sign_in(library, per_user):
    uploads = Uploads(library, 100, per_user)
    sent(uploads, "a.onnx", 80, "ann")
    with pytest.raises(UserError, match="you have uploaded" if per_user else "uploads take"):
        uploads.check("b.onnx", 80, "ann")
    if per_user:
        sent(uploads, "b.onnx", 80, "ben")
        sent(Uploads(library, 100, per_user), "c.onnx", 20, "ann")  # also after a restart
    else:
        with pytest.raises(UserError):
            uploads.check("b.onnx", 80, "ben")


def test_what_is_still_coming_has_its_room(library):
    uploads = Uploads(library, 100)
    first = uploads.begin("a.onnx", 60)
    first.write_bytes(b"x" * 30)  # so far
    with pytest.raises(UserError, match="20 B too large"):
        uploads.begin("b.onnx", 60)
    second = uploads.begin("b.onnx", 40)
    uploads.drop(first)
    assert not first.parent.exists() and second.parent.exists()
    sent(uploads, "c.onnx", 60)
    uploads.stop()
    assert not second.parent.exists()


def test_an_imported_run_counts_until_the_trash_is_emptied(library):
    uploads = Uploads(library, 1 << 20, per_user=True)
    path = recording(uploads.begin("a.run", 1000, "ann"), 1 << 20)
    uploads.end(path)
    name = library.name(library.import_upload(path))
    library.annotate(name, tags=["mine"])

    def full(user: str) -> bool:
        try:
            uploads.check("b.run", 1 << 20, user)
        except UserError:
            return True
        return False

    assert (full("ann"), full("ben")) == (True, False)
    gone = library.remove(name)
    assert full("ann") and library.restore(gone.token) == name and full("ann")
    gone = library.remove(name)
    with pytest.raises(UserError, match="deleted run not found"):
        library.purge("../recordings")
    assert library.purge(gone.token) == 1 and not full("ann")
    assert library.purge("") == 0


def test_without_a_quota_anything_is_taken(library):
    uploads = Uploads(library)
    uploads.check("a.onnx", 1 << 60)
    assert uploads.begin("a.onnx", None).parent.is_dir()
    with pytest.raises(UserError, match="missing size of the file"):
        Uploads(library, 10).begin("a.onnx", None)
