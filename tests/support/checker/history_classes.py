"""The classes of histories with a known truth: what makes their members, and their verdicts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from checker.formats.verdict import Verdict
from tests.support.checker import odd_histories as odd
from tests.support.checker import wrong_histories as plain
from tests.support.checker.history_forms import FORMS
from tests.support.checker.wrong_histories import Told

_OWN: Final = FORMS[:2]
_VALID: Final = (Verdict.VALID,)
_OPEN: Final = (Verdict.VALID, Verdict.UNKNOWN)
_UNKNOWN: Final = (Verdict.UNKNOWN,)


class Class(NamedTuple):
    """A class of histories: `forms` that can have them, and the verdicts on its members and on its
    near misses, some of which do not say enough. `splits`: whether a poll may be split in two."""

    make: Callable[[Told, bool], None]
    forms: tuple[str, ...] = FORMS
    wrong: tuple[Verdict, ...] = (Verdict.INVALID,)
    near: tuple[Verdict, ...] = _VALID
    splits: bool = True


CLASSES: Final[dict[str, Class]] = {
    "head": Class(plain.a_reader_passes_over_the_head),
    "final": Class(plain.a_final_reader_ends_early),
    "realtime": Class(plain.an_append_goes_back),
    "dirty": Class(plain.a_dirty_reader),
    "moved": Class(plain.a_moved_reader),
    # Behind a record that is never read nothing shows what became of it.
    "subscriber": Class(plain.a_subscriber_is_moved, near=_OPEN, splits=False),
    # Nothing in these says where the log begins.
    "retention": Class(plain.a_record_below_the_head, near=_OPEN),
    "tail": Class(odd.the_tail_is_gone, _OWN, near=_OPEN),
    "end": Class(plain.an_answer_ends_below_its_mark, _OWN),
    "middle": Class(odd.an_answer_ends_in_the_middle, _OWN),
    "nothing": Class(plain.final_readers_get_nothing, _OWN, near=_UNKNOWN),
    "copies": Class(plain.a_record_is_appended_again),
    # Of acknowledgements that show nothing, reads must be there to prove something.
    "excused": Class(odd.an_acknowledged_record_goes, near=(Verdict.VALID, Verdict.NOT_EXERCISED)),
    "purge": Class(odd.something_empties_the_log, near=_UNKNOWN),
    "overlap": Class(odd.a_process_goes_on, wrong=_UNKNOWN),
    "count": Class(odd.an_end_of_other_sends, ("own", "json", "edn"), wrong=_UNKNOWN),
}


def draw(name: str, seed: int, *, wrong: bool) -> tuple[Told, str]:
    """Return a member of a class or, with `wrong` false, its near miss; and its form."""
    of = CLASSES[name]
    form = of.forms[seed % len(of.forms)]
    told = Told(random.Random(f"{name} {seed}"), form in ("json", "edn"))
    of.make(told, wrong)
    return told, form
