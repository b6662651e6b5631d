"""The pages of a store as a web application: it lists runs, shows their files, and packs a run
folder for download.

It only reads, and answers only with files inside the store, whatever a request says.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harness.serve.archive import ARCHIVE, file_name, packed
from node.formats.reading import open_file
from reports import theme
from reports.nightly_page.store_page import Store, Wanted, render_list

_TEXT: Final = {".jsonl": "text/plain", ".txt": "text/plain", ".md": "text/plain"}
_BLOCK_BYTES: Final = 1 << 16
_FILTERS: Final = ("verdict", "protocol", "bucket", "text")


def content_policy() -> str:
    """Return the Content-Security-Policy for pages of a store: a page may show itself and run the
    script of our run page, which is allowed by its hash. It may load only pictures of the store,
    and send no request elsewhere. A page with another script, as a third-party run folder may have,
    is shown without the script."""
    return (
        f"default-src 'none'; script-src '{theme.script_hash('run_page/page.js')}'; "
        "style-src 'unsafe-inline'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )


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
            Route(f"/download/{{name:path}}{ARCHIVE}", pages.download),
        ],
        middleware=[
            Middleware(_SafeHeaders),
            Middleware(TrustedHostMiddleware, allowed_hosts=[*hosts], www_redirect=False),
        ],
        exception_handlers={404: _nothing_there},
    )


class _SafeHeaders:
    """A layer that puts the same headers into every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = {
            "Content-Security-Policy": content_policy(),
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-cache",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        await self._app(scope, receive, send_with_headers)


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
        """Return one file of the store, up to its present length, even if it grows."""
        file = self._inside(request.path_params["name"])
        size = None if file is None else _size_of(file)
        if file is None or size is None:
            raise HTTPException(404)
        kind = _TEXT.get(file.suffix) or mimetypes.guess_type(file.name)[0]
        return StreamingResponse(
            [] if request.method == "HEAD" else _blocks(file, size),
            headers={"Content-Length": str(size)},
            media_type=kind or "application/octet-stream",
        )

    def download(self, request: Request) -> Response:
        """Return a run folder as an archive; its length is not known before its end."""
        folder = self._inside(request.path_params["name"])
        if folder is None or not (folder / "run.json").is_file():
            raise HTTPException(404)
        inside = folder.relative_to(self._root)
        return StreamingResponse(
            [] if request.method == "HEAD" else packed(folder, str(inside)),
            headers={"Content-Disposition": f'attachment; filename="{file_name(inside)}"'},
            media_type="application/gzip",
        )

    def _inside(self, name: str) -> Path | None:
        """Return a path of the store, with symbolic links resolved; None if it is outside or does
        not exist."""
        if "\0" in name:
            return None
        try:
            path = (self._root / name.lstrip("/")).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            return None
        return path if path.is_relative_to(self._root) else None


def _blocks(file: Path, size: int) -> Iterator[bytes]:
    with open_file(file, sparse=True) as opened:
        while size > 0 and (block := opened.read(min(size, _BLOCK_BYTES))):
            yield block
            size -= len(block)


def _nothing_there(request: Request, error: Exception) -> Response:
    return PlainTextResponse("There is no such thing in this store.\n", 404)


def _size_of(file: Path) -> int | None:
    """Return the length of a file; None if it is none, or has vanished."""
    try:
        about = file.stat()
    except OSError:
        return None
    return about.st_size if S_ISREG(about.st_mode) else None
