"""Run folders of the kinds that go wrong, beside `report_fixtures`: a hang, a crash, a history of
another tool, and a failure with all that can be known of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from checker.engine.local import check_run
from checker.ingest.external_history import run_folder_of
from nemesis.faults import Isolate
from nemesis.formats import schedule as s
from tests.support import report_fixtures as made

HUNG_S = 20.0


def hanging(folder: Path) -> Path:
    """Nothing was answered any more after 20 s, and the cluster never recovered."""
    made.storm(folder, judged=False)
    limit = made.us(HUNG_S)
    for file in (folder / "history.jsonl", *folder.glob("trace/*.jsonl")):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        kept = [x for x in lines if x["t_us"] < limit or x.get("type") == "invoke"]
        made.write_lines(file, kept)
    info = json.loads((folder / "run.json").read_text())
    info["phases"] |= {"recovered_us": 0, "in_sync_us": 0}
    made.write_json(folder / "run.json", info)
    sentence = "no partition acknowledged a write in the 7.5 s after all faults were healed."
    found = {
        "property": "liveness",
        "name": "no-progress-after-heal",
        "partition": "log-0",
        "message": sentence,
        "t_us": made.us(37.5),
    }
    made.write_json(
        folder / "results.json",
        {
            "run": info["run"],
            "verdict": "invalid",
            "sentence": f"invalid: {sentence}",
            "properties": [{"property": "liveness", "verdict": "invalid", "reason": sentence}],
            "anomalies": [found],
        },
    )
    return folder


def crashed(folder: Path) -> Path:
    """Broker n3 ended by itself with code 70."""
    made.storm(folder, rate=2)
    line = {"node": "n3", "incarnation": 1, "t_us": made.us(3), "code": 70, "by": "itself"}
    made.write_lines(folder / "exits.jsonl", [{**line, "expected": False}])
    (folder / "output" / "n3.txt").write_text("InvariantBroken: the log end fell back\n")
    sentence = "n3 ended by itself with code 70, 3.000 s into the storm."
    found = {
        "property": "liveness",
        "name": "crash",
        "message": sentence,
        "t_us": made.us(3),
        "witnesses": [{"what": "the end of the process", "node": "n3", "t_us": made.us(3)}],
    }
    results = json.loads((folder / "results.json").read_text())
    results |= {"verdict": "invalid", "sentence": f"invalid: {sentence}", "anomalies": [found]}
    made.write_json(folder / "results.json", results)
    return folder


JEPSEN = """\
{:type :invoke, :f :send, :value [[:send 0 1]], :time 1000, :process 0, :index 0}
{:type :ok, :f :send, :value [[:send 0 [0 1]]], :time 2000, :process 0, :index 1}
{:type :invoke, :f :send, :value [[:send 0 2]], :time 3000, :process 0, :index 2}
{:type :ok, :f :send, :value [[:send 0 [1 2]]], :time 4000, :process 0, :index 3}
{:type :invoke, :f :assign, :value [0], :seek-to-beginning? true, :time 5000, :process 1, :index 4}
{:type :ok, :f :assign, :value [0], :seek-to-beginning? true, :time 6000, :process 1, :index 5}
{:type :invoke, :f :poll, :value [[:poll]], :time 7000, :process 1, :index 6}
{:type :ok, :f :poll, :value [[:poll {0 [[1 2]]}]], :time 8000, :process 1, :index 7}
"""


def jepsen(folder: Path) -> Path:
    """A history of Jepsen's Kafka workload, judged: value 1 of key 0 was skipped by its reader."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "history.edn"
    file.write_text(JEPSEN)
    run = run_folder_of(file)
    check_run(run, write=True)
    return run


