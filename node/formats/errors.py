"""The one error hierarchy of floodmark (a leaf: every package may import it).

An error that reaches the command line is printed as its one sentence, and the process ends with
its `exit_code`: 64 when the user can mend the input, 70 when the harness itself could not go on.
"""

from __future__ import annotations

from collections.abc import Iterable


class FloodmarkError(Exception):
    """The base of all our errors: each says what was wrong, where, and what to do."""

    exit_code = 70


class UsageError(FloodmarkError):
    """The request cannot be carried out as written: unknown names, impossible shapes."""

    exit_code = 64


class InvariantBroken(FloodmarkError):
    """A broker found its own state contradictory. It must stop rather than go on."""


class WireError(FloodmarkError):
    """A message that cannot be understood: unknown kind, version, length or checksum."""


class StorageError(FloodmarkError):
    """The disk refused: full, corrupt, or not ours."""


class DamagedStore(StorageError):
    """A store returned other data than was written: a batch of `partition` at `offset`, or
    (`offset` -1) the small value `key`. `what` states the evidence."""

    def __init__(self, what: str, *, partition: str = "", offset: int = -1, key: str = "") -> None:
        place = f"the value '{key}'" if key else f"{partition}: the batch at {offset}"
        super().__init__(f"{place} is damaged on disk: {what}")
        self.what = what
        self.partition = partition
        self.offset = offset
        self.key = key


def unknown_name(kind: str, name: str, known: Iterable[str], listed: str = "") -> str:
    """Return the sentence about a name that is none of the known ones, with the nearest of them.

    `listed` says where the known names are listed, instead of the names themselves.
    """
    # Imported late: most processes never need it.
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name[:100].lower(), names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return f"unknown {kind} '{name[:100]}' ({listed or 'known: ' + ', '.join(names)}){hint}"
