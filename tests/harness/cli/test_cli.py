"""The command line: what is wrong is said in one sentence, with the right exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import typer
import typer.core
import typer.main

from harness.cli import main
from harness.runs.options import RunRequest, default_name, to_schedule
from nemesis.faults import Kill
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.formats.errors import UsageError
from tests.support.waiting import PATIENCE_S

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def floodmark(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run the command in an empty folder; gives exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main.main(words)
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.out, said.err

    return run


WRONG = [
    ("run --protocol paxos", "unknown protocol 'paxos' (known: "),
    ("run --bug M99", "unknown bug 'M99' (`floodmark bugs` lists them)"),
    ("bugs find --only M99", "unknown bug 'M99' (`floodmark bugs` lists them)"),
    (
        "run --system pulsar",
        "unknown system 'pulsar' (known: etcd, floodmark, kafka, kafka_kraft, ",
    ),
    ("run --faults meteor", "unknown fault 'meteor' (known: kill"),
    ("run --faults restart", "fault 'restart' is never drawn: what a drawn fault brings down"),
    ("run --faults bridge --brokers 2", "fault 'bridge' needs 3 brokers"),
    ("run --brokers 3 --replication-factor 5", "replication_factor 5 needs as many brokers"),
    ("run --min-isr 4", "min_isr 4 must be 1..replication_factor"),
    ("run --brokers 0", "--brokers must be at least 1, not 0"),
    ("run --voters 2", "voters must be 1, 3 or 5"),
    ("run --partitions 0", "--partitions must be at least 1, not 0"),
    ("run --batch 0", "--batch must be at least 1, not 0"),
    ("run --rate -1", "--rate must be at least 0, not -1"),
    ("run --time-limit 0", "--time-limit must be above 0, not 0"),
    ("run --time-limit nan", "--time-limit must be a number, not 'nan'"),
    ("run --rate nan", "--rate must be a number, not 'nan'"),
    ("run --acks 2", "--acks is '2', but can only be 0, 1 or all"),
    ("run --flush never", "--flush is 'never', but can only be sync, async or async:MILLISECONDS"),
    ("run --flush async:soon", "--flush is 'async:soon'"),
    ("run --flush async:0", "flush_interval_ms must be positive"),
    ("run --name ../up", "run name '../up'"),
    ("run --schedule missing.json", "missing.json: cannot be read: No such file"),
    ("run --schedule broken.json", "broken.json: not JSON"),
    ("run --schedule old.json", "old.json: floodmark_schedule is 99, this floodmark reads 1"),
    ("run --schedule odd.json", "odd.json: fault 0: unknown fault 'meteor'"),
    ("run --schedule extra.json", "extra.json: Object contains unknown field `colour`"),
    ("run --schedule good.json --faults kill", "exclude each other"),
    ("replay good.json --times 0", "--times must be at least 1, not 0"),
    ("replay good.json --times 3 --least 4", "--least is 4, but must be 1..3"),
    ("replay good.json --expect perfect", "--expect is 'perfect'"),
    ("replay good.json --expect invalid:luck", "unknown property 'luck' (known: no-lost-"),
    ("replay empty", "empty: holds no schedule.json"),
    ("search --seconds -1", "--seconds must be at least 0, not -1"),
    ("search --schedules -1", "--schedules must be at least 0, not -1"),
    ("search", "a search needs an end: --seconds, --schedules or --until-failure"),
    (
        "run --links none --faults cut",
        "--links none: fault 0 (cut) is on links: the nodes are connected directly",
    ),
    ("run --brokers three", "--brokers must be a whole number, not 'three'"),
    ("run --frobnicate", "No such option: --frobnicate"),
    ("frobnicate", "No such command 'frobnicate'"),
    ("check", "Missing argument"),
    ("check nowhere", "nowhere: no such run folder"),
    ("check empty", "empty: not a run folder (it has no run.json, history.jsonl or schedule.json)"),
    ("bench --batch 0 --quiet", "--batch must be at least 1, not 0"),
    ("bench --record-bytes 8 --quiet", "--record-bytes must be at least 16, not 8"),
    ("bench --seconds 0", "--seconds must be above 0, not 0"),
    ("bench failover --protocols paxos --quiet", "unknown protocol 'paxos' (known: "),
    ("bench failover --kills 0 --quiet", "--kills must be at least 1, not 0"),
    ("bench sim --protocol paxos --quiet", "unknown protocol 'paxos' (known: "),
    ("bench sim --rate 0 --quiet", "--rate must be above 0, not 0"),
    ("report nowhere", "nowhere: no such run folder"),
    ("run --store good.json", "good.json is a file; choose another folder with --store"),
    ("serve --store nowhere", "--store must be a folder, and 'nowhere' does not exist"),
    ("bench check --folder nowhere", "--folder must be a folder, and 'nowhere' does not exist"),
    ("nightly --budget 999999h", "--budget is '999999h', but must be at most 1000h"),
    ("run --flush async:999999999", "--flush is 'async:999999999'"),
]


@pytest.mark.parametrize(("line", "sentence"), WRONG)
def test_bad_input_is_one_sentence_and_exit_code_64(
    floodmark: Run, tmp_path: Path, line: str, sentence: str
) -> None:
    files = {
        "broken.json": "{",
        "old.json": '{"floodmark_schedule": 99}',
        "odd.json": '{"floodmark_schedule": 1, "faults": [{"what": "meteor"}]}',
        "extra.json": '{"floodmark_schedule": 1, "colour": "red"}',
        "good.json": '{"floodmark_schedule": 1}',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "empty").mkdir()
    code, out, err = floodmark(*line.split())
    assert code == 64
    assert sentence in err
    assert err.startswith("floodmark: ")
    assert err.count("\n") == 1
    assert out == ""
    assert "Traceback" not in err
    assert not (tmp_path / "store").exists()


def test_a_full_disk_before_the_run_is_an_error_of_the_harness(
    floodmark: Run, tmp_path: Path
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "kafka").write_text("not a folder")
    code, _, err = floodmark("run")
    assert code == 70
    assert err == (
        "floodmark: store/kafka: cannot be written: File exists; choose another folder with "
        "--store\n"
    )


def test_where_a_store_stands_beside_it_is_suggested(floodmark: Run, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    for command in ("check", "report"):
        code, _, err = floodmark(command, ".")
        assert code == 64
        assert err.endswith("or schedule.json); did you mean ./store?\n")


def test_report_takes_a_store(floodmark: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        run = tmp_path / "store" / name / "1"
        run.mkdir(parents=True)
        (run / "run.json").write_text("{}")
    (tmp_path / "store" / "one" / "latest").symlink_to("1")
    code, out, _ = floodmark("report", "store")
    assert (code, out.split()) == (0, [f"store/{name}/1/report.html" for name in ("one", "two")])
    (tmp_path / "store" / "one" / "1" / "report.html").unlink()
    (tmp_path / "store" / "one" / "1" / "report.html").mkdir()
    code, out, err = floodmark("report", "store")
    assert (code, out) == (70, "store/two/1/report.html\n"), "one page less is not all pages less"
    assert err.startswith("floodmark: store/one/1/report.html: cannot be written: ")


def test_an_unexpected_error_shows_its_traceback_only_on_demand(
    floodmark: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(request: RunRequest) -> Schedule:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("harness.runs.options.to_schedule", broken)
    code, _, err = floodmark("run")
    assert (code, err) == (
        70,
        "floodmark: unexpected ZeroDivisionError: a bug (--debug shows where)\n",
    )
    with pytest.raises(ZeroDivisionError):
        main.main(["run", "--debug"])


def test_what_a_library_logs_does_not_reach_the_terminal() -> None:
    script = (
        "import logging\nfrom harness.cli import main\n"
        "log = logging.getLogger('nats')\n"
        "main.assemble = lambda _: lambda words, **how: log.error('a trace')\n"
        "main.main(['run'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("command", "line"),
    [("faults", "isolate"), ("protocols", "kafka: "), ("bugs", "ack-before-isr (M18)")],
)
def test_lists_name_what_can_be_chosen(floodmark: Run, command: str, line: str) -> None:
    code, out, _ = floodmark(command)
    assert code == 0
    assert line in out


def imported_by(*words: str) -> tuple[list[str], set[str]]:
    """What a command prints in a new process, and the modules that it leaves imported there."""
    script = (
        "import sys\nfrom harness.cli.main import main\n"
        f"try:\n    main({list(words)})\nfinally:\n    print(*sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    *lines, imported = done.stdout.splitlines()
    return lines, set(imported.split())


SLOW = {"numpy", "pyarrow", "pandas", "pyspark", "zmq", "msgspec", "matplotlib", "rich"}


def test_help_lists_every_command_and_imports_none() -> None:
    lines, imported = imported_by("--help")
    room = {f"harness.cli.{name}" for name in ("common", "exit_codes", "main", "values")}
    assert {name for name in imported if name.startswith("harness.cli.")} == room
    assert not imported & {*SLOW, "hashlib", "logging", "pydantic", "sysconfig"}
    listed = [line.split()[0] for line in lines[lines.index("Commands:") + 1 :]]
    files = {file.stem for file in Path(main.__file__).parent.glob("*.py")}
    assert sorted(listed) == sorted(files - {"__init__", "__main__", *(n[12:] for n in room)})
    assert listed[0] == "run", "in the order of use"


def test_the_summaries_of_commands_are_those_of_their_own_help() -> None:
    listed, whole = (typer.main.get_command(main.assemble(words)) for words in (["--help"], None))
    assert isinstance(listed, typer.core.TyperGroup)
    assert isinstance(whole, typer.core.TyperGroup)
    said = {
        name: [group.commands[name].get_short_help_str(limit=500) for group in (listed, whole)]
        for name in whole.commands
    }
    assert listed.commands.keys() == said.keys()
    assert {name: pair for name, pair in said.items() if pair[0] != pair[1]} == {}


def test_the_help_of_a_command_imports_no_other_command_and_nothing_slow() -> None:
    _, imported = imported_by("run", "--help")
    assert {name for name in imported if name.startswith("harness.cli.")} == {
        f"harness.cli.{name}" for name in ("common", "exit_codes", "main", "run", "values")
    }
    assert not imported & SLOW


def test_help_says_what_each_option_is_for(floodmark: Run) -> None:
    code, out, _ = floodmark("run", "--help")
    assert code == 0
    for option in ("--protocol", "--replication-factor", "--time-limit", "--schedule", "--bug"):
        assert option in out


# -- from options to a schedule


def test_without_options_it_is_the_default_storm_with_a_fresh_seed() -> None:
    one, other = to_schedule(RunRequest()), to_schedule(RunRequest())
    assert one.drawn
    assert one.faults
    assert one.workload.seed != other.workload.seed
    assert default_name(one) == "kafka"


def test_a_seed_decides_the_whole_schedule() -> None:
    assert to_schedule(RunRequest(seed=7)).digest() == to_schedule(RunRequest(seed=7)).digest()
    assert to_schedule(RunRequest(seed=7)).faults != to_schedule(RunRequest(seed=8)).faults


def test_options_reach_the_schedule() -> None:
    made = to_schedule(
        RunRequest(
            brokers=5,
            partitions=2,
            acks="1",
            rate=0,
            batch=9,
            time_limit=4.5,
            flush="async:20",
            bugs=("M18",),
            faults="none",
            clients=3,
            consumers=0,
            seed=1,
        )
    )
    cluster, workload = made.cluster, made.workload
    assert (cluster.brokers, cluster.partitions, cluster.replication_factor) == (5, 2, 3)
    assert (cluster.flush, cluster.flush_interval_ms) == ("async", 20)
    assert cluster.bugs == ("ack-before-isr",)
    assert (workload.acks, workload.rate, workload.batch) == (1, 0, 9)
    assert (workload.clients, workload.consumers, workload.duration_ms) == (3, 0, 4500)
    assert made.faults == ()
    assert default_name(made) == "kafka-ack-before-isr"


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_small_cluster_gets_as_many_replicas_as_it_can_hold(brokers: int) -> None:
    cluster = to_schedule(RunRequest(brokers=brokers, faults="kill")).cluster
    assert (cluster.replication_factor, cluster.min_isr) == (brokers, brokers)


def test_a_schedule_file_is_run_as_it_stands(tmp_path: Path) -> None:
    written = Schedule(
        name="mine",
        cluster=Cluster(min_isr=1),
        workload=Workload(seed=5),
        faults=(Kill(on="n1", at_ms=100),),
    )
    (tmp_path / "schedule.json").write_bytes(written.to_json())
    for where in (tmp_path, tmp_path / "schedule.json"):
        assert to_schedule(RunRequest(schedule=where)) == written
    assert default_name(written) == "mine"


def test_what_is_given_besides_a_schedule_file_changes_only_that(tmp_path: Path) -> None:
    written = Schedule(faults=(Kill(on="n3", at_ms=100),))
    file = tmp_path / "one.json"
    file.write_bytes(written.to_json())
    made = to_schedule(RunRequest(schedule=file, bugs=("M22",), seed=3))
    expected = msgspec.structs.replace(
        written, cluster=Cluster(bugs=("elect-any-replica",)), workload=Workload(seed=3)
    )
    assert made == expected
    with pytest.raises(UsageError, match="no node 'n3' in this cluster"):
        to_schedule(RunRequest(schedule=file, brokers=2, replication_factor=2))


def test_check_prints_json_on_demand(floodmark: Run, tmp_path: Path) -> None:
    (tmp_path / "run" / "x").mkdir(parents=True)
    (tmp_path / "run" / "x" / "history.jsonl").write_bytes(b"")
    code, out, _ = floodmark("check", "--no-spark", "--json", "run/x")
    (result,) = json.loads(out)
    assert (code, result["verdict"]) == (2, "unknown")
