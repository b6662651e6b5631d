"""Ways to damage the evidence of a run, one file at a time: what disks, editors and people do."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness.formats.seal import FILE, sealed_names

Change = Callable[[list[bytes], random.Random], list[bytes] | None]


def _remove(lines: list[bytes], rng: random.Random) -> list[bytes]:
    at = rng.randrange(len(lines))
    return lines[:at] + lines[at + 1 :]


def _double(lines: list[bytes], rng: random.Random) -> list[bytes]:
    at = rng.randrange(len(lines))
    return [*lines[: at + 1], *lines[at:]]


def _swap(lines: list[bytes], rng: random.Random) -> list[bytes]:
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    made = list(lines)
    made[at], made[other] = lines[other], lines[at]
    return made


def _flip(lines: list[bytes], rng: random.Random) -> list[bytes]:
    at = rng.randrange(len(lines))
    line = bytearray(lines[at])
    line[rng.randrange(len(line))] ^= 1 << rng.randrange(8)
    return [*lines[:at], bytes(line), *lines[at + 1 :]]


def _digit(lines: list[bytes], rng: random.Random) -> list[bytes]:
    """One digit of one line, which stays readable."""
    at = rng.randrange(len(lines))
    line = bytearray(lines[at])
    places = [place for place, byte in enumerate(line) if chr(byte).isdigit()]
    if not places:
        return lines
    place = rng.choice(places)
    line[place] = ord("1") + (line[place] - ord("0")) % 9
    return [*lines[:at], bytes(line), *lines[at + 1 :]]


def _blank_hashes(lines: list[bytes], rng: random.Random) -> list[bytes]:
    """Every hash of the file, to nothing or to zeros."""
    into = rng.choice((b'""', b'"0000000000000000"'))
    made = []
    for line in lines:
        head, found, tail = line.partition(b'"hash":"')
        made.append(head + b'"hash":' + into + tail.partition(b'"')[2] if found else line)
    return made


CHANGES: Final[dict[str, Change]] = {
    "remove a line": _remove,
    "double a line": _double,
    "swap two lines": _swap,
    "flip a bit": _flip,
    "change a digit": _digit,
    "blank the hashes": _blank_hashes,
    "empty": lambda lines, rng: [],
    "first half": lambda lines, rng: lines[: len(lines) // 2],
    "last half": lambda lines, rng: lines[len(lines) // 2 :],
    "cut the last lines": lambda lines, rng: lines[: -rng.randint(1, 20)],
    "cut in a line": lambda lines, rng: [*lines[:-1], lines[-1][: len(lines[-1]) // 2]],
    "zero a block": lambda lines, rng: _zeroed(lines, rng),
    "remove the file": lambda lines, rng: None,
}


def _zeroed(lines: list[bytes], rng: random.Random) -> list[bytes]:
    text = b"".join(lines)
    at = rng.randrange(len(text))
    length = min(rng.choice((16, 512, 4096)), len(text) - at)
    return [text[:at] + bytes(length) + text[at + length :]]


def evidence(folder: Path) -> list[str]:
    """Every file of a run that its verdict rests on, by name."""
    return ["run.json", FILE, *sealed_names(folder)]


def damage(folder: Path, name: str, change: Change, rng: random.Random) -> bool:
    """Damage one file of a run; whether that changed it."""
    path = folder / name
    before = path.read_bytes()
    lines = before.splitlines(keepends=True)
    if not lines:
        return False
    made = change(lines, rng)
    if made is None:
        path.unlink()
        return True
    path.write_bytes(b"".join(made))
    return b"".join(made) != before
