"""A search campaign on a Spark cluster, which only schedules processes: no data is shuffled."""

from __future__ import annotations

import msgspec

from checker.engine.spark_session import start_session
from checker.formats.errors import CheckerError
from harness.search.campaign import Campaign, CampaignResult, merge, search_alone
from node.formats.errors import FloodmarkError
from node.formats.json_input import decode


def run_on_spark(campaign: Campaign, master: str) -> CampaignResult:
    """Run a campaign on the executors of `master`, one task per core.

    A task is a campaign of one core with its own seed, so findings do not depend on the machine.

    The budget's seconds are each task's; its schedules are divided. With `until_failure` each task
    ends at its own first finding. The machines of the cluster need floodmark too. Raises UsageError
    for an impossible campaign, FloodmarkError when Spark does not start.
    """
    campaign.check()
    try:
        session = start_session("floodmark search", master=master)
    except CheckerError as error:
        raise FloodmarkError(str(error)) from None
    try:
        context = session.sparkContext
        tasks = max(1, context.defaultParallelism)
        parts = [msgspec.json.encode(part) for part in campaign.shares(tasks)]
        found = context.parallelize(parts, len(parts)).map(_task).collect()
    finally:
        session.stop()
    return merge(decode(one, CampaignResult) for one in found)


def _task(part: bytes) -> bytes:
    """One campaign, on an executor."""
    return msgspec.json.encode(search_alone(decode(part, Campaign)))
