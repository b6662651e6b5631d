"""Rules of the house that no tool checks: who may import whom, and what no file may contain."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from node.core.bugs import KNOWN_BUGS
from tests.support.sources import PACKAGES, parsed, python_files

ROOT = Path(__file__).resolve().parent.parent
# What points down: a package may import those that stand before it, and any `formats` of all.
BELOW = {
    "node": set[str](),
    "nemesis": {"node"},
    "checker": {"node", "nemesis"},
    "reports": {"node", "nemesis", "checker"},
    "harness": {"node", "nemesis", "checker", "reports"},
}
# Libraries that belong to one place.
SPARK_FILES = ["checker/*", "harness/search/spark_jobs.py"]
SOCKET_FILES = ["node/runtime/*", "nemesis/links/hub*", "harness/systems/*"]
LIBRARY_HOMES = {
    "pyspark": SPARK_FILES,
    "py4j": SPARK_FILES,
    "zmq": SOCKET_FILES,
    "lmdb": SOCKET_FILES,
}
# The core gets time, randomness and storage from its world: all that it imports from outside.
PURE = {
    *("__future__", "bisect", "collections", "dataclasses", "enum", "functools", "hashlib"),
    *("heapq", "msgspec", "re", "struct", "typing", "zlib"),
}


@dataclass(frozen=True)
class Import:
    """One import statement: who imports what, by full dotted names."""

    file: str
    line: int
    importer: str
    imported: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.imported}"


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def imports_of(
    file: Path, of: Callable[[ast.AST], Iterable[ast.AST]] = ast.walk
) -> Iterator[Import]:
    """Yield the imports of a file; by default also those inside functions and for type checking
    only."""
    importer = module_name(file)
    package = importer if file.name == "__init__.py" else importer.rpartition(".")[0]
    for found in of(parsed(file)):
        match found:
            case ast.Import():
                names = [alias.name for alias in found.names]
            case ast.ImportFrom():
                base = found.module or ""
                if found.level:
                    above = package.split(".")[: len(package.split(".")) - found.level + 1]
                    base = ".".join([*above, *filter(None, [base])])
                # `from node import trace` imports a module, `from node.formats.trace import HW` a
                # name.
                names = [
                    f"{base}.{alias.name}" if is_module(f"{base}.{alias.name}") else base
                    for alias in found.names
                ]
            case _:
                continue
        for name in names:
            yield Import(str(file.relative_to(ROOT)), found.lineno, importer, name)


ALL_IMPORTS = [found for file in python_files(*PACKAGES) for found in imports_of(file)]


def top(name: str) -> str:
    return name.partition(".")[0]


def is_within(name: str, modules: set[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def listed(broken: list[Import]) -> str:
    return "\n".join(map(str, broken))


def is_format(name: str) -> bool:
    """Return whether a module is part of some package's `formats`."""
    return name.split(".")[1:2] == ["formats"]


def is_allowed(found: Import) -> bool:
    """Return whether the import rule of docs/architecture.md allows it."""
    above, below = top(found.importer), top(found.imported)
    if is_within(found.importer, {"harness.runs"}) and is_within(found.imported, {"harness.sim"}):
        return False  # The simulated world goes through the phases of a run.
    if is_format(found.imported):
        return True
    if is_format(found.importer):
        return below not in PACKAGES
    return below == above or below not in PACKAGES or below in BELOW[above]


def test_imports_point_down_or_at_formats() -> None:
    broken = [found for found in ALL_IMPORTS if not is_allowed(found)]
    assert not broken, listed(broken)


def test_nothing_imports_a_command() -> None:
    broken = [
        found
        for found in ALL_IMPORTS
        if is_within(found.imported, {"harness.cli"})
        and not is_within(found.importer, {"harness.cli"})
    ]
    assert not broken, listed(broken)


def imported_when_loaded(file: Path) -> set[str]:
    """Our modules that a module imports while it is being loaded itself."""
    return {found.imported for found in imports_of(file, of=_run_at_import)}


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements under `node` that run when it does, not those for type checking."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                for other in child.orelse:
                    yield from (other, *_run_at_import(other))
            case _:
                yield child
                yield from _run_at_import(child)


def test_no_modules_import_each_other() -> None:
    modules = {module_name(file): imported_when_loaded(file) for file in python_files(*PACKAGES)}
    order = TopologicalSorter({name: found & modules.keys() for name, found in modules.items()})
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


