"""A system under test is one module: this one brings its own, and storms it to a verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.clients.types import Status
from harness.formats.history import Op, Read, RecordRun, Send, encode
from harness.formats.run_info import Promise
from harness.runs import storm
from harness.runs.clock import now_us
from harness.runs.run_folder import RunDir
from harness.systems import registry
from harness.systems.interface import System
from nemesis.faults import Kill
from nemesis.formats.schedule import Cluster, Schedule
from node.formats.errors import UsageError
from tests.support.harness_fakes import FakeClients, FakeCluster, FakeWorld


class InMemoryClients(FakeClients):
    """One producer whose sends are acknowledged at once, and a reader at the end, who does not
    see the last `forgotten` records."""

    def __init__(
        self, partitions: tuple[str, ...], world: FakeWorld, history: Path, forgotten: int
    ) -> None:
        super().__init__(partitions, world)
        self._file = history.open("wb")
        self._forgotten = forgotten
        self._ops = 0
        self._log: list[int] = []

    @property
    def status(self) -> Status:
        if self.calls and "stop_writing" not in self.calls and len(self._log) < 500:
            offset, value = len(self._log), 1 + len(self._log)
            self._log.append(value)
            self._write(
                sends=(Send(partition="log-0", value=value),),
                done=(Send(partition="log-0", value=value, offset=offset),),
            )
        return super().status

    def read_everything(self) -> None:
        kept = len(self._log) - self._forgotten
        record = RecordRun(offset=0, value=1, count=kept)
        self._write(
            final=True,
            reads=(Read(partition="log-0", start=0),),
            read=(
                Read(partition="log-0", start=0, records=(record,), hw=kept),
                Read(partition="log-0", start=kept, hw=kept),
            ),
        )
        super().read_everything()
        self._file.close()

    def _write(
        self,
        *,
        sends: tuple[Send, ...] = (),
        done: tuple[Send, ...] = (),
        reads: tuple[Read, ...] = (),
        read: tuple[Read, ...] = (),
        final: bool = False,
    ) -> None:
        """An operation, invoked and completed."""
        for kind, sent, got in (("invoke", sends, reads), ("ok", done, read)):
            op = Op(
                op=self._ops,
                t_us=now_us(),
                process=1 + final,
                client="c2" if final else "c1",
                type=kind,  # type: ignore[arg-type]
                f="poll" if final else "send",
                sends=sent,
                reads=got,
                final=final,
            )
            self._file.write(encode(op))
        self._ops += 1


class WorldOfBrokers(FakeWorld):
    """A world that knows brokers only: the system has no other nodes."""

    def is_up(self, node: str) -> bool:
        assert node.startswith("n"), f"the system has no node {node}"
        return super().is_up(node)

    def is_paused(self, node: str) -> bool:
        assert node.startswith("n"), f"the system has no node {node}"
        return super().is_paused(node)


class InMemoryLog(System):
    """A log that keeps everything, in a list of this process."""

    summary = "a list in the memory of a test"
    faults = ("kill", "pause")
    forgotten = 0

    def version(self) -> str:
        return "7.1"

    def launch(self, schedule: Schedule, folder: RunDir, *, links: bool) -> FakeCluster:
        cluster = FakeCluster(schedule, folder)
        cluster.capabilities = ()
        cluster.promise = Promise()
        cluster.world = WorldOfBrokers()
        names = schedule.cluster.partition_names()
        history = folder.path / "history.jsonl"
        cluster.made = InMemoryClients(names, cluster.world, history, self.forgotten)
        return cluster


class ForgetfulLog(InMemoryLog):
    """A log that loses its last three records."""

    forgotten = 3


@pytest.fixture
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEAST_RECOVERY_S", "STOP_MARGIN_S", "CATCH_UP_S"):
        monkeypatch.setattr(storm, name, 0.0)


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize(
    ("system", "verdict", "code"), [(InMemoryLog, "valid", 0), (ForgetfulLog, "invalid", 1)]
)
def test_a_system_of_its_own_is_stormed_to_a_verdict(
    system: type[InMemoryLog],
    verdict: str,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"{__name__}:{system.__name__}"
    words = f"--system {name} --partitions 1 --time-limit 0.3 --seed 1 --no-spark --quiet --json"
    with pytest.raises(SystemExit) as ended:
        main(["run", *words.split()])
    told = json.loads(capsys.readouterr().out)
    assert (told["result"]["verdict"], ended.value.code) == (verdict, code), told["result"]
    folder = Path(told["path"])
    info = json.loads((folder / "run.json").read_text())
    assert info["system"] == {"name": name, "version": "7.1"}
    assert (info["protocol"], info["voters"]) == (system.__name__, [])
    assert info["replay"] == f"floodmark run --system {name} --schedule {folder}"
    kinds = {
        fault["what"] for fault in json.loads((folder / "schedule.json").read_text())["faults"]
    }
    assert kinds <= {"kill", "pause"}
    # A failure of somebody else's log has no baseline among our protocols.
    assert not (folder / "baseline.json").exists()
    assert Path(told["page"]).is_file()


def test_what_a_system_cannot_take_is_refused() -> None:
    system = registry.find(f"{__name__}:InMemoryLog")
    system.check(Schedule(faults=(Kill(on="n1", at_ms=1),)))
    with pytest.raises(UsageError, match=r"InMemoryLog' cannot take 'cut' \(it can: kill, pause\)"):
        system.check_kinds(("kill", "cut"))
    with pytest.raises(UsageError, match="InMemoryLog' has no bug 'M18'"):
        system.complete(Cluster(bugs=("M18",)))


def test_our_brokers_are_the_default_and_take_every_fault() -> None:
    assert registry.names() == ["floodmark"]
    system = registry.find(registry.DEFAULT)
    assert system.name == "floodmark"
    assert {"kill", "cut", "upgrade", "elect-unclean"} <= set(system.faults)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nats", r"unknown system 'nats' \(known: floodmark\)"),
        ("registry", "unknown system 'registry'"),
        ("no.such.module:System", "cannot be loaded: No module named"),
        ("json:Missing", "cannot be loaded: module 'json' has no attribute 'Missing'"),
        ("json:JSONDecoder", "'json:JSONDecoder' is no system"),
    ],
)
def test_an_unknown_system_is_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        registry.find(name)
