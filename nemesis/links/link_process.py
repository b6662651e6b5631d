"""A process that carries the traffic of links under rules, and the harness's end of it: commands
through a pipe, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, Generic, TypeVar

import msgspec
import multiprocess

from nemesis.links.rule import Counts, LinkRule
from node.formats.errors import FloodmarkError
from node.runtime import children
from node.runtime.requests import Requests
from node.runtime.template import REAP_S

DEADLINE_S: Final = 10.0
START_S: Final = 60.0
"""A busy machine takes its time to start a process."""

RuleNumber = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Stats = TypeVar("Stats")


class AddRule(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="add"):
    """The command that puts `rule` in force; it is answered with the rule's number."""

    rule: LinkRule


class RemoveRule(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="remove"):
    """The command that ends a rule; the answer counts its effects. It lets held messages go on."""

    number: RuleNumber


class GetStats(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="stats"):
    """The question how much has passed so far."""


class LinkAnswer(msgspec.Struct, Generic[Stats], kw_only=True):
    """The answer to any command; `error` says why it was refused, "" if it was not."""

    error: str = ""
    number: int = 0
    counts: Counts | None = None
    stats: Stats | None = None


class LinksGone(FloodmarkError):
    """The process does not answer: it could not start, or it died."""


class LinkProcess(Generic[Stats]):
    """A process that ends with this one; main thread only. Every call waits at most `DEADLINE_S`
    (`wait_ready`: `START_S`) and then raises LinksGone. A process that does not confirm a change of
    rules is killed: it would be unknown which are in force."""

    called: ClassVar[str]
    process: ClassVar[str]
    """The name of the process in lists of processes."""

    def __init__(
        self, main: Callable[..., None], config: Any, output_file: str, stats: Any
    ) -> None:
        """Start `main(config, pipe)`, whose output is in `output_file`; `stats` is the type of its
        counts."""
        self._output_file = output_file
        self._closed = False
        self._pipe, theirs = multiprocess.Pipe()
        self._requests: Requests[LinkAnswer[Stats]] = Requests(self._pipe, LinkAnswer[stats])
        self.child = children.start(self.process, main, config, theirs)
        theirs.close()

    def wait_ready(self) -> None:
        """Return once the process carries traffic. Raises FloodmarkError if it cannot."""
        self.ask(GetStats(), START_S)

    def add(self, rule: LinkRule) -> int:
        """Put a rule in force; return its number. Raises FloodmarkError for an impossible one."""
        return self.ask(AddRule(rule=rule)).number

    def remove(self, number: int) -> Counts:
        """End a rule and return its effects; what it held goes on at once."""
        counts = self.ask(RemoveRule(number=number)).counts
        assert counts is not None
        return counts

    def stats(self, limit_s: float = DEADLINE_S) -> Stats:
        """Return the counts so far."""
        stats = self.ask(GetStats(), limit_s).stats
        assert stats is not None
        return stats

    def close(self) -> None:
        """End the process. May be called twice."""
        if not self._closed:
            self._closed = True
            self._pipe.close()
            self.child.kill()
            self.child.join(REAP_S)

    def ask(self, command: Any, limit_s: float = DEADLINE_S) -> LinkAnswer[Stats]:
        """Send a command, return its answer. Raises LinksGone, or FloodmarkError if it is
        refused."""
        try:
            answer = self._requests.ask(command, limit_s)
        except TimeoutError:
            if not isinstance(command, GetStats):
                self.child.kill()
            raise LinksGone(f"the {self.called} did not answer within {limit_s:g} s") from None
        except (OSError, EOFError):
            self.child.join(DEADLINE_S)
            raise self.why_gone() from None
        if answer.error:
            raise FloodmarkError(answer.error)
        return answer

    def why_gone(self) -> LinksGone:
        """Return the error that the process has ended by itself."""
        seen = f" (see {self._output_file})" if self._output_file else ""
        return LinksGone(
            f"the {self.called} ended by itself, with code {self.child.exitcode}{seen}"
        )
