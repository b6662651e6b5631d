"""How a broker belongs to the cluster: registers its process, then sends heartbeats.

One broker epoch a process: the controller hands it out when it accepts the registration, and
every fetch and proposal carries it, so that nothing meant for an earlier process counts for this
one. See docs/protocols.md; KIP-841, KIP-903.
"""

from __future__ import annotations

from node.core.context import Context
from node.core.messages import (
    Error,
    Heartbeat,
    HeartbeatResponse,
    RegisterBroker,
    RegisterBrokerResponse,
)
from node.trace import REGISTERED

_INTACT_KEY = "intact_since"


class Membership:
    """This broker's registration. `next_us` is when to speak to the controller again."""

    def __init__(self, ctx: Context) -> None:
        self.next_us = 0
        self.fenced = True
        saved = ctx.storage.get(_INTACT_KEY)
        # Under flush=sync nothing promised was ever only deferred. Otherwise a process that lost
        # writes must not claim to continue an earlier one, nor may the process after it.
        clean = ctx.storage.clean or ctx.config.flush_interval_ms == 0
        since = int.from_bytes(saved, "big") if clean and saved else ctx.config.incarnation
        self._intact_since = since
        ctx.storage.put(_INTACT_KEY, since.to_bytes(8, "big"), durable=True)
        self._controller = ""
        self._asked = 0

    def _to_controller(self, ctx: Context) -> str:
        """The controller as last heard of, else the voters in turn."""
        if ctx.controller:
            return ctx.controller
        if self._controller:
            return self._controller
        self._asked += 1
        return ctx.config.voters[self._asked % len(ctx.config.voters)]

    def tick(self, ctx: Context, metadata_offset: int) -> None:
        """Register or send a heartbeat; `metadata_offset` is how far the image was applied."""
        if ctx.now_us < self.next_us:
            return
        to = self._to_controller(ctx)
        if ctx.broker_epoch < 0:
            ctx.send(to, RegisterBroker(
                broker=ctx.node, incarnation=ctx.config.incarnation,
                intact_since=self._intact_since,
            ))  # fmt: skip
            self.next_us = ctx.now_us + 2 * ctx.retry_us
        else:
            ctx.send(to, Heartbeat(
                broker=ctx.node, broker_epoch=ctx.broker_epoch, metadata_offset=metadata_offset,
            ))  # fmt: skip
            interval_us = ctx.config.timings.heartbeat_ms * 1000
            # Until unfenced there is nothing better to do than to ask again soon.
            self.next_us = ctx.now_us + (ctx.retry_us if self.fenced else interval_us)

    def on_registered(self, ctx: Context, response: RegisterBrokerResponse) -> None:
        """The controller accepted this process, or said why not."""
        if response.incarnation != ctx.config.incarnation or ctx.broker_epoch >= 0:
            return
        if response.error is Error.NONE:
            ctx.broker_epoch = response.broker_epoch
            ctx.trace(REGISTERED, broker_epoch=response.broker_epoch)
            self.next_us = ctx.now_us
        else:
            self._redirect(response.error, response.leader)

    def on_heartbeat(self, ctx: Context, response: HeartbeatResponse) -> None:
        """How the controller sees this broker."""
        if response.error is Error.NONE:
            if response.broker_epoch == ctx.broker_epoch:
                self.fenced = response.fenced
        else:
            self._redirect(response.error, response.leader)

    def _redirect(self, error: Error, leader: str) -> None:
        if error is Error.NOT_CONTROLLER:
            self._controller = leader