def explained(folder: Path) -> Path:
    """An invalid storm with its story, counterfactuals, control, curves and struck messages."""
    made.storm(folder, broken=True)
    results = json.loads((folder / "results.json").read_text())
    offset = results["anomalies"][0]["offset"]
    lines = [json.loads(x) for x in (folder / "trace" / "n2.jsonl").read_text().splitlines()]
    acked_us = results["anomalies"][0]["witnesses"][0]["t_us"]
    head = {"t_us": acked_us, "node": "n2", "incarnation": 1, "partition": "log-0"}
    append = {
        **head,
        "event": "append",
        "base_offset": offset,
        "leo": offset + 5,
        "leader_epoch": 1,
        "hash": made.CHAIN,
        "role": "leader",
    }
    ack = {
        **head,
        "event": "ack",
        "base_offset": offset,
        "leo": offset + 5,
        "acks": -1,
        "hw": offset + 5,
        "isr": ["n2", "n3"],
        "client": "c3",
    }
    lines = sorted([*lines, append, ack], key=lambda line: line["t_us"])
    made.write_lines(folder / "trace" / "n2.jsonl", lines)
    told = [
        {"t_us": append["t_us"], "node": "n2", "kind": "append", "text": "n2 appends it."},
        {"t_us": made.us(13.004), "kind": "fault", "text": "Fault: isolate n2."},
        {
            "t_us": made.us(14.63),
            "node": "n3",
            "kind": "role",
            "breaks": "elected-without",
            "text": f"n3 becomes leader of epoch 2, without offset {offset}.",
        },
    ]
    made.write_json(
        folder / "timeline.json",
        {
            "about": "lost",
            "property": "no-lost-acknowledged-write",
            "partition": "log-0",
            "offset": offset,
            "sentences": told,
        },
    )
    made.write_lines(
        folder / "messages.jsonl",
        [
            {
                "t_us": made.us(13.1 + i / 10),
                "sender": "n2",
                "receiver": "n1",
                "fate": "dropped",
                "kind": "fetch-response",
                "partition": "log-0",
                "hw": offset,
                "leader_epoch": 1,
            }
            for i in range(9)
        ],
    )
    _finding(folder / "finding")
    made.write_json(folder / "baseline.json", baseline("valid"))
    _tables(folder / "tables")
    return folder


def baseline(verdict: str) -> dict[str, Any]:
    """The content of a baseline.json whose second run has this verdict."""
    broken = ["no-lost-acknowledged-write"]
    return {
        "schedule": "d9d59c936f1e",
        "seed": 7,
        "as_it_is": {
            "protocol": "kafka",
            "bugs": ["elect-any-replica"],
            "verdict": "invalid",
            "sentence": "invalid: 15 records lost.",
            "broken": broken,
        },
        "baseline": {
            "protocol": "kafka",
            "verdict": verdict,
            "sentence": f"{verdict}: told.",
            "broken": broken if verdict == "invalid" else [],
        },
    }


def _finding(into: Path) -> None:
    into.mkdir()
    least = s.Schedule(name="least", faults=(Isolate(on="n2", at_ms=13000, for_ms=4000),))
    drawn = s.Schedule(name="drawn", faults=made.FAULTS)
    (into / "schedule.json").write_bytes(least.to_json())
    (into / "drawn.json").write_bytes(drawn.to_json())
    made.write_json(
        into / "explain.json",
        {
            "schedule": least.digest(),
            "bucket": "no-lost-acknowledged-write: elected-without",
            "property": "no-lost-acknowledged-write",
            "sentence": "invalid: 15 records lost.",
            "storm_us": 1,
            "counterfactuals": [
                {"kind": "fault", "without": "fault 0 (Isolate n2)", "fails": False},
                {
                    "kind": "messages",
                    "without": "the loss of 9 'fetch-response' from n2 to n1",
                    "fails": True,
                },
                {
                    "kind": "message",
                    "without": "the loss of 'fetch' from n1 to n2",
                    "fails": False,
                    "instead": "liveness: no-progress",
                },
            ],
            "untried": 4,
        },
    )


def _tables(into: Path) -> None:
    into.mkdir()
    at = [made.us(second) for second in range(30)]
    unseen = [0] * 14 + [5 * i for i in range(1, 17)]
    pq.write_table(
        pa.table(
            {
                "run": ["r"] * 30,
                "partition": [""] * 30,
                "at_us": at,
                "at_s": [float(i) for i in range(30)],
                "acked": [100 * i for i in range(30)],
                "unseen": unseen,
            }
        ),
        into / "unseen.parquet",
    )
    pq.write_table(
        pa.table(
            {
                "run": ["r"] * 30,
                "partition": ["log-0"] * 30,
                "node": ["n1", "n2", "n3"] * 10,
                "leader": ["n3"] * 30,
                "at_us": at,
                "at_s": [float(i) for i in range(30)],
                "lag": [i % 7 for i in range(30)],
                "highest": [i % 7 for i in range(30)],
            }
        ),
        into / "lag.parquet",
    )