# Classes of one name, and why each pair keeps it.
SAME_NAME = {
    "Finding": "what a check returns of a group; a class of failure that a search keeps",
    "Send": "an operation of a schedule; the part of a history line that says it was sent",
    "SetMinIsr": "a fault of a schedule; the message to the controller that it sends",
}


def test_a_class_name_means_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for file in python_files(*PACKAGES):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(f"{file.relative_to(ROOT)}:{node.lineno}")
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert {name: twice[name] for name in twice.keys() - SAME_NAME.keys()} == {}


@pytest.mark.parametrize("library", LIBRARY_HOMES)
def test_libraries_stay_in_their_place(library: str) -> None:
    broken = [
        found
        for found in ALL_IMPORTS
        if top(found.imported) == library
        and not any(fnmatch(found.file, home) for home in LIBRARY_HOMES[library])
    ]
    assert not broken, listed(broken)


JSON_READER = "node/formats/json_input.py"


def test_json_is_decoded_in_one_place() -> None:
    """There its size and depth are bounded, and every error has one type."""
    found = []
    for file in python_files(*PACKAGES, having="json"):
        name = str(file.relative_to(ROOT))
        for node in ast.walk(parsed(file)):
            match node:
                case ast.Attribute(value=ast.Attribute(attr="json"), attr="decode" | "Decoder"):
                    found.append((name, node.lineno))
                case ast.Attribute(value=ast.Name(id="json"), attr="load" | "loads"):
                    found.append((name, node.lineno))
                case ast.ImportFrom(module="json" | "msgspec.json"):
                    found.append((name, node.lineno))
    assert [place for place in found if place[0] != JSON_READER] == []
    assert found, "the reader itself decodes"


def test_the_core_is_pure() -> None:
    broken = [
        found
        for found in ALL_IMPORTS
        if is_within(found.importer, {"node.core"}) and top(found.imported) not in {"node", *PURE}
    ]
    assert not broken, listed(broken)


def test_imports_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules above are only as good as this."""
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "node" / "core").mkdir(parents=True)
    (tmp_path / "node" / "formats").mkdir()
    (tmp_path / "node" / "formats" / "trace.py").touch()
    file = tmp_path / "node" / "core" / "log.py"
    file.write_text(
        "import os.path as p, zmq\n"
        "from node.formats import trace\n"
        "from ..formats import trace as other\n"
        "from ..formats.trace import Event\n"
        "def later():\n"
        "    from . import log\n"
    )
    assert [found.imported for found in imports_of(file)] == [
        "os.path",
        "zmq",
        "node.formats.trace",
        "node.formats.trace",
        "node.formats.trace",
        "node.core.log",
    ]
    assert "node.core.log" not in imported_when_loaded(file)
    assert "node.formats.trace" in imported_when_loaded(file)


# Written in pieces, so that this file does not find itself.
MACHINE_PATH = re.compile(
    r"(?<![\w.~*$}>-])/(?:work|ro" + r"ot|home/\w+|Users/\w+|opt/pyp" + r"i)/"
)
REGISTRY_HOST = re.compile(
    r"\b(?:pyp" + r"i\.org|python" + r"hosted\.org|npm" + r"js\.(?:org|com)|deb" + r"ian\.org)\b"
)


def project_files() -> list[Path]:
    """Every file that is, or is about to be, under version control; in a mere copy of the tree,
    every file of its packages and documents."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode != 0:
        tops = (*PACKAGES, "tests", "docs")
        found = [file for top in tops for file in (ROOT / top).rglob("*")]
        found = [file for file in found if "__pycache__" not in file.parts]
        return [file for file in [*ROOT.glob("*.*"), *found] if file.is_file()]
    files = (ROOT / name for name in listing.stdout.split("\0") if name)
    return [file for file in files if file.is_file()]


# Tests of a whole package, or of files that stand beside it.
PACKAGE_TESTS = {
    "tests/fuzz/test_targets.py": "every decoder and reader of the project",
    "tests/checker/test_rooms.py": "the import rules inside the checker",
    "tests/nemesis/test_corpus.py": "the schedules of tests/corpus",
    "tests/harness/test_extras.py": "commands without the optional packages",
    "tests/reports/test_browser_pages.py": "every page in a browser",
}
TEST_HELPERS = {
    "tests/fuzz",
    "tests/lab",
    "tests/lab/bench",
    "tests/lab/outside_judge",
    "tests/support",
    "tests/support/checker",
    "tests/node/core/known_bugs",
}
MOST_TABLES = 50


