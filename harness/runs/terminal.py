r"""Text for a terminal: foreign text as text, never as an order to the terminal.

Names of files, messages of brokers and of other systems, words of a history: anybody may have put
an escape sequence there that moves the cursor, hides a line or renames the window. So control
characters, changes of the direction of writing and halves of characters are shown as `\u001b`
is, which is also how JSON spells them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

_KEPT: Final = "\n\t"
_CONTROLS: Final = (
    *range(0x20),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
    0xFEFF,
    *range(0xD800, 0xE000),
)
_SHOWN: Final = {code: f"\\u{code:04x}" for code in _CONTROLS if chr(code) not in _KEPT}


def plain(text: str) -> str:
    """Return a text that a terminal shows and does not obey."""
    return text.translate(_SHOWN)


class PlainStream:
    """A text stream that writes everything plain; `beneath` is the stream that it writes to."""

    def __init__(self, beneath: TextIO) -> None:
        self.beneath = beneath

    def write(self, text: str) -> int:
        """Write a text, plain."""
        self.beneath.write(plain(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts, plain."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.beneath, name)


@contextmanager
def plain_output() -> Iterator[None]:
    """Print everything without control characters meanwhile."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, PlainStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def stream_for_display() -> TextIO:
    """Return standard error for what draws with escape sequences of its own; its texts must be
    `plain`."""
    stream = sys.stderr
    return stream.beneath if isinstance(stream, PlainStream) else stream
