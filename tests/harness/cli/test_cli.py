"""The command line: what is wrong is said in one sentence, with the right exit code."""

from __future__ import annotations

import errno
import json
import os
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
from harness.cli.common import EXIT_HARNESS
from harness.cli.options import as_command
from harness.runs.options import default_name, to_schedule
from harness.runs.requests import RunRequest
from nemesis.faults import Kill
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.formats.errors import UsageError
from tests.support.command import exit_code, imported_by
from tests.support.waiting import PATIENCE_S

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[3]
NAIVE = f"{ROOT}/examples/naive_log/adapter.py:NaiveLog"
"""A system whose servers are always there."""


@pytest.fixture
def floodmark(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run the command in an empty folder; gives exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        code = exit_code(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


REFUSED = Path(__file__).with_name("refused.txt").read_text("utf-8").splitlines(keepends=True)
FILES = [line.split(" ", 2)[1:] for line in REFUSED if line.startswith("file ")]
# A command, and below it what its sentence says.
ROWS = [line.strip() for line in REFUSED if not line.startswith(("#", "file ", "\n"))]
WRONG = list(zip(ROWS[::2], ROWS[1::2], strict=True))


@pytest.mark.parametrize(("line", "sentence"), WRONG)
def test_bad_input_is_one_sentence_and_exit_code_64(
    floodmark: Run, tmp_path: Path, line: str, sentence: str
) -> None:
    for folder in ("empty", "has/store", "valid", "damaged"):
        (tmp_path / folder).mkdir(parents=True)
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    code, out, err = floodmark(*line.replace("NAIVE", NAIVE).split())
    assert (code, out) == (64, "")
    assert sentence in err
    assert err.startswith("floodmark: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert not (tmp_path / "store").exists()


def test_a_full_disk_before_the_run_is_an_error_of_the_harness(
    floodmark: Run, tmp_path: Path
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "kafka").write_text("not a folder")
    code, _, err = floodmark("run")
    assert code == 70
    why = "a part of its path is no folder"
    assert err.startswith(f"floodmark: store/kafka: cannot be written: {why}; ")


def test_report_builds_every_page_of_a_store_that_it_can(floodmark: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        run = tmp_path / "store" / name / "1"
        run.mkdir(parents=True)
        (run / "run.json").write_text("{}")
    (tmp_path / "store" / "one" / "latest").symlink_to("1")
    code, out, _ = floodmark("report", "store")
    pages = [f"store/{name}/1/report.html" for name in ("one", "two")]
    assert (code, out.split()) == (0, [*pages, "store/runs.html"])
    (tmp_path / "store" / "one" / "1" / "report.html").unlink()
    (tmp_path / "store" / "one" / "1" / "report.html").mkdir()
    code, out, err = floodmark("report", "store")
    assert (code, out.split()) == (70, [pages[1], "store/runs.html"]), "one page less is not all"
    assert err.startswith(
        "floodmark: store/one/1: no page is built of this folder, since report.html"
    )


def test_an_unexpected_error_shows_its_traceback_only_on_demand(
    floodmark: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [PermissionError(13, "No", "x"), ZeroDivisionError("a bug")]

    def broken(request: RunRequest) -> Schedule:
        raise errors[0]

    monkeypatch.setattr("harness.runs.options.requested", broken)
    assert "needs: x: this user has no permission; grant it" in floodmark("run")[2]
    errors.pop(0)
    assert "unexpected ZeroDivisionError: a bug (--debug shows where)" in floodmark("run")[2]
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
    assert (code, f" {name} " in out) == (0, True)
    code, out, _ = floodmark(command, "--json")
    (row,) = (row for row in json.loads(out) if name in row.values())
    assert all(isinstance(value, str) for value in row.values())
    assert max(map(len, row.values())) > len(name)


@pytest.mark.parametrize("command", ["", "--debug", "--help", "-h"])
def test_without_a_command_the_help_is_printed(floodmark: Run, command: str) -> None:
    code, out, _ = floodmark(*command.split())
    assert (code, out.startswith("Usage: floodmark [OPTIONS] COMMAND")) == (0, True)
    assert len(out.splitlines()) > 15


COMMAND = "from harness.cli.main import main"
SLOW = {"numpy", "pyarrow", "pandas", "pyspark", "zmq", "msgspec", "matplotlib", "rich"}


@pytest.mark.integration
def test_help_lists_every_command_and_imports_none() -> None:
    lines, imported = imported_by("main(['--help'])", COMMAND)
    room = {f"harness.cli.{name}" for name in ("common", "main")}
    assert {name for name in imported if name.startswith("harness.cli.")} == room
    slow = {*SLOW, "hashlib", "logging", "pydantic", "sysconfig"}
    assert not imported & slow
    listed = [line.split()[0] for line in lines[lines.index("Commands:") + 1 :]]
    files = {file.stem for file in Path(main.__file__).parent.glob("*.py")}
    assert sorted(listed) == sorted(files - {"__init__", "__main__", *main.HELPERS})
    assert listed[:2] == ["demo", "run"], "in the order of use"
    assert not [line for line in lines[1:] if line.endswith("...")], "no summary is cut"
    _, imported = imported_by("main(['run', '--help'])", COMMAND)
    more = {f"harness.cli.{name}" for name in ("options", "run", "values")}
    assert {name for name in imported if name.startswith("harness.cli.")} == room | more
    assert imported & SLOW == {"msgspec"}


@pytest.mark.integration
@pytest.mark.parametrize(
    "line", ["search", "nightly --systems-only x --no-real", "check --master nonsense ."]
)
def test_a_request_is_refused_before_anything_slow_is_imported(line: str) -> None:
    _, imported = imported_by(f"main({line.split()})", COMMAND)
    assert imported & SLOW == {"msgspec"}


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


# -- from options to a schedule


def test_without_options_it_is_the_default_storm_with_a_fresh_seed() -> None:
    one, other = to_schedule(RunRequest()), to_schedule(RunRequest())
    assert one.drawn
    assert one.faults
    assert one.workload.seed != other.workload.seed
    assert default_name(one) == "kafka"
    # A seed decides the whole schedule.
    seven, again, eight = (to_schedule(RunRequest(seed=seed)) for seed in (7, 7, 8))
    assert seven.digest() == again.digest()
    assert seven.faults != eight.faults


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


def test_options_become_the_fields_of_a_request() -> None:
    taken = []

    def asked(request: RunRequest) -> None:
        taken.append(request)

    app = typer.Typer()
    app.command()(as_command(asked))
    words = "--set a=b --set c= --bug M1 --no-report --rate 0 --idempotent --seed -7"
    typer.main.get_command(app)(words.split(), standalone_mode=False)
    given = {"settings": {"a": "b", "c": ""}, "bugs": ("M1",), "report": False, "seed": -7}
    assert taken == [RunRequest(**given, rate=0.0, idempotent=True)]
    assert msgspec.convert({"brokers": 5}, RunRequest) == RunRequest(brokers=5)


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
    (tmp_path / "history.jsonl").write_bytes(b"")
    code, out, _ = floodmark("check", "--no-spark", "--json", ".")
    (result,) = json.loads(out)
    assert (code, result["verdict"]) == (2, "unknown")


def test_a_pipe_that_breaks_in_a_command_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer()

    @app.command()
    def fails() -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    # The library replaces both, for the pipe might be theirs.
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, getattr(sys, stream))
    monkeypatch.setattr(main, "assemble", lambda words: app)
    assert main._run_command([], debug=False) == EXIT_HARNESS


@pytest.mark.parametrize(
    ("typed", "goes_on"),
    [
        ("floodmark ru", ["run"]),
        ("floodmark run --sys", ["--system"]),
        ("floodmark bugs fi", ["find"]),
        ("floodmark bugs find --see", ["--seeds"]),
        ("floodmark nothing", []),
        ("floodmark", ["demo", "run", "check"]),
    ],
)
def test_a_shell_completes_commands_and_options(typed: str, goes_on: list[str]) -> None:
    words = typed.split()
    place = {"COMP_WORDS": typed, "COMP_CWORD": str(max(1, len(words) - 1))}
    command = [sys.executable, "-m", "floodmark"]
    env = {**os.environ, "_FLOODMARK_COMPLETE": "complete_bash", **place, "PYTHONPATH": str(ROOT)}
    told = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    found = told.stdout.split()
    assert (found[:3] if len(words) == 1 else found) == goes_on, told
