"""`floodmark serve`: a store in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.values import ExistingFolder, Whole, taking


def serve(
    store: Annotated[
        Path, typer.Option(**taking(ExistingFolder()), help="Folder of the runs to browse.")
    ] = Path("store"),
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default accepts only this machine.")
    ] = ("127.0.0.1"),
    port: Annotated[
        int, typer.Option(**taking(Whole(0, 65535)), help="Port to listen on; 0: any free port.")
    ] = 8420,
) -> int:
    """Browse the runs of a store in a web browser.

    Lists and filters runs, opens their pages, packs a run for download. Ctrl-C ends it.
    """
    from harness.serve.server import StoreServer

    with StoreServer(host, port, store) as server:
        print(f"{store} is at {server.address} (Ctrl-C ends it)", flush=True)
        server.run()
    return 0