def test_tests_mirror_the_tree() -> None:
    """The tests of a room are in the folder of its name; those of a module beside the rooms have
    its name; `PACKAGE_TESTS` are the exceptions."""
    astray = []
    for file in sorted((ROOT / "tests").rglob("*.py")):
        name = str(file.relative_to(ROOT))
        folder = file.parent.relative_to(ROOT / "tests")
        if str(file.parent.relative_to(ROOT)) in TEST_HELPERS or len(folder.parts) == 0:
            continue
        module = ROOT / folder / file.name.removeprefix("test_")
        in_room = len(folder.parts) > 1 and (ROOT / folder).is_dir()
        if not in_room and not module.exists() and name not in PACKAGE_TESTS:
            astray.append(name)
    assert not astray, "\n".join(astray)
    assert all((ROOT / name).exists() for name in PACKAGE_TESTS)


def test_few_tables_escape_the_formatter() -> None:
    escaped = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in project_files()
        if file.suffix == ".py" and file.name != "test_project.py"
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if "fmt: skip" in line or "fmt: off" in line
    ]
    assert len(escaped) <= MOST_TABLES, "\n".join(escaped)


def test_files_name_no_machine_and_no_registry() -> None:
    found = []
    for file in project_files():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), 1)
            if MACHINE_PATH.search(line) or REGISTRY_HOST.search(line)
        ]
    assert not found, "\n".join(found)


WORDS_PAGE = ROOT / "docs" / "contributing.md"


def refused_words(page: str) -> list[str]:
    """Return the bold words in the column "not" of the table of words."""
    table = re.search(r"^\| say \| not \|\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert table, "there is a table of words"
    cells = [line.strip("|").split("|")[1] for line in table[1].splitlines()]
    return [word for cell in cells for word in re.findall(r"\*\*([\w -]+)\*\*", cell)]


SEED_TEXTS = ("museum/{",)
"""Old seed texts draw the schedules of saved figures."""


def test_names_and_docs_have_the_words_of_the_field() -> None:
    """docs/contributing.md has the table of the words and what to say instead."""
    words = refused_words(WORDS_PAGE.read_text(encoding="utf-8"))
    assert len(words) > 20
    assert len(set(words)) == len(words)
    refused = re.compile(rf"\b(?:{'|'.join(words)})s?\b", re.IGNORECASE)
    files = [*python_files(*PACKAGES, "tests"), *TestDocuments.files]
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files
        if file.name not in ("contributing.md", "CHANGELOG.md", Path(__file__).name)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if refused.search(line.replace("_", " ")) and not any(text in line for text in SEED_TEXTS)
    ]
    assert not found, "\n".join(found)


OPENING = re.compile(
    r"(What|Who|Whom|Whose|How|Where|Why|When|Which|Those|That which|The same for)\b"
)
REFUSED = re.compile(
    r"\b(mended|by turns|anew|somebody else.s|other people.s|nobody|whoever|spoilt"
    r"|in words|told)\b",
    re.IGNORECASE,
)


def test_docstrings_open_with_a_verb_or_a_noun_and_have_plain_words() -> None:
    found = []
    for file in python_files(*PACKAGES, "tests", "examples", "docs"):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                text = re.sub("`[^`]*`", "", ast.get_docstring(node) or "")
                if refused := OPENING.match(text) or REFUSED.search(text):
                    at = getattr(node, "lineno", 1)
                    found.append(f"{file.relative_to(ROOT)}:{at}: {refused[0]}")
    assert not found, "\n".join(found)


# The most lines of Python in a package, and of all documents together. A budget only falls, except
# by what a feature needs (a check, a fault, a system): raise it in the change that adds that.
BUDGETS = {
    "documents": 4_461,
    "node": 12_062,
    "nemesis": 9_742,
    "checker": 18_324,
    "reports": 6_040,
    "harness": 35_104,
    "tests": 48_555,
}


def test_no_module_of_tests_has_more_lines_than_a_reader_takes_in() -> None:
    lengths = {file: file.read_bytes().count(b"\n") for file in python_files("tests")}
    assert {str(file): length for file, length in lengths.items() if length > 600} == {}


