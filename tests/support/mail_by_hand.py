"""Brokers of one partition and the mail between them, moved by hand: what two stages share.

Every command runs the brokers' own functions. The world is by hand: which message arrives, who
dies, and who hears of what."""

from __future__ import annotations

from typing import Any, NamedTuple

from node.formats.messages import (
    AnyMessage,
    AppendEntries,
    EpochEndRequest,
    EpochEndResponse,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from tests.support.lone_broker import LoneBroker, placed

KINDS: dict[str, tuple[type[AnyMessage], ...]] = {
    "votes": (VoteRequest, VoteResponse),
    "requests": (VoteRequest,),
    "questions": (EpochEndRequest, EpochEndResponse),
    "responses": (FetchResponse, AppendEntries),
}


class Mail(NamedTuple):
    """One message under way."""

    source: str
    to: str
    message: AnyMessage
    body: bytes | None

    def is_of(self, kinds: str) -> bool:
        """Return whether it is of these `KINDS`; all mail is if none are named."""
        return not kinds or isinstance(self.message, KINDS[kinds])

    def is_on(self, link: str) -> bool:
        """Return whether it is on a link: `n1-n2`, or one way `n1>n2`; "" is any."""
        a, b = self.source, self.to
        return link in ("", f"{a}>{b}", f"{a}-{b}", f"{b}-{a}")


class MailByHand:
    """The brokers, those that are up, and the newest metadata. `reached` names those whose mail is
    not lost at once; `letter` is that of the outcome."""

    def __init__(self, protocol: str, bugs: str) -> None:
        self.protocol, self.bugs = protocol, tuple(bugs.split(",")) if bugs else ()
        self.nodes: dict[str, LoneBroker] = {}
        self.up: list[str] = []
        self.reached: list[str] = []
        self.mail: list[Mail] = []
        self.kept: list[Mail] = []
        self.now_us = 0
        self.record = placed(at=0, min_isr=1)
        self.letter = ""

    def add(self, name: str, log: str = "", hw: int = 0, **more: Any) -> None:
        """Add a broker with this log and high watermark on its disk."""
        kind = {"protocol": self.protocol, "bugs": self.bugs}
        self.nodes[name] = LoneBroker(name, log, hw, **kind, **more)
        self.up.append(name)
        self.reached.append(name)

    # -- processes and time

    def crash(self, name: str) -> None:
        """End the process, and lose all mail from and to it."""
        self.up.remove(name)
        self.mail = [m for m in self.mail if name not in (m.source, m.to)]
        self.nodes[name].sent()

    def start(self, name: str) -> None:
        """Start a process on the disk. It hears the newest metadata at once."""
        if name in self.up:
            MailByHand.crash(self, name)
        self.up.append(name)
        self.nodes[name].boot(self.now_us)
        self.hears(name)

    def hears(self, name: str) -> None:
        """Deliver the newest metadata to a node."""
        self.nodes[name].hears(self.record)
        self.collect(name)

    def pause(self, ms: int) -> None:
        """Time passes everywhere."""
        self.now_us += ms * 1000
        for name in self.up:
            self.nodes[name].sleep(ms)
            self.collect(name)

    # -- the mail

    def collect(self, name: str) -> list[AnyMessage]:
        """Put what a node has sent under way; return all of it."""
        sent = self.nodes[name].sent()
        if name in self.reached:
            self.mail += [Mail(name, *one) for one in sent if one[0] in self.reached]
        return [message for _, message, _ in sent]

    def lose(self, source: str = "", to: str = "") -> None:
        """All mail is lost, or that on this link."""
        link = f"{source}>{to}" if source else ""
        self.mail = [m for m in self.mail if not m.is_on(link)]

    def run(self, kinds: str = "", links: str = "", most: int = 10_000) -> None:
        """Deliver until nothing is left of these kinds (all, if none is named), or `most` were;
        `links` names the only one that carries anything."""
        for _ in range(most):
            goes = (n for n, m in enumerate(self.mail) if m.is_of(kinds) and m.is_on(links))
            at = next(goes, None)
            if at is None:
                return
            self.deliver(self.mail.pop(at))

    def deliver(self, mail: Mail) -> None:
        if mail.to in self.up:
            self.nodes[mail.to].takes(mail.source, mail.message, mail.body)
            self.collect(mail.to)

    def keep(self, kinds: str, to: str = "") -> None:
        """Keep a copy of each such message under way."""
        self.kept += [m for m in self.mail if m.is_of(kinds) and to in ("", m.to)]

    def give(self, *numbers: int) -> None:
        """Kept messages arrive, perhaps a second time."""
        for number in numbers:
            self.deliver(self.kept[number])
