"""`floodmark search --system`: from nothing to a finding of the naive log, on real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.formats.system_finding import FILE, SystemFinding
from node.formats.json_input import read_file
from tests.support.paths import ROOT

pytestmark = pytest.mark.integration

NAIVE = ROOT / "examples" / "naive_log" / "adapter.py"


def test_a_real_search_finds_that_the_naive_log_loses_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"search --system-file {NAIVE}:NaiveLog --seed 1 --schedules 20 --until-failure"
    with pytest.raises(SystemExit) as ended:
        main(f"{words} --no-shrink --json --quiet --store {tmp_path}".split())
    told = json.loads(capsys.readouterr().out)
    assert ended.value.code == 1, told
    (folder,) = map(Path, told["folders"])
    finding = read_file(folder / FILE, SystemFinding)
    assert finding.drawn_faults == len(finding.faults) > 0
    assert (Path(finding.run) / "history.jsonl").is_file()
    results = json.loads((Path(finding.run) / "results.json").read_text())
    assert results["verdict"] == "invalid"
    assert len(list(tmp_path.glob("search-*/*T*/run.json"))) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--system floodmark --schedules 1", "searched in simulated worlds: use --protocol"),
        ("--system nats", "a search needs an end: --budget"),
        ("--system nats --protocol kafka --schedules 1", "--protocol is about simulated worlds"),
        ("--disks one --schedules 1", "--disks is about real processes"),
        ("--system nats --disks two --schedules 1", "can only be none, one, any"),
        ("--system nats --budget 1m --seconds 4", "exclude each other"),
        ("--system nats --links kernel --jobs 2 --schedules 1", "use --jobs 1"),
        ("--system nats --faults upgrade --schedules 1", "cannot take 'upgrade'"),
    ],
)
def test_an_impossible_real_search_is_one_sentence(
    words: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["search", *words.split(), "--store", str(tmp_path)])
    assert ended.value.code == 64
    assert sentence in capsys.readouterr().err
