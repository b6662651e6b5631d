"""A pipe that breaks inside a command: no exit code of a verdict."""

from __future__ import annotations

import errno
import os
import sys

import pytest
import typer

from harness.cli import main
from harness.cli.exit_codes import EXIT_HARNESS


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
