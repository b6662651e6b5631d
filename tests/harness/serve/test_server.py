"""`floodmark serve`: pages, lists and files of a store, and nothing outside it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from msgspec.structs import replace

from checker.formats.verdict import Anomaly, PropertyResult, RunResult, Verdict
from harness.formats.finding import RECORD, RunCounts
from harness.runs.run_paths import run_folders
from harness.search import findings
from harness.serve.app import headers
from harness.serve.server import BUSY_CONNECTIONS, StoreServer, _hosts
from reports import build
from reports.nightly_page.store_page import Store, Wanted, render_list
from tests.support import report_fixtures as made
from tests.support.command import exit_code
from tests.support.nightly_fakes import LOST, bucket, loses_a_write, nightly_run, write_nightly_run
from tests.support.python_process import PythonProcess
from tests.support.waiting import PATIENCE_S

KEY = "0123456789ab"
Get = Callable[..., http.client.HTTPResponse]


EPOCH_S = 1_767_268_800
MOMENTS = {"epoch_us": EPOCH_S * 1_000_000, "phases": {"start_us": 1_000_000, "end_us": 43_000_000}}


def make_run(store: Path, name: str, verdict: Verdict, protocol: str) -> Path:
    folder = store / name / "20260101T000000"
    (folder / "trace").mkdir(parents=True)
    about = {"protocol": protocol, "world": "real", "state": "finished", **MOMENTS}
    (folder / "run.json").write_bytes(msgspec.json.encode(about))
    (folder / "trace" / "n1.jsonl").write_text("{}\n" * 1000)
    bad = verdict is Verdict.INVALID
    result = RunResult(
        run=name,
        verdict=verdict,
        sentence=f"{verdict}: Lost by <{name}>.",
        properties=(PropertyResult(property=LOST, verdict=verdict),),
        anomalies=(Anomaly(property=LOST, name="lost"),) if bad else (),
    )
    (folder / "results.json").write_bytes(msgspec.json.encode(result))
    if bad:
        (folder / "report.html").write_text("<!doctype html><title>a failure</title>")
    (folder.parent / "latest").symlink_to(folder.name)
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write three runs, a nightly run with a bucket, and a secret beside the store."""
    tmp_path = tmp_path_factory.mktemp("served")
    (tmp_path / "secret.txt").write_text("a secret")
    store = tmp_path / "store"
    make_run(store, "bad", Verdict.INVALID, "kafka")
    make_run(store, "good", Verdict.VALID, "kafka")
    make_run(store, "naive", Verdict.INVALID, "quorum-naive")
    (store / "out").symlink_to(tmp_path)
    write_nightly_run(store, nightly_run(1, buckets=[bucket(KEY, world="real")]))
    return store


@contextmanager
def serving(store: Path) -> Iterator[int]:
    """Serve a store; gives the port."""
    with StoreServer("127.0.0.1", 0, store) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server.port
        finally:
            server.stop()
            thread.join()


def asking(port: int) -> Get:
    """Ask a server; every answer has a content policy."""

    def ask(path: str, method: str = "GET", host: str = "localhost") -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request(method, path, headers={"Host": host})
        answer = connection.getresponse()
        assert {name: answer.getheader(name) for name in headers()} == headers()
        return answer

    return ask


@pytest.fixture(scope="module")
def port(store: Path) -> Iterator[int]:
    with serving(store) as port:
        yield port


@pytest.fixture
def get(port: int) -> Get:
    """Ask a server of that store."""
    return asking(port)


def paths(get: Get, query: str) -> list[str]:
    return sorted(row["path"].partition("/")[0] for row in json.load(get(f"/runs.json{query}")))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["bad", "good", "naive"]),
        ("?verdict=invalid", ["bad", "naive"]),
        ("?verdict=invalid&protocol=kafka", ["bad"]),
        (f"?bucket={KEY}", ["bad"]),
        (f"?bucket={LOST}:%20lost", ["bad", "naive"]),
        ("?text=NAIVE", ["naive"]),
        ("?protocol=paxos", []),
    ],
)
def test_runs_are_filtered(get: Get, query: str, found: list[str]) -> None:
    assert paths(get, query) == found


