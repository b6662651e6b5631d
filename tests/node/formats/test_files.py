"""Reading, writing and removing files of a folder that anybody may have made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from node.formats.errors import StorageError
from node.formats.files import AppendOnlyFile, as_part, folder_of, make_folder, write_whole
from node.formats.host_errors import reason
from node.formats.reading import NotOurs, open_file
from node.formats.removal import remove, try_to_remove


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Make a folder that no test may change, and one below which the tests work."""
    (tmp_path / "outside/inner").mkdir(parents=True)
    (tmp_path / "outside/inner/kept").write_text("kept")
    (tmp_path / "run").mkdir()
    return tmp_path / "outside"


def unchanged(outside: Path) -> bool:
    files = [file for file in outside.rglob("*") if file.is_file()]
    return [file.read_text() for file in files] == ["kept"]


def test_a_file_is_opened_only_if_it_is_one(outside: Path) -> None:
    run = outside.parent / "run"
    (run / "link").symlink_to(outside / "inner/kept")
    (run / "dangling").symlink_to(run / "none")
    (run / "device").symlink_to("/dev/zero")
    os.mkfifo(run / "fifo")
    with (run / "hole").open("wb") as file:
        file.truncate(10 << 30)
    said = {
        "link": "is a link",
        "dangling": "is a link",
        "device": "is a link",
        "fifo": "a FIFO",
        "hole": "a hole at byte 0",
    }
    for name, why in said.items():
        with pytest.raises(NotOurs, match=why) as error:
            open_file(run / name)
        assert why in reason(error.value)
    with pytest.raises(NotOurs, match="a device"):
        open_file(run / "device", follow=True)
    with pytest.raises(IsADirectoryError):
        open_file(run)
    with open_file(run / "link", follow=True) as file:
        assert file.read() == b"kept"


def _write(path: Path, within: Path) -> None:
    write_whole(path, b"new", within)


def _append(path: Path, within: Path) -> None:
    AppendOnlyFile(path, within).close()


def _make(path: Path, within: Path) -> None:
    make_folder(path, within)


def _remove(path: Path, within: Path) -> None:
    try_to_remove(path, within)
    with pytest.raises(OSError, match=r"link|leads out|is not in"):
        remove(path, within)
    raise StorageError("link, leads out, is not in")


@pytest.mark.parametrize("do", [_write, _append, _make, _remove])
@pytest.mark.parametrize("path", ["out/kept", "out/inner/kept", "../outside/inner/kept", "/kept"])
def test_nothing_below_a_folder_is_reached_through_a_link(
    outside: Path, do: Callable[[Path, Path], None], path: str
) -> None:
    run = outside.parent / "run"
    (run / "out").symlink_to(outside)
    with pytest.raises(StorageError, match=r"link|leads out|is not in"):
        do(run / path, run)
    assert unchanged(outside)
    (outside.parent / "named").symlink_to(run)
    # The path that a person gave may be a link.
    write_whole(outside.parent / "named/a", b"new", outside.parent / "named")
    assert (run / "a").read_bytes() == b"new"


def test_a_file_that_has_a_second_name_is_replaced_or_refused(outside: Path) -> None:
    run = outside.parent / "run"
    os.link(outside / "inner/kept", run / "hard")
    (run / "soft").symlink_to(outside / "inner/kept")
    os.mkfifo(run / "fifo")
    for name, why in {"hard": "second name", "soft": "link", "fifo": "a FIFO"}.items():
        with pytest.raises(StorageError, match=why):
            AppendOnlyFile(run / name)
    for name in ("hard", "soft", "fifo"):
        write_whole(run / name, b"new")
        assert (run / name).read_bytes() == b"new"
    assert unchanged(outside)


def test_of_a_link_only_the_link_is_removed(outside: Path) -> None:
    run = outside.parent / "run"
    (run / "sub").mkdir()
    for place in (run, run / "sub"):
        (place / "folder").symlink_to(outside)
        (place / "file").symlink_to(outside / "inner/kept")
    remove(run / "folder", run)
    remove(run / "missing/file", run)
    remove(run / "sub", run)
    assert [entry.name for entry in run.iterdir()] == ["file"]
    assert unchanged(outside)


def test_a_folder_may_be_made_on_the_way(tmp_path: Path) -> None:
    with folder_of(tmp_path / "a/b/c", tmp_path / "a", make=True) as folder:
        os.mkdir("c", dir_fd=folder)
    assert make_folder(tmp_path / "a/b/c", tmp_path).is_dir()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("kip-101+M7-lost-writes", "kip-101+M7-lost-writes"),
        ("/abs/path.py", "_abs_path.py"),
        ("../../x", "_.._x"),
        ("..", "_"),
        ("", "_"),
        ("a\0b\né", "a_b_"),
        ("x" * 999, "x" * 200),
    ],
)
def test_any_text_is_one_part_of_a_path(text: str, part: str) -> None:
    assert as_part(text) == part
