"""A few cases of the campaign of hostile stores, the same each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import hostile


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("hostile") / "sound"
    hostile.sound_store(store)
    return store


@pytest.mark.parametrize("kind", ["_link", "fifo", "hole", "shrink", "swapped", "searches a link"])
def test_a_hostile_store_reaches_nothing_outside(sound: Path, tmp_path: Path, kind: str) -> None:
    case = next(each for each in hostile.cases(sound) if each.name.endswith(kind))
    one = case._replace(commands=case.commands[:1])
    assert hostile.try_case(one, sound, tmp_path / "case") == []


def test_what_a_command_does_wrong_is_noticed(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "case"
    case = next(hostile.cases(sound))
    case = case._replace(commands=case.commands[:1])

    def harmful(*_: object) -> tuple[str, int | None, float]:
        (place / "outside/precious").unlink()
        return "Traceback", 3, hostile.PROCESSOR_S + 1

    monkeypatch.setattr(hostile, "_run", harmful)
    wrong = "".join(hostile.try_case(case, sound, place))
    assert [word in wrong for word in ("changed outside", "11 s", "code 3", "traceback")] == [
        True
    ] * 4
