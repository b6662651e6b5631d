"""The environment that children inherit, changed for as long as it takes to start them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def inherited(more: Mapping[str, str]) -> Iterator[None]:
    """Children that are started meanwhile have this in their environment; that of this process is
    as before afterwards."""
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
