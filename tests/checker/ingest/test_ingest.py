"""Run folders that are damaged: one clear sentence each, the rest judged, never a crash."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from checker.engine.local import check_run
from checker.formats.verdict import RunResult, Verdict
from harness.formats.seal import seal_run
from tests.support.checker.story import P, Story, against
from tests.support.command import exit_code


def sound() -> Story:
    """Return a run that is valid as it is."""
    s = Story()
    batches = s.busy()
    s.final((0, 1_000_000, 12))
    s.agree(*batches)
    return s


def damaged(tmp_path: Path, name: str, change: Callable[[bytes], bytes]) -> RunResult:
    """Return the sound run with one of its files changed."""
    folder = sound().write(tmp_path)
    file = folder / name
    file.write_bytes(change(file.read_bytes()))
    return check_run(folder)


def line(number: int, change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Change one line (from 1) of a file; b"" removes it."""

    def apply(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        lines[number - 1] = change(lines[number - 1])
        return b"".join(lines)

    return apply


def test_the_sound_run(tmp_path: Path) -> None:
    result = check_run(sound().write(tmp_path))
    assert result.verdict is Verdict.VALID
    assert result.problems == ()
    assert result.sentence == (
        "valid: 12 acknowledged records in 1 partition were kept; no fault took effect, and all "
        "replicas agree on what is committed."
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("faults.jsonl", b'{"fault":-1,"what":"","action":"heal","t_us":%d,"nodes":[]}'),
        ("exits.jsonl", b'{"node":"n1","incarnation":1,"t_us":%d,"code":0,"by":"stop"}'),
        ("messages.jsonl", b'{"t_us":%d,"sender":"n1","receiver":"n2","fate":"dropped"}'),
    ],
)
def test_a_file_of_another_run_is_named(tmp_path: Path, name: str, text: bytes) -> None:
    for own in (True, False):
        s = sound()
        s.run["phases"] |= {"end_us": s.now_ms * 1000}
        s.extra[name] = text % (s.now_ms * 1000 if own else 10**12)
        result = s.check(tmp_path / str(own))
        said = [problem for problem in result.problems if "may be of another run" in problem]
        assert bool(said) is not own
        assert own or result.verdict is Verdict.UNKNOWN


HISTORY = "history.jsonl"


def replaced(number: int, old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return line(number, lambda text: text.replace(old, new))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda data: data[:-40], "ends in half a line (line 28), left out."),
        (line(5, lambda _: b"{nonsense}\n"), "line 5 is not an operation: JSON is"),
        (
            replaced(5, b'"op":2', b'"op":"two"'),
            "line 5 is not an operation: Expected `int`, got `str` - at `$.op`.",
        ),
        (
            replaced(2, b'"offset":0', b'"offset":9223372036854775808'),
            "line 2 is not an operation: Expected `int` <= 9223372028264841216 - at "
            "`$.sends[0].offset`.",
        ),
        (replaced(5, b'"c50"', b'"\xff\xfe"'), "line 5 is not an operation: "),
        (
            line(4, lambda text: text + text),
            "line 5: operation 1 is completed twice; the first completion counts.",
        ),
        (line(3, lambda text: text + text), "line 4: operation 1 is invoked twice."),
        (line(3, lambda _: b""), "line 3: operation 1 ends but was never invoked."),
        (
            replaced(4, b'"t_us":1003000', b'"t_us":1001000'),
            "line 4: time goes back by 1000 us within process 50.",
        ),
        (lambda _: b"", "has no operation in it: there is nothing to judge."),
        (lambda _: b"\x00" * 100, "ends in half a line (line 1), left out."),
    ],
    ids=lambda value: value.partition(":")[0] if isinstance(value, str) else "",
)
def test_a_damaged_history(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[bytes], bytes],
    sentence: str,
) -> None:
    result = damaged(tmp_path, HISTORY, change)
    assert result.verdict is Verdict.UNKNOWN
    assert against(result) == {}
    said = result.problems
    assert said[0].startswith(f"{HISTORY} {sentence}")
    assert len(said) == 1
    assert result.sentence.startswith(f"unknown: {HISTORY} {sentence.rstrip('.')}")
    out = ended(["check", "--no-spark", str(tmp_path)], 2, capsys)
    assert "Traceback" not in out
    lines = ended(["check", "--validate", str(tmp_path)], 2, capsys).splitlines()
    assert lines[0].startswith(f"{HISTORY} {sentence}")
    assert len(lines) == len(said)


