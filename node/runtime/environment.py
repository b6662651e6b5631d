"""Environment variables for the children that a process starts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def inherited(more: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the children that are started in this context, and restore the
    old ones at its end."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
