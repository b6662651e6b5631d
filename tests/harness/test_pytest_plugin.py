"""The plug-in of pytest: storms in the test suite of a user."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

# Suites run inside this process forget the modules that they import, but not those of this one.
import harness.replay.pages
import harness.systems.external.system
import harness.systems.floodmark.system  # noqa: F401
from tests.support import python_process
from tests.support.paths import ROOT

pytest_plugins = ["pytester"]

PLUGIN = "harness.pytest_plugin"
NAIVE = f"{ROOT}/examples/naive_log/adapter.py"
NO_WAITING = """
    import pytest
    from tests.support.harness_fakes import virtual_time

    @pytest.fixture(autouse=True)
    def no_waiting(monkeypatch):
        virtual_time(monkeypatch)
"""
SUITE = """
    from tests.support.trial_systems import ForgetfulLog, InMemoryLog

    def test_keeps(floodmark_storm):
        report = floodmark_storm(InMemoryLog, partitions=1, time_limit=0.3, faults="kill,pause")
        assert report.verdict == "valid"

    def test_forgets(floodmark_storm):
        floodmark_storm(ForgetfulLog, partitions=1, time_limit=0.3, faults=["kill"])

    def test_looks_itself(floodmark_storm):
        report = floodmark_storm(
            "tests.support.trial_systems:ForgetfulLog", partitions=1, time_limit=0.3, check=False
        )
        assert report.verdict == "invalid"
        assert report.page.is_file()

    def test_is_slow(floodmark_storm):
        floodmark_storm(InMemoryLog, partitions=1, time_limit=0.3, faults="kill", max_gap_s=0.001)
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return the tests of a user, for which pytest loads the plug-in and no other."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return pytester


@pytest.mark.integration
def test_a_test_passes_and_fails_with_the_verdict_of_its_storm(suite: pytest.Pytester) -> None:
    suite.makeconftest(NO_WAITING)
    suite.makepyfile(SUITE)
    words = ("--floodmark-seed", "7", "--floodmark-store", "kept", "--junitxml", "junit.xml")
    done = suite.runpytest_subprocess("-p", PLUGIN, *words)
    done.assert_outcomes(passed=2, failed=2)
    assert "ms, and --max-gap allows 1 ms" in done.stdout.str()
    done.stdout.re_match_lines(
        [
            r"floodmark: invalid: 3 acknowledged records of log-0 never delivered: .*",
            r"  page    .*/kept/.*/report\.html",
            r"  replay  floodmark run --system tests\.support\.trial_systems:ForgetfulLog "
            r"--schedule .*/kept/.*",
            r"  seed    7 \(--floodmark-seed 7\)",
        ]
    )
    assert "Traceback" not in done.stdout.str()
    assert "Warning" not in done.stdout.str()
    cases = ElementTree.parse(suite.path / "junit.xml").iter("testcase")
    told = {
        case.get("name"): {each.get("name"): each.get("value") for each in case.iter("property")}
        for case in cases
    }
    verdicts = [each["floodmark_verdict"] for each in told.values()]
    assert verdicts == ["valid", "invalid", "invalid", "valid"]
    failed = told["test_forgets"]
    assert failed["floodmark_seed"] == "7"
    assert (suite.path / "kept") in type(suite.path)(failed["floodmark_folder"]).parents
    assert failed["floodmark_page"].startswith(failed["floodmark_folder"])
    assert failed["floodmark_replay"].endswith(failed["floodmark_folder"])


