"""The parts of a cluster of an external system, one by one."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import psutil
import pytest

from checker.formats.anomalies import KINDS as ANOMALIES
from harness.runs.system_check import HINTS
from harness.systems import registry
from harness.systems.adapter import Adapter, Node, Roles, Setting
from harness.systems.disks import UserDisks
from harness.systems.external import guardian, launcher, load, processes
from harness.systems.external.logs import log_lines
from harness.systems.external.membership import MemberChanges
from harness.systems.external.probe import Probe, _Memory
from harness.systems.external.processes import ExternalProcesses, Launch
from harness.systems.external.static_check import mistakes
from harness.systems.external.system import ExternalSystem
from harness.systems.external.unsynced import UnsyncedFiles
from harness.systems.external.world import ExternalWorld
from harness.systems.node_processes import ExpectedExits, last_lines
from nemesis.formats.schedule import Schedule
from nemesis.strace import Tracers
from nemesis.view import ClusterView
from node.formats import trace
from node.formats.errors import FloodmarkError, UsageError
from node.formats.files import AppendOnlyFile
from node.runtime.damage import DiskDamage
from node.runtime.failing_disk import DiskFails
from tests.support import trial_adapters
from tests.support.paths import ROOT
from tests.support.python_process import PythonProcess
from tests.support.waiting import until

# -- processes

TREE = "sleep 1000 & setsid sleep 1000 & echo up $$; wait"
"""A node with a child in its session, and one that left it."""
NAMELESS = "env -i sleep 1000 & echo up $$; "
"""A child whose environment says nothing, as of a server that writes its title over it."""


def started(tmp_path: Path, command: list[str], **ports: int) -> ExternalProcesses:
    exits = AppendOnlyFile(tmp_path / "exits.jsonl")
    launch = Launch(command, tmp_path, "127.0.0.1", ports)
    made = ExternalProcesses(
        lambda node: launch, lambda node, pid: None, tmp_path, exits, stop_codes=(0,)
    )
    made.start("n1")
    return made


def world_of(
    nodes: ExternalProcesses, disks: Any, tmp_path: Path, unsynced: tuple[str, ...] = ()
) -> ExternalWorld:
    """Return a world of one node, without links and clocks."""
    parts: Any = (nodes, None, disks, lambda operation: None, Tracers(tmp_path), None)
    files = UnsyncedFiles(unsynced)
    node = {"n1": Node("n1", tmp_path / "n1", {}, {})}
    adapter, actors = trial_adapters.Trial({"broken": "", "speed": ""}), cast(Any, None)
    members = MemberChanges(adapter, node, ("n1",), 1, actors, view=ClusterView())
    return ExternalWorld(*parts, node, files, members)


def said(tmp_path: Path, text: str) -> Callable[[], bool]:
    return lambda: text in (tmp_path / "n1.txt").read_text()


def ends(tmp_path: Path) -> list[tuple[str, int, bool]]:
    lines = (tmp_path / "exits.jsonl").read_bytes().splitlines()
    return [(e["by"], e["code"], e["expected"]) for e in map(json.loads, lines)]


@pytest.mark.integration
def test_a_kill_reaches_all_that_a_node_started(tmp_path: Path) -> None:
    nodes = started(tmp_path, ["sh", "-c", TREE])
    mark = f"{guardian.MARK}={nodes.mark}"
    until(lambda: len(guardian.marked(mark)) >= 3)
    nodes.pause("n1")
    assert nodes.is_paused("n1")
    nodes.kill("n1")
    assert not guardian.marked(mark)
    assert not nodes.is_up("n1")
    nodes.close()
    assert ends(tmp_path) == [("kill", -signal.SIGKILL, True)]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("script", "by", "expected"),
    [
        ("exit 3", "itself", False),
        ("kill -KILL $$", "outside", True),
        ("kill -TERM $$", "outside", True),
        ("kill -SEGV $$", "itself", False),
    ],
)
def test_who_ended_a_node(tmp_path: Path, script: str, by: str, expected: bool) -> None:
    nodes = started(tmp_path, ["sh", "-c", f"{NAMELESS} echo last words; {script}"])
    until(said(tmp_path, "last words"))
    session = int((tmp_path / "n1.txt").read_text().split()[1])
    until(nodes.reap)
    assert guardian.in_sessions({session}) == [], "what it leaves behind is killed"
    nodes.close()
    assert [(who, good) for who, _, good in ends(tmp_path)] == [(by, expected)]
    assert len(nodes.problems) == (by == "outside")
    known = [(each.node, str(each.said)[-10:]) for each in nodes.unexpected]
    assert known == ([] if expected else [("n1", "last words")])
    assert last_lines(tmp_path / "n1.txt").endswith("last words")


@pytest.mark.integration
@pytest.mark.parametrize(("files", "excused"), [("*.log", True), ("*.absent", False)])
def test_only_damage_that_was_done_excuses_a_node(
    tmp_path: Path, files: str, excused: bool
) -> None:
    nodes = started(tmp_path, ["sh", "-c", "exit 3"])
    until(nodes.reap, "the end of n1")
    (tmp_path / "n1").mkdir()
    (tmp_path / "n1" / "a.log").write_text("x")
    world = world_of(nodes, None, tmp_path)
    with contextlib.suppress(FloodmarkError):
        world.damage_disk("n1", DiskDamage("flip", files=files))
    world.start("n1")
    until(nodes.reap, "the end of n1")
    assert ends(tmp_path) == [("itself", 3, False), ("itself", 3, excused)]
    nodes.close()


def test_a_fault_excuses_only_the_processes_that_it_was_on() -> None:
    exits = ExpectedExits()
    exits.started("n1", 1)
    exits.begin("n1", 1)
    exits.started("n1", 2)
    exits.begin("n1", 2)
    exits.end("n1")
    exits.started("n1", 3)
    exits.end("n1")
    exits.started("n1", 4)
    exits.process("n1", 5)
    assert [number for number in range(1, 8) if exits.covers("n1", number, 1)] == [1, 2, 3, 5]
    # Damage excuses to the end.
    exits.from_now_on("n2", 3)
    exits.from_now_on("n2", 5)
    assert [number for number in range(1, 6) if exits.covers("n2", number, 1)] == [3, 4, 5]
    exits.from_now_on("n3", 2, (74,))
    assert [code for code in (1, 74) if exits.covers("n3", 3, code)] == [74]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("what", "excused"), [("error", [True, False]), ("lying", [True, True]), ("slow", 2 * [False])]
)
def test_a_node_is_excused_while_its_disk_fails(
    tmp_path: Path, what: Any, excused: list[bool]
) -> None:
    disks = UserDisks({"n1": tmp_path / "n1"}, tmp_path, Schedule(faults=()))
    nodes = started(tmp_path, ["sh", "-c", "exit 3"])
    world = world_of(nodes, disks, tmp_path)
    # No disk was started: it only remembers what is to be wrong with it.
    number = world.add("n1", DiskFails(what))
    until(nodes.reap, "the end of n1")
    world.remove("n1", DiskFails(what), number)
    nodes.start("n1")
    until(nodes.reap, "the end of n1")
    assert [expected for _, _, expected in ends(tmp_path)] == excused
    nodes.close()
    disks.close()


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


ENDLESS = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"


@pytest.mark.integration
@pytest.mark.parametrize("turn", [1, -1])
@pytest.mark.parametrize(
    ("command", "by", "code", "words"),
    [
        (shell("echo last words; exit 3"), "itself", 3, "last words"),
        (shell("exit 0"), "itself", 0, ""),
        (shell("kill -SEGV $$"), "itself", -signal.SIGSEGV, ""),
        (shell("kill -KILL $$"), "outside", -signal.SIGKILL, ""),
        (["no-such-program"], "itself", launcher.EXIT_NO_COMMAND, "cannot be executed"),
    ],
)
def test_a_node_ends_when_any_of_its_processes_does(
    tmp_path: Path, turn: int, command: list[str], by: str, code: int, words: str
) -> None:
    nodes = started(tmp_path, launcher.together([command, ["sleep", "1000"]][::turn]))
    mark = f"{guardian.MARK}={nodes.mark}"
    until(nodes.reap)
    assert not guardian.marked(mark)
    nodes.close()
    assert [(who, how) for who, how, _ in ends(tmp_path)] == [(by, code)]
    assert words in last_lines(tmp_path / "n1.txt")


@pytest.mark.integration
def test_a_process_that_ends_by_itself_is_started_again(tmp_path: Path) -> None:
    stays = "trap 'exit 0' TERM; echo stays; while :; do sleep 0.05; done"
    once = f"cd {tmp_path}; if [ -e flag ]; then {stays}; fi; touch flag; exit 3"
    nodes = started(tmp_path, launcher.together([shell(once)], again=True))
    until(said(tmp_path, "stays"))
    nodes.ask_to_stop("n1")
    nodes.await_stop("n1")
    nodes.close()
    assert "sh ended with code 3, and is started again" in (tmp_path / "n1.txt").read_text()
    assert ends(tmp_path) == [("stop", 0, True)]


@pytest.mark.integration
def test_all_processes_of_a_node_are_paused_and_stopped(tmp_path: Path) -> None:
    slow = "trap 'sleep 0.3; echo done; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    nodes = started(tmp_path, launcher.together([shell(ENDLESS), shell(slow)]))
    until(lambda: (tmp_path / "n1.txt").read_text().count("up") == 2)
    nodes.pause("n1")
    until(lambda: len(_stopped(nodes)) >= 3)
    nodes.ask_to_stop("n1")
    nodes.await_stop("n1")
    assert last_lines(tmp_path / "n1.txt").endswith("done")
    nodes.close()
    assert ends(tmp_path) == [("stop", 0, True)]


@pytest.mark.integration
def test_only_the_first_process_of_a_node_is_asked_to_stop(tmp_path: Path) -> None:
    """A server that loses its helper first ends in another way."""
    helper = "trap 'echo helper asked' TERM; echo up; while :; do sleep 0.05; done"
    server = "trap 'sleep 0.3; exit 0' TERM; sh -c \"$HELPER\" & echo up; wait; exit 134"
    nodes = started(tmp_path, ["env", f"HELPER={helper}", "sh", "-c", server])
    until(lambda: (tmp_path / "n1.txt").read_text().count("up") == 2)
    nodes.ask_to_stop("n1")
    nodes.await_stop("n1")
    nodes.close()
    assert "helper asked" not in (tmp_path / "n1.txt").read_text()
    assert ends(tmp_path) == [("stop", 0, True)]


def _stopped(nodes: ExternalProcesses) -> list[int]:
    marked = guardian.marked(f"{guardian.MARK}={nodes.mark}")
    return [pid for pid in marked if psutil.Process(pid).status() == psutil.STATUS_STOPPED]


@pytest.mark.integration
def test_a_node_that_does_not_stop_is_killed_and_a_finding(tmp_path: Path) -> None:
    nodes = started(tmp_path, ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"])
    until(said(tmp_path, "up"))
    nodes.ask_to_stop("n1")
    nodes.stop_timeout_s = 0.1
    nodes.await_stop("n1")
    nodes.close()
    assert ends(tmp_path) == [("itself", -signal.SIGKILL, False)]


@pytest.mark.integration
def test_a_taken_port_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PORT_TIMEOUT_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FloodmarkError, match=f"port {port} of n1 is taken by another process"):
            started(tmp_path, ["true"], client=port)


HARNESS = """
import sys
from pathlib import Path
from tests.harness.systems.external.test_parts import started
nodes = started(Path(sys.argv[1]), ["sh", "-c", {tree!r}])
print(nodes.mark, flush=True)
sys.stdin.read()
"""


@pytest.mark.integration
@pytest.mark.parametrize(
    "tree", [TREE, f"{NAMELESS} wait"], ids=["children with a mark", "children without a mark"]
)
def test_nothing_outlives_a_harness_that_is_killed(tmp_path: Path, tree: str) -> None:
    harness = PythonProcess("-c", HARNESS.format(tree=tree), tmp_path)
    mark = f"{guardian.MARK}={harness.line()}"
    until(lambda: (tmp_path / "n1.txt").exists() and said(tmp_path, "up")())
    session = int((tmp_path / "n1.txt").read_text().split()[1])

    def left() -> list[int]:
        return [*guardian.in_sessions({session}), *guardian.marked(mark)]

    assert len(left()) >= 3
    harness.kill()
    harness.communicate()
    until(lambda: not left())


# -- files


def test_a_power_cut_takes_what_was_appended_since_the_node_started(tmp_path: Path) -> None:
    kept, cut, gone, other = (tmp_path / name for name in ("a.log", "b.log", "c.log", "d.txt"))
    kept.write_bytes(b"12345")
    cut.write_bytes(b"12345")
    files = UnsyncedFiles(("*.log",))
    files.synced("n1", tmp_path)
    cut.write_bytes(b"12345abcd")
    gone.write_bytes(b"xy")
    other.write_bytes(b"never touched")
    # A file that was written again and moved into place counts as synced.
    (tmp_path / "new").write_bytes(b"much longer than before")
    (tmp_path / "new").replace(kept)
    assert files.cut("n1", tmp_path, 0.5) == (6, 3)
    assert (cut.read_bytes(), gone.read_bytes()) == (b"12345ab", b"x")
    assert kept.read_bytes() == b"much longer than before"
    assert "*.log" in files.assumption
    assert UnsyncedFiles(()).cut("n1", tmp_path, 0.0) == (0, 0)


@pytest.mark.parametrize(("globs", "disks"), [(("*.log",), None), ((), None), (("*.log",), True)])
def test_a_power_cut_must_find_bytes_only_in_files_that_are_declared(
    globs: tuple[str, ...], disks: Any, tmp_path: Path
) -> None:
    world = world_of(Mock(), disks, tmp_path, globs)
    assert world.declares_unsynced == (globs != () and disks is None)
    assert bool(world.power_cut_assumption) == (disks is None)


def test_a_file_that_was_allocated_ahead_loses_data_and_keeps_its_length(tmp_path: Path) -> None:
    ahead, grown, zeros = (tmp_path / f"{name}.log" for name in ("ahead", "grown", "zeros"))
    ahead.write_bytes(b"12345" + bytes(9_995))
    zeros.write_bytes(b"1" + bytes(9_999))
    files = UnsyncedFiles(("*.log",))
    files.synced("n1", tmp_path)
    ahead.write_bytes(b"12345abcd" + bytes(9_991))
    grown.write_bytes(b"xy" + bytes(2_000_000))
    with zeros.open("ab") as opened:  # synced zeros, with an append behind them
        opened.write(b"abcd")
    assert files.cut("n1", tmp_path, 0.0) == (4 + 2 + 10_003, 0)
    assert ahead.read_bytes() == b"12345" + bytes(9_995)
    assert grown.read_bytes() == bytes(2_000_002)
    assert zeros.read_bytes() == b"1" + bytes(9_999)


# -- logs


NODE = Node(name="n1", folder=Path(), listens={}, dialed={})


class Dumps(Adapter):
    """A double that returns what it is given."""

    def __init__(self, found: Any) -> None:
        super().__init__({})
        self.found = found

    def dump(self, me: Node, partition: str) -> Any:
        return self.found


def broken_file() -> Iterator[tuple[int, bytes]]:
    yield 0, b"x"
    raise ValueError("1.blk is damaged at byte 7")


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (broken_file(), "ValueError: 1.blk is damaged at byte 7"),
        (
            [(1, b""), (1, b"")],
            "ValueError: dump returned the offset 1 after 1: they must increase",
        ),
        ([(-1, b"")], "WrongAnswer: dump returned [(-1, b'')]: Expected `int` >= 0"),
        ([("a", b"")], "Expected `int`, got `str` - at `$[0][0]`"),
        ([b"ab"], "WrongAnswer: dump returned [b'ab']"),
        (7, "TypeError: 'int' object is not iterable"),
        ([(0, "text")], "Expected `bytes`, got `str`"),
    ],
)
def test_a_dump_that_makes_no_sense_is_a_problem(found: Any, sentence: str) -> None:
    problems: list[str] = []
    lines = list(log_lines(Dumps(found), NODE, ["log-0"], 64, [], problems))
    assert len(problems) == 1
    assert problems[0].startswith("the log of log-0 on n1 could not be read: ")
    assert sentence in problems[0]
    # The file is whole all the same, and says nothing of that partition.
    assert [(line.partition, line.count) for line in lines] == [("", 0)]


def test_an_ended_node_is_quoted_by_its_errors(tmp_path: Path) -> None:
    calm = [f"{n} [INF] connection closed: Read Error" for n in range(9)]
    log = tmp_path / "n1.txt"
    log.write_text("\n".join(calm))
    assert last_lines(log) == " / ".join(calm[-5:])
    log.write_text("\n".join([*calm, "[ERROR] no disk", *calm, "java.io.IOException: gone", *calm]))
    assert last_lines(log) == f"[ERROR] no disk / java.io.IOException: gone / {calm[-1]}"


# -- probe


def test_a_probe_that_lies_is_not_believed(tmp_path: Path) -> None:
    other = Node(name="n2", folder=Path(), listens={}, dialed={})
    adapter = trial_adapters.Trial({"broken": "probe lies", "speed": ""})
    made = Probe(
        *(adapter, {"n1": NODE, "n2": other}, lambda: ("n1", "n2"), ("log-0",), lambda name: 1),
        tmp_path / "probe.txt",
    )
    told = {
        "log-0": Roles(10**30, ("n9", "n1", "n1"), ("n2", "n1", 7)),  # type: ignore[arg-type]
        "log-9": Roles(),
        7: Roles(),
        "": "nonsense",
    }
    assert made.understood({"*": Roles()}) == {
        name: Roles(-1, (), ("n1", "n2")) for name in ("", "log-0")
    }
    assert (made.led, made.names_in_sync) == ({"", "log-0"}, False), "no phase waits for a sync"
    assert made.understood(told) == {"log-0": Roles(1 << 60, ("n1",), ("n1", "n2"))}
    assert made.names_in_sync
    assert made.understood([1, 2]) == {}
    assert made.understood({"log-0": Roles(1, 5, None)}) == {"log-0": Roles(1, (), ("n1", "n2"))}  # type: ignore[arg-type]


def test_a_probe_may_be_async_and_leave_it_to_nodes_to_say_that_they_are_ready(
    tmp_path: Path,
) -> None:
    class Later(trial_adapters.Trial):
        async def probe(self, me: Node) -> dict[str, Roles]:  # type: ignore[override]
            return {"log-0": Roles()}

        async def ready(self, me: Node) -> bool:  # type: ignore[override]
            return True

    adapter: Any = Later({"broken": "", "speed": ""})
    made = Probe(
        *(adapter, {"n1": NODE}, lambda: ("n1",), ("log-0",), lambda name: 1),
        tmp_path / "probe.txt",
    )
    made.start()
    until(lambda: any(event.get("isr") == ["n1"] for event in made.events()))
    made.close()


def test_two_nodes_that_claim_one_term_do_not_take_turns() -> None:
    """A primary that is cut off says that it leads for as long as it cannot know better."""
    memory, heard = _Memory(), []
    for nodes in ("n1", "n1 n2", "n1 n2", "n2", "n2", "n1 n2"):
        for node in ("n1", "n2"):
            told = {"log-0": Roles(5)} if node in nodes else {}
            roles = (e for e in memory.take(node, 1, told) if e["event"] == trace.ROLE)
            heard += [f"{node} {e['role']} {e['leader_epoch']}" for e in roles]
    assert heard == ["n1 leader 5", "n2 leader 6", "n1 follower 6", "n1 leader 7"]


def test_the_only_node_that_claims_to_lead_leads() -> None:
    """Play all courses of five answers, with any claim before, beside it, or in between."""
    for course in itertools.product(("", "n1", "n2", "n1 n2"), repeat=5):
        memory, view = _Memory(), ClusterView()
        for nodes in course:
            for node in ("n1", "n2") * 2:
                view.observe({"node": node, "event": trace.STARTED, "incarnation": 1})
                for e in memory.take(node, 1, {"log-0": Roles()} if node in nodes else {}):
                    view.observe(e)
            if nodes in ("n1", "n2"):
                assert view.leader("log-0") == nodes, course


# -- the class


class Wrong(Adapter):
    """Everything is wrong with it."""

    listens = ("peer",)
    probed = ("peer",)
    faults = ("earthquake",)
    settings = (Setting("a", "x", "", ("y",)), Setting("a", "", ""))

    def command(self, me: Node) -> list[str]:  # type: ignore[override]
        return []

    async def dump(self, me: Node, partition: str) -> Any:
        return None

    @property
    def unsynced_files(self) -> tuple[str, ...]:
        return ("*.log",)


def test_all_mistakes_of_a_class_are_named() -> None:
    assert list(mistakes(Wrong)) == [
        "create is not written",
        "connect is not written",
        "send is not written",
        "read is not written",
        "command must take (self, me, others)",
        "dump must be a plain function, not async",
        "the default of setting 'a' is none of its values",
        "two settings are called 'a'",
        "listens has no 'client', which is where clients dial",
        "'peer' is in listens and in probed",
        "unsynced is empty, so unsynced_files is never asked: name there what it may return",
        "faults names 'earthquake', which is no kind of fault (see floodmark faults)",
        "summary is empty: floodmark systems has nothing to say",
    ]


MOST_LINES = {
    "RabbitMQ": 125,
    "RabbitMQQueues": 120,
    "Liftbridge": 160,
    "Kafka": 165,
    "Nats": 240,
    "Etcd": 140,
    "Redis": 225,
    "Postgres": 106,
    "Galera": 187,
}
"""Of adapters with more: RabbitMQ's and Liftbridge's read segments; Galera's has the script of its
unit of systemd; Kafka's serves two generations of its protocol, it and the others change members or
versions, and NATS, Redis and RabbitMQ's queues have groups of consumers."""


