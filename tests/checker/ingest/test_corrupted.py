"""Ten ways a run folder is corrupted: each is one sentence and an exit code, nothing crashes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from checker.engine.local import check_run
from checker.formats.verdict import Verdict
from harness.cli import main
from tests.support.checker.story import Story

HISTORY = "history.jsonl"


class Corruption(NamedTuple):
    """What is done to a file (None: removed), and all that is to be said of it."""

    file: str
    change: Callable[[bytes], bytes] | None
    sentence: str
    verdict: Verdict = Verdict.UNKNOWN


def line(number: int, old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """Replace something on one line (from 1)."""

    def apply(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        assert old in lines[number - 1]
        lines[number - 1] = lines[number - 1].replace(old, new)
        return b"".join(lines)

    return apply


TEN = {
    "cut-line": Corruption(
        HISTORY, lambda data: data[:-40], "history.jsonl ends in half a line (line 28), left out."
    ),
    "wrong-type": Corruption(
        HISTORY,
        line(5, b'"op":2', b'"op":"two"'),
        "history.jsonl line 5 is not an operation: Expected `int`, got `str` - at `$.op`.",
    ),
    "unknown-field": Corruption(
        HISTORY,
        line(5, b'{"op":', b'{"colour":"red","op":'),
        "history.jsonl line 5: ignored: Object contains unknown field `colour`.",
        Verdict.VALID,
    ),
    "duplicate-index": Corruption(
        HISTORY,
        line(5, b'"op":2', b'"op":1'),
        "history.jsonl line 5: operation 1 is invoked twice.",
    ),
    "completion-without-invocation": Corruption(
        HISTORY,
        lambda data: b"".join(data.splitlines(keepends=True)[1:]),
        "history.jsonl line 1: operation 0 ends but was never invoked.",
    ),
    "time-running-backwards": Corruption(
        HISTORY,
        line(4, b'"t_us":1003000', b'"t_us":1001000'),
        "history.jsonl line 4: time goes back by 1000 us within process 50.",
    ),
    "empty-file": Corruption(
        HISTORY, lambda _: b"", "history.jsonl has no operation in it: there is nothing to judge."
    ),
    "offset-of-2-to-the-63": Corruption(
        HISTORY,
        line(2, b'"offset":0', b'"offset":9223372036854775808'),
        "history.jsonl line 2 is not an operation: Expected `int` <= 9223372028264841216 - at "
        "`$.sends[0].offset`.",
    ),
    "invalid-utf-8": Corruption(
        HISTORY, line(5, b'"c50"', b'"\xff\xfe"'), "history.jsonl line 5 is not an operation: "
    ),
    "missing-replica-log": Corruption("logs/n2.jsonl", None, "logs/n2.jsonl is missing."),
}


@pytest.fixture(params=TEN)
def corrupted(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Corruption, Path]:
    """A run that is valid as it is, with one thing done to it."""
    s = Story()
    batches = s.busy()
    s.final((0, 1_000_000, 12))
    s.agree(*batches)
    folder = s.write(tmp_path / "run")
    assert check_run(folder).verdict is Verdict.VALID
    how = TEN[request.param]
    file = folder / how.file
    if how.change is None:
        file.unlink()
    else:
        file.write_bytes(how.change(file.read_bytes()))
    return how, folder


def test_the_sentence_and_the_exit_code(
    corrupted: tuple[Corruption, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    how, folder = corrupted
    with pytest.raises(SystemExit) as ended:
        main.main(["check", "--no-spark", str(folder)])
    out, err = capsys.readouterr()
    assert ended.value.code == (0 if how.verdict is Verdict.VALID else 2)
    assert "Traceback" not in out + err
    result = check_run(folder)
    assert result.verdict is how.verdict
    (said,) = [*result.problems, *result.measures.get("notes", ())]
    assert said.startswith(how.sentence)
    if how.verdict is Verdict.UNKNOWN:
        assert result.sentence.startswith(f"unknown: {how.sentence.rstrip('.')}")


def test_the_validator_names_the_line(
    corrupted: tuple[Corruption, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    how, folder = corrupted
    with pytest.raises(SystemExit) as ended:
        main.main(["check", "--validate", str(folder)])
    out, _ = capsys.readouterr()
    in_history = how.file == HISTORY
    assert ended.value.code == (2 if in_history else 0)
    assert out.startswith(how.sentence if in_history else "Every line is an operation.")
    assert out.count("\n") == 1
