"""The rows of the message diagram, from what clients did at the offset of the first finding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from reports.messages import messages
from reports.run_page import model
from reports.run_page.model import RunFolder
from tests.support import report_fixtures as made


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that lost a record, without the timeline of it, as those of other systems are."""
    folder: Path = made.storm(tmp_path_factory.mktemp("run"), broken=True)
    return replace(model.read(folder), timeline=None, provenance=None)


def rows(folder: RunFolder) -> list[tuple[int, str]]:
    """What clients did, with its times."""
    found = messages.messages(folder)
    assert found is not None
    return [(row.t_us, row.text) for row in found.rows if row.tone == "client"]


def test_an_offset_that_two_windows_show_is_told_once(broken: RunFolder) -> None:
    once = rows(broken)
    assert once
    assert rows(replace(broken, windows=broken.windows + broken.windows)) == once


def test_what_clients_did_at_the_offset_is_there_however_long_it_took(broken: RunFolder) -> None:
    assert broken.result is not None
    late = tuple(
        msgspec.structs.replace(each, t_us=each.t_us + 60_000_000) if each.t_us >= 0 else each
        for each in broken.result.anomalies
    )
    result = msgspec.structs.replace(broken.result, anomalies=late)
    assert rows(replace(broken, result=result)) == rows(broken)
