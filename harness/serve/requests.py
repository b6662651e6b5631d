"""The request of the web server: the options of `floodmark serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from harness.formats.options import EXISTING_FOLDER


class ServeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of the web server: the store, and the address at which it is served."""

    store: Annotated[Path, Meta(extra=EXISTING_FOLDER)] = Path("store")
    """Folder of the runs to browse."""
    host: str = "127.0.0.1"
    """Address to listen on; the default accepts only this machine."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8420
    """Port to listen on; 0: any free port."""
