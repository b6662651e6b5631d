"""Histories of other tools: Jepsen's Kafka workload as EDN and as JSON lines, and our bare form."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checker.engine.local import check_run
from checker.formats.errors import CheckerError
from checker.formats.verdict import RunResult, Verdict
from checker.ingest.edn import EdnError, parse, read_forms
from checker.ingest.external_history import external_history_in, form_of, run_folder_of, validate
from harness.formats.history import encode
from reports.evidence.model import read
from reports.run_page.head import commands, summary
from tests.support.checker.history_forms import edn
from tests.support.checker.story import Story, against
from tests.support.checker.story_text import blocks, steps_of, take


class Jepsen:
    """A Jepsen history, written operation by operation, a millisecond each."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def op(self, process: Any, kind: str, f: str, value: Any, **more: Any) -> None:
        n = len(self.lines)
        common = {"index": n, "time": n * 1_000_000, "type": kind, "process": process}
        self.lines.append({**common, "f": f, "value": value, **more})

    def send(self, process: int, *sent: tuple[Any, int | None, int], kind: str = "ok") -> None:
        """Add sends of (key, offset, value)."""
        self.op(process, "invoke", "send", [["send", k, v] for k, _, v in sent])
        self.op(
            process, kind, "send", [["send", k, v if o is None else [o, v]] for k, o, v in sent]
        )

    def poll(self, process: int, polled: dict[int, Any], kind: str = "ok", **how: Any) -> None:
        self.op(process, "invoke", "poll", [["poll"]])
        self.op(process, kind, "poll", [["poll", polled]], **how)

    def read(self, process: int, *records: tuple[Any, int, int], rebalanced: Any = None) -> None:
        """Add a poll of (key, offset, value)."""
        polled: dict[Any, list[Any]] = {}
        for key, *record in records:
            polled.setdefault(key, []).append(record)
        how = {} if rebalanced is None else {"rebalance-log": [{"keys": [rebalanced]}]}
        self.poll(process, polled, **how)

    def moved(self, process: int, f: str, keys: list[Any], kind: str = "ok", **how: Any) -> None:
        self.op(process, "invoke", f, keys, **how)
        self.op(process, kind, f, keys, **how)

    def check(self, folder: Path, form: str = "edn") -> RunResult:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / ("history.edn" if form == "edn" else "history.jsonl")
        write = edn if form == "edn" else json.dumps
        file.write_text("".join(f"{write(line)}\n" for line in self.lines))
        found = external_history_in(folder)
        assert found == file
        return check_run(run_folder_of(found))


def classes(result: RunResult) -> set[str]:
    """Jepsen's names of what counts."""
    return set(result.measures["jepsen"]["bad-error-types"])


def sound() -> Jepsen:
    """Twelve sends of two keys, all polled, then read again from the beginning."""
    j = Jepsen()
    j.moved(9, "assign", [1, 2])
    for at in range(6):
        j.send(0, (1, 2 * at, at), (2, at, 10 + at))
        j.send(1, (1, 2 * at + 1, 100 + at))
    ones = [[2 * at + odd, at + 100 * odd] for at in range(6) for odd in (0, 1)]
    twos = [[at, 10 + at] for at in range(6)]
    j.poll(9, {1: ones[:7], 2: []})
    j.poll(9, {1: ones[7:], 2: twos})
    j.op("nemesis", "info", "start-partition", "majority")
    j.op(9, "invoke", "crash", None)
    j.op(9, "info", "crash", None)
    j.moved(19, "debug-topic-partitions", [1, 2])
    j.moved(19, "assign", [1, 2], **{"seek-to-beginning?": True})
    j.poll(19, {1: ones, 2: twos})
    return j


@pytest.mark.parametrize("form", ["edn", "jsonl"])
def test_a_sound_history(tmp_path: Path, form: str) -> None:
    result = sound().check(tmp_path, form)
    assert result.verdict is Verdict.VALID, result.sentence
    assert result.problems == ()
    assert classes(result) == set()
    assert "18 acknowledged records in 2 partitions" in result.sentence


@pytest.mark.parametrize("form", ["edn", "jsonl"])
def test_jepsens_classes_are_named(tmp_path: Path, form: str) -> None:
    j = sound()
    j.send(2, (1, 12, 50), kind="fail")
    j.send(2, (1, 12, 51))
    j.send(2, (1, 3, 52))
    j.poll(19, {1: [[12, 51], [13, 50], [14, 51]]})
    assert classes(j.check(tmp_path, form)) == {
        "G1a",
        "G0-realtime",
        "duplicate",
        "inconsistent-offsets",
        "lost-write",
        "nonmonotonic-send",
    }


