"""A search handed out by Spark finds what the same shares find in one process."""

from __future__ import annotations

import pytest

from harness.search.campaign import Budget, Campaign, merge, search_alone
from harness.search.engines import Subject
from harness.search.spark_campaign import run_on_spark

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("spark")]


def test_tasks_of_spark_find_what_one_process_finds() -> None:
    wanted = Campaign(
        subject=Subject("kafka", ("read-beyond-hw",)), budget=Budget(schedules=6), shrink_tries=60
    )
    spark = run_on_spark(wanted, "local[2]")
    alone = merge(map(search_alone, wanted.shares(2)))
    assert spark.schedules == 6
    assert not spark.problems
    assert (spark.events, spark.virtual_us) == (alone.events, alone.virtual_us)
    assert [f.smallest for f in spark.findings] == [f.smallest for f in alone.findings]
    assert spark.findings
