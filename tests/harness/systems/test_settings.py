"""A wrong value of a setting is refused before anything starts, whatever is installed."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from harness.systems import registry
from harness.systems.external.cluster import ExternalCluster
from harness.systems.external.load import settings_of
from harness.systems.external.system import ExternalSystem
from tests.support.command import exit_code

WRONG = ("blah", "", "-1")
COMMANDS = ("run --time-limit 1 --system", "search --budget 1s --system", "systems check")


@pytest.mark.parametrize("name", registry.names())
def test_a_wrong_value_is_refused_in_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ExternalCluster, "__init__", None)
    system = registry.find(name)
    known = settings_of(system.adapter) if isinstance(system, ExternalSystem) else ()
    for setting, value, command in product(known, WRONG, COMMANDS):
        if value in setting.values:
            continue
        given = f"{setting.name}={value}"
        assert exit_code([*command.split(), name, "--set", given]) == 64, (command, given)
        told = capsys.readouterr().err
        assert told.count("\n") == 1, told
        assert f"--set {given}: " in told or f" {value} is not known" in told
    assert not [*tmp_path.rglob("run.json")]
