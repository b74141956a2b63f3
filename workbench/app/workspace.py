"""The state shared by all pages of a server: recordings, library, compiles, permissions."""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core_compiler import targets
from core_compiler.frontends.base import is_saved_model
from core_compiler.frontends.open import FILES
from core_compiler.support.errors import UserError
from workbench.app.access import Access
from workbench.app.compiles import Compiles, Limits
from workbench.app.library import SHIPPED, Library, file_of
from workbench.app.neighbours import Neighbours
from workbench.app.run_entry import Entry
from workbench.app.trust import Typed, foreign, names_code
from workbench.app.uploaded import MAX_UPLOAD
from workbench.app.uploads import Uploads
from workbench.model import edits, first_bad_pass, recorded_model
from workbench.model.arguments import pairs
from workbench.model.spec import AS_GRAPH, RECORDING, Spec
from workbench.queries.numeric_results import json_rows
from workbench.queries.run import Run
from workbench.views import divergence

#: Recordings that stay open after their last page has closed, for the next reload.
MAX_IDLE_OPEN = 3


class UntrustedCode(UserError):
    """The job contains foreign code that the user has not trusted."""

    def __init__(self, what: str, name: str):
        super().__init__(what, name, "read the code, then allow it to run")


class Workspace:
    """The shared state of a server.

    ``local``: only this machine reaches the server. Otherwise files outside the cache and code
    (``package.module:function``) are disabled unless ``allow_code``. ``given``: files that the
    user who started the server named; they may always be opened. ``max_upload`` in bytes of a
    file, ``quota`` of all uploads (:class:`workbench.app.uploads.Uploads`).
    """

    def __init__(
        self,
        *,
        local: bool = True,
        allow_code: bool = False,
        given: tuple[Path, ...] = (),
        root: Path | None = None,
        max_upload: int = MAX_UPLOAD,
        quota: int = 0,
        access: Access | None = None,
        limits: Limits | None = None,
    ):
        self.library = Library(root)
        self.library.deleted()  # removes entries that are too old
        self.compiles = Compiles(limits or Limits())
        self.access = access or Access()
        self.uploads = Uploads(self.library, quota, per_user=self.access.sign_in)
        self.typed = Typed()
        self.max_upload = max_upload
        self.token = secrets.token_urlsafe(24)
        self._local, self._code = local, local or allow_code
        self._given = {p.absolute() for p in given}
        self._lock = threading.Lock()
        self.neighbours = Neighbours(self._may_open)
        self._open: dict[Path, list] = {}  # path -> [Run, users], least recently used first
        self._devices: dict[str, str] = {}  # missing devices, by target
        self._replaced: list[list] = []  # the same, for files that were replaced

    # -- recordings ------------------------------------------------------------------------------

    def path(self, name: str) -> Path:
        """Return the file of a recording's name; UserError if it may not be opened from here."""
        path = self.library.find(name)
        self._check_place(path)
        return path

    def _check_place(self, path: Path) -> None:
        if not self._may_open(path):
            raise UserError(
                "files outside the library cannot be opened on a public address",
                path.name,
                "drop the file on the page instead",
            )

    def _may_open(self, path: Path) -> bool:
        if self._local or path.absolute() in self._given:
            return True
        resolved = path.resolve()
        library = self.library
        shown = (library.folder, library.uploads.folder, SHIPPED)  # neither trash nor index
        return any(resolved.is_relative_to(p.resolve()) for p in shown)

    def check_deleted(self, path: Path) -> None:
        """Raise UserError if a recording is in the trash."""
        name = self.library.name(path)
        if not path.exists() and any(d.name == name for d in self.library.deleted()):
            raise UserError("this run was deleted", name, "restore it from the trash, below")

    def made_here(self, path: Path) -> bool:
        """Return whether a recording was made in this workspace, and not imported."""
        return path.absolute().parent == self.library.folder

    def acquire(self, path: Path) -> Run:
        """Return the recording at a path, shared by all pages that show it."""
        key = path.absolute()
        run = self._opened(key)
        if Path(self.library.name(key)).is_absolute() and SHIPPED.absolute() not in key.parents:
            self.neighbours.opened(key)
        try:
            run.refresh(wait=False)  # pages that show it refresh it themselves
        except UserError:
            # Another recording was written there, completely or in part.
            with self._lock:
                if (entry := self._open.get(key)) is not None and entry[0] is run:
                    self._replaced.append(self._open.pop(key))
            self.release(run)
            run = self._opened(key)
        except BaseException:
            self.release(run)
            raise
        return run

    def entries(self) -> list[Entry]:
        """Return the recordings to compare with: the library's, then neighbours of opened files."""
        return [*self.library.entries(), *self.neighbours.entries()]

    def runs_of_model(self, model: str, limit: int) -> list[Entry]:
        """Return the readable ones of a model, at most ``limit``, as :meth:`entries`."""
        nearby = [e for e in self.neighbours.entries(model) if e.status not in ("", "unreadable")]
        return [*nearby[: limit // 2], *self.library.runs_of_model(model, limit)][:limit]

    def _opened(self, key: Path) -> Run:
        with self._lock:
            entry = self._open.pop(key, None)
            if entry is not None and not key.exists():
                self._replaced.append(entry)  # pages may still show it
                entry = None
            if entry is not None:
                entry[1] += 1
                self._open[key] = entry
            self._close_idle()
        if entry is None:
            made: list[Any] = [Run(key, folders=self._code), 0]
            with self._lock:
                entry = self._open.setdefault(key, made)
                entry[1] += 1
            if entry is not made:  # another page was first
                made[0].close()
        return entry[0]

    def acquire_all(self, names: Iterable[str]) -> list[Run]:
        """Open those of the named recordings that can be opened; the caller releases them."""
        opened = []
        for name in filter(None, names):
            with suppress(UserError):
                opened.append(self.acquire(self.path(name)))
        return opened

    def release(self, run: Run) -> None:
        """Release a page's use of a recording; the least recently used ones are closed."""
        with self._lock:
            for key, entry in list(self._open.items()):
                if entry[0] is run:
                    entry[1] -= 1
                    self._open[key] = self._open.pop(key)
            for entry in self._replaced:
                entry[1] -= entry[0] is run
            self._close_idle()

    def _close_idle(self) -> None:
        for entry in [e for e in self._replaced if e[1] <= 0]:
            self._replaced.remove(entry)
            entry[0].close()
        idle = [key for key, entry in self._open.items() if entry[1] <= 0]
        for key in idle[: max(0, len(idle) - MAX_IDLE_OPEN)]:
            self._open.pop(key)[0].close()

    # -- compiles --------------------------------------------------------------------------------

    def own_job(self, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the job of the user who started the server, without restrictions.

        ``threads`` and ``trust`` apply to it.
        """
        unrestricted = Workspace(root=self.library.root).job(model, {"execute": True, **options})
        return unrestricted | {k: options[k] for k in ("threads", "trust") if k in options}

    def job(self, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return a page's job for the worker; UserError if the model may not be opened."""
        if not model:
            raise UserError("missing model", "path", "enter a model, a file, or a sample's name")
        code = names_code(model)
        if code and not self._code:
            raise UserError(
                "opening Python functions is disabled on this address",
                model[:200],
                "start the server with --allow-code, or on localhost",
            )
        file = file_of(model)
        from_file = file.suffix.lower() in (*FILES, RECORDING)
        if from_file:
            self._check_place(file)
            if not file.is_file():
                raise UserError("file not found", model[:300], "check the path")
            model = str(file.absolute())
            if file.suffix.lower() != RECORDING:
                self.library.uploads.used(Path(model))
        elif self._may_open(file) and is_saved_model(file):  # not revealed to other users
            from_file, file = True, file.absolute()
            model = str(file)
        elif not code:
            self._check_sample(model)
        name = file.stem if from_file or file.suffix else model.rsplit(":", 1)[-1]
        sizes = _sizes(options)
        edit = edits.checked(options.get("edit"))
        custom_passes = foreign(edit)
        if custom_passes and not self._code:
            raise UserError(
                "running a pass of your own is disabled on this address",
                edits.name_of(custom_passes[0]),
                "start the server with --allow-code, or on localhost",
            )
        has_sizes = not (from_file or file.suffix)
        if has_sizes and options.get("width") and options["width"] != 1:
            sizes["width"] = float(options["width"])
        frontend = None if from_file or code else options.get("frontend")
        if file.suffix.lower() == ".onnx" and options.get("frontend") == AS_GRAPH:
            frontend = AS_GRAPH
        return {
            "model": model,
            "frontend": frontend or None,
            "target": options.get("target") or "cpu",
            "sizes": sizes,
            "check": bool(options.get("check")),
            "against": bool(options.get("against")),
            "execute": bool(options.get("execute")),
            "out": str(self.library.new_path(name)),
            "edit": edit,
            "target_options": dict(options.get("target_options") or {}),
            "pass_timeout": options.get("pass_timeout"),
            "hold": bool(options.get("hold")),
        }

    def not_executable(self, run: Run) -> str:
        """Return why the program of a recording is not executed from here; "" if it is."""
        if run.live:
            return "the model is still being compiled"
        if run.status != "finished":
            return "the compile did not finish: there is no program to execute"
        if SHIPPED.absolute() in run.path.absolute().parents:
            return "the recordings of the sample models are read-only"
        if not os.access(run.path, os.W_OK) or not os.access(run.path.parent, os.W_OK):
            return "the recording is not writable"
        if run.recording.is_old:
            return "the recording was made by an older version and is read-only"
        return self._missing_device(str(run.meta().get("target")))

    def _missing_device(self, target: str) -> str:
        """Return the device that this machine lacks to execute for a target, checked once."""
        known = "" if target == "cpu" else self._devices.get(target)
        if known is None:
            try:
                known = targets.target(target).available() or ""
            except UserError as error:
                known = error.what
            self._devices[target] = known
        return known

    def check_trust(self, run: Run, model: str, edit: Any = None, *, trust: bool) -> None:
        """Raise Distrust if code in ``model`` or ``edit`` is foreign, unless ``trust``."""
        code = [f"contains custom pass code: {edits.name_of(e)}" for e in foreign(edit)]
        if names_code(model):
            code.append(f"names code to run: {model[:200]}")
        if code and not trust and not self.made_here(run.path):
            raise UntrustedCode(f"this recording {code[0]}", run.path.name)

    @property
    def runs_code(self) -> bool:
        """Return whether pages may run code named as package.module:function."""
        return self._code

    def search(self, run: Run, other: Run, trust: bool = False) -> dict[str, Any]:
        """Return the job that finds where two training runs differ.

        It compiles the models that their folders name; UserError if they may not run from here.
        Code that the folder of a foreign recording names runs only with the user's ``trust``.
        """
        if not self._code:
            raise UserError(
                "repeating an iteration is disabled on this address",
                run.path.name,
                "start the server with --allow-code, or on localhost",
            )
        foreign = [each for each in (run, other) if not self.made_here(each.path)]
        named = [code for each in foreign for code in divergence.code_of(each)]
        if named and not trust:
            raise UntrustedCode(
                f"the folder of the run names code to run: {named[0]}", run.path.name
            )
        return divergence.job(run, other)

    def bisect(self, run: Run, command: Mapping[str, Any]) -> dict[str, Any]:
        """Return the job that finds the first bad pass of a recorded compile.

        It uses a ``tolerance`` and ``inputs`` (an ``.npz``, or "": the model's own); UserError if
        it may not run from here. Code in a foreign recording runs only with ``trust``.
        """
        meta = run.meta()
        if run.live:
            raise UserError(
                "the model is still being compiled", run.path.name, "wait until it is done"
            )
        allowed = first_bad_pass.tolerance(command.get("tolerance") or first_bad_pass.TOLERANCE)
        spec = recorded_model.for_search(meta, run.path, run.version.stages)
        self.check_trust(run, spec.text, meta.get("edit"), trust=bool(command.get("trust")))
        job = self.job(spec.text, as_recorded(meta, spec))
        request = {
            "recording": str(run.path),
            "identity": run.identity,
            "tolerance": allowed,
            "inputs": "",
        }
        if command.get("inputs"):
            file = file_of(str(command["inputs"]))
            self._check_place(file)
            if not file.is_file():
                raise UserError("file not found", str(file)[:300], "check the path")
            request["inputs"] = str(file.absolute())
        out = first_bad_pass.RESULTS.path_of(run.path)
        return {**job, "out": str(out), "bisect": request}

    def _check_sample(self, name: str) -> None:
        from sample_models.catalogue import CATALOGUE

        if name not in CATALOGUE:
            raise UserError(
                "unknown model",
                name[:200],
                f"pass a sample ({', '.join(CATALOGUE)}), a .run, .onnx, .pt2, .keras or .mlir "
                "path, a SavedModel's folder, or package.module:function",
            )

    # -- the start page --------------------------------------------------------------------------

    def start_page(self) -> dict[str, Any]:
        """Return the contents of the start page."""
        from core_compiler.targets import GROUP
        from sample_models.catalogue import CATALOGUE

        return {
            "token": self.token,
            "max_upload": self.max_upload,
            "folder": str(self.library.folder),
            "targets": _target_names(GROUP),
            "samples": [
                {"name": m.name, "summary": m.summary, "parameters": m.parameters, "flops": m.flops}
                for m in CATALOGUE.values()
            ],
            "recorded": [asdict(entry) for entry in self.library.recorded()],
            "beside": json_rows(
                [asdict(entry) for entry in self.neighbours.entries()], "worst_error"
            ),
        }


def as_recorded(meta: Mapping[str, Any], spec: Spec) -> dict[str, Any]:
    """Return the recorded options, for a job that compiles ``spec``, a recording's model."""
    return {
        "frontend": spec.frontend,
        "target": meta.get("target"),
        "sizes": spec.sizes,
        "edit": meta.get("edit"),
        "target_options": meta.get("target_options"),
        "pass_timeout": meta.get("pass_timeout"),
    }


def _target_names(group: str) -> list[str]:
    from importlib.metadata import entry_points

    return sorted({point.name for point in entry_points(group=group)} | {"cpu"})


def _sizes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of a job: those of a recording, then those that were entered as text."""
    entered = re.split(r"[,\s]+", str(options.get("shape") or ""))
    return {**(options.get("sizes") or {}), **pairs([text for text in entered if text], "sizes")}
