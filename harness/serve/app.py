"""The pages of a store as a web application: it lists runs, and shows their files.

It only reads, and answers only with files inside the store, whatever a request says.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from node.formats.reading import open_file
from reports import theme
from reports.nightly_page.store_page import Store, Wanted, render_list

_TEXT: Final = {".jsonl": "text/plain", ".txt": "text/plain", ".md": "text/plain"}
_BLOCK_BYTES: Final = 1 << 16
_FILTERS: Final = ("verdict", "protocol", "bucket", "text")


def headers() -> dict[str, str]:
    """Return the headers of every answer. By the Content-Security-Policy a page may show itself and
    run the script of our run page, which is allowed by its hash. It may load only pictures of the
    store, and send no request elsewhere. A page with another script, as a third-party run folder
    may have, is shown without the script."""
    policy = (
        f"default-src 'none'; script-src '{theme.script_hash('run_page/page.js')}'; "
        "style-src 'unsafe-inline'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }


def store_app(store: Path, hosts: Iterable[str]) -> Starlette:
    """Return the application that shows `store`. It answers only requests whose Host header is one
    of `hosts`. A foreign web site could point its own name to this machine; the browser then sends
    that name as Host, and the request is refused."""
    pages = _Pages(store)
    return Starlette(
        routes=[
            Route("/", pages.list),
            Route("/runs.json", pages.list),
            Route("/store/{name:path}", pages.file),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[*hosts], www_redirect=False)],
        exception_handlers={404: _nothing_there},
    )


class _Pages:
    """The handlers of requests. Each runs in a thread of a small pool."""

    def __init__(self, store: Path) -> None:
        self._store = Store(store)
        self._root = store.resolve()

    def list(self, request: Request) -> Response:
        """Answer with the runs that the query wants, as a page or as JSON."""
        query = request.query_params
        wanted = Wanted(**{name: query.get(name, "") for name in _FILTERS})
        if request.url.path.endswith(".json"):
            body = msgspec.json.encode(self._store.listed(wanted))
            return Response(body, media_type="application/json")
        # The name of a folder need not be UTF-8.
        page = render_list(self._store, wanted).encode("utf-8", "replace")
        return Response(page, media_type="text/html")

    def file(self, request: Request) -> Response:
        """Return one file of the store, as it is when it is read: it may grow meanwhile."""
        try:
            file = open_file(self._inside(request.path_params["name"]), sparse=True)
        except (OSError, RuntimeError, ValueError):
            raise HTTPException(404) from None
        path = Path(request.path_params["name"])
        kind = _TEXT.get(path.suffix) or mimetypes.guess_type(path.name)[0]
        return StreamingResponse(_blocks(file), media_type=kind or "application/octet-stream")

    def _inside(self, name: str) -> Path:
        """Return a path of the store, with symbolic links resolved. Raises OSError, RuntimeError or
        ValueError if it is outside or does not exist."""
        path = (self._root / name.lstrip("/")).resolve(strict=True)
        path.relative_to(self._root)
        return path


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def _nothing_there(request: Request, error: Exception) -> Response:
    return PlainTextResponse("There is no such thing in this store.\n", 404)
