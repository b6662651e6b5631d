"""A night from its first line to its page: what `floodmark nightly` does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from harness.formats.nightly_run import FOLDER, Night, nights
from harness.nightly import summary_text
from harness.nightly.environment import Hands, RealHands
from harness.nightly.plan import Settings
from harness.nightly.pruning import prune
from harness.nightly.session import DISK_FULL, Shift, open_journal
from harness.nightly.summary import summarise
from harness.runs.interrupts import Interrupts
from harness.runs.progress import Progress
from node.formats.errors import FloodmarkError, StorageError, UsageError
from node.formats.files import write_whole
from reports.nightly_page.index_model import still_open

JUNIT = "junit.xml"
LOCK = ".lock"
MakeHands = Callable[[Settings, Interrupts, Progress], Hands]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The options that decide nothing about what is done in the night."""

    fresh: bool = False
    spark: bool = True
    junit: Path | None = None
    quiet: bool = False
    json: bool = False


def whole_night(settings: Settings, wish: Wish, make_hands: MakeHands | None = None) -> int:
    """Carry a night out, or the rest of one, and tell of it; returns the exit code.

    `make_hands` stands in for the real ones. Raises FloodmarkError before the first line.
    """
    if settings.number < 0 or settings.cores < 1:
        raise UsageError("--night and --cores must be positive")
    with _alone(settings.store):
        return _whole_night(settings, wish, make_hands)


@contextlib.contextmanager
def _alone(store: Path) -> Iterator[None]:
    """One night at a time in a store: the lock ends with the process that has it."""
    try:
        (store / FOLDER).mkdir(parents=True, exist_ok=True)
        descriptor = os.open(store / FOLDER / LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(f"{store}: cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UsageError(f"{store}: another night is at work there") from None
    finally:
        os.close(descriptor)


def _whole_night(settings: Settings, wish: Wish, make_hands: MakeHands | None) -> int:
    settings, journal = open_journal(settings.store, settings, fresh=wish.fresh)
    past = [n for n in nights(settings.store)[0] if n.number < settings.number]
    try:
        with Interrupts() as interrupts, Progress(quiet=wish.quiet) as progress:
            make = make_hands or (lambda *parts: _real(*parts, spark=wish.spark))
            shift = Shift(settings, make(settings, interrupts, progress), journal, past)
            progress.phase(f"night {settings.number} in {settings.store}", settings.budget_s)
            state = shift.work()
            night = summarise(journal.rows, past)
            # On a full disk even the last line may be missing.
            night.state = state
            night.open = _still_open([*past, night], settings.store)
            prune(settings.store, settings.kept_of_a_kind)
            return _tell(settings, wish, night, past, shift.sentence)
    finally:
        journal.close()


def _still_open(known: list[Night], store: Path) -> list[str]:
    """What earlier nights left open, a line each."""
    left = still_open(known, lambda path: bool(path) and (store / path).is_file())
    return [
        f"{s.shown.protocol}: {s.shown.name} ({s.shown.world}, last met in night {s.last})"
        for s in left
    ]


def _real(
    settings: Settings, interrupts: Interrupts, progress: Progress, *, spark: bool
) -> RealHands:
    output = settings.store / FOLDER / f"{settings.number:04d}.txt"
    return RealHands(settings.store, output, interrupts, progress, spark=spark)


def _tell(settings: Settings, wish: Wish, night: Night, past: list[Night], sentence: str) -> int:
    """Write the summary, the JUnit file and the index, and print what came of the night."""
    from reports.nightly_page.index_page import build_index

    if sentence:
        night.problems.insert(0, sentence)
        _say(sentence)
    known = [*past, night]
    code = summary_text.exit_code(night)
    try:
        made = msgspec.json.format(msgspec.json.encode(night), indent=1)
        write_whole(settings.store / FOLDER / f"{night.number:04d}.json", made + b"\n")
        write_whole(wish.junit or settings.store / JUNIT, summary_text.junit(known))
        page: Path | None = build_index(settings.store)
    except FloodmarkError as error:
        if night.state != DISK_FULL:
            _say(str(error))
            code = summary_text.EXIT_HARNESS
        page = None
    if wish.json:
        sys.stdout.write(msgspec.json.encode(night).decode() + "\n")
    else:
        sys.stdout.write(summary_text.summary(known) + "\n")
        if page is not None:
            sys.stdout.write(f"  page        {page}\n")
    return code


def _say(sentence: str) -> None:
    print(f"floodmark: {' '.join(sentence.split())}", file=sys.stderr)  # noqa: T201
