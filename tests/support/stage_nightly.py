"""Nightly runs of one store on a clock that their jobs move: a stage of scripts.

`run budget_s=900 free=0` carries one out; its options are settings and fields of the environment.
The output has the exit code, the headline and the errors; other commands show what is left of it.
Paths of the store are written STORE, the names of runs RUN."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any, Final
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from checker.formats.verdict import Verdict
from harness.formats import journal, nightly_journal
from harness.formats.finding import Finding
from harness.formats.nightly_journal import Ran
from harness.nightly.kinds import least_hit
from harness.search import findings
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError, StorageError, UsageError
from node.formats.host_tools import FAKETIME
from tests.support import trial_adapters
from tests.support.nightly_fakes import LOST, FakeEnvironment, NightlyRuns, loses_a_write
from tests.support.paths import lasting_folder

RUN_NAME: Final = re.compile(r"\d{8}T\d{6}(-\d+)?")
ELSEWHERE: Final = re.compile(r"(?<!\S)/\S+/findings/")
EXITS: Final = {0: "green", 1: "red", 2: "open"}


class NightlyStage:
    """A store, and what happens in its nightly runs from now on."""

    def __init__(self) -> None:
        self.runs = NightlyRuns(lasting_folder("nightly") / "store")
        self._patch = pytest.MonkeyPatch()
        self._changes: dict[str, Any] = {}
        self._at: dict[int, Callable[[FakeEnvironment], None]] = {}
        self._said = ""

    # -- what happens

    def finds(self, *names: str, faults: int = 1) -> None:
        """Let searches on kafka find these from now on."""
        self._changes["finds"] = [loses_a_write(name, faults) for name in names]

    def storms(self, **anomalies: str) -> None:
        """Storms of these protocols lose writes from now on."""
        self._changes["storms"] = anomalies

    def systems(self, *speeds: str, system: str = "Trial", **settings: str) -> None:
        """Third-party systems to storm; the environment takes their speed for a protocol."""
        name = f"{trial_adapters.__name__}:{system}"
        given = "".join(f"+{key}={value}" for key, value in settings.items())
        self._changes["systems"] = ",".join(f"{name}+speed={speed}{given}" for speed in speeds)

    def missing(self, *tools: str) -> None:
        """Pretend that these tools are not installed."""
        self._changes["missing"] = dict.fromkeys(tools, "it is not here")

    def start_fails(self, *why: str, usage: int = 0, protocol: str = "") -> None:
        """Storms do not start, those of one protocol or all but the canary."""
        error: type[FloodmarkError] = UsageError if usage else FloodmarkError

        def start(schedule: Schedule) -> None:
            if protocol in ("", schedule.cluster.protocol) and schedule.name != "canary":
                raise error(" ".join(why))

        self._changes["start"] = start

    def without_clocks(self) -> None:
        """Pretend that the library for faults of clocks is missing."""
        (self.runs.tools / FAKETIME).unlink()

    def without_pages(self) -> None:
        """No page of a finding can be built."""
        failure = ZeroDivisionError("a bug of the page")
        self._patch.setattr(findings, "page_of_finding", partial(_fail, failure))

    def save(self, name: str, protocol: str = "") -> None:
        """`floodmark search` saves a finding in the store."""
        found: Finding = loses_a_write(name)
        cluster = found.smallest.cluster
        cluster = replace(cluster, protocol=protocol or cluster.protocol)
        smallest = replace(found.smallest, cluster=cluster)
        findings.keep(replace(found, drawn=smallest, smallest=smallest), self.runs.store)

    def leave(self, folder: str) -> None:
        """Leave an interrupted run in this folder."""
        (self.runs.store / folder).mkdir(parents=True)
        (self.runs.store / folder / "run.json").write_text("{}")

    def remove(self, pattern: str) -> None:
        """Somebody removes these folders."""
        for folder in self.runs.store.glob(pattern):
            shutil.rmtree(folder)

    def damage_journal(self, line: int) -> None:
        """Cut the end off a line of the first journal."""
        journal = nightly_journal.journal_of(self.runs.store, 1)
        lines = journal.read_bytes().split(b"\n")
        lines[line] = lines[line][:20]
        journal.write_bytes(b"\n".join(lines))

    def at(self, number: int, what: str) -> None:
        """Before this job or run of the next nightly run: sigterm, disk-is-full, ..."""
        self._at[number] = getattr(self, f"_{what.replace('-', '_')}")

    def _sigterm(self, environment: FakeEnvironment) -> None:
        signal.raise_signal(signal.SIGTERM)

    def _disk_is_full(self, environment: FakeEnvironment) -> None:
        environment.free = 1000

    def _disk_refuses(self, environment: FakeEnvironment) -> None:
        error = StorageError("nightly/0001.jsonl: the disk is full")
        self._patch.setattr(journal.JobJournal, "add", partial(_fail, error))

    def _another(self, environment: FakeEnvironment) -> None:
        with pytest.raises(UsageError) as refused:
            NightlyRuns(self.runs.store).nightly()
        self.runs.environment = environment
        environment.notes.append(f"refused: {refused.value}")

    def run(self, **changes: Any) -> list[str]:
        """Carry out a nightly run, or go on with one that is not finished."""
        if "canary" in changes:
            changes["canary"] = Verdict(changes["canary"])
        if (lost := changes.get("lose", "")).startswith("finding/"):
            finding = loses_a_write(lost.removeprefix("finding/"))
            changes["lose"] = f"replay/simulated/{finding.smallest.digest()}"
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = self.runs.nightly(at=self._at, **self._changes | changes)
            except FloodmarkError as error:
                return [self._plain(f"refused: {error}")]
            finally:
                self._patch.undo()
        self._at = {}
        self._said = out.getvalue()
        headline, *_ = self._said.partition(" after ")
        told = f"exit {code} {EXITS.get(code, '')}".strip()
        return [self._plain(line) for line in (told, *headline.splitlines(), *_lines(err))]

    # -- what is left of it

    def said(self, *words: str) -> list[str]:
        """Return the output of the last one, or the lines that begin with these words."""
        start = " ".join(words)
        lines = map(str.strip, self._said.splitlines())
        return [self._plain(line) for line in lines if line.startswith(start)]

    def state(self) -> str:
        """Return the number and state of each nightly run, and the last canary's verdict."""
        states = ", ".join(f"{each.number} {each.state}" for each in self.runs.all)
        return f"{states}; canary {self.runs.last.canary.result or 'not judged'}"

    def spent(self) -> str:
        """Return the seconds of each kind of work."""
        last = self.runs.last
        shares = [f"{name} {s:.0f}" for name, s in last.spent.items()]
        return f"{', '.join(shares)}; {last.used_s:.0f} of {last.budget_s:.0f}"

    def shares(self) -> str:
        """Return the percentages of each kind of work."""
        return ", ".join(f"{name} {part:.1f}" for name, part in self.runs.last.shares.items())

    def buckets(self) -> list[str]:
        """Return the classes of failures, and what is kept of each."""
        lines = []
        for found in self.runs.last.buckets:
            lines.append(f"{found.protocol}, {found.world}, {found.name}: {found.count}x")
            lines[-1] += ", expected" if found.expected else ""
            for what in ("schedule", "page"):
                path = getattr(found, what)
                there = bool(path) and (self.runs.store / path).is_file()
                lines.append(f"  {what} {path or '-'}{'' if there or not path else ', not there'}")
            lines.append(f"  {found.replay}")
        return [*map(self._plain, lines)]

    def has(self, name: str) -> list[str]:
        """Return a list of the last nightly run (red, open, problems, ..), equal lines counted."""
        found = getattr(self.runs.last, name)
        lines = [f"{k}: {v}" for k, v in found.items()] if isinstance(found, dict) else found
        counted = [(line, len([*same])) for line, same in groupby(map(self._plain, lines))]
        return [f"{line} ({n}x)" if n > 1 else line for line, n in counted] or ["-"]

    def unmet(self) -> list[str]:
        """Schedules whose replay was not as expected."""
        said = ("finding" if each.is_finding else "schedule" for each in self.runs.last.unmet)
        return [f"a {word} no longer fails" for word in said] or ["-"]

    def cells(self) -> list[str]:
        """Return the storms of all nightly runs in order, and where the next one goes."""
        storms = [storm for each in self.runs.all for storm in each.storms]
        then = least_hit([], self.runs.all)
        assert then is not None
        return [
            *(f"{storm.protocol}/{storm.kinds} {storm.runs}x" for storm in storms),
            f"next {then[0]}/{then[1]}",
        ]

    def stormed(self) -> list[str]:
        """Return the versions of systems that had storms."""
        return [
            f"{one.name}: {one.runs} storms, {dict(one.buckets) or 'no failures'}"
            for one in self.runs.last.systems
        ]

    def ran(self) -> str:
        """Return the runs on real processes by the reason for them."""
        rows = [row for each in self.runs.all for row in self.runs.journal(each.number)]
        why = Counter(row.why for row in rows if isinstance(row, Ran))
        return ", ".join(f"{w} {n}" for w, n in why.items())

    def notes(self) -> list[str]:
        assert self.runs.environment is not None
        return [*map(self._plain, self.runs.environment.notes)]

    def files(self, pattern: str) -> list[str]:
        """Paths of the store, with their number if several are alike."""
        found = sorted(self.runs.store.glob(pattern))
        names = Counter(self._plain(str(path.relative_to(self.runs.store))) for path in found)
        return [f"{name} ({n}x)" if n > 1 else name for name, n in names.items()] or ["-"]

    def page(self, *words: str | int) -> str:
        """Count this text in the index."""
        return f"{self.runs.index.count(' '.join(map(str, words)))}x"

    def in_order(self, *names: str) -> str:
        """Return these findings on kafka, in the order in which the index has them first."""
        index = self.runs.index
        return " ".join(sorted(names, key=lambda name: index.index(f"kafka · {LOST}: {name}")))

    def junit(self) -> list[str]:
        """Return the cases that are not passed, and how many there are."""
        (suite,) = ElementTree.parse(self.runs.store / "junit.xml").getroot()
        lines = []
        for case in suite:
            name = f"{case.get('classname')} {case.get('name')}"
            for part in (part for part in case if part.tag != "system-out"):
                lines.append(f"{part.tag} {name}: {part.get('message')}")
                replays = (part.text or "").partition("floodmark replay ")
                lines += [f"  {''.join(replays[1:]).splitlines()[0]}"] if replays[1] else []
        assert len(suite) == int(suite.get("tests", ""))
        failed, skipped = suite.get("failures"), suite.get("skipped")
        return [*map(self._plain, lines), f"{failed} failures, {skipped} skipped"]

    def _plain(self, text: str) -> str:
        there = text.replace(str(self.runs.store), "STORE")
        return RUN_NAME.sub("RUN", ELSEWHERE.sub("findings/", there))


def _fail(error: Exception, *arguments: object, **options: object) -> Any:
    raise error


def _lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().strip().splitlines()