@pytest.mark.parametrize("package", BUDGETS)
def test_a_package_stays_within_its_budget_of_lines(package: str) -> None:
    """A change that exceeds the budget replaces something, which goes first."""
    files = [file for file in project_files() if file.suffix == ".py"]
    within = [file for file in files if file.relative_to(ROOT).parts[0] == package]
    within += TestDocuments.files if package == "documents" else ()
    lines = sum(file.read_bytes().count(b"\n") for file in within)
    assert lines <= BUDGETS[package], f"{package}: {lines:,} lines are too many, see BUDGETS"


def test_there_is_one_pool_one_journal_and_one_record_of_a_finding() -> None:
    """Code that runs many jobs, keeps them, and records a finding goes through these."""
    texts = {str(file.relative_to(ROOT)): file.read_text() for file in python_files("harness")}
    one_of_each = {
        r"class \w*(?:Jobs|JobProcesses|Pool)\b(?!\(Protocol)|ProcessPoolExecutor|\.Pool\(": {
            *("harness/search/jobs.py", "harness/search/spark_jobs.py")
        },
        r"class \w+Journal\b": {"harness/formats/journal.py", "harness/sim/disk.py"},
        r"^    drawn: Schedule": {"harness/formats/finding.py"},
    }
    for pattern, places in one_of_each.items():
        found = {name for name, text in texts.items() if re.search(pattern, text, re.MULTILINE)}
        assert found == places, pattern


class TestPins:
    """`constraints.txt` fixes every package, by version only."""

    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    def test_are_exact(self) -> None:
        exact = re.compile(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!]*")
        assert [pin for pin in self.pins if not exact.fullmatch(pin)] == []

    def test_name_every_package_once(self) -> None:
        names = [normal_name(pin) for pin in self.pins]
        assert sorted(set(names)) == sorted(names)

    def test_cover_what_the_project_asks_for(self) -> None:
        extras = self.project["project"]["optional-dependencies"].values()
        asked = [
            *self.project["project"]["dependencies"],
            *(one for all_ in extras for one in all_),
        ]
        pinned = {normal_name(pin) for pin in self.pins} | {"floodmark"}
        assert {normal_name(requirement) for requirement in asked} <= pinned

    def test_agree_with_the_build(self) -> None:
        assert set(self.project["build-system"]["requires"]) <= set(self.pins)


def normal_name(requirement: str) -> str:
    """Return the name in a requirement, in the spelling that all tools agree on."""
    name = re.split(r"[=<>!~;\[ ]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


class TestDocuments:
    """README, changelog and docs/: links lead somewhere, lines are short, and counts are right."""

    files = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
    longest = 120

    def test_lines_are_short(self) -> None:
        long = [
            f"{file.name}:{number} has {len(line)} characters"
            for file in self.files
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
            if len(line) > self.longest
        ]
        assert not long, "\n".join(long)

    def test_links_lead_to_files_and_headings(self) -> None:
        broken = []
        for file in self.files:
            text = without_code(file.read_text(encoding="utf-8"))
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                path, _, anchor = target.partition("#")
                aim = (file.parent / path).resolve() if path else file
                if "://" in target:
                    continue
                if not aim.exists() or (anchor and anchor not in anchors(aim)):
                    broken.append(f"{file.name}: {target}")
        assert not broken, "\n".join(broken)

    def test_the_known_bugs_are_those_of_the_catalogue(self) -> None:
        assert f"one of {len(KNOWN_BUGS)} known bugs" in (ROOT / "README.md").read_text()

    def test_code_that_is_named_exists(self) -> None:
        """`x.py` is a file of the project, and in `x.py: f, g` that file has the words f and g."""
        sources = [file for file in project_files() if file.suffix == ".py"]
        lacking = []
        for document in self.files:
            for path, names in NAMED_CODE.findall(document.read_text(encoding="utf-8")):
                found = [file for file in sources if fnmatch(f"/{file}", f"*/{path}")]
                words = {word for file in found for word in re.findall(r"\w+", file.read_text())}
                if not found or not words.issuperset(re.findall(r"\w+", names)):
                    lacking.append(f"{document.name}: {path}{names}")
        assert not lacking, "\n".join(lacking)


NAMED_CODE = re.compile(r"`([\w/*]+\.py)((?:: [\w, ]+)?)`")


def without_code(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(file: Path) -> set[str]:
    """Return the anchors of the headings of a Markdown file, as GitHub makes them."""
    text = without_code(file.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    kept = (re.sub(r"<[^>]+>|&\w+;|[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}
