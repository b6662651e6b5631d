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
    ("run --system pulsar", "unknown system 'pulsar' (known: etcd, floodmark, kafka, nats, "),
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
    ("check x --driver-memory 2", "--driver-memory must be written like 512m or 3g"),
    ("run --brokers 100", "--brokers must be at most 99, not 100"),
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
    assert err.startswith("floodmark: store/kafka: cannot be written: File exists; ")


def test_a_store_in_the_given_folder_is_suggested(floodmark: Run, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    for command in ("check", "report"):
        code, _, err = floodmark(command, ".")
        assert code == 64
        assert err.endswith("or schedule.json); did you mean ./store?\n")


def test_report_builds_every_page_of_a_store_that_it_can(floodmark: Run, tmp_path: Path) -> None:
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
    assert err.startswith(
        "floodmark: store/one/1: no page is built of this folder, since report.html"
    )


def test_an_unexpected_error_shows_its_traceback_only_on_demand(
    floodmark: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(request: RunRequest) -> Schedule:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("harness.runs.options.to_schedule", broken)
    code, _, err = floodmark("run")
    assert code == 70
    assert err.startswith("floodmark: unexpected ZeroDivisionError: a bug (--debug")
    with pytest.raises(ZeroDivisionError):
        main.main(["run", "--debug"])


@pytest.mark.integration
def test_log_lines_of_libraries_do_not_reach_the_terminal() -> None:
    script = (
        "import logging\nfrom harness.cli import main\n"
        "log = logging.getLogger('nats')\n"
        "main.assemble = lambda _: lambda words, **how: log.error('a trace')\n"
        "main.main(['run'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("command", "name"),
    [("faults", "isolate"), ("protocols", "kip-279"), ("bugs", "ack-before-isr")],
)
def test_a_list_names_and_describes_each_choice(floodmark: Run, command: str, name: str) -> None:
    code, out, _ = floodmark(*command.split())
    assert code == 0
    assert f" {name} " in out
    code, out, _ = floodmark(command, "--json")
    (row,) = (row for row in json.loads(out) if name in row.values())
    assert all(isinstance(value, str) for value in row.values())
    assert max(map(len, row.values())) > len(name)


@pytest.mark.parametrize(
    ("command", "near"),
    [
        ("run --protocol kafak", "kafka"),
        ("run --faults kil", "kill"),
        ("run --bug ack-befor-isr", "ack-before-isr"),
        ("run --system nast", "nats"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest_known_one(
    floodmark: Run, command: str, near: str
) -> None:
    code, _, err = floodmark(*command.split())
    assert code == 64
    assert err.endswith(f"did you mean '{near}'?\n")


@pytest.mark.parametrize("command", ["", "--debug", "--help"])
def test_without_a_command_the_help_is_printed(floodmark: Run, command: str) -> None:
    code, out, _ = floodmark(*command.split())
    assert code == 0
    assert out.startswith("Usage: floodmark [OPTIONS] COMMAND")
    assert len(out.splitlines()) > 15


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


@pytest.mark.integration
def test_help_lists_every_command_and_imports_none() -> None:
    lines, imported = imported_by("--help")
    room = {f"harness.cli.{name}" for name in ("common", "exit_codes", "main", "values")}
    assert {name for name in imported if name.startswith("harness.cli.")} == room
    assert not imported & {*SLOW, "hashlib", "logging", "pydantic", "sysconfig"}
    listed = [line.split()[0] for line in lines[lines.index("Commands:") + 1 :]]
    files = {file.stem for file in Path(main.__file__).parent.glob("*.py")}
    assert sorted(listed) == sorted(files - {"__init__", "__main__", *(n[12:] for n in room)})
    assert listed[:2] == ["demo", "run"], "in the order of use"


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


@pytest.mark.integration
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
    given = {"brokers": 5, "partitions": 2, "clients": 3, "consumers": 0, "rate": 0, "batch": 9}
    others = {"acks": "1", "time_limit": 4.5, "flush": "async:20", "bugs": ("M18",), "seed": 1}
    made = to_schedule(RunRequest(**given, **others, faults="none"))
    reached = {**msgspec.structs.asdict(made.cluster), **msgspec.structs.asdict(made.workload)}
    assert {name: reached[name] for name in given} == given
    expected = {"acks": 1, "duration_ms": 4500, "flush": "async", "flush_interval_ms": 20}
    expected |= {"bugs": ("ack-before-isr",), "seed": 1, "replication_factor": 3}
    assert {name: reached[name] for name in expected} == expected
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


def test_an_option_beside_a_schedule_file_changes_only_its_field(tmp_path: Path) -> None:
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
