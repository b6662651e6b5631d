"""The progress of a run on a terminal: one line that keeps changing, or plain lines in a log.

It is written to stderr, because stdout is for the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from harness.runs.storm import ProgressDisplay, ProgressState
from harness.runs.terminal import plain, stream_for_display

PLAIN_EVERY_S: Final = 10.0


class Progress(ProgressDisplay):
    """A display on a terminal; silent when `quiet`, plain lines if there is no terminal."""

    def __init__(
        self,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        state: Callable[[], str] | None = None,
    ) -> None:
        """`stream` is stderr by default. With `state`, for work that reports nothing itself, a
        thread asks it some times a second what is done, and nothing is shown without a terminal."""
        stream = stream_for_display() if stream is None else stream
        self._quiet = quiet
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._phase = ""
        self._began_s = time.monotonic()
        self._limit_s = 0.0
        self._printed_s = 0.0
        self._rate = _Rate()
        self._live: Live | None = None
        self._state = state
        if self._console.is_terminal and not quiet:
            self._live = Live(
                console=self._console,
                transient=True,
                auto_refresh=state is not None,
                get_renderable=None if state is None else self._asked,
            )
        elif state is not None:
            self._quiet = True

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def phase(self, name: str, limit_s: float = 0.0) -> None:
        self._phase, self._limit_s = name, limit_s
        self._began_s = self._printed_s = time.monotonic()
        if self._live is not None:
            self._show(Text(f"{name} ..."))
        else:
            self.note(f"{name} ...")

    def note(self, line: str) -> None:
        """Print a note on a line of its own."""
        if not self._quiet:
            self._console.print(Text(plain(line)))

    def show(self, moment: ProgressState) -> None:
        self._rate.add(time.monotonic(), moment.acked)
        text = Text()
        text.append(f"{moment.acked} acked ({self._rate.per_s:.0f}/s)", "green")
        if moment.unknown or moment.failed:
            text.append(f"  {moment.unknown} unknown, {moment.failed} failed", "yellow")
        text.append(f"  leaders {plain(leaders_in_words(moment.leaders))}")
        if moment.faults:
            text.append(f"  faults: {plain(', '.join(moment.faults))}", "red")
        self._update(text)

    def tell(self, words: str) -> None:
        """Show `words` on the line."""
        self._update(Text(plain(words)))

    def _asked(self) -> Text:
        assert self._state is not None
        return self._line(Text(plain(self._state())))

    def _update(self, text: Text) -> None:
        """Update the line; without a terminal, print a line every `PLAIN_EVERY_S` seconds."""
        if self._live is not None:
            self._show(self._line(text))
        elif time.monotonic() - self._printed_s >= PLAIN_EVERY_S:
            self._printed_s = time.monotonic()
            self.note(self._line(text).plain)

    def _show(self, text: Text) -> None:
        assert self._live is not None
        self._live.update(text, refresh=True)

    def _line(self, text: Text) -> Text:
        elapsed = f"{time.monotonic() - self._began_s:4.1f}"
        limit = f"/{self._limit_s:g}" if self._limit_s else ""
        heading = plain(f"{self._phase} {elapsed}{limit} s  ")
        line = Text(heading, no_wrap=True, overflow="ellipsis")
        return line.append_text(text)


class _Rate:
    """Acknowledgements per second over the last seconds."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []
        self.per_s = 0.0

    def add(self, now_s: float, count: int) -> None:
        self._points.append((now_s, count))
        while len(self._points) > 2 and now_s - self._points[0][0] > 3.0:
            self._points.pop(0)
        (then_s, before), *_ = self._points
        self.per_s = (count - before) / (now_s - then_s) if now_s > then_s else 0.0


def leaders_in_words(leaders: tuple[str, ...]) -> str:
    """Return the leaders of the partitions, such as `n1 n2 - n1` ("-": no leader). For more than
    eight partitions, return how many each node leads: `n1×5 n2×7`."""
    if len(leaders) <= 8:
        return " ".join(leader or "-" for leader in leaders)
    counts = {node: leaders.count(node) for node in sorted(set(leaders))}
    return " ".join(f"{node or '-'}×{count}" for node, count in counts.items())
