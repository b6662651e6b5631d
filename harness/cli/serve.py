"""`floodmark serve`: a store in a browser."""

from __future__ import annotations

from harness.serve.requests import ServeRequest


def serve(request: ServeRequest) -> int:
    """Browse the runs of a store in a web browser.

    Lists and filters runs, opens their pages and files. Ctrl-C ends it."""
    from harness.serve.server import StoreServer

    with StoreServer(request.host, request.port, request.store) as server:
        print(f"{request.store} is at {server.address} (Ctrl-C ends it)", flush=True)
        server.run()
    return 0