def test_what_another_tool_recorded_cannot_be_run_again(tmp_path: Path) -> None:
    sound().check(tmp_path)
    folder = tmp_path / "history.edn.floodmark"
    assert [command.does for command in commands(read(folder))] == [
        "judge what was recorded again",
        "build this page again",
    ]
    assert commands(read(folder))[0].line == f"floodmark check {folder}"
    assert "replay" not in summary(folder)


GOES_ON = blocks(Path(__file__).with_name("goes_on.txt"))


@pytest.mark.parametrize("name", GOES_ON)
def test_a_history_that_goes_on(tmp_path: Path, name: str) -> None:
    """Hold which anomalies count, by our names and by Jepsen's, and which are reported only."""
    said = {word: set(rest.split()) for word, _, rest in (x.partition(" ") for x in GOES_ON[name])}
    found, counts, reports = (said.get(word, set()) for word in ("finds", "counts", "reports"))
    steps = [
        x for x in GOES_ON[name] if x.split()[0] not in ("finds", "counts", "reports", "verdict")
    ]
    result = take(sound(), [*steps_of(";".join(steps))]).check(tmp_path)
    assert {result.verdict} == said.get("verdict", {"invalid" if found else "valid"})
    assert set(against(result)) == found
    assert classes(result) == counts
    assert set(result.measures["jepsen"]["error-types"]) == counts | reports


def test_circular_information_flow(tmp_path: Path) -> None:
    j = sound()
    for process in (4, 5):
        j.op(process, "invoke", "txn", [["send", process - 3, 70 + process], ["poll"]])
    j.op(4, "ok", "txn", [["send", 1, [12, 74]], ["poll", {2: [[6, 75]]}]])
    j.op(5, "ok", "txn", [["send", 2, [6, 75]], ["poll", {1: [[12, 74]]}]])
    result = j.check(tmp_path)
    assert classes(result) == {"G1c"}
    assert "read offset 6 of 2, written by operation" in result.sentence


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ('#jepsen.Op{:a 1, :b #{x "y\\n" \\z}} ; done', [{"a": 1, "b": ["x", '"y\n"', "\\z"]}]),
        ("[1 -2N 3.5 1e3 nil true] #_skipped ok", [[1, -2, 3.5, 1000.0, None, True], "ok"]),
        ("{[1 2] ()}", [{(1, 2): []}]),
        ("[" * 100_000 + "]" * 100_000, None),
    ],
)
def test_edn(text: str, forms: list[Any] | None) -> None:
    found = parse(text)
    assert forms is None or found == forms


PIECES = st.sampled_from(
    [*'{}[]:,#" 01-', "{:a ", ":b", "nil", "true", '"x-1"', "12", " [", "] ", "{0 [[1 2]]}", ":nil"]
)


def with_texts(form: Any) -> Any:
    """Return a form whose maps have their numbers as texts, as those of plain lines have."""
    if isinstance(form, dict):
        return {
            str(key) if type(key) is int else key: with_texts(value) for key, value in form.items()
        }
    return [with_texts(each) for each in form] if isinstance(form, list) else form


def forms(text: str) -> list[Any]:
    """Return the forms of a text, of which plain lines were read as JSON."""
    return [form for _, some in read_forms([(1, text.encode())]) for form in some]


@given(st.lists(PIECES, max_size=12).map("".join))
def test_a_plain_line_is_what_the_whole_reader_makes_of_it(inside: str) -> None:
    for text in ("{" + inside + "}", "{:value [[:poll {" + inside + "}]], :time 5}"):
        try:
            whole = parse(text)
        except EdnError:
            continue
        assert with_texts(forms(text)) == with_texts(whole), text


def test_the_lines_of_jepsen_are_plain() -> None:
    lines = [edn(line) for line in sound().lines]
    (at_once,) = read_forms([(1, "\n".join(lines).encode())])
    assert at_once == (1, [with_texts(parse(line)[0]) for line in lines])


@pytest.mark.parametrize("text", ["{:a}", "]", "[1", '"open', "[1)"])
def test_what_is_not_edn(text: str) -> None:
    with pytest.raises(EdnError):
        parse(text)


