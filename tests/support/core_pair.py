"""A leader and a follower in conversation, printed as one line a round."""

from __future__ import annotations

from node.core import follower, leader
from node.core.messages import FetchRequest, FetchResponse
from tests.support.core_bench import Bench, broker_epoch, records


class Pair:
    """Leader n1 in `epoch` and follower n2, each with its log, and what they said so far."""

    def __init__(self, leads: str, follows: str, epoch: int) -> None:
        self.leader = Bench("n1", leads)
        self.leader.metadata("n1", epoch, "n1 n3")
        self.follower = Bench("n2", follows)
        self.follower.metadata("n1", epoch, "n1 n3")
        self.lines: list[str] = []

    def round(self) -> bool:
        """The follower's fetch and its answer; False when the leader has nothing to say."""
        request = self.take_fetch()
        answer = self.ask(request)
        if answer is None:
            return False
        before = self.follower.r.leo
        taken = follower.on_response(self.follower.ctx, self.follower.r, "n1", *answer)
        assert taken
        self.lines.append(self._line(request, *answer, before))
        return True

    def take_fetch(self) -> FetchRequest:
        ((to, request, _),) = self.follower.sent()
        assert to == "n1"
        assert isinstance(request, FetchRequest)
        assert request.broker_epoch == broker_epoch("n2")
        return request

    def ask(self, request: FetchRequest) -> tuple[FetchResponse, bytes | None] | None:
        leader.on_fetch(self.leader.ctx, self.leader.r, "n2", request)
        for _, message, body in self.leader.sent():
            if isinstance(message, FetchResponse):
                return message, body
        return None

    def talk(self, most_rounds: int = 10) -> str:
        """Until the follower has everything."""
        for _ in range(most_rounds):
            if not self.round():
                assert self.follower.r.leo == self.leader.r.leo
                return "\n".join(self.lines)
        raise AssertionError("no end of it:\n" + "\n".join(self.lines))

    def _line(
        self, request: FetchRequest, response: FetchResponse, body: bytes | None, before: int
    ) -> str:
        asked = f"({request.offset}, {request.last_epoch})"
        if response.diverging is None:
            return f"{asked} -> {records(body)}"
        leo = self.follower.r.leo
        effect = f"cut to {leo}" if leo < before else "nothing to cut"
        return f"{asked} -> diverging {response.diverging}, {effect}"
