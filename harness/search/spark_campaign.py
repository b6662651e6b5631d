"""A search spread over a Spark cluster: seeds go out, findings come back. The same code runs there.

Each task is a whole campaign of one core with a seed of its own, so what is found does not depend
on which machine it ran on. Spark is a scheduler of processes here; no data is shuffled.
"""

from __future__ import annotations

import msgspec

from checker.engine.spark_session import start_session
from checker.formats.errors import CheckerError
from harness.search.campaign import Campaign, Tally, merge, search_alone
from node.formats.errors import FloodmarkError


def run_spread(campaign: Campaign, master: str) -> Tally:
    """Carry out a campaign on the executors of `master`, one task a core and round.

    The budget's seconds are each task's; its schedules are shared out. With `until_failure` each
    task ends at its own first finding. The machines of a cluster need floodmark itself, too.
    Raises UsageError for an impossible campaign, FloodmarkError when Spark does not start.
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
    return merge(msgspec.json.decode(one, type=Tally) for one in found)


def _task(part: bytes) -> bytes:
    """One campaign, on an executor."""
    return msgspec.json.encode(search_alone(msgspec.json.decode(part, type=Campaign)))