def test_the_adapters_that_come_with_floodmark_have_no_mistakes() -> None:
    found = [registry.find(name) for name in registry.names()]
    adapters = [system.adapter for system in found if isinstance(system, ExternalSystem)]
    assert len(adapters) == len(found) - 1
    for adapter in adapters:
        assert list(mistakes(adapter)) == []
        assert adapter.words
        assert adapter.source.startswith("https://")
        text = (ROOT / f"{adapter.__module__.replace('.', '/')}.py").read_text()
        most = MOST_LINES.get(adapter.__name__, 100)
        assert len(text.splitlines()) <= most, "it is an example of how short one is"
    example = ROOT / "examples" / "naive_log"
    for name, most in (("adapter.py", 100), ("naive_log.py", 140)):
        assert len((example / name).read_text("utf-8").splitlines()) <= most, name
    assert set(HINTS) <= set(ANOMALIES)


@pytest.mark.parametrize("module", ["rabbitmq", "rabbitmq_queues"])
def test_a_client_library_that_is_missing_is_named_with_its_extra(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"harness.systems.{module}"
    monkeypatch.delitem(sys.modules, place, raising=False)
    for library in ("amqp", "rstream"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError, match=r"pip install '\.\[rabbitmq\]'"):
        load.load_object(f"{place}:")
