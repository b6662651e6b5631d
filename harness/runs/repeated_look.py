"""A thread that looks at something every so often."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Self

ENDS_S: Final = 60.0
"""How long the last look may take until nobody waits for it any more."""


class RepeatedLook:
    """Calls a function in a thread of its own, at once and then every so often, while it is
    entered. Left, it has ended, or is in a look that hangs. What the function raised ends the
    looking and is raised when it is left: nobody takes what was seen until then for all there was.
    """

    def __init__(self, look: Callable[[], object], every_s: float, name: str) -> None:
        """`name` is that of the thread."""
        self._look = look
        self._every_s = every_s
        self._done = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._done.set()
        self._thread.join(ENDS_S)
        if self._failed is not None and kind is None:
            raise self._failed

    def _watch(self) -> None:
        try:
            self._look()
            while not self._done.wait(self._every_s):
                self._look()
        except BaseException as error:
            self._failed = error
