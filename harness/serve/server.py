"""A store in a browser: lists runs, opens their pages, packs a run for download.

Reads and never writes. Only files inside the store are given out, whatever a request says.
"""

from __future__ import annotations

import mimetypes
import shutil
import tarfile
import zipfile
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, Final, cast
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from node.formats.errors import UsageError
from reports.nightly_page.store_page import Store, Wanted, render_list

ARCHIVES: Final = {".tar.gz": "application/gzip", ".zip": "application/zip"}
_TEXT: Final = {".jsonl": "text/plain", ".txt": "text/plain", ".md": "text/plain"}
_NO_DATE: Final = (1980, 1, 1, 0, 0, 0)


class StoreServer(ThreadingHTTPServer):
    """Serves one store."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, host: str, port: int, store: Path) -> None:
        """Begin to listen. Raises UsageError when that cannot be done there."""
        self.store = Store(store)
        self.root = store.resolve()
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            what = error.strerror or error
            raise UsageError(f"cannot listen on {host} port {port}: {what}") from None

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes) else str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/"

    def inside(self, name: str) -> Path | None:
        """A path of the store, links followed; None for what lies outside or is not there."""
        if "\0" in name:
            return None
        try:
            path = (self.root / name.lstrip("/")).resolve(strict=True)
        except (OSError, RuntimeError):
            return None
        return path if path.is_relative_to(self.root) else None


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server_version = "floodmark"
    sys_version = ""

    @property
    def _server(self) -> StoreServer:
        return cast(StoreServer, self.server)

    def do_GET(self) -> None:
        """Answer; a reader that goes away is no error."""
        try:
            self._answer()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: requests are not worth lines."""

    def _answer(self) -> None:
        asked = urlsplit(self.path)
        path = unquote(asked.path)
        if path in ("/", "/runs.json"):
            query = {name: values[-1] for name, values in parse_qs(asked.query).items()}
            wanted = Wanted(
                **{n: query.get(n, "") for n in ("verdict", "protocol", "bucket", "text")}
            )
            self._list(wanted, as_json=path.endswith(".json"))
        elif path.startswith("/store/"):
            self._file(path.removeprefix("/store/"))
        elif path.startswith("/download/"):
            self._download(path.removeprefix("/download/"))
        else:
            self._refuse()

    def _list(self, wanted: Wanted, *, as_json: bool) -> None:
        store = self._server.store
        if as_json:
            body, kind = msgspec.json.encode(store.listed(wanted)), "application/json"
        else:
            body, kind = render_list(store, wanted).encode(), "text/html; charset=utf-8"
        self._head(kind, len(body))
        self._body(body)

    def _file(self, name: str) -> None:
        file = self._server.inside(name)
        if file is None or not file.is_file():
            self._refuse()
            return
        kind = _TEXT.get(file.suffix) or mimetypes.guess_type(file.name)[0]
        kind = kind or "application/octet-stream"
        if kind.startswith("text/"):
            kind += "; charset=utf-8"
        with file.open("rb") as opened:
            # A file that grows meanwhile is given out as long as it was.
            size = file.stat().st_size
            self._head(kind, size)
            if self.command != "HEAD":
                _copy(opened, self.wfile, size)

    def _download(self, name: str) -> None:
        """A run folder as an archive; it is packed while it is sent."""
        suffix = next((s for s in ARCHIVES if name.endswith(s)), "")
        folder = self._server.inside(name.removesuffix(suffix)) if suffix else None
        if folder is None or not (folder / "run.json").is_file():
            self._refuse()
            return
        inside = folder.relative_to(self._server.root)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", ARCHIVES[suffix])
        file_name = "-".join(inside.parts) + suffix
        self.send_header("Content-Disposition", f'attachment; filename="{file_name}"')
        # Its length is not known before its end.
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            pack(folder, str(inside), suffix, self.wfile)

    def _refuse(self) -> None:
        body = b"There is no such thing in this store.\n"
        self.send_response(HTTPStatus.NOT_FOUND)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self._body(body)

    def _head(self, kind: str, size: int) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()

    def _body(self, body: bytes) -> None:
        if self.command != "HEAD":
            self.wfile.write(body)


def pack(folder: Path, name: str, suffix: str, into: Any) -> None:
    """Write a folder as an archive whose files are under `name`. Links are left out: what they
    point to may be elsewhere."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    if suffix == ".zip":
        with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                about = zipfile.ZipInfo(f"{name}/{file.relative_to(folder)}", _NO_DATE)
                about.compress_type = zipfile.ZIP_DEFLATED
                with file.open("rb") as opened, archive.open(about, "w") as part:
                    shutil.copyfileobj(opened, part)
        return
    with tarfile.open(fileobj=into, mode="w|gz") as archive:
        for file in files:
            archive.add(file, f"{name}/{file.relative_to(folder)}", recursive=False)


def _copy(source: IO[bytes], into: Any, size: int) -> None:
    while size > 0 and (part := source.read(min(size, 1 << 16))):
        into.write(part)
        size -= len(part)
