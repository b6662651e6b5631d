"""The lattice, policy, and a check that fails without hiding anything."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from checker.checks.findings import LossCount
from checker.checks.registry import Check, Scope, checks
from checker.engine import judge
from checker.evidence.group import group_of
from checker.evidence.run_meta import RunMeta
from checker.formats.anomalies import (
    CATALOGUE,
    DELIVERY,
    LIVENESS,
    LOST_WRITES,
    OF_GROUPS,
    PROPERTIES,
    AnomalyKind,
    Needs,
)
from checker.formats.verdict import Anomaly, PropertyResult, Verdict
from checker.output import assemble, policy
from checker.output.policy import excuse
from checker.output.sentence import Judgement, sentence
from harness.formats.problem import KINDS, Problem
from harness.formats.run_info import Promise
from tests.support.checker.story import Story, against
from tests.support.checker.story_text import atom, blocks
from tests.support.paths import ROOT


def _fail(_: object) -> NoReturn:
    raise ZeroDivisionError("this check is broken")


CHECKS = (*checks(Scope.PARTITION), *checks(Scope.ACROSS))


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Check], None]:

    def fail(check: Check) -> None:
        broken = Check(check.property, scope=check.scope, finders=[(check.anomalies, _fail)])
        others = {scope: checks(scope) for scope in Scope}
        for module in (judge, assemble):
            monkeypatch.setattr(
                module, "checks", lambda s: tuple(broken if c is check else c for c in others[s])
            )

    return fail


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.anomalies[0])
def test_a_check_that_fails_is_one_unknown_property(
    tmp_path: Path, check: Check, failing: Callable[[Check], None]
) -> None:
    failing(check)
    s = Story()
    s.agree(*s.busy())
    result = s.check(tmp_path)
    assert result.verdict is Verdict.UNKNOWN
    unknown = [p.property for p in result.properties if p.verdict is Verdict.UNKNOWN]
    assert unknown == [check.property]
    where = "on log-0" if check.scope is Scope.PARTITION else "across partitions"
    (problem,) = [p for p in result.problems if where in p]
    assert problem == (
        f"The check of {unknown[0]} {where} failed: ZeroDivisionError: this check is broken."
    )


def test_an_anomaly_outweighs_a_check_that_failed(
    tmp_path: Path, failing: Callable[[Check], None]
) -> None:
    failing(next(c for c in CHECKS if c.property == LIVENESS))
    s = Story()
    s.send(10, at=0)
    s.send(20, at=1)
    s.poll((1, 20), start=0)
    result = s.check(tmp_path)
    assert result.verdict is Verdict.INVALID
    assert against(result) == {"lost": 1, "offset-hole": 1, "poll-skip": 1}


@pytest.mark.parametrize("kind", CATALOGUE, ids=lambda kind: kind.name)
def test_what_a_broken_harness_explains_as_well_is_not_held_against_the_system(
    kind: AnomalyKind,
) -> None:
    """Every anomaly is held against it, or not, as its row says, after every kind of problem."""
    strict = Promise()
    found = Anomaly(property=kind.property, name=kind.name)
    alone = policy.apply(found, RunMeta(promise=strict)).verdict
    for problem in KINDS:
        problems = [Problem(kind=problem, sentence="s")]
        for capabilities in ((), ("logs",)):
            meta = RunMeta(promise=strict, problems=problems, capabilities=capabilities)
            without_logs = kind.from_silence == "without-logs" and not capabilities
            excused = (problems[0].impairs and kind.from_silence == "always") or (
                problems[0].breaks and without_logs
            )
            expected = Verdict.UNKNOWN if excused and alone is Verdict.INVALID else alone
            assert policy.apply(found, meta).verdict is expected


@pytest.mark.parametrize("check", checks(Scope.PARTITION), ids=lambda check: check.anomalies[0])
def test_no_check_minds_a_partition_nothing_is_known_of(check: Check) -> None:
    group = group_of("log-0", {})
    assert check.judge(group).anomalies == ()


def test_every_property_is_told_of_in_order(tmp_path: Path) -> None:
    result = Story().check(tmp_path)
    without_groups = tuple(name for name in PROPERTIES if name not in OF_GROUPS)
    assert tuple(p.property for p in result.properties) == without_groups


@pytest.mark.parametrize("line", blocks(Path(__file__).with_name("excuses.txt"))["excuses"])
def test_what_a_promise_excuses(line: str) -> None:
    fields, _, excused = line.partition(":")
    promise = Promise(
        **{n: atom(text) for n, _, text in (f.partition("=") for f in fields.split())}
    )
    found = {needs.name.lower() for needs in Needs if excuse(needs, promise)} - {"information"}
    assert found == set(excused.split()) - {"nothing"}


def test_the_document_names_every_anomaly_in_the_order_of_the_catalogue() -> None:
    text = (ROOT / "docs" / "checks.md").read_text()
    parts = re.split(r"\n\* `", text.partition("## The anomalies")[2].partition("\n### ")[0])[1:]
    assert all(" *Example*: " in " ".join(part.split()) for part in parts)
    names = [part.partition("`")[0] for part in parts]
    assert names == [kind.name for kind in CATALOGUE]
    policy, needs = dict.fromkeys(names, "nothing"), ""
    table = text.partition("| needs | allowed")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        first, _, listed = (cell.strip() for cell in line.strip("|").rsplit("|", 2))
        needs = first or needs
        policy |= {name.strip(): needs for name in listed.split(",") if name.strip() in policy}
    assert policy == {kind.name: kind.needs.name.lower().replace("_", " ") for kind in CATALOGUE}


NUMBERED = r"\b(was|is|has|its|itself|were|are|have|they|their|them|themselves)\b"
TEMPLATES = [
    node.value
    for file in sorted((ROOT / "checker/checks").glob("**/*.py"))
    for node in ast.walk(ast.parse(file.read_text()))
    if isinstance(node, ast.Constant) and isinstance(node.value, str)
    if file.name != "cases.py" and re.search(r"\{n:(?!time)[a-z ]+\}", node.value)
]


def test_what_is_counted_agrees_with_its_verb() -> None:
    """Each template fits one case and many: no word of its opening has a number."""
    opening = [re.sub(r"\{[^}]*\}", "", text).split(":")[0] for text in TEMPLATES]
    assert len(opening) > 15
    assert [text for text in opening if re.search(NUMBERED, text)] == []


@pytest.mark.parametrize("given", ["", DELIVERY])
@pytest.mark.parametrize(("source", "logs"), [("own", False), ("", True), ("", False)])
def test_a_sentence_agrees_with_its_numbers(given: str, source: str, logs: bool) -> None:
    held = Verdict.NOT_EXAMINED if given else Verdict.VALID
    results = [PropertyResult(property=name, verdict=held) for name in (LOST_WRITES, given)]
    meta = RunMeta(source=source, capabilities=("logs",) * logs)
    for required, lost, acked, read, gone, unread in itertools.product(*[range(3)] * 6):
        loss = LossCount(lost, acked, read, deleted=gone, deleted_unread=unread)
        if lost + gone > required or acked > lost or read > lost or unread > gone:
            continue
        seen = {"acked_records": required, "faults": lost}
        text = sentence(Judgement(meta, Verdict.VALID, results, (), (), seen, {"log-0": loss}))
        said = re.sub(r" of \d acknowledged records?| in 1 partition", "", text)
        one, many = (
            r"\b1 [a-z ]*\b(records|faults|were|are)\b",
            r"\b[02] [a-z ]*\b(record|was|is)\b",
        )
        assert not re.search(f"{one}|{many}", said), text
