"""The place of the project, and folders of a process of tests."""

from pathlib import Path
from typing import Final

from node.formats.owned_folder import OwnedFolder

ROOT: Final = Path(__file__).resolve().parent.parent.parent


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files in and below a folder by their names in it."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def lasting_folder(name: str) -> Path:
    """Make a folder that stays until this process ends."""
    folder = OwnedFolder().path / name
    folder.mkdir()
    return folder
