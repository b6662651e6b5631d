"""A run is judged the same whether its files are in a folder or in memory, whole or damaged."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest

from checker.engine.local import check_files, check_run
from checker.formats.verdict import RunResult
from harness.sim.run import simulate
from tests.support.checker.goldens import GOLDENS
from tests.support.sim_schedules import storm
from tests.support.tampering import CHANGES

FOLDER = "in-memory"


def read(folder: Path) -> dict[str, bytes]:
    """Return the files of a run folder that are judged."""
    found = [*folder.glob("*.json*"), *folder.glob("trace/*"), *folder.glob("logs/*")]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in found
        if path.name != "results.json"
    }


def write(files: dict[str, bytes], folder: Path) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
    return folder


def told(result: RunResult) -> RunResult:
    """All but the measures, which are not taken in memory, and where the run was."""
    anomalies = tuple(msgspec.structs.replace(each, run="") for each in result.anomalies)
    return msgspec.structs.replace(result, run="", measures={}, anomalies=anomalies)


@pytest.mark.parametrize("name", GOLDENS)
def test_every_anomaly_is_seen_in_memory_as_in_the_folder(name: str, tmp_path: Path) -> None:
    for bad in (True, False):
        folder = GOLDENS[name].story(bad).write(tmp_path / str(bad))
        assert told(check_files(read(folder))) == told(check_run(folder))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of a storm in the simulated world."""
    keep = tmp_path_factory.mktemp("kept") / "run"
    simulate(storm(7, flush="async"), seed=7, check_invariants=False, keep=keep)
    return read(keep)


def test_a_simulated_run_is_judged_as_the_folder_it_would_leave(
    simulated: dict[str, bytes], tmp_path: Path
) -> None:
    kept = check_run(write(simulated, tmp_path / FOLDER))
    assert told(check_files(simulated)) == told(kept)
    assert told(simulate(storm(7, flush="async"), seed=7, check_invariants=False).checked) == told(
        kept
    )
    assert sum(each.examined for each in kept.properties) > 100


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("change", CHANGES)
def test_damage_is_found_in_memory_as_in_the_folder(
    change: str, seed: int, simulated: dict[str, bytes], tmp_path: Path
) -> None:
    rng = random.Random(f"{change} {seed}")
    files = unsealed(simulated)
    name = rng.choice(sorted(name for name, text in files.items() if text))
    lines = CHANGES[change](files.pop(name).splitlines(keepends=True), rng)
    if lines is not None:
        files[name] = b"".join(lines)
    assert told(check_files(files)) == told(check_run(write(files, tmp_path / FOLDER)))


def unsealed(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the same without seals: in memory there is no seal to compare with."""
    about = json.loads(files["run.json"]) | {"world": "", "seal": ""}
    others = {name: text for name, text in files.items() if name != "seal.json"}
    return others | {"run.json": json.dumps(about).encode()}
