"""The one error hierarchy of floodmark (every package may import it).

An error that reaches the command line is printed as its one sentence, and the process ends with its
`exit_code`: 64 if the user can correct the input, 70 if the harness itself could not go on."""

from __future__ import annotations

from collections.abc import Iterable


class FloodmarkError(Exception):
    """The base of all errors of floodmark: each says what was wrong, where, and what to do."""

    exit_code = 70


class UsageError(FloodmarkError):
    """A request that cannot be carried out as written: an unknown name, an impossible combination
    of options."""

    exit_code = 64


class InvariantBroken(FloodmarkError):
    """A contradiction that a broker found in its own state: it must stop rather than go on."""


class WireError(FloodmarkError):
    """A message that cannot be understood: unknown kind, version, length or checksum."""


class StorageError(FloodmarkError):
    """A refusal of the disk: it is full, damaged, or has other files than floodmark's."""


class DamagedStore(StorageError):
    """Data that a disk returned differs from what was written: a batch of `partition` at `offset`,
    or (`offset` -1) the small value stored under `key`. `what` states the evidence."""

    def __init__(self, what: str, *, partition: str = "", offset: int = -1, key: str = "") -> None:
        place = f"the value '{key}'" if key else f"{partition}: the batch at {offset}"
        super().__init__(f"{place} is damaged on disk: {what}")
        self.what = what
        self.partition = partition
        self.offset = offset
        self.key = key


def unknown_name(kind: str, name: str, known: Iterable[str], listed: str = "") -> str:
    """Return the sentence about a `name` that is none of the `known` ones, with the most similar of
    them. `kind` says what it should name ("protocol"), `listed` where the known names are listed,
    instead of the names themselves."""
    # Imported late: most processes never need it.
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name[:100].lower(), names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return f"unknown {kind} '{name[:100]}' ({listed or 'known: ' + ', '.join(names)}){hint}"