def test_a_whole_history_in_one_vector_over_several_lines(tmp_path: Path) -> None:
    lines = [edn(line).replace(", :value", "\n   :value") for line in sound().lines]
    (tmp_path / "history.edn").write_text("[" + "\n ".join(lines) + "]\n")
    assert check_run(run_folder_of(tmp_path / "history.edn")).verdict is Verdict.VALID


def test_a_form_that_never_ends_costs_only_itself(tmp_path: Path) -> None:
    lines = [edn(line) for line in sound().lines]
    lines[3] = lines[3][:-2]
    (tmp_path / "history.edn").write_text("\n".join(lines) + "\n")
    sentences = validate(tmp_path / "history.edn")
    assert sentences == ["history.edn line 4 cannot be read: a form or string is not closed."]
    result = check_run(run_folder_of(tmp_path / "history.edn"))
    assert result.verdict is Verdict.UNKNOWN
    assert result.problems == (*sentences,)


INVOKE = "{:type :invoke, :f :send, :process 1, :time 0, :value"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{:type :ok, :f :send", "line 1 cannot be read: a form or string is not closed."),
        (":x", "line 1 is not an operation: it is a word, not a map."),
        ("{:type :odd, :f :send, :process 1, :time 0}", 'odd", not invoke, ok, fail or info.'),
        ("{:type :ok, :f :send, :process 1, :time 0}", "process 1 completes what it never"),
        (f"{INVOKE} [[:send 1 :x]]}}", 'a value is "x", not a number.'),
        (f"{INVOKE} [[:send 1 [{2**63} 1]]]}}", f"an offset is {2**63}, outside 0"),
        (f"{INVOKE} [[:pull]]}}", '["pull"] is neither a send nor a poll.'),
        ("", "has no operation in it: there is nothing to judge."),
    ],
)
def test_what_is_wrong_with_a_line(tmp_path: Path, line: str, sentence: str) -> None:
    (tmp_path / "history.edn").write_text(f"{line}\n")
    (found,) = validate(tmp_path / "history.edn")
    assert sentence in found
    assert found.startswith("history.edn ")


def test_our_own_form_written_by_another_tool(tmp_path: Path) -> None:
    s = Story()
    s.busy()
    bare = tmp_path / "their.jsonl"

    def judged() -> RunResult:
        bare.write_bytes(b"".join(map(encode, s.history)))
        return check_run(run_folder_of(bare))

    result = judged()
    assert form_of(bare) == "own"
    assert validate(bare) == []
    assert (result.verdict, result.run) == (Verdict.VALID, "their.jsonl")
    assert result.sentence.endswith(
        "12 acknowledged records in 1 partition were kept, as far as a history alone shows: it "
        "records no faults, and no replica's log was examined."
    )
    s.send(7, at=12, process=3, begin=9_000)
    result = judged()
    assert (result.verdict, against(result)) == (Verdict.UNKNOWN, {}), "nobody asked for it"
    s.poll(start=12, at_end=True, process=4)
    assert against(judged()) == {}, "it may have asked a replica that lags"
    s.poll(start=12, at_end=True, process=5, final=True)
    assert against(judged()) == {"unseen": 1}


def test_a_form_without_end_costs_no_more_than_it_is_long() -> None:
    """Each of its lines was parsed with all lines before it: many of them took hours."""
    lines = b"{:a [\n" + b"1 2 3\n" * 4_998
    ((number, (error,)),) = read_forms([(1, lines)])
    assert number == 1
    assert isinstance(error, EdnError)
    (first, (long,)), (second, (short,)) = read_forms([(1, lines), (5_000, b"]}\n{:b 1}\n")])
    assert (first, len(long["a"])) == (1, 3 * 4_998)
    assert (second, short) == (5_001, {"b": 1})


def test_a_packed_history_that_is_a_fifo_is_refused_and_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "history.jsonl.gz")
    with pytest.raises(CheckerError, match="cannot be unpacked: it is no file"):
        validate(tmp_path / "history.jsonl.gz")


def test_a_link_beside_a_history_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(b"")
    (tmp_path / "precious").write_bytes(b"x")
    (tmp_path / "states").mkdir()
    (tmp_path / "states/history.jsonl").symlink_to(tmp_path / "precious")
    with pytest.raises(CheckerError, match=r"states/history.jsonl cannot be read: it is a link"):
        run_folder_of(tmp_path / "history.jsonl")
