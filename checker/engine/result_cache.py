"""The result cache: a run is not judged again while its evidence and the checker are unchanged.

`checked.json`, beside `results.json`, holds a digest of the paths, sizes and times of all files
that the verdict rests on, and of the checker's source. If the digest differs, because the run was
copied or a file or the checker has changed, the run is judged again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from checker.evidence.run_meta import RunMeta
from checker.formats.verdict import RunResult
from checker.ingest.ingest import only_tables, sources
from checker.ingest.source import is_file
from checker.output.assemble import RunOutput, write_results
from harness.formats import seal
from node.formats.files import write_whole
from node.formats.json_input import Unreadable, read_file

_MARK: Final = "checked.json"
_DIGEST_BYTES: Final = 16


def stamp(folder: Path) -> str:
    """Return a digest of everything that the verdict on this folder rests on."""
    digest = hashlib.blake2b(_own_source(), digest_size=_DIGEST_BYTES)
    digest.update(os.fsencode(folder))
    for path in _evidence(folder):
        try:
            about = path.stat()
        except OSError:
            continue
        digest.update(os.fsencode(f"\0{path}\0{about.st_size}\0{about.st_mtime_ns}"))
    return digest.hexdigest()


def cached_result(target: Path, mark: str) -> RunResult | None:
    """Return the result in the folder `target` if the digest kept beside it equals `mark`."""
    try:
        known = read_file(target / _MARK, dict[str, str])
        if known.get("mark") != mark:
            return None
        return read_file(target / "results.json", RunResult)
    except (OSError, Unreadable):
        return None


class ResultsPlace:
    """A run folder and the folder of its results: the same, or one of its own under `out`."""

    def __init__(self, folder: Path, out: Path | None) -> None:
        """Choose the folder of results and make it; none if `out` is None and the run folder does
        not exist. Raises OSError."""
        self.folder = folder.absolute()
        self.target: Path | None = self.folder if self.folder.is_dir() else None
        if out is not None:
            self.target = out.absolute() / own_name(self.folder)
            self.target.mkdir(parents=True, exist_ok=True)
        self._mark = ""

    @property
    def written(self) -> Path | None:
        """The folder to which tables are written, None if results are not kept."""
        return None if self.target is None else self.target / "tables"

    @property
    def tables(self) -> Path | None:
        """The folder from which the tables of the history are read."""
        return self.folder / "tables" if only_tables(self.folder) else self.written

    def begin(self) -> RunResult | None:
        """Return the kept result if it still holds; None if the run must be judged."""
        self._mark = stamp(self.folder)
        return None if self.target is None else cached_result(self.target, self._mark)

    def finish(self, made: RunOutput, meta: RunMeta) -> None:
        """Keep a result, and after it the digest of its evidence. Raises OSError, StorageError."""
        if self.target is not None:
            write_results(self.target, made.result)
            # The history was compared with its seal when it was read.
            as_sealed = meta.seal and not made.damaged
            if as_sealed and self.target == self.folder and is_file(self.folder / seal.HISTORY):
                seal.seal_tables(self.folder, meta.seal)
            write_whole(self.target / _MARK, msgspec.json.encode({"mark": self._mark}) + b"\n")


def own_name(folder: Path) -> str:
    """Return a name for a run's folder of results, which depends only on the run's path."""
    digest = hashlib.blake2b(os.fsencode(folder), digest_size=4).hexdigest()
    return f"{folder.name}-{digest}"


def _evidence(folder: Path) -> Iterator[Path]:
    """Yield all files that a verdict rests on."""
    small = ("schedule.json", "faults.jsonl", "exits.jsonl", "messages.jsonl", seal.FILE)
    for name in (*small, *([seal.TABLES_FILE] if only_tables(folder) else [])):
        yield folder / name
    yield from dict.fromkeys(source.path for source in sources(0, folder))


@cache
def _own_source() -> bytes:
    """Return a digest of the checker as it is installed."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    home = Path(__file__).parent.parent
    for path in sorted(home.rglob("*.py")):
        digest.update(os.fsencode(path.relative_to(home)) + b"\0" + path.read_bytes())
    return digest.digest()
