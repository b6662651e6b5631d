"""The list of systems says which links are impossible on this machine."""

from __future__ import annotations

import pytest

from harness.runs import system_list
from nemesis.links import namespaces
from node.formats.errors import UsageError
from tests.support.command import exit_code


def test_links_of_the_kernel_are_listed_with_what_they_lack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacks() -> None:
        raise UsageError("--links kernel needs nft: install nftables")

    monkeypatch.setattr(namespaces, "check_possible", lacks)
    monkeypatch.setattr(system_list.registry, "names", lambda: ["floodmark", "pysyncobj"])
    system_list._why_no_kernel_links.cache_clear()
    assert exit_code(["systems"]) == 0
    ours, theirs = capsys.readouterr().out.split("\npysyncobj ")
    assert "needs nft" not in ours
    assert "links: proxy, kernel, none\n  not here: --links kernel needs nft: install" in theirs
    system_list._why_no_kernel_links.cache_clear()
