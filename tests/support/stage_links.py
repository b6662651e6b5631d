"""The rules of links, and the messages that they keep back: a stage of scripts.

Messages are fetches of log-0 at offset 5, unless their fields are others. `*` stands for all nodes,
`-` for none. Times are milliseconds."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec

from nemesis.links.abilities import HUB, TCP_PROXY
from nemesis.links.pipeline import MAX_BYTES, MAX_MESSAGES, DelayQueue, LinkPipeline
from nemesis.links.rule import Action, LinkRule
from node.formats.errors import UsageError

FETCH = {"kind": "fetch", "offset": 5, "partition": "log-0"}
ABILITIES = {"hub": HUB, "tcp": TCP_PROXY}
Load = tuple[str, Mapping[str, Any]]


class LinksStage:
    """A pipeline, and a clock that stands still. Options are the bounds of its queue."""

    def __init__(self, messages: int = MAX_MESSAGES, size: int = MAX_BYTES) -> None:
        self._bounds = messages, size
        self.clear()

    def clear(self) -> None:
        """Begin without a rule, and with nothing under way."""
        self._now_us = 0
        self._lines: list[str] = []
        self._pipeline: LinkPipeline[Load] = LinkPipeline(self._peek, random.Random(0))
        self._pipeline.delay_queue = DelayQueue(*self._bounds)
        self._pipeline.on_affected = lambda a, b, load, fate: self._lines.append(
            f"{load[0]} from {a} to {b} is {fate}"
        )

    def _peek(self, load: Load) -> Mapping[str, Any]:
        self._lines.append(f"{load[0]} is peeked at")
        return load[1]

    def rule(
        self, action: Action, senders: str, receivers: str, links: str = "hub", **fields: Any
    ) -> str | None:
        """Put a rule in force, or see why links of this kind refuse it."""
        given = {name: _value(value) for name, value in fields.items()}
        ends = {"senders": _names(senders), "receivers": _names(receivers)}
        try:
            made = LinkRule(action=action, **ends, **given)
            ABILITIES[links].check(made)
            if links == "hub":
                self._pipeline.add(made)
        except UsageError as error:
            return f"refused: {error}"
        return None

    def send(self, a: str, b: str, *names: str, size: int = 1, **fields: Any) -> None:
        """Send messages now; the output has those that arrive at once, one for each copy."""
        for name in names or ("it",):
            load = name, FETCH | {field: _value(value) for field, value in fields.items()}
            at_once = self._pipeline.carry(a, b, load, size, self._now_us)
            self._lines += [f"{name} arrives"] * at_once

    def wait(self, ms: int) -> None:
        """Take out what is due at each moment up to then."""
        end_us = self._now_us + ms * 1000
        while (due_us := self._pipeline.delay_queue.next_due()) is not None and due_us <= end_us:
            assert self._pipeline.due(due_us - 1) == []
            arrived = " and ".join(each.load[0] for each in self._pipeline.due(due_us))
            self._lines.append(f"{arrived} at {due_us / 1000:g}")
        self._now_us = end_us

    def remove(self, number: int) -> str:
        """Remove a rule; return what it did, and the messages that it held."""
        counts, held = self._pipeline.remove(number)
        did = msgspec.structs.asdict(counts) if counts else {}
        said = [f"{name} {did[name]}" for name in did if name != "of" and did[name]]
        return ", ".join(said + [f"released {each.load[0]}" for each in held]) or "no such rule"

    def exempt(self) -> None:
        """Let every message pass that would be dropped or held."""
        self._pipeline.exempts = lambda a, b, load: True

    def state(self) -> str:
        """Return whether links are idle, and what is kept back."""
        queue, idle = self._pipeline.delay_queue, self._pipeline.is_idle(self._now_us)
        kept = f"{len(queue)} kept back, {queue.held} held, {queue.overflow} found no room"
        return f"{'idle' if idle else 'not idle'}: {kept}"


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text != "-" else ()


def _value(value: int | str) -> Any:
    if isinstance(value, str) and value[0] in "[{":
        return msgspec.json.decode(value)
    return None if value == "null" else value
