"""Foreign text in a terminal."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import msgspec
import pytest

from harness.cli.common import print_result
from harness.runs.progress import Progress
from harness.runs.storm import ProgressState
from harness.runs.terminal import plain, plain_output, stream_for_display
from tests.support.command import exit_code

HOSTILE = "a\x1b[2J\x1b]0;owned\x07b\r\x9b1mc\u202ed\udcffe"
SHOWN = "a\\u001b[2J\\u001b]0;owned\\u0007b\\u000d\\u009b1mc\\u202ed\\udcffe"


def test_control_characters_are_shown() -> None:
    assert plain(HOSTILE) == SHOWN
    assert plain("é 日本 ✓ × \t\n") == "é 日本 ✓ × \t\n"
    assert [c for c in map(chr, range(0x110000)) if plain(c) == c and not c.isprintable()][:2] == [
        "\t",
        "\n",
    ]
    assert msgspec.json.decode(f'"{plain(chr(0x9B))}"') == chr(0x9B), "JSON stays what it was"


def test_everything_printed_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    stream = sys.stderr
    with plain_output():
        sys.stdout.write(f"{HOSTILE}\n")
        sys.stderr.write(f"{HOSTILE}\n")
        sys.stdout.writelines([HOSTILE])
        assert not sys.stdout.isatty()
        assert stream_for_display() is stream, "what draws finds the stream itself"
    assert sys.stderr is stream
    said = capsys.readouterr()
    assert said.out == f"{SHOWN}\n{SHOWN}"
    assert said.err == f"{SHOWN}\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_progress_draws_but_its_words_are_plain(stream: type[io.StringIO]) -> None:
    out = stream()
    with Progress(stream=out) as progress:
        progress.note(HOSTILE)
        progress.phase("storm")
        progress.tell(HOSTILE)
        progress.show(ProgressState(leaders=("n1", HOSTILE), faults=(HOSTILE,)))
    drawn = out.getvalue()
    assert SHOWN in drawn
    assert "\x1b[2J" not in drawn
    assert "\x1b]0" not in drawn
    assert "\x07" not in drawn


def test_work_that_reports_nothing_is_asked_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    out, pipe = Terminal(), io.StringIO()
    for stream in (out, pipe):
        with Progress(stream=stream, state=lambda: f"3 of 7 {HOSTILE}") as progress:
            progress.phase("judging")
    assert f"3 of 7 {SHOWN}" in out.getvalue()
    assert pipe.getvalue() == ""


def test_a_verdict_has_a_colour_on_a_terminal_unless_no_color(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    drawn = {}
    for stream, given in ((Terminal(), ""), (Terminal(), "1"), (io.StringIO(), "")):
        with monkeypatch.context() as within:
            within.setattr(sys, "stdout", stream)
            if given:
                within.setenv("NO_COLOR", given)
            with plain_output():
                print_result(f"x INVALID  run {HOSTILE}\n  tab\there", "invalid")
        drawn[type(stream), given] = stream.getvalue()
    assert "\x1b[1;31mINVALID\x1b[0m" in drawn[Terminal, ""]
    assert drawn[Terminal, ""].count("\x1b") == 2, "what is foreign is no order"
    assert "\x1b[31m" not in drawn[Terminal, "1"]
    assert drawn[io.StringIO, ""] == f"x INVALID  run {SHOWN}\n  tab\there\n"


@pytest.mark.parametrize(
    "line",
    [
        *("check --no-spark {}", "report {}", "run --schedule {}", "replay {}"),
        *("run --name x --faults {}", "bugs find --only {}", "{}"),
    ],
)
def test_no_argument_reaches_the_terminal_as_an_order(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = exit_code([word.format(HOSTILE) for word in line.split()])
    said = capsys.readouterr()
    assert code == 64, said
    assert "\x1b" not in said.err + said.out
    assert "\x9b" not in said.err + said.out
    assert "unexpected" not in said.err


def test_a_long_message_is_cut(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    schedule = tmp_path / "s.json"
    schedule.write_text('{"floodmark_schedule": "' + "x" * 100_000 + '"}')
    assert exit_code(["run", "--schedule", str(schedule)]) == 64
    assert len(capsys.readouterr().err) < 2100
