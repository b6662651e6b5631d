"""The harness's own voice in the cluster: carries what `TopicMaker` asks over the wire."""

from __future__ import annotations

from harness.clock import now_us
from harness.real.mail import Mail
from harness.topic import ADMIN, TopicMaker
from node import wire
from node.errors import WireError


def ask_for_topic(maker: TopicMaker, mail: Mail) -> None:
    """Read answers; ask (again) when it is time. Raises FloodmarkError for a final refusal."""
    answers = []
    for frames in mail.drain():
        try:
            answers.append(wire.decode(frames)[2])
        except WireError:
            continue
    voter = maker.step(now_us(), answers)
    if voter:
        mail.send(ADMIN, voter, maker.request, None)
