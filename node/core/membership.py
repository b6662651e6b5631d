"""The membership of a broker: it registers, sends heartbeats, and asks to shut down.

Each process has its own broker epoch. The controller assigns it when it accepts the registration,
and every fetch and proposal carries it: a message of an earlier process never counts for this one.
See docs/protocols.md; KIP-841, KIP-903."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from node.core.context import Context
from node.core.replica import NEVER
from node.formats.messages import (
    Error,
    Heartbeat,
    HeartbeatResponse,
    RegisterBroker,
    RegisterBrokerResponse,
)
from node.formats.trace import REGISTERED

_INTACT_KEY = "intact_since"
LONGEST_HANDOVER_US: Final = 1_500_000
"""A broker that was asked to stop waits for the controller at most this long, and at most a
session."""


class Membership:
    """The broker's side of its registration at the controller. `next_us` is the time of its next
    message to the controller; `may_stop`: a broker that was asked to stop need not wait any longer;
    `damaged` are the partitions whose logs on this broker are damaged."""

    def __init__(self, ctx: Context) -> None:
        self.next_us = ctx.now_us
        self.fenced = True
        self.may_stop = False
        self.damaged: tuple[str, ...] = ()
        self._stop_by_us = NEVER
        saved = ctx.stored(_INTACT_KEY)
        # Under flush=sync no acknowledged write was only deferred. Otherwise a process that lost
        # writes must not claim to be intact since an earlier one, nor may the process after it.
        clean = ctx.storage.clean or ctx.config.flush_interval_ms == 0
        since = int.from_bytes(saved, "big") if clean and saved else ctx.config.incarnation
        self._intact_since = since
        ctx.storage.put(_INTACT_KEY, since.to_bytes(8, "big"), durable=True)
        self._controller = ""
        self._asked = 0

    def tell_damage(self, ctx: Context, partitions: Iterable[str]) -> None:
        """Report the logs of `partitions` as damaged to the controller from now on."""
        damaged = tuple(sorted(partitions))
        if damaged != self.damaged:
            self.damaged = damaged
            self.next_us = ctx.now_us

    def _to_controller(self, ctx: Context) -> str:
        """Return the controller as last heard of, else the voters in turn."""
        if ctx.controller:
            return ctx.controller
        if self._controller:
            return self._controller
        self._asked = (self._asked + 1) % len(ctx.config.voters)
        return ctx.config.voters[self._asked]

    def tick(self, ctx: Context, metadata_offset: int) -> None:
        """Register, or send a heartbeat, if it is time; `metadata_offset` is the offset up to which
        this broker has applied the metadata."""
        if self._stop_by_us <= ctx.now_us:
            self.may_stop = True
        if ctx.now_us < self.next_us or self.may_stop:
            return
        to = self._to_controller(ctx)
        if ctx.broker_epoch < 0:
            ctx.send(
                to,
                RegisterBroker(
                    broker=ctx.node,
                    incarnation=ctx.config.incarnation,
                    intact_since=self._intact_since,
                ),
            )
            self.next_us = ctx.now_us + 2 * ctx.retry_us
        else:
            leaving = self._stop_by_us < NEVER
            ctx.send(
                to,
                Heartbeat(
                    broker=ctx.node,
                    broker_epoch=ctx.broker_epoch,
                    metadata_offset=metadata_offset,
                    want_shutdown=leaving,
                    damaged=self.damaged,
                ),
            )
            # A broker that waits to be unfenced, or to be allowed to stop, asks more often.
            wait_us = ctx.config.timings.heartbeat_ms * 1000
            if self.fenced or leaving:
                wait_us = min(wait_us, ctx.retry_us)
            self.next_us = min(ctx.now_us + wait_us, self._stop_by_us)

    def ask_to_stop(self, ctx: Context) -> None:
        """Ask the controller to move leadership away, and to answer when the other brokers know of
        it. A broker that has not registered yet may stop at once."""
        if ctx.broker_epoch < 0:
            self.may_stop = True
        elif self._stop_by_us == NEVER:
            longest_us = min(ctx.config.timings.session_ms * 1000, LONGEST_HANDOVER_US)
            self._stop_by_us = ctx.now_us + longest_us
            self.next_us = ctx.now_us

    def on_registered(self, ctx: Context, response: RegisterBrokerResponse) -> None:
        """Handle the controller's acceptance or refusal of this process."""
        ours = response.incarnation == ctx.config.incarnation or ctx.bugs.accept_any_registration
        if not ours or ctx.broker_epoch >= 0:
            return
        if not response.error:
            ctx.broker_epoch = response.broker_epoch
            ctx.trace(REGISTERED, broker_epoch=response.broker_epoch)
            self.next_us = ctx.now_us
        else:
            self._redirect(response.error, response.leader)

    def on_heartbeat(self, ctx: Context, response: HeartbeatResponse) -> None:
        """Handle the controller's answer to a heartbeat: whether this broker is fenced, and whether
        it may stop, if it was asked to."""
        if not response.error:
            if response.broker_epoch == ctx.broker_epoch:
                self.fenced = response.fenced
                leaving = self._stop_by_us < NEVER
                self.may_stop = self.may_stop or (leaving and response.should_shutdown)
        else:
            self._redirect(response.error, response.leader)

    def _redirect(self, error: Error, leader: str) -> None:
        if error is Error.NOT_CONTROLLER:
            self._controller = leader
