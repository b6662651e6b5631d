"""Servers built from the commits of a repository, for `floodmark bisect --git`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from harness.systems.external.versions import run_client
from node.formats.errors import FloodmarkError, UsageError


class Builds:
    """The commits of a clone, and the server of each, which is built when it is first needed."""

    def __init__(self, clone: Path, command: str, binary: str, store: Path) -> None:
        """Build with the shell `command`, which leaves an executable named `binary`. Checkouts go
        to a folder of `store`. Raises UsageError."""
        if not command:
            raise UsageError("--git needs --build, the command that builds the server")
        self._clone, self._command, self._binary = clone.absolute(), command, binary
        self._folder = store.absolute() / "builds"

    def commits(self, ranges: Sequence[str]) -> list[str]:
        """Return the commits of the range A..B, A included, the oldest first. Raises UsageError."""
        first, dots, last = ranges[0].partition("..") if len(ranges) == 1 else ("", "", "")
        if not dots:
            raise UsageError("--git needs one --versions A..B, two commits of that clone")
        between = self._git("rev-list", "--first-parent", "--reverse", f"{first}..{last}")
        return [self._git("rev-parse", f"{first}^{{commit}}"), *between.split()]

    def executable(self, commit: str) -> Path:
        """Return the server of a commit. Raises FloodmarkError if it cannot be built."""
        place = self._folder / commit
        if not place.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._git("worktree", "add", "--force", "--detach", str(place), commit)
        if not (found := self._built(place)):
            run_client(["sh", "-c", self._command], place, commit, "build")
            found = self._built(place)
        if not found:
            raise FloodmarkError(f"{place}: the build left no executable {self._binary}")
        return found[0]

    def _built(self, place: Path) -> list[Path]:
        found = (file for file in sorted(place.rglob(self._binary)) if file.is_file())
        return [file for file in found if os.access(file, os.X_OK)]

    def _git(self, *words: str) -> str:
        return run_client(["git", *words], self._clone, str(self._clone), "read").strip()
