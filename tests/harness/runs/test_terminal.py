"""Foreign text in a terminal."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import msgspec
import pytest

from harness.runs.progress import Progress, ProgressState
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


@pytest.mark.parametrize(
    "line",
    [
        *("check --no-spark {}", "report {}", "run --schedule {}", "replay {}", "serve --store {}"),
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