@pytest.mark.parametrize(("alive", "state"), [(True, "running"), (False, "interrupted")])
def test_a_run_whose_process_is_dead_is_interrupted(
    tmp_path: Path, alive: bool, state: str
) -> None:
    about = {"state": "running", "host": {"process": os.getpid() * alive}}
    (tmp_path / "run" / "t").mkdir(parents=True)
    (tmp_path / "run" / "t" / "run.json").write_bytes(msgspec.json.encode(about))
    row = Store(tmp_path).runs()[0]
    assert row.state == state


def test_the_list_is_a_page_that_links_to_pages(get: Get, tmp_path: Path) -> None:
    page = get("/?verdict=invalid").read().decode()
    assert "<h2>2 runs</h2>" in page
    assert 'href="/store/bad/20260101T000000/report.html"' in page
    assert "Lost by &lt;bad&gt;" in page, "the sentence of a run is text"
    assert datetime.fromtimestamp(EPOCH_S).strftime("%Y-%m-%d %H:%M") in page
    assert ">42.0 s<" in page
    opened = get("/store/bad/20260101T000000/report.html")
    assert opened.getheader("Content-Type") == "text/html; charset=utf-8"
    assert b"a failure" in opened.read()
    assert get("/store/bad/latest/run.json").status == 200, "a link within the store is followed"
    head = get("/store/bad/20260101T000000/report.html", "HEAD")
    assert (head.status, head.read()) == (200, b"")
    assert get("/", "POST").status == 405
    empty = render_list(Store(tmp_path / "none"), Wanted())
    assert "There is no run in this store yet." in empty
    assert "no nightly run yet" in empty


def test_the_run_of_a_finding_is_listed_and_belongs_to_its_bucket(tmp_path: Path) -> None:
    store = tmp_path / "store"
    made = make_run(store, "made", Verdict.INVALID, "kafka")
    finding = store / "findings" / "kafka-1"
    finding.mkdir(parents=True)
    made.rename(finding / "simulated")
    (finding / "schedule.json").write_text("{}")
    key = "f" * 12
    schedule = "findings/kafka-1/schedule.json"
    write_nightly_run(store, nightly_run(2, buckets=[bucket(key, schedule=schedule)]))
    with serving(store) as port:
        get = asking(port)
        assert paths(get, f"?bucket={key}") == ["findings"]
        page = get("/store/findings/kafka-1/simulated/report.html")
        assert page.status == 200
    assert finding / "simulated" in run_folders([store])
    assert run_folders([finding]) == [finding / "simulated"]


def test_saved_findings_stand_above_the_runs(tmp_path: Path) -> None:
    store = tmp_path / "store"
    made = make_run(store, "made", Verdict.INVALID, "kafka")
    loss = loses_a_write("a <loss>")
    real = {"world": "real", "subject": "nats", "version": "2.9", "settings": {"sync": "2m"}}
    counts = RunCounts(failed=2, of=3)
    named = replace(loss, faults=("0.10 s: Kill n1",), counts=counts, run=str(made), **real)
    folder = findings.keep(named, store)
    other = store / "findings" / "cannot-be-read"
    other.mkdir()
    (other / RECORD).write_text("{")
    page = render_list(Store(store), Wanted())
    assert "<h2>1 saved finding</h2>" in page
    assert "a &lt;loss&gt;" in page
    row = '<td>nats 2.9 sync=2m</td><td>0.10 s: Kill n1</td><td class="when">2 of 3</td>'
    assert row in page
    assert f'<a href="/store/{made.relative_to(store)}/report.html">page</a>' in page
    with serving(store) as port:
        answer = asking(port)(f"/store/findings/{folder.name}/README.md")
        assert "To run it again" in answer.read().decode()
    moved = store.rename(tmp_path / "moved")
    assert row in (page := render_list(Store(moved), Wanted()))
    assert f'<a href="/store/{made.relative_to(store)}/report.html">page</a>' in page


