"""The process of one search for an unplanted bug: reads what to search for, writes what it found.

Standard input: a JSON list of the bug's code, the seed, the seconds of processor time in all, and
the entry of the search so far, or null. Standard output: the entry that follows.
"""

from __future__ import annotations

import sys

import msgspec

from tests.support.unplanted.replacements import turn_on, unplanted_bugs


def main() -> None:
    """Turn the bug on, then search."""
    code, seed, seconds, before = msgspec.json.decode(sys.stdin.buffer.read())
    turn_on(next(bug for bug in unplanted_bugs() if bug.code == code))
    # Only now: the search imports the module that has the bug.
    from harness.search.known_bugs import Entry
    from tests.support.unplanted.blind import blind_search

    known = msgspec.convert(before, Entry | None)
    entry = blind_search(code, seed, seconds, known)
    sys.stdout.buffer.write(msgspec.json.encode(entry))


if __name__ == "__main__":
    main()
