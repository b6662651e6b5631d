"""Settings of the site that Sphinx builds from these pages (`make docs`), and its reference pages.

The pages are readable as plain Markdown, so the site gets its table of contents from the tables of
`README.md`, and links to files outside of this folder become plain names."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from floodmark import __version__  # noqa: E402

project = "floodmark"
release = version = __version__
author = copyright = "the floodmark maintainers"
extensions = ["myst_parser"]
root_doc = "README"
source_suffix = {".md": "markdown", ".txt": "markdown"}  # Generated pages end on .txt.
exclude_patterns = ["_build"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"floodmark {release}"
html_show_sphinx = False
html_copy_source = False
# The fonts and icons of the theme are in its package: a page loads nothing from elsewhere.

_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_GENERATED: Final = HERE / "generated"
_FILE_TYPES: Final = (
    *("harness.formats.run_info", "harness.formats.problem", "harness.formats.history"),
    *("harness.formats.problem", "harness.formats.seal", "nemesis.formats.fault_log"),
    *("nemesis.formats.schedule", "nemesis.formats.cluster_spec", "checker.formats.verdict"),
    *("checker.formats.story", "harness.formats.baseline", "harness.formats.finding"),
    *("harness.formats.nightly_run", "harness.formats.nightly_journal"),
)


def setup(app: Sphinx) -> None:
    """Connect the reference pages and the rewriting of links to a build."""
    app.connect("config-inited", lambda *_: _write_reference())
    app.connect("source-read", _read_page)
    app.connect("build-finished", _add_index)


def _add_index(app: Sphinx, _: Exception | None) -> None:
    """Add an index.html that leads to the first page."""
    page = f'<meta http-equiv="refresh" content="0; url={root_doc}.html"><a href="{root_doc}.html">'
    Path(app.outdir, "index.html").write_text(f"{page}Documentation</a>\n", encoding="utf-8")


def _read_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Rewrite one page for the site: links that leave this folder, and the table of contents."""
    source[0] = _LINK.sub(lambda link: _kept_or_named(page, link), source[0])
    if page == root_doc:
        source[0] += _contents(source[0])
    elif page.endswith("/README"):
        source[0] += _toctree(
            "", sorted(file.name for file in (HERE / page).parent.glob("[a-z]*.md"))
        )


def _kept_or_named(page: str, link: re.Match[str]) -> str:
    """Return a link as it stands, or its text alone if it leads out of this folder."""
    target = link[2].partition("#")[0]
    if not target or "://" in target:
        return link[0]
    aim = ((HERE / page).parent / target).resolve()
    if not aim.is_relative_to(HERE):
        return link[1]
    if aim.is_dir():
        return link[0].replace(target, f"{target.rstrip('/')}/README.md")
    return link[0]


def _contents(index: str) -> str:
    """Return the hidden tables of contents: a caption for each section of the index."""
    text = []
    for section in index.split("\n## ")[1:]:
        caption, _, body = section.partition("\n")
        pages = [target for _, target in _LINK.findall(body) if target.endswith(".md")]
        if caption == "Reference":
            pages += sorted(f"generated/{file.stem}" for file in _GENERATED.glob("*.txt"))
        text.append(_toctree(caption, pages))
    return "".join(text)


def _toctree(caption: str, pages: Iterable[str]) -> str:
    """Return a hidden table of contents."""
    lines = "\n".join(dict.fromkeys(pages))
    options = f":hidden:\n:caption: {caption}\n" if caption else ":hidden:\n"
    return f"\n\n```{{toctree}}\n{options}\n{lines}\n```\n"


def _write_reference() -> None:
    """Write the pages that follow from the registries: each command, fault, anomaly, protocol,
    known bug and system."""
    _GENERATED.mkdir(exist_ok=True)
    for name, text in _reference().items():
        file = _GENERATED / f"{name}.txt"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def _reference() -> dict[str, str]:
    """Return the text of each generated page by its name."""
    from checker.formats.anomalies import CATALOGUE
    from nemesis.faults import KINDS
    from node.core.bugs import KNOWN_BUGS
    from node.core.protocol import REGISTRY

    bugs = (
        (b.code, b.name, b.summary, f"{b.breaks} ({b.protocol})", b.seen_in) for b in KNOWN_BUGS
    )
    return {
        "commands": _commands(),
        "fields": _fields(),
        "faults": _table(
            "All faults",
            "fault | effect",
            ((name, (kind.__doc__ or "").partition("\n\n")[0]) for name, kind in KINDS.items()),
        ),
        "anomalies": _table(
            "All anomalies",
            "anomaly | property | counts against a system, as | in Jepsen",
            ((kind.name, kind.property, kind.needs.value, kind.jepsen) for kind in CATALOGUE),
        ),
        "protocols": _table(
            "All protocols",
            "protocol | source | may break",
            (
                (
                    name,
                    protocol.citation,
                    ", ".join(
                        each for each, expected in protocol.expected if expected == "violable"
                    ),
                )
                for name, protocol in REGISTRY.items()
            ),
        ),
        "bugs": _table(
            "All known bugs", "code | name | change of the broker | breaks (under) | seen in", bugs
        ),
    }


def _table(title: str, columns: str, rows: Iterable[Iterable[str]]) -> str:
    """Return a page with one table."""
    lines = [f"# {title}\n", f"| {columns} |", "|---" * (columns.count("|") + 1) + "|"]
    lines += ["| " + " | ".join(" ".join(cell.split()) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _fields() -> str:
    """Return a page with the fields of every type that a file of a run or a store consists of."""
    import msgspec

    text = "# All fields of files\n"
    for name in _FILE_TYPES:
        module = importlib.import_module(name)
        text += f"\n## {name}\n\n{_literal(module.__doc__)}"
        for kind in vars(module).values():
            if getattr(kind, "__module__", "") == name and isinstance(kind, type(msgspec.Struct)):
                names = ", ".join(
                    f"`{field.encode_name}`" for field in msgspec.structs.fields(kind)
                )
                text += f"\n### {kind.__name__}\n\n{names}\n\n{_literal(kind.__doc__)}"
    return text


def _literal(doc: str | None) -> str:
    """Return a docstring as it stands in the source."""
    return f"```text\n{inspect.cleandoc(doc or '')}\n```\n"


def _commands() -> str:
    """Return a page with the help of each command."""
    import typer

    from harness.cli.main import assemble

    command = typer.main.get_command(assemble())
    context = typer.Context(command, info_name="floodmark", terminal_width=90, max_content_width=90)
    text = "# All commands\n"
    for name in command.list_commands(context):  # type: ignore[attr-defined]
        text += _help(command.get_command(context, name), context, name)  # type: ignore[attr-defined]
    return text


def _help(command: Any, parent: Any, name: str) -> str:
    """Return a section with the help of a command and of its subcommands."""
    context = type(parent)(command, info_name=name, parent=parent)
    text = f"\n## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    for below in getattr(command, "commands", {}):
        text += _help(command.commands[below], context, below)
    return text
