"""A run: the corpus is built and traced once for a state of the sources, then mutants are tried."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.mutations import carried, judge, score, server, sites, tree
from tests.mutations.classes import AGAINST, CHECK, CLASSES
from tests.mutations.corpus import Entry, words
from tests.mutations.operators import Mutation, function_at
from tests.mutations.planted import Planted
from tests.mutations.trial import Trial

#: The sites of each class, in the order in which they are tried.
Orders = dict[str, Iterator[sites.Site]]
#: Seconds of processor time after which no further model is tried, at first and again.
ENOUGH, MORE = 5.0, 60.0
#: Seconds that a command may take (of a machine that does other things too).
LIMIT = 180.0
#: The time limit of a trace, which compiles every kernel and runs under a tracer.
TRACE_LIMIT = 900.0


class Session:
    """Everything about one state of the sources, kept in ``work``."""

    def __init__(self, work: Path, jobs: int, clean: Path | None = None):
        self.work, self.jobs = work.resolve(), jobs
        self.digest = tree.digest()
        self.folder = self.work / self.digest[:16]
        self.base = tree.copy(self.folder / "tree")
        self.wanted = sorted({f for kind in CLASSES.values() for f in kind.paths(self.base)})
        self.traces = self.work / "traces" / tree.digest(self.base, self.wanted)[:16]
        self.traces.mkdir(parents=True, exist_ok=True)
        carried.keep_sources(self.traces, self.base, self.wanted)
        self.clean = clean or self.work / "cache"
        self.clean.mkdir(parents=True, exist_ok=True)
        self.entries: dict[str, Entry] = {}
        self.flags: list[str] = []
        self.dropped: dict[str, str] = {}
        #: How many traces are those of earlier sources.
        self.carried = 0

    # -- the corpus --------------------------------------------------------------------------------

    def prepare(self) -> sites.Coverage:
        """Build the models, trace them and see which are green; what an earlier run of these
        sources found is kept; traces of other sources are carried over."""
        corpus = self.folder / f"corpus-{tree.corpus_digest()[:16]}"
        kept = corpus / "corpus.json"
        if not kept.exists():
            told = self._built(corpus)
            kept.write_text(json.dumps(told))
        told = json.loads(kept.read_text())
        self.flags = told["flags"]
        self.entries = {e["name"]: _entry(e) for e in told["entries"]}
        self._carry()
        seconds = self._executed()
        traces = []
        for name, entry in self.entries.items():
            if seconds[name]:
                found = json.loads(self._kept(entry).read_text())
                self.carried += "carried" in found
                tokens = frozenset(found["tokens"]) | frozenset(entry.tokens)
                traces.append(sites.Traced(name, found["lines"], tokens, seconds[name]))
        return sites.Coverage(traces)

    def _built(self, folder: Path, names: Sequence[str] = ()) -> dict[str, Any]:
        def build(say: Any) -> None:
            import argparse

            from tests.mutations import corpus
            from workbench.commands import train_model

            parser = argparse.ArgumentParser()
            train_model.add_arguments(parser)
            known = parser.format_help()
            made = corpus.build(folder, names)
            say(
                {
                    "kind": "corpus",
                    "entries": [asdict(e) for e in made],
                    "flags": [f for f in corpus.TRAIN_FLAGS if f in known],
                }
            )

        done = next(server.run(deque([self._task("corpus", build, TRACE_LIMIT)]), 1))
        if not done.said or done.said[0]["kind"] != "corpus":
            raise RuntimeError(f"the corpus was not built: {done}")
        return done.said[0]

    def _kept(self, entry: Entry) -> Path:
        """Where the trace of a model is kept: as long as it is made in the same way."""
        return self.traces / f"{entry.name}-{entry.key}.json"

    def _carry(self) -> None:
        every = [self._kept(e).name for e in self.entries.values()]
        done, unknown = carried.carry_over(self.traces, every)
        if done:
            _tell(f"carried over {len(done)} traces; nothing is known of {unknown or 'no file'}")

    def _executed(self) -> dict[str, dict[str, float]]:
        """Of each model and command the seconds that it takes where it is green; what is not is
        ``dropped``.  A model that has no trace is traced."""
        folder = self.folder / "green"
        folder.mkdir(exist_ok=True)
        kept = {e.name: folder / self._kept(e).name for e in self.entries.values()}
        missing = [e for e in self.entries.values() if not kept[e.name].exists()]
        tasks = deque(self._executes(e) for e in missing)
        for number, done in enumerate(server.run(tasks, self.jobs)):
            entry = done.key
            told = [m for m in done.said if "command" in m]
            bad = [f"{m['command']}: {m['said']}" for m in told if m["code"]]
            bad += [m["error"] for m in done.said if "error" in m]
            found = {
                "seconds": {m["command"]: m["seconds"] for m in told if not m["code"]},
                "problem": (done.ended or "; ".join(bad))[:600],
            }
            traced = next((m for m in done.said if m["kind"] == "coverage"), None)
            if traced is not None:
                del traced["kind"]
                self._kept(entry).write_text(json.dumps(traced))
            elif not self._kept(entry).exists():
                found["seconds"] = {}
            kept[entry.name].write_text(json.dumps(found))
            _tell(
                f"{number + 1}/{len(missing)} {entry.name}: {done.seconds:.0f} s"
                f"{'; NOT GREEN: ' + found['problem'] if found['problem'] else ''}"
            )
        every = {name: json.loads(path.read_text()) for name, path in kept.items()}
        self.dropped = {name: e["problem"] for name, e in every.items() if e["problem"]}
        return {name: e["seconds"] for name, e in every.items()}

    def _executes(self, entry: Entry) -> server.Task:
        traced = self._kept(entry).exists()
        run = _run(entry, self.flags, () if traced else self.wanted)
        return self._task(entry, run, LIMIT if traced else TRACE_LIMIT)

    def _task(self, key: Any, run: Any, limit: float) -> server.Task:
        return server.Task(key, self.base, self.clean, run, limit)

    # -- mutants -----------------------------------------------------------------------------------

    def drawn(self, coverage: sites.Coverage, seed: int, names: Iterable[str]) -> Orders:
        """The sites of classes in the seed's order."""
        return {n: sites.drawn(CLASSES[n], self.base, coverage, seed) for n in names}

    def same(self, coverage: sites.Coverage, rows: Sequence[dict[str, Any]]) -> Orders:
        """The sites of the mutations of ``rows``, wherever they are in these sources."""
        found: dict[str, list[sites.Site]] = defaultdict(list)
        for row in rows:
            kind, site = CLASSES[row["class"]], None
            if (self.base / row["file"]).exists():
                site = sites.like(kind, self.base, coverage, row)
            if site is None:
                _tell(f"NOT HERE: {row['file']}: {row['after']}")
            else:
                found[kind.name].append(site)
        return {name: iter(found[name]) for name in found}

    def run(
        self, orders: Orders, quotas: Mapping[str, int], done: Sequence[dict[str, Any]] = ()
    ) -> Iterator[dict[str, Any]]:
        """Try mutants in their orders until every class has its quota of those that change
        something; ``done``: rows that count and are not tried again.

        A mutant that its command lets pass is compiled on more models, beside the clean sources.
        Where it changes no module, no kernel and no result of any of them, it is no fault that this
        corpus has, and another one is drawn.  Where it changes those of a model that the command
        was not tried on, the command is.
        """
        left = Counter(quotas)
        left.subtract(row["class"] for row in score.counted(done))
        queue: deque[server.Task] = deque()
        taken: set[tuple[str, int, int, str]] = {(row["file"], *row["edit"]) for row in done}
        known = judge.Arguments()
        clean: dict[str, dict[str, Any] | None] = {}
        waiting: list[Trial] = []

        def more(name: str) -> None:
            for site in orders[name]:
                key = site.file, site.mutation.start, site.mutation.end, site.mutation.text
                if key not in taken:
                    taken.add(key)
                    trial = Trial(site, self._described(site))
                    queue.append(self._mutant(trial, "try", site.models))
                    return

        def probe(trial: Trial) -> None:
            queue.appendleft(self._mutant(trial, "probe", trial.models))
            for model in trial.models:
                if model not in clean:
                    clean[model] = None
                    queue.appendleft(self._clean_probe(model))

        def concluded(trial: Trial) -> Iterator[dict[str, Any]]:
            again = trial.conclude(clean)
            if again:
                queue.appendleft(self._mutant(trial, "again", again))
            else:
                yield self._ended(trial, known, more)

        while any(
            n > 0 for n in left.values()
        ):  # classes take turns, so that a run that is stopped has all
            for name in quotas:
                if left[name] > 0:
                    left[name] -= 1
                    more(name)
        for ended in server.run(queue, self.jobs):
            trial, step = ended.key
            if step == "clean":
                clean[trial] = ended.said[0] if ended.said else {"kind": "none"}
            elif step == "probe":
                trial.probed = ended.said
                waiting.append(trial)
            else:
                trial.tried(ended)
                if step == "try" and trial.row["outcome"] == judge.SURVIVED:
                    probe(trial)
                else:
                    yield self._ended(trial, known, more)
            ready = [t for t in waiting if all(clean[m] is not None for m in t.models)]
            waiting = [t for t in waiting if t not in ready]
            for each in ready:
                yield from concluded(each)

    def _ended(self, trial: Trial, known: judge.Arguments, more: Any) -> dict[str, Any]:
        row = trial.row
        if row["outcome"] == judge.SURVIVED:
            row["outcome"], row["argument"] = known.of(row)
        if row["outcome"] in (judge.INVALID, judge.NO_EFFECT):
            more(trial.site.kind.name)
        shutil.rmtree(self._place(trial.site), ignore_errors=True)
        return row

    def _clean_probe(self, model: str) -> server.Task:
        line = self._probed(model)

        def run(say: Any) -> None:
            from tests.mutations import commands as ours

            ours.enter()
            say(ours.probe(line, clean=True) | {"model": model})

        return server.Task((model, "clean"), self.base, self.clean, run, LIMIT)

    def _probed(self, model: str) -> list[str]:
        entry = self.entries[model]
        return words(CHECK, entry, self.flags)

    def _place(self, site: sites.Site) -> Path:
        m = site.mutation
        what = f"{site.file}:{m.start}:{m.end}:{m.text}:{site.models}"
        key = hashlib.sha256(what.encode()).hexdigest()
        return self.folder / "mutants" / key[:16]

    def _mutant(self, trial: Trial, step: str, models: Sequence[str]) -> server.Task:
        """Run the command of its class on models until one is red (``try``, ``again``), or see what
        its compiles make (``probe``)."""
        site = trial.site
        place = self._place(site)
        text = (self.base / site.file).read_text()
        module = site.file.removesuffix(".py").replace("/", ".")
        command = site.kind.command
        lines = [
            (m, self._probed(m) if step == "probe" else words(command, self.entries[m], self.flags))
            for m in models
        ]

        def prepare(number: int) -> None:
            tree.overlay(place, self.base, site.file, site.mutation.applied(text))
            task.cache = tree.cache(self.folder / "caches" / str(number), self.clean)

        def run(say: Any) -> None:
            from tests.mutations import commands as ours

            error = ours.enter(module)
            if error:
                say({"kind": "invalid", "error": error})
                return
            used = time.process_time()
            for name, line in lines:
                say({"kind": "begin", "model": name})
                told = ours.probe(line) if step == "probe" else ours.run(line)
                say(told | {"model": name})
                most = MORE if step == "again" else ENOUGH
                if told.get("code") or time.process_time() - used > most:
                    return

        task = server.Task((trial, step), place, self.clean, run, LIMIT, prepare)
        return task

    def planted(self, faults: Sequence[Planted]) -> Iterator[dict[str, Any]]:
        """Try faults of our own choice, each on the one model that is named with it."""
        wanted = sorted({f.model for f in faults})
        told = self._built(self.folder / "planted", wanted)
        self.flags = told["flags"]
        self.entries = {e["name"]: _entry(e) for e in told["entries"]}
        trials = [Trial(site, self._described(site)) for site in map(self._planted, faults)]
        tasks = deque(self._mutant(trial, "try", trial.site.models) for trial in trials)
        for done in server.run(tasks, self.jobs):
            trial, _ = done.key
            trial.tried(done)
            shutil.rmtree(self._place(trial.site), ignore_errors=True)
            yield trial.row

    def _planted(self, fault: Planted) -> sites.Site:
        text = (self.base / fault.file).read_text()
        if text.count(fault.before) != 1:
            raise ValueError(
                f"{fault.before!r} is in {fault.file} {text.count(fault.before)} times"
            )
        start = text.index(fault.before)
        line = text.count("\n", 0, start) + 1
        edit = Mutation("planted", start, start + len(fault.before), fault.after, line, line)
        return sites.Site(CLASSES[fault.kind], fault.file, edit, (fault.model,), fault.passes)

    def _described(self, site: sites.Site) -> dict[str, Any]:
        text, m = (self.base / site.file).read_text(), site.mutation
        return {
            "class": site.kind.name,
            "command": site.kind.command,
            "file": site.file,
            "line": m.line,
            "function": function_at(text, m.line),
            "edit": [m.start, m.end, m.text],
            "operator": m.operator,
            "before": m.before(text),
            "after": m.after(text),
            "passes": list(site.passes),
            "tried": [],
            "of": len(site.models),
            "seconds": 0.0,
            "processor": 0.0,
        }


def _run(entry: Entry, flags: list[str], wanted: Sequence[str]) -> Any:
    """Its commands: one with the framework's values checks as well.  The lines of the files
    ``wanted`` that they execute are traced."""

    def run(say: Any) -> None:
        from tests.mutations import commands, coverage

        error = commands.enter()
        if error:
            say({"kind": "invalid", "error": error})
            return
        with coverage.traced(wanted) if wanted else nullcontext() as tracer:
            for told in _told(entry, flags):
                say(told)
        if tracer is not None:
            say({"kind": "coverage", "lines": tracer.lines(), "tokens": sorted(tracer.tokens)})

    return run


def _told(entry: Entry, flags: list[str]) -> Iterator[dict[str, Any]]:
    from tests.mutations import commands

    for command in reversed(entry.commands):
        told = commands.run(words(command, entry, flags)) | {"command": command}
        yield told
        if command == AGAINST and not told["code"]:  # the others are parts of it
            for part in entry.commands:
                yield told | {"command": part}
            return


def _entry(told: dict[str, Any]) -> Entry:
    lists = {k: tuple(told[k]) for k in ("commands", "extra", "tokens")}
    return Entry(**{**told, **lists})


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
