"""A run: the corpus is built and traced once for a state of the sources, then mutants are tried."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.mutations import classes, judge, server, sites, tree
from tests.mutations.classes import AGAINST, CHECK, CLASSES, TRAIN
from tests.mutations.corpus import Entry, words
from tests.mutations.operators import Mutation
from tests.mutations.planted import Planted

#: Seconds of processor time after which no further model is tried.
ENOUGH = 5.0
#: Of how many models it is said what a survivor changed.
PROBED = 3
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
        self.clean = clean or self.work / "cache"
        self.clean.mkdir(parents=True, exist_ok=True)
        self.entries: dict[str, Entry] = {}
        self.flags: list[str] = []
        self.dropped: dict[str, str] = {}

    # -- the corpus --------------------------------------------------------------------------------

    def prepare(self) -> sites.Coverage:
        """Build the models and trace them; what an earlier run of these sources found is kept."""
        corpus = self.folder / f"corpus-{tree.corpus_digest()[:16]}"
        kept = corpus / "corpus.json"
        if not kept.exists():
            told = self._built(corpus)
            kept.write_text(json.dumps(told))
        told = json.loads(kept.read_text())
        self.flags = told["flags"]
        self.entries = {e["name"]: _entry(e) for e in told["entries"]}
        self._trace()
        traces = []
        for name, entry in self.entries.items():
            found = json.loads(self._kept(entry).read_text())
            if found["problem"]:
                self.dropped[name] = found["problem"]
            if found["seconds"]:
                tokens = frozenset(found["tokens"]) | frozenset(entry.tokens)
                traces.append(sites.Traced(name, found["lines"], tokens, found["seconds"]))
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
            say({"kind": "corpus", "entries": [asdict(e) for e in made],
                 "flags": [f for f in corpus.TRAIN_FLAGS if f in known]})  # fmt: skip

        done = next(server.run(iter([self._task("corpus", build, TRACE_LIMIT)]), 1))
        if not done.said or done.said[0]["kind"] != "corpus":
            raise RuntimeError(f"the corpus was not built: {done}")
        return done.said[0]

    def _kept(self, entry: Entry) -> Path:
        """Where the trace of a model is kept: as long as it is made in the same way."""
        return self.folder / "traces" / f"{entry.name}-{entry.key}.json"

    def _trace(self) -> None:
        (self.folder / "traces").mkdir(exist_ok=True)
        wanted = sorted({f for kind in CLASSES.values() for f in kind.paths(self.base)})
        missing = [e for e in self.entries.values() if not self._kept(e).exists()]
        tasks = (self._task(e, _trace(e, wanted, self.flags), TRACE_LIMIT) for e in missing)
        for number, done in enumerate(server.run(tasks, self.jobs)):
            name = done.key.name
            green = {m["command"]: m["seconds"] for m in done.said
                     if m.get("code") == 0 and "command" in m}  # fmt: skip
            bad = [f"{m.get('command')}: {m.get('said') or m.get('error')}" for m in done.said
                   if m.get("code") != 0]  # fmt: skip
            problem = (done.ended or "; ".join(bad))[:600]
            lines = next((m for m in done.said if "lines" in m), {"lines": {}, "tokens": []})
            found = {"seconds": green, "problem": problem, "lines": lines["lines"],
                     "tokens": lines["tokens"]}  # fmt: skip
            self._kept(done.key).write_text(json.dumps(found))
            _tell(f"traced {number + 1}/{len(missing)} {name}: {done.seconds:.0f} s {green}"
                  + (f", NOT GREEN: {problem}" if problem else ""))  # fmt: skip

    def _task(self, key: Any, run: Any, limit: float) -> server.Task:
        return server.Task(key, self.base, self.clean, run, limit)

    # -- mutants -----------------------------------------------------------------------------------

    def run(self, coverage: sites.Coverage, seed: int, quotas: dict[str, int],
            ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """Try mutants until every class has its quota of valid ones."""
        orders = {n: sites.drawn(CLASSES[n], self.base, coverage, seed) for n in quotas}
        left = Counter(quotas)
        queue: list[sites.Site] = []
        taken: set[tuple[str, int, int, str]] = set()

        def more(name: str) -> bool:
            for site in orders[name]:
                key = site.file, site.mutation.start, site.mutation.end, site.mutation.text
                if key not in taken:
                    taken.add(key)
                    queue.append(site)
                    return True
            return False

        while any(left.values()):  # classes take turns, so that a run that is stopped has all
            for name in quotas:
                if left[name]:
                    left[name] -= 1
                    more(name)
        known = judge.equivalents()

        def tasks() -> Iterator[server.Task]:
            while queue:
                yield self._mutant(queue.pop(0))

        running = server.run(tasks(), self.jobs)
        while True:
            try:
                done = next(running)
            except StopIteration:
                if not queue:
                    return
                running = server.run(tasks(), self.jobs)
                continue
            site: sites.Site = done.key
            row = self._row(site, done, known)
            shutil.rmtree(self._place(site), ignore_errors=True)
            if row["outcome"] == judge.INVALID:
                more(site.kind.name)
            yield row

    def effects(self, rows: Sequence[dict[str, Any]]) -> None:
        """Say of each survivor what it changed: ``values`` (results differ from those of the clean
        sources on some input: a hole), ``code`` (only what is compiled differs), ``nothing``."""
        survivors = [r for r in rows if r["outcome"] == judge.SURVIVED]
        models = sorted({name for r in survivors for name in r["tried"][:PROBED]})
        clean: dict[str, dict] = {}
        for done in server.run((self._probe(None, (m,)) for m in models), self.jobs):
            clean |= {told["model"]: told for told in done.said}
        tasks = (self._probe(r, tuple(r["tried"][:PROBED])) for r in survivors)
        for done in server.run(tasks, self.jobs):
            row = done.key
            found = [_effect(clean.get(told["model"]), told) for told in done.said]
            row["effect"] = max(found, key=_EFFECTS.index, default="unknown")
            row["shown_by"] = [t["model"] for t, e in zip(done.said, found, strict=True)
                               if e == row["effect"]][:4]  # fmt: skip

    def _probe(self, row: dict[str, Any] | None, models: tuple[str, ...]) -> server.Task:
        """Probe models in the clean tree (``row`` None) or in that of a survivor."""
        what = "clean" if row is None else f"{row['file']}:{row['edit']}"
        key = hashlib.sha256(f"{what}:{models}".encode()).hexdigest()
        place = self.folder / "mutants" / f"probe-{key[:16]}"
        lines = []
        for name in models:
            entry = self.entries[name]
            chosen = TRAIN if TRAIN in entry.commands else CHECK
            lines.append((name, words(chosen, entry, self.flags)))

        def prepare() -> None:
            if row is not None:
                edit = row["edit"]
                text = (self.base / row["file"]).read_text()
                changed = text[: edit[0]] + edit[2] + text[edit[1] :]
                tree.overlay(place / "tree", self.base, row["file"], changed)
            tree.cache(place / "cache", self.clean)

        def run(say: Any) -> None:
            from tests.mutations import commands as ours

            ours.enter()
            for name, line in lines:
                say(ours.probe(line) | {"model": name})

        where = self.base if row is None else place / "tree"
        return server.Task(row, where, place / "cache", run, LIMIT, prepare)

    def _place(self, site: sites.Site) -> Path:
        m = site.mutation
        what = f"{site.file}:{m.start}:{m.end}:{m.text}:{site.models}"
        key = hashlib.sha256(what.encode()).hexdigest()
        return self.folder / "mutants" / key[:16]

    def _mutant(self, site: sites.Site) -> server.Task:
        place = self._place(site)
        text = (self.base / site.file).read_text()
        module = site.file.removesuffix(".py").replace("/", ".")
        commands = [
            (name, words(site.kind.command, self.entries[name], self.flags)) for name in site.models
        ]

        def prepare() -> None:
            tree.overlay(place / "tree", self.base, site.file, site.mutation.applied(text))
            tree.cache(place / "cache", self.clean)

        def run(say: Any) -> None:
            from tests.mutations import commands as ours

            error = ours.enter(module)
            if error:
                say({"kind": "invalid", "error": error})
                return
            used = time.process_time()
            for name, line in commands:
                say({"kind": "begin", "model": name})
                told = ours.run(line)
                say(told | {"model": name})
                if told["code"] != 0 or time.process_time() - used > ENOUGH:
                    return

        return server.Task(site, place / "tree", place / "cache", run, LIMIT, prepare)

    def planted(self, faults: Sequence[Planted]) -> Iterator[dict[str, Any]]:
        """Try faults of our own choice, each on the one model that is named with it."""
        wanted = sorted({f.model for f in faults})
        told = self._built(self.folder / "planted", wanted)
        self.flags = told["flags"]
        self.entries = {e["name"]: _entry(e) for e in told["entries"]}
        for done in server.run((self._mutant(self._planted(f)) for f in faults), self.jobs):
            shutil.rmtree(self._place(done.key), ignore_errors=True)
            yield self._row(done.key, done, ())

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

    def _row(self, site: sites.Site, done: server.Done, known: Sequence) -> dict[str, Any]:
        text, m = (self.base / site.file).read_text(), site.mutation
        before, after = m.before(text), m.after(text)
        found = judge.outcome(done.said, done.ended)
        if found["outcome"] == judge.SURVIVED and judge.is_equivalent(
            site.file, before, after, known
        ):
            found["outcome"] = judge.EQUIVALENT_SITE
        tried = [m["model"] for m in done.said if m["kind"] == "command"]
        return {
            "class": site.kind.name, "command": site.kind.command, "file": site.file,
            "line": m.line, "edit": [m.start, m.end, m.text], "operator": m.operator,
            "before": before, "after": after, **found,
            "passes": list(site.passes), "right": judge.right(found.get("named", ()), site.passes),
            "tried": tried, "of": len(site.models), "seconds": round(done.seconds, 2),
            "processor": round(done.processor, 2),
        }  # fmt: skip


#: What a survivor changed, from least to most.
_EFFECTS = ("unknown", "nothing", "code", "values")


def _effect(clean: dict | None, found: dict) -> str:
    if clean is None or found["kind"] != "probe":
        return "unknown"
    if clean["values"] != found["values"]:
        return "values"
    return "nothing" if clean["text"] == found["text"] else "code"


def _trace(entry: Entry, wanted: list[str], flags: list[str]) -> Any:
    def run(say: Any) -> None:
        from tests.mutations import commands, coverage

        error = commands.enter()
        if error:
            say({"kind": "invalid", "error": error})
            return
        first = TRAIN if TRAIN in entry.commands else CHECK
        told = coverage.trace(words(first, entry, flags), wanted)
        second = AGAINST if AGAINST in entry.commands else first
        other = commands.run(words(second, entry, flags))
        told["seconds"] = other["seconds"]  # what it costs once everything is compiled
        if second != first:
            say(other | {"command": second})
        say(told | {"command": first})

    return run


def _entry(told: dict[str, Any]) -> Entry:
    lists = {k: tuple(told[k]) for k in ("commands", "extra", "tokens")}
    return Entry(**{**told, **lists})


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -- results ---------------------------------------------------------------------------------------


def result(rows: Sequence[dict], seed: int, count: int, session: Session, seconds: float) -> dict:
    """The run as plain data: what was drawn, scores by class, and every mutation."""
    by_class: dict[str, list[dict]] = defaultdict(list)
    for row in rows:
        if row["outcome"] != judge.INVALID:
            by_class[row["class"]].append(row)
    scores = {name: score(found) for name, found in by_class.items()}
    valid = [r for found in by_class.values() for r in found]
    return {
        "seed": seed, "count": count, "commit": _commit(), "contract": _contract(),
        "sources": session.digest, "jobs": session.jobs, "corpus": len(session.entries),
        "not_green": session.dropped, "train_flags": session.flags,
        "seconds": round(seconds), "seconds_per_mutation": round(seconds / max(len(rows), 1), 2),
        "whole": score(valid), "classes": scores, "mutations": list(rows),
    }  # fmt: skip


def score(rows: Sequence[dict]) -> dict[str, Any]:
    """Counts of outcomes.  ``score``: the part of those that are not equivalent that was caught;
    ``red``: the part that ended with another exit code than 0; ``named_right``: the part of the
    caught ones, where passes execute the site, in which one of them was blamed."""
    counts = Counter(r["outcome"] for r in rows)
    judged = len(rows) - counts[judge.EQUIVALENT_SITE]
    said = [r["right"] for r in rows if r["outcome"] == judge.CAUGHT and r["right"] is not None]
    return {
        "drawn": len(rows), **{o: counts[o] for o in judge.OUTCOMES},
        "score": round(counts[judge.CAUGHT] / judged, 4) if judged else None,
        "red": round(1 - counts[judge.SURVIVED] / judged, 4) if judged else None,
        "named_right": round(sum(said) / len(said), 4) if said else None,
        "seconds": round(sum(r["seconds"] for r in rows) / max(len(rows), 1), 2),
        "processor": round(sum(r["processor"] for r in rows) / max(len(rows), 1), 2),
    }  # fmt: skip


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True,
                          cwd=tree.ROOT)  # fmt: skip
    return done.stdout.strip()


def _contract() -> int | str:
    text = (tree.ROOT / "core_compiler/kernels/__init__.py").read_text()
    line = next(line for line in text.splitlines() if line.startswith("CONTRACT_VERSION"))
    return int(line.rpartition("=")[2])


def chosen(count: int, names: Sequence[str]) -> dict[str, int]:
    return classes.quotas(count, tuple(names))
