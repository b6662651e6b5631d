"""`floodmark serve`: what a browser gets of a store, and what nobody gets."""

from __future__ import annotations

import http.client
import io
import json
import socket
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from checker.formats.verdict import Anomaly, PropertyResult, RunResult, Verdict
from harness.cli import main
from harness.formats.nightly_run import Bucket, NightlyRun
from harness.runs.judge import run_folders
from harness.serve.server import StoreServer

LOST = "no-lost-acknowledged-write"
KEY = "0123456789ab"
Get = Callable[..., http.client.HTTPResponse]


def make_run(store: Path, name: str, verdict: Verdict, protocol: str) -> Path:
    folder = store / name / "20260101T000000"
    (folder / "trace").mkdir(parents=True)
    about = {"protocol": protocol, "world": "real", "state": "finished"}
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


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three runs, a nightly run with a bucket, and a secret next door."""
    (tmp_path / "secret.txt").write_text("nobody's business")
    store = tmp_path / "store"
    make_run(store, "bad", Verdict.INVALID, "kafka")
    make_run(store, "good", Verdict.VALID, "kafka")
    make_run(store, "naive", Verdict.INVALID, "quorum-naive")
    (store / "out").symlink_to(tmp_path)
    bucket = Bucket(
        key=KEY,
        protocol="kafka",
        world="real",
        property=LOST,
        name=f"{LOST}: lost",
        expected=False,
        count=1,
    )
    nightly_run = NightlyRun(
        number=1,
        seed=1,
        state="finished",
        started="",
        budget_s=1,
        used_s=1,
        cores=1,
        buckets=[bucket],
    )
    (store / "nightly").mkdir()
    (store / "nightly" / "0001.json").write_bytes(msgspec.json.encode(nightly_run))
    return store


@pytest.fixture
def get(store: Path) -> Iterator[Get]:
    """Ask a server of that store."""
    with StoreServer("127.0.0.1", 0, store) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        host, port = server.server_address[:2]

        def ask(path: str, method: str = "GET") -> http.client.HTTPResponse:
            connection = http.client.HTTPConnection(str(host), port, timeout=20)
            connection.request(method, path)
            return connection.getresponse()

        yield ask
        server.shutdown()
        thread.join()


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


def test_the_list_is_a_page_that_links_to_pages(get: Get) -> None:
    page = get("/?verdict=invalid").read().decode()
    assert "<h2>2 runs</h2>" in page
    assert 'href="/store/bad/20260101T000000/report.html"' in page
    assert "Lost by &lt;bad&gt;" in page, "the sentence of a run is text"
    opened = get("/store/bad/20260101T000000/report.html")
    assert opened.getheader("Content-Type") == "text/html; charset=utf-8"
    assert b"a failure" in opened.read()
    assert get("/store/bad/latest/run.json").status == 200, "a link within the store is followed"


def test_the_run_of_a_finding_is_listed_and_belongs_to_its_bucket(store: Path, get: Get) -> None:
    made = make_run(store, "made", Verdict.INVALID, "kafka")
    finding = store / "findings" / "kafka-1"
    finding.mkdir(parents=True)
    made.rename(finding / "simulated")
    (finding / "schedule.json").write_text("{}")
    key = "f" * 12
    bucket = Bucket(
        key=key,
        protocol="kafka",
        world="simulated",
        property=LOST,
        name="x: y",
        expected=False,
        count=1,
        schedule="findings/kafka-1/schedule.json",
    )
    nightly_run = NightlyRun(
        number=2,
        seed=2,
        state="finished",
        started="",
        budget_s=1,
        used_s=1,
        cores=1,
        buckets=[bucket],
    )
    (store / "nightly" / "0002.json").write_bytes(msgspec.json.encode(nightly_run))
    assert paths(get, f"?bucket={key}") == ["findings"]
    page = get("/store/findings/kafka-1/simulated/report.html")
    assert page.status == 200
    assert finding / "simulated" in run_folders([store])
    assert run_folders([finding]) == [finding / "simulated"]


def test_a_store_with_nothing_in_it_says_so(tmp_path: Path) -> None:
    from reports.nightly_page.store_page import Store, Wanted, render_list

    page = render_list(Store(tmp_path / "none"), Wanted())
    assert "There is no run in this store yet." in page
    assert "no nightly run yet" in page


def test_a_run_is_downloaded_whole(get: Get) -> None:
    answer = get("/download/bad/20260101T000000.tar.gz")
    assert answer.getheader("Content-Disposition") == (
        'attachment; filename="bad-20260101T000000.tar.gz"'
    )
    with tarfile.open(fileobj=io.BytesIO(answer.read())) as archive:
        assert sorted(archive.getnames()) == [
            f"bad/20260101T000000/{name}"
            for name in ("report.html", "results.json", "run.json", "trace/n1.jsonl")
        ]
    answer = get("/download/bad/20260101T000000.zip")
    with zipfile.ZipFile(io.BytesIO(answer.read())) as packed:
        assert packed.testzip() is None
        assert packed.read("bad/20260101T000000/trace/n1.jsonl") == b"{}\n" * 1000


@pytest.mark.parametrize(
    "path",
    [
        "/store/../secret.txt",
        "/store/%2e%2e/secret.txt",
        "/store/bad/../../secret.txt",
        "/store//../secret.txt",
        "/store/out/secret.txt",
        "/store/%00",
        "/download/../secret.txt.zip",
        "/download/%2e%2e.tar.gz",
        "/download/out.zip",
        "/download/bad/20260101T000000.rar",
        "/download/bad.zip",
        "/store/",
        "/store/bad",
        "/store/nowhere",
        "/elsewhere",
    ],
)
def test_nothing_outside_the_store_is_given_out(get: Get, path: str) -> None:
    answer = get(path)
    assert answer.status == 404
    assert b"nobody" not in answer.read()


def test_an_absolute_path_is_one_within_the_store(get: Get, store: Path) -> None:
    assert get(f"/store/{store.parent / 'secret.txt'}").status == 404


def test_head_has_no_body_and_nothing_can_be_written(get: Get) -> None:
    answer = get("/store/bad/20260101T000000/report.html", "HEAD")
    assert (answer.status, answer.read()) == (200, b"")
    assert get("/", "POST").status == 501


def test_a_port_in_use_is_one_sentence(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as ended:
            main.main(["serve", "--store", str(store), "--port", str(port)])
    assert ended.value.code == 64
    said = capsys.readouterr()
    assert said.err.strip() == (
        f"floodmark: cannot listen on 127.0.0.1 port {port}: Address already in use"
    )


def test_a_store_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["serve", "--store", "nowhere-at-all"])
    assert ended.value.code == 64
    assert capsys.readouterr().err == "floodmark: nowhere-at-all: there is no such store\n"


def test_ctrl_c_ends_it_cleanly(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(server: StoreServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(StoreServer, "serve_forever", interrupted)
    with pytest.raises(SystemExit) as ended:
        main.main(["serve", "--store", str(store), "--port", "0"])
    assert ended.value.code == 0
    assert "is at http://127.0.0.1:" in capsys.readouterr().out
