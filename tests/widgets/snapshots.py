"""Pictures of views, compared as a person would: where things are and what colour they have.

A snapshot keeps the mean colour of squares of pixels: what renders letters and edges a little
differently is alike; an empty pane, a lost colour or a thing that is elsewhere is not.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

FOLDER = Path(__file__).parent / "snapshots"
#: Where the whole picture is put, to be looked at, when it becomes a snapshot or is not like it.
SEEN = Path("build/snapshots")
#: Pixels of a square's side, how far its colour may be off in a channel (of 255), and the part of
#: the squares which are not background that may be off further.
SIDE, FAR, PART = 8, 40, 0.15


def assert_alike(png: bytes, name: str, update: bool, folder: Path = FOLDER) -> None:
    """The picture is the snapshot ``name`` of a ``folder``, or becomes it with ``update``."""
    made = Image.open(io.BytesIO(png)).convert("RGB")
    small = made.resize((made.width // SIDE, made.height // SIDE), Image.Resampling.BOX)
    path = folder / f"{name}.png"
    if update:
        _to_look_at(png, name)
        folder.mkdir(exist_ok=True)
        small.save(path, optimize=True)
        return
    assert path.exists(), f"no snapshot {path}: pytest --workbench-update makes it"
    kept = np.asarray(Image.open(path).convert("RGB"), np.int16)
    now = np.asarray(small, np.int16)
    assert now.shape == kept.shape
    off = np.abs(now - kept).max(axis=2) > FAR
    part = off.sum() / max(1, (_drawn(kept) | _drawn(now)).sum())
    if part > PART:
        ys, xs = np.nonzero(off)
        where = f"from {SIDE * xs.min()}, {SIDE * ys.min()} to {SIDE * xs.max()}, {SIDE * ys.max()}"
        seen = _to_look_at(png, name)
        pytest.fail(
            f"{name}: {part:.0%} of what is drawn is not as it was ({where}); look at "
            f"{seen}, and pytest --workbench-update keeps it"
        )


def _to_look_at(png: bytes, name: str) -> Path:
    SEEN.mkdir(parents=True, exist_ok=True)
    path = SEEN / f"{name}.png"
    path.write_bytes(png)
    return path


def _drawn(picture: np.ndarray) -> np.ndarray:
    """Which squares are not background, the colour that most have."""
    colours, counts = np.unique(picture.reshape(-1, 3), axis=0, return_counts=True)
    return np.abs(picture - colours[counts.argmax()]).max(axis=2) > FAR