def ended(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command in this process, and return what it prints; it must end with this code."""
    assert exit_code(words) == code
    return "".join(capsys.readouterr())


def test_what_is_proved_despite_a_damaged_history(tmp_path: Path) -> None:
    s = sound()
    s.poll((3, 1_000_007), process=7)
    folder = s.write(tmp_path)
    file = folder / HISTORY
    file.write_bytes(line(5, lambda _: b"{\n")(file.read_bytes()))
    result = check_run(folder)
    assert result.verdict is Verdict.INVALID
    assert "inconsistent-offsets" in against(result)
    assert result.problems


def test_an_unknown_field_is_only_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change = line(5, lambda text: text.replace(b'{"op":', b'{"colour":"red","op":'))
    result = damaged(tmp_path, HISTORY, change)
    assert result.verdict is Verdict.VALID
    assert result.measures["notes"] == [
        "history.jsonl line 5: ignored: Object contains unknown field `colour`."
    ]
    ended(["check", "--no-spark", str(tmp_path)], 0, capsys)
    assert result.measures["notes"][0] in ended(["check", "--validate", str(tmp_path)], 2, capsys)


def test_many_problems_of_one_kind_are_counted(tmp_path: Path) -> None:
    result = damaged(tmp_path, HISTORY, lambda data: data + b"{\n" * 1_000)
    assert len(result.problems) == 6
    assert result.problems[-1].endswith("995 more problems of the same kind.")


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        (HISTORY, "history.jsonl is missing: there is nothing to judge."),
        ("logs/n2.jsonl", "logs/n2.jsonl is missing."),
        ("trace/v1.jsonl", "trace/v1.jsonl is missing."),
        ("run.json", "run.json is missing or unreadable: promise and phases are unknown."),
    ],
)
def test_a_missing_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], missing: str, sentence: str
) -> None:
    folder = sound().write(tmp_path)
    (folder / missing).unlink()
    result = check_run(folder)
    assert sentence in result.problems
    assert result.verdict is Verdict.UNKNOWN
    assert "Traceback" not in ended(["check", "--no-spark", str(folder)], 2, capsys)
    if missing.startswith(("logs", "trace")):
        said = ended(["check", "--validate", str(folder)], 0, capsys)
        assert said.startswith("Every line is an operation.")


def refusing(do: Callable[..., Any], is_closed: Callable[[Any], bool]) -> Callable[..., Any]:
    def asked(path: Any = ".", *args: Any, **named: Any) -> Any:
        if is_closed(path):
            raise PermissionError(13, "Permission denied", str(path))
        return do(path, *args, **named)

    return asked


@pytest.mark.parametrize("where", ["trace", "logs"])
def test_a_folder_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    folder = sound().write(tmp_path)

    def is_closed(path: Any) -> bool:
        return isinstance(path, str | Path) and Path(path).is_relative_to(folder / where)

    monkeypatch.setattr(os, "scandir", refusing(os.scandir, is_closed))
    monkeypatch.setattr(os, "stat", refusing(os.stat, is_closed))
    result = check_run(folder)
    assert result.verdict is Verdict.UNKNOWN
    said = f"The files in {where} cannot be read: this user has no permission; grant it."
    assert said in result.problems


def test_each_file_that_cannot_be_read_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sound().write(tmp_path)
    for name in ("faults.jsonl", "exits.jsonl", "messages.jsonl", "schedule.json"):
        (folder / name).write_text("{}")
    seal_run(folder)
    opened, names = Path.open, [str(p.relative_to(folder)) for p in folder.rglob("*.json*")]
    assert len(names) > 8
    for name in names:
        monkeypatch.setattr(Path, "open", refusing(opened, (folder / name).__eq__))
        result = check_run(folder)
        assert result.verdict is Verdict.UNKNOWN, name
        said = [each for each in result.problems if each.startswith(f"{name} cannot be read")]
        assert said, (name, result.problems)
        assert all(each.endswith("this user has no permission; grant it.") for each in said)
        assert not [each for each in result.problems if "Errno" in each or str(folder) in each]


def test_no_such_folder(tmp_path: Path) -> None:
    result = check_run(tmp_path / "nowhere")
    assert result.verdict is Verdict.UNKNOWN
    assert "There is no run folder 'nowhere'." in result.problems


def test_faults_and_exits_may_be_missing_in_a_quiet_run(tmp_path: Path) -> None:
    folder = sound().write(tmp_path)
    for name in ("faults.jsonl", "exits.jsonl", "schedule.json"):
        (folder / name).unlink()
    assert check_run(folder).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("run.json", b"{", "run.json cannot be read: "),
        ("run.json", b'{"phases": 7}', "run.json: phases is not understood: "),
        ("faults.jsonl", b"{}\n", "faults.jsonl line 1 is not understood: "),
        ("exits.jsonl", b'{"node": 1}\n', "exits.jsonl line 1 is not understood: "),
        ("logs/n1.jsonl", b"[]\n", "logs/n1.jsonl line 1 is not an entry of a log: "),
        ("logs/n1.jsonl", b"", "logs/n1.jsonl lacks its last line: the dump was not finished."),
        ("trace/n1.jsonl", b'{"t_us": "x"}\n', "trace/n1.jsonl line 1 is not a trace event: "),
        (
            "trace/n1.jsonl",
            b'{"t_us": 5, "event": "x"}\n{"t_us": 4, "event": "x"}\n',
            "trace/n1.jsonl line 2: time goes back by 1 us.",
        ),
        (
            "trace/n1.jsonl",
            b'{"t_us": 5, "ev\n{"t_us": 6, "event": "x"}\n',
            "trace/n1.jsonl line 1 is not a trace event: not JSON.",
        ),
    ],
)
def test_other_damaged_files(tmp_path: Path, name: str, data: bytes, sentence: str) -> None:
    result = damaged(tmp_path, name, lambda _: data)
    assert any(p.startswith(sentence) for p in result.problems), result.problems
    assert result.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "data",
    [
        b'{"t_us": 5, "event": "x"}\n{"t_us": 6, "ev',
        b'{"t_us": 5, "ev{"t_us": 6, "event": "started", "incarnation": 1}\n',
    ],
    ids=["at-the-end", "before-the-next-incarnation"],
)
def test_a_line_that_a_kill_cut_short_is_no_problem(tmp_path: Path, data: bytes) -> None:
    result = damaged(tmp_path, "trace/n1.jsonl", lambda _: data)
    assert result.problems == ()
    assert result.verdict is Verdict.VALID
    (note,) = result.measures["notes"]
    assert "half a line, cut by a kill" in note


def test_a_run_whose_harness_was_killed(tmp_path: Path) -> None:
    s = sound()
    s.run["state"] = "running"
    s.run["problems"] = [{"kind": "not-healed", "sentence": "n2 could not be started."}]
    result = s.check(tmp_path)
    assert result.problems == (
        "The harness had trouble: n2 could not be started.",
        "The run never finished: its harness was killed, or could not write its last run.json.",
    )
    assert result.verdict is Verdict.UNKNOWN


def test_a_partition_that_run_json_does_not_know(tmp_path: Path) -> None:
    s = sound()
    s.send(1, at=0, partition="other")
    s.send(2, at=1, partition="other")
    s.run["promise"]["contiguous_offsets"] = False
    s.poll((1, 2), start=0, partition="other")
    assert against(s.check(tmp_path)) == {"lost": 1}


def test_tables(tmp_path: Path) -> None:
    s = sound()
    s.hw("n1", (1, 1))
    s.fault(0, "kill", "inject", 5, nodes=["n1"], links=[["n1", "n2"]])
    folder = s.write(tmp_path)
    check_run(folder, write=True)
    rows = {
        path.stem: pq.read_table(path).num_rows for path in (folder / "tables").glob("*.parquet")
    }
    assert rows == {
        "ops": 14,
        "sends": 12,
        "reads": 2,
        "assigns": 0,
        "replicas": 3,
        "log": 36,
        "trace": 1,
        "faults": 1,
        "exits": 0,
        "tallies": 11,
        "acks": 13,
        "per_second": 2,
        "per_client": 3,
        "per_partition": 2,
        "unseen": 2,
        "lag": 0,
        "staleness": 0,
        "around_faults": 2,
        "anomalies": 1,
        "properties": 7,
    }
    assert (folder / "results.json").is_file()
    reads = pq.read_table(folder / "tables" / "reads.parquet").to_pylist()
    assert reads[0]["partition"] == P
    assert (reads[0]["value"], reads[0]["count"]) == (1_000_000, 12)


def test_checking_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = sound().write(tmp_path)
    check_run(folder, write=True)
    first = (folder / "results.json").read_bytes()
    check_run(folder, write=True)
    assert (folder / "results.json").read_bytes() == first


@pytest.mark.parametrize(
    ("promise", "said"),
    [
        ({}, "invalid"),
        ({"delivery": "at-least-once"}, "valid"),
        ({"delivery": "twice"}, "Invalid enum value 'twice'"),
        ({"delivry": "at-least-once"}, "unknown field `delivry`"),
    ],
)
def test_a_history_is_judged_by_the_promise_of_its_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], promise: dict[str, str], said: str
) -> None:
    s = Story()
    s.busy()
    s.poll((0, 1_000_000, 12), (12, 1_000_000), start=0, process=99, final=True, at_end=True)
    file, stated = tmp_path / "history.jsonl", tmp_path / "promise.json"
    file.write_bytes((s.write(tmp_path / "run") / "history.jsonl").read_bytes())
    stated.write_text(json.dumps(promise))
    code = {"invalid": 1, "valid": 0}.get(said, 64)
    assert said in ended(["check", str(file), "--promise", str(stated), "--no-spark"], code, capsys)