@pytest.mark.integration
def test_an_installed_plugin_is_loaded_without_an_option(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An environment in which floodmark is installed, and no option names the plug-in.
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    suite.makeconftest(NO_WAITING)
    suite.makepyfile(
        """
        def test_keeps(floodmark_storm):
            place = "tests.support.trial_systems:InMemoryLog"
            floodmark_storm(place, partitions=1, time_limit=0.3, faults="kill")
        """
    )
    done = suite.runpytest_subprocess("--floodmark-seed", "7")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["plugins:*floodmark-*"])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("floodmark_storm('no-such-log')", "*floodmark: unknown system 'no-such-log' (known:*"),
        ("floodmark_storm('floodmark', time_limit=0)", "*floodmark: --time-limit is 0,*"),
        ("floodmark_storm('floodmark', colour='red')", "*TypeError: floodmark_storm: *'colour'*"),
        ("floodmark_storm(type('A.B', (), {}))", "*A.B must stand at the top of a module,*"),
    ],
)
def test_a_storm_that_cannot_run_fails_in_one_sentence(
    suite: pytest.Pytester, call: str, sentence: str
) -> None:
    suite.makepyfile(f"def test_it(floodmark_storm):\n    {call}\n")
    done = suite.runpytest_inprocess("-p", PLUGIN)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([sentence])


@pytest.mark.integration
@pytest.mark.needs("nft")
def test_a_storm_on_links_of_the_kernel_leaves_pytest_where_it_is(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        f"""
        import os

        from harness.systems.setup import setup_of

        SPACE = "/proc/self/ns/net"

        def test_it(floodmark_storm):
            here = os.readlink(SPACE)
            given = dict(links="kernel", faults="isolate", seed=26, time_limit=2, partitions=1)
            report = floodmark_storm("{NAIVE}", check=False, **given)
            assert f"--schedule {{report.folder}}" in report.replay
            assert setup_of(report.folder, "{NAIVE}").links == "kernel"
            assert report.result.measures["faults"] > 0
            assert os.readlink(SPACE) == here
        """
    )
    done = suite.runpytest_subprocess("-p", PLUGIN)
    done.assert_outcomes(passed=1)


def test_a_seed_out_of_bounds_is_refused(suite: pytest.Pytester) -> None:
    done = suite.runpytest_inprocess("-p", PLUGIN, "--floodmark-seed", "-1")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*--floodmark-seed is -1, but must be from 0 to 2147483647*"])


@pytest.mark.integration
def test_the_plugin_imports_nothing_slow() -> None:
    """Every suite of an environment loads the plug-in, which imports nothing of a run."""
    code = f"import sys, {PLUGIN}; print(*sorted(sys.modules))"
    told = python_process.run("-c", code)
    assert told.returncode == 0
    heavy = {"msgspec", "numpy", "pyarrow", "zmq", "rich", "typer", "harness.runs", "checker"}
    assert heavy.isdisjoint(told.stdout.split())


@pytest.mark.integration
def test_a_storm_is_preceded_by_the_saved_findings_of_its_system(suite: pytest.Pytester) -> None:
    """The finding of a search: its schedule fails, and the storm of the test is not drawn."""
    suite.makeconftest(NO_WAITING)
    suite.makepyfile(
        """
        from pathlib import Path

        from harness.formats.finding import Finding
        from harness.search import findings
        from nemesis.faults import Kill
        from nemesis.formats.schedule import Cluster, Schedule, Workload
        from tests.support.trial_systems import ForgetfulLog, InMemoryLog

        STORE = Path("kept")

        def save(system):
            schedule = Schedule(
                cluster=Cluster(partitions=1),
                workload=Workload(seed=11, duration_ms=300),
                faults=(Kill(on="n1", at_ms=100, for_ms=50),),
            )
            about = {"bucket": "lost: x", "property": "lost", "sentence": "lost."}
            place = f"tests/support/trial_systems.py:{system.__name__}"
            made = Finding(world="real", subject=place, drawn=schedule, smallest=schedule, **about)
            return findings.keep(made, STORE.absolute())

        def test_forgets(floodmark_storm):
            save(ForgetfulLog)
            report = floodmark_storm(ForgetfulLog, partitions=1, time_limit=0.3, check=False)
            assert (report.verdict, report.seed) == ("invalid", 11)

        def test_keeps(floodmark_storm):
            save(InMemoryLog)
            report = floodmark_storm(InMemoryLog, partitions=1, time_limit=0.3, faults="kill")
            assert report.verdict == "valid"
            assert len(list(STORE.glob("*/*T*/run.json"))) == 3
        """
    )
    words = ("--floodmark-store", "kept")
    suite.runpytest_subprocess("-p", PLUGIN, *words).assert_outcomes(passed=2)
