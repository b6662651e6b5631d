"""A run folder that somebody damages, and what the checker says of it: a stage of scripts.

It begins as the folder of a valid run: twelve records, acknowledged and read by process 50, read
finally, and in all logs. Texts have no spaces."""

from __future__ import annotations

import io
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from checker.engine.local import check_run
from checker.formats.verdict import RunResult
from harness.formats.seal import seal_run
from tests.support.checker.story import Story, against
from tests.support.command import exit_code

EXIT_CODES = {"valid": 0, "invalid": 1, "unknown": 2}


def sound() -> Story:
    """Return a run that is valid as it is."""
    s = Story()
    batches = s.busy()
    s.final((0, 1_000_000, 12))
    s.agree(*batches)
    return s


class FolderStage:
    """The folder of a run, in a temporary place."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="floodmark-folder-")
        self._folder = sound().write(Path(self._place.name) / "run")

    # -- what happens to files

    def line(self, name: str, number: int, *instead: str, times: int = 1) -> None:
        """Let these lines stand for a line of a file (from 1), so many times."""
        lines = self._file(name).read_bytes().splitlines(keepends=True)
        lines[number - 1 : number] = [f"{text}\n".encode() for text in instead] * times
        self._file(name).write_bytes(b"".join(lines))

    def double(self, name: str, number: int) -> None:
        """Let a line of a file stand twice."""
        lines = self._file(name).read_bytes().splitlines(keepends=True)
        lines.insert(number, lines[number - 1])
        self._file(name).write_bytes(b"".join(lines))

    def replace(self, name: str, number: int, old: Any, new: Any) -> None:
        """Replace a text in a line of a file; escapes are bytes."""
        lines = self._file(name).read_bytes().splitlines(keepends=True)
        made = str(new).encode().decode("unicode_escape").encode("latin-1")
        assert str(old).encode() in lines[number - 1]
        lines[number - 1] = lines[number - 1].replace(str(old).encode(), made)
        self._file(name).write_bytes(b"".join(lines))

    def write(self, name: str, *lines: str, cut: int = 0) -> None:
        """Write a file that has these lines, the last one without its last bytes."""
        text = "".join(f"{line}\n" for line in lines).encode("latin-1")
        self._file(name).write_bytes(text[: len(text) - cut])

    def cut(self, name: str, size: int) -> None:
        """Take the last bytes from a file."""
        self._file(name).write_bytes(self._file(name).read_bytes()[:-size])

    def zero(self, name: str, size: int) -> None:
        self._file(name).write_bytes(bytes(size))

    def remove(self, *names: str) -> None:
        for name in names:
            self._file(name).unlink()

    def copy(self, name: str, to: str) -> None:
        self._file(to).write_bytes(self._file(name).read_bytes())

    def about(self, **fields: Any) -> None:
        """Change fields of run.json to these values, which are JSON."""
        about = json.loads(self._file("run.json").read_text())
        about |= {name: json.loads(str(value)) for name, value in fields.items()}
        self._file("run.json").write_text(json.dumps(about))

    def lacks(self, *names: str) -> None:
        """Take fields out of run.json."""
        about = json.loads(self._file("run.json").read_text())
        kept = {name: value for name, value in about.items() if name not in names}
        self._file("run.json").write_text(json.dumps(kept))

    def seal(self) -> None:
        """Seal what is there, and name the seal in run.json."""
        seal_run(self._folder)

    def _file(self, name: str) -> Path:
        return self._folder / name

    # -- what the checker says

    def judge(self) -> list[str]:
        """Judge the run twice, and by the command: its sentence, problems, notes and findings."""
        result, again = (self._judged() for _ in range(2))
        assert again == result
        code, _ = self._command("--no-spark")
        assert code == EXIT_CODES[result[0].verdict]
        said = result[0]
        return [
            said.sentence,
            *(f"problem: {problem}" for problem in said.problems),
            *(f"note: {note}" for note in said.measures.get("notes", ())),
            *(f"finds {name} {count}" for name, count in against(said).items()),
        ]

    def _judged(self) -> tuple[RunResult, bytes]:
        result = check_run(self._folder, write=True)
        return result, self._file("results.json").read_bytes()

    def validate(self) -> list[str]:
        """Return what the command says of the lines of the history, and its exit code."""
        code, lines = self._command("--validate")
        return [*lines, f"exit code {code}"]

    def _command(self, option: str) -> tuple[int, list[str]]:
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(out):
            code = exit_code(["check", option, str(self._folder)])
        assert "Traceback" not in out.getvalue()
        return code, out.getvalue().splitlines()

    def tables(self) -> str:
        """Return how many rows each table has."""
        files = sorted(self._file("tables").glob("*.parquet"))
        return ", ".join(f"{file.stem} {pq.read_table(file).num_rows}" for file in files)
