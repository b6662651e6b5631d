"""Fuzzes a target by coverage: `python -m tests.fuzz.fuzz TARGET [--seconds N]`, or `all`.

Uses atheris where it is installed, else mutations without coverage. An input that breaks the
contract is kept in `corpus/TARGET/`, where `make test` tries it ever after, and the exit code is 1.
Seconds are processor time of the fuzzing process, so a busy machine does not shorten them. With
`all --table FILE` each result is a line of the file, and targets that it has are not done again."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from node.formats.owned_folder import OwnedFolder

CORPUS = Path(__file__).parent / "corpus"
MOST_BYTES = 1 << 16
MOST_MEMORY_MB = 2048
SLOW_S = 20
MOST_STRETCH = 60
"""How many times its processor time a fuzzer may take by the clock of a busy machine."""
BROKEN = "broken"
PACKAGES = ("node", "nemesis", "checker", "harness", "reports")


def kept(target: str) -> list[bytes]:
    return [file.read_bytes() for file in sorted((CORPUS / target).glob("*"))]


def mutations(seeds: list[bytes], rng: random.Random) -> Iterator[bytes]:
    """Yield inputs that are nearly valid."""
    pieces = [b"\0", b"\xff", b"[", b"{", b'"', b"\n", b"-", b"9" * 30, b"null", b"1e400", b"\\"]
    while True:
        data = bytearray(rng.choice(seeds) if seeds else b"")
        for _ in range(rng.choice((1, 1, 2, 4, 16))):
            at = rng.randrange(len(data) + 1)
            end = min(len(data), at + rng.choice((1, 2, 8, 64)))
            match rng.randrange(6):
                case 0:
                    data[at:end] = b""
                case 1:
                    data[at:at] = rng.choice(pieces) * rng.choice((1, 1, 3, 2000))
                case 2:
                    data[at:at] = data[at:end] * rng.choice((1, 2, 50))
                case 3:
                    data[at:end] = rng.randbytes(end - at)
                case 4 if at < len(data):
                    data[at] ^= 1 << rng.randrange(8)
                case _ if seeds:
                    other = rng.choice(seeds)
                    start = rng.randrange(len(other) + 1)
                    data[at:end] = other[start : start + 64]
        yield bytes(data[:MOST_BYTES])


def within_time(run: Callable[[bytes], object], data: bytes) -> None:
    """Try one input. Raises TimeoutError for one that takes too much processor time."""
    began_s = time.process_time()
    run(data)
    if (took_s := time.process_time() - began_s) > SLOW_S:
        raise TimeoutError(f"{took_s:.0f} s for {len(data)} bytes")


def by_mutation(name: str, seconds: float, seed: int) -> int:
    """Try mutations for a time; the number tried. Raises what breaks the contract."""
    from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    until_s, tried = time.process_time() + seconds, 0
    for data in mutations([*target.seeds, *kept(name)], random.Random(seed)):
        if time.process_time() >= until_s:
            break
        tried += 1
        try:
            within_time(target.accepts, data)
        except BaseException:
            keep(name, data)
            raise
    return tried


def keep(name: str, data: bytes) -> Path:
    """Keep an input that broke the contract."""
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / hashlib.blake2b(data, digest_size=6).hexdigest()
    file.write_bytes(data)
    return file


def by_coverage(name: str, seconds: float, seed: int) -> int:
    """Fuzz with atheris, in this process, which it ends."""
    import atheris

    with atheris.instrument_imports(include=list(PACKAGES)):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    until_s, tried = time.process_time() + seconds, 0
    seeds = OwnedFolder()

    def one(data: bytes) -> None:
        nonlocal tried
        tried += 1
        if time.process_time() >= until_s:
            report(name, tried)
            seeds.close()
            # The end of the interpreter under libFuzzer's may wait for threads for ever.
            os._exit(0)
        try:
            within_time(target.accepts, data)
        except BaseException:
            keep(name, data)
            raise

    for number, data in enumerate((*target.seeds, *kept(name))):
        (seeds.path / str(number)).write_bytes(data)
    options = (
        # libFuzzer counts by the clock, and only ends what never returns.
        f"-max_total_time={int(MOST_STRETCH * seconds) + 60}",
        f"-max_len={MOST_BYTES}",
        f"-rss_limit_mb={MOST_MEMORY_MB}",
        f"-timeout={MOST_STRETCH * SLOW_S}",
        f"-artifact_prefix={seeds.path}/",
        f"-seed={seed}",
        "-verbosity=0",
    )
    atheris.Setup([sys.argv[0], *options, str(seeds.path)], one)
    atheris.Fuzz()
    return 0


def report(name: str, tried: int) -> int:
    """Say how many inputs were tried, and give the most memory that it took, in MB."""
    used_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    sys.stdout.write(f"{name}: {tried} inputs, at most {used_mb} MB\n")
    sys.stdout.flush()
    return used_mb


def main() -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutations", action="store_true", help="without atheris")
    parser.add_argument("--table", type=Path, help="of `all`: where results are kept")
    asked = parser.parse_args()
    if asked.target != "all":
        if not asked.mutations and importlib.util.find_spec("atheris") is not None:
            return by_coverage(asked.target, asked.seconds, asked.seed)
        tried = by_mutation(asked.target, asked.seconds, asked.seed)
        return 0 if report(asked.target, tried) <= MOST_MEMORY_MB else 1
    return every_target(asked)


def result(code: int, last: str) -> str:
    """Return a sentence on a target; one that libFuzzer's clock ended reported no progress."""
    if code != 0:
        return f"{BROKEN}: exit code {code}"
    return last or f"{BROKEN}: ended by the clock before it had its processor time"


def every_target(asked: argparse.Namespace) -> int:
    """Each target in a process of its own; exit code 1 if one broke."""
    from tests.fuzz.targets import TARGETS

    done = asked.table.read_text().splitlines() if asked.table and asked.table.exists() else []
    results = dict(line.split(": ", 1) for line in done)
    for name in TARGETS:
        if name in results:
            continue
        options = ["--seconds", str(asked.seconds), "--seed", str(asked.seed)]
        options += ["--mutations"] * asked.mutations
        command = [sys.executable, "-m", "tests.fuzz.fuzz", name, *options]
        try:
            ran = subprocess.run(
                command,
                check=False,
                stdout=subprocess.PIPE,
                text=True,
                timeout=MOST_STRETCH * asked.seconds + 300,
            )
            last = (ran.stdout.splitlines() or [""])[-1].removeprefix(f"{name}: ")
            results[name] = result(ran.returncode, last)
        except subprocess.TimeoutExpired:
            results[name] = f"{BROKEN}: not over in time"
        sys.stdout.write(f"{name}: {results[name]}\n")
        sys.stdout.flush()
        if asked.table:
            with asked.table.open("a") as table:
                table.write(f"{name}: {results[name]}\n")
    broken = [name for name, result in results.items() if result.startswith(BROKEN)]
    sys.stdout.write(f"broken: {', '.join(broken) or 'none'}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