OUTSIDE = """
/store/../secret.txt /store/%2e%2e/secret.txt /store/bad/../../secret.txt /store//../secret.txt
/store/out/secret.txt /store/%00 /store/{absolute}/secret.txt
/store/ /store/bad /store/nowhere /elsewhere
"""


@pytest.mark.parametrize("path", OUTSIDE.split())
def test_nothing_outside_the_store_is_served(get: Get, store: Path, path: str) -> None:
    answer = get(path.format(absolute=store.parent))
    assert answer.status == 404
    assert b"a secret" not in answer.read()


def test_a_port_in_use_is_one_sentence(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert exit_code(["serve", "--store", str(store), "--port", str(port)]) == 64
    said = capsys.readouterr()
    assert said.err.strip() == (
        f"floodmark: cannot listen on 127.0.0.1 port {port}: "
        "another process uses that port; end it, or choose another port"
    )


OURS = ("localhost", "127.0.0.1", "[::1]", "localhost:8420", "LOCALHOST:1")
OTHERS = ("rebound.example", "localhost.rebound.example:80", "", "[::2]")


@pytest.mark.parametrize("host", [*OURS, *OTHERS])
def test_only_requests_to_this_machine_are_answered(get: Get, host: str) -> None:
    assert get("/runs.json", host=host).status == (200 if host in OURS else 400)


def test_the_address_that_a_server_listens_on_is_one_of_its_names() -> None:
    own = {"localhost", "127.0.0.1", "[::1]"}
    assert {*_hosts("127.0.0.1")} == own
    assert {*_hosts("machine")} == {*own, "machine"}
    assert {*_hosts("fd00::1")} == {*own, "[fd00::1]"}
    assert {*_hosts("0.0.0.0")} >= {*own, "0.0.0.0", socket.gethostname()}


def test_the_script_of_our_page_is_in_the_policy(tmp_path: Path) -> None:
    page = build(made.empty(tmp_path / "empty" / "t")).read_text("utf-8")
    own = page.partition("script-src '")[2].partition("'")[0]
    assert f"script-src '{own}';" in headers()["Content-Security-Policy"]


def test_the_name_of_a_folder_may_be_anything(tmp_path: Path) -> None:
    name = 'a"\r Set-Cookie: x=1\r\r é'
    make_run(tmp_path / "store", name, Verdict.VALID, "kafka")
    other = make_run(tmp_path / "store", "a", Verdict.VALID, "kafka").parent
    other.rename(other.with_name(os.fsdecode(b"a\xff")))
    with serving(tmp_path / "store") as port:
        answer = asking(port)(f"/store/{quote(name)}/20260101T000000/run.json")
        assert (answer.status, answer.getheader("Set-Cookie")) == (200, None)
        # A name that is no text is listed.
        assert "a?/" in asking(port)("/").read().decode()
        assert "a?" in paths(asking(port), "")


def test_requests_beyond_the_bound_are_refused(store: Path) -> None:
    with ExitStack() as opened:
        port = opened.enter_context(serving(store))
        for _ in range(BUSY_CONNECTIONS):
            opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request("GET", "/")
        assert connection.getresponse().status == 503


@pytest.mark.integration
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(store: Path, stop: signal.Signals) -> None:
    words = ("-m", "harness.cli", "serve", "--store", store, "--port", "0")
    with PythonProcess(*words, stderr=subprocess.PIPE) as served:
        said = served.line()
        assert "is at http://127.0.0.1:" in said
        port = int(said.rpartition(":")[2].partition("/")[0])
        assert asking(port)("/").status == 200
        served.send_signal(stop)
        assert served.communicate(timeout=PATIENCE_S) == ("", "")
    assert served.returncode == 0
