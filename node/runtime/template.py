"""The template process: it has imported the modules that children need, and forks a child whenever
it is asked to.

A fresh interpreter takes longer to import a broker's modules than a broker takes to start. The
template does that once; it is single-threaded and opens no socket of ZeroMQ, no store and no file.
A child that it forks becomes the child of the process that asked, which reaps it, and with which
the kernel kills it. For that the asking process is a "subreaper" while it asks: the template forks
twice, and the kernel gives the orphan to the nearest subreaper.

`Template` is the end of the process that asks, `main` runs in the template."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import os
import pickle
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

REAP_S: Final = 60.0
"""The limit on waiting for a killed process: the kernel ends it as soon as it is scheduled, even on
a machine with fifty busy processes."""
_READY_S: Final = 30.0
"""How long the template may take to import its modules, on a busy machine."""
_MAX_DESCRIPTORS: Final = 16
_LENGTH: Final = struct.Struct(">I")
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37
_BLOCKED: Final = (signal.SIGINT, signal.SIGTERM)
_FAILED: Final = 1
_GO: Final = b"g"
"""Sent to the template when the number of a child has arrived, and to that child."""
_READ_AT_START: Final = ("FAKETIME", "FLOODMARK_", "GLIBC_", "LD_", "MALLOC_", "PYTHON")
"""Variables of the loader, the C library, the interpreter, and of what it loads first."""
_CODE: Final = "import sys; sys.path[:] = {path!r}; from {module} import main; main({arguments})"

Connections = tuple[type[Any], ...]
"""The classes of connections that may be among the arguments of a child."""


class TemplateGone(Exception):
    """The template process has ended, or does not answer."""


class _Request(NamedTuple):
    """A child to fork; descriptors and connections are numbers in the pickled `call`."""

    name: str
    call: bytes
    folder: str
    environment: dict[str, str]
    blocked: tuple[int, ...]
    open_files: tuple[int, int]


_template: Template | None = None


def prepare(modules: Sequence[str]) -> None:
    """Start a template process that imports `modules`, unless one that has them already fits.
    Return before it has imported them."""
    global _template
    found = fitting()
    if found is not None and set(modules) <= set(found.modules):
        return
    if _template is not None:
        _template.close()
    _template = Template(tuple(modules))


def fitting() -> Template | None:
    """Return the template of this process if it can fork children with the present environment,
    else None."""
    return _template if _template is not None and _template.fits() else None


class ForkedChild:
    """A process that a template has forked as a child of this one (see
    `node.runtime.children.Child`)."""

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self.sentinel = os.pidfd_open(pid)
        self._close = weakref.finalize(self, os.close, self.sentinel)
        self._lock = threading.Lock()
        self._code: int | None = None

    @property
    def exitcode(self) -> int | None:
        with self._lock:
            if self._code is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:
                    # Somebody else has reaped it: how it ended is lost.
                    pid, status = self.pid, _FAILED << 8
                if pid:
                    self._code = os.waitstatus_to_exitcode(status)
            return self._code

    def is_alive(self) -> bool:
        return self.exitcode is None

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the process, at most `timeout` seconds (None: without limit), and
        reap it."""
        if self.is_alive():
            poll = select.poll()
            poll.register(self.sentinel, select.POLLIN)
            poll.poll(None if timeout is None else max(0.0, timeout) * 1000)
            self.is_alive()

    def kill(self) -> None:
        if self.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.sentinel, signal.SIGKILL)

    def close(self) -> None:
        if self.exitcode is None:
            raise ValueError(f"the process {self.name} still runs")
        self._close()


class Template:
    """A template process that imports `modules`; they need not be imported yet. It ends with this
    process, or at `close`. Its children get the namespaces, and the environment variables for
    loader and interpreter, of the moment at which it was made (`fits`)."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.modules = tuple(modules)
        self._owner = os.getpid()
        self._surroundings = _surroundings()
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_READY_S)
        arguments = f"{theirs.fileno()}, {os.getpid()}, {list(modules)!r}"
        code = _CODE.format(path=sys.path, module=__name__, arguments=arguments)
        # A child begins with the signals blocked that its template has blocked.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        try:
            self._process = subprocess.Popen(
                [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", code],  # type: ignore[attr-defined]
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    def fits(self) -> bool:
        """Return whether the template runs, belongs to this process, and has the present namespaces
        and environment variables."""
        return (
            self._owner == os.getpid()
            and self._surroundings == _surroundings()
            and self._process.poll() is None
        )

    def fork(
        self,
        name: str,
        target: Callable[..., None],
        args: tuple[Any, ...],
        blocked: Sequence[signal.Signals],
        connections: Connections,
    ) -> ForkedChild:
        """Fork a child that calls `target(*args)`. Signals in `blocked` are blocked in it;
        `connections` are the classes of arguments that are passed as descriptors. Raises
        TemplateGone if the template does not answer, and the errors of `pickle` if it cannot carry
        the call."""
        buffer = io.BytesIO()
        pickler = _CallPickler(buffer, connections)
        pickler.dump((target, args))
        request = _Request(
            name=name,
            call=buffer.getvalue(),
            folder=os.getcwd(),
            environment=dict(os.environ),
            blocked=tuple(map(int, blocked)),
            open_files=resource.getrlimit(resource.RLIMIT_NOFILE),
        )
        data = pickle.dumps(tuple(request))
        with _subreaper():
            try:
                socket.send_fds(self._socket, [_LENGTH.pack(len(data))], pickler.descriptors)
                self._socket.sendall(data)
                (pid,) = _LENGTH.unpack(_exactly(self._socket, _LENGTH.size))
                self._socket.sendall(_GO)
            except (OSError, EOFError) as error:
                # An answer that came later would be taken for that of the next request.
                self.close()
                raise TemplateGone(str(error)) from None
        if not pid:
            raise TemplateGone("it could not fork")
        return ForkedChild(name, pid)

    def close(self) -> None:
        """End the template process; the children that it forked go on."""
        self._socket.close()
        if self._owner == os.getpid():
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(REAP_S)


def _surroundings() -> tuple[list[tuple[str, str]], list[str]]:
    """Return the environment variables and namespaces that a process has from its start on."""
    read = [(name, value) for name, value in os.environ.items() if name.startswith(_READ_AT_START)]
    spaces = [os.readlink(f"/proc/self/ns/{name}") for name in ("user", "mnt", "net", "pid")]
    return sorted(read), spaces


class _CallPickler(pickle.Pickler):
    """Pickles a call; connections travel as descriptors beside it."""

    def __init__(self, buffer: io.BytesIO, connections: Connections) -> None:
        super().__init__(buffer)
        self._connections = connections
        self.descriptors: list[int] = []

    def persistent_id(self, obj: Any) -> Any:
        """Return a connection as the number of its descriptor."""
        if not isinstance(obj, self._connections):
            return None
        self.descriptors.append(obj.fileno())
        number = len(self.descriptors) - 1
        return type(obj).__module__, type(obj).__qualname__, number, obj.readable, obj.writable


class _CallUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, descriptors: Sequence[int]) -> None:
        super().__init__(io.BytesIO(data))
        self._descriptors = descriptors

    def persistent_load(self, pid: Any) -> Any:
        """Return the connection of that descriptor."""
        module, name, number, readable, writable = pid
        kind = getattr(importlib.import_module(module), name)
        return kind(self._descriptors[number], readable, writable)


def main(control_fd: int, parent_pid: int, modules: Sequence[str]) -> None:
    """Run the template: import `modules`, then fork a child for each request, until the other end
    is closed. A module that cannot be imported is left to the child that needs it."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(_FAILED)
    for module in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    # What is there now is shared with all children: a collection must not touch it.
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=control_fd)
    while True:
        try:
            length, descriptors, _, _ = socket.recv_fds(control, _LENGTH.size, _MAX_DESCRIPTORS)
            request = _Request(*pickle.loads(_exactly(control, *_LENGTH.unpack(length))))
        except (EOFError, OSError, struct.error):
            os._exit(0)
        try:
            fork_on_request(control, request, descriptors)
        except (EOFError, OSError):
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def fork_on_request(control: socket.socket, request: _Request, descriptors: Sequence[int]) -> None:
    """Fork a child, and let it go on when the process that asked has its number: one that gave up
    waiting has started another by then. Raises EOFError or OSError if it has; the child ends."""
    go_fd, hold_fd = os.pipe()
    try:
        pid = _fork_twice(control, request, descriptors, go_fd, hold_fd)
        control.sendall(_LENGTH.pack(pid))
        os.write(hold_fd, _exactly(control, len(_GO)))
    finally:
        os.close(go_fd)
        os.close(hold_fd)


def _fork_twice(
    control: socket.socket, request: _Request, descriptors: Sequence[int], go_fd: int, hold_fd: int
) -> int:
    """Fork a grandchild, which becomes the child of the subreaper, and waits. Return its process
    number, 0 if the system makes no more processes."""
    read_fd, write_fd = os.pipe()
    try:
        middle = os.fork()
    except OSError:
        middle = -1
    if middle == 0:
        try:
            child = os.fork()
        except OSError:
            os._exit(_FAILED)
        if child == 0:
            for fd in (read_fd, write_fd, hold_fd):
                os.close(fd)
            control.close()
            _become(request, descriptors, go_fd)
        os.write(write_fd, _LENGTH.pack(child))
        os._exit(0)
    if middle > 0:
        os.waitpid(middle, 0)
    os.close(write_fd)
    said = os.read(read_fd, _LENGTH.size)
    os.close(read_fd)
    return int(_LENGTH.unpack(said)[0]) if said else 0


def _become(request: _Request, descriptors: Sequence[int], go_fd: int) -> NoReturn:
    """Run in the child: wait until its parent knows it, make the call, and end with its exit code.
    A parent that is gone, or has given up, wants no such child."""
    code = _FAILED
    try:
        if os.read(go_fd, 1) != _GO:
            os._exit(_FAILED)
        os.close(go_fd)
        _prctl(_PR_SET_NAME, ctypes.create_string_buffer(request.name.encode()[:15]))
        resource.setrlimit(resource.RLIMIT_NOFILE, request.open_files)
        os.chdir(request.folder)
        os.environ.clear()
        os.environ.update(request.environment)
        signal.pthread_sigmask(signal.SIG_SETMASK, request.blocked)
        target, args = _CallUnpickler(request.call, descriptors).load()
        target(*args)
        code = 0
    except SystemExit as end:
        code = _exit_code(end)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _exit_code(end: SystemExit) -> int:
    """Return the exit code that the interpreter makes of a SystemExit."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    sys.stderr.write(f"{end.code}\n")
    return _FAILED


@contextlib.contextmanager
def _subreaper() -> Any:
    """Make this process the parent of orphans among its descendants meanwhile."""
    before = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def _prctl(option: int, argument: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def _exactly(source: socket.socket, size: int) -> bytes:
    """Return `size` bytes. Raises EOFError if the other end is closed before."""
    found = bytearray()
    while len(found) < size:
        data = source.recv(size - len(found))
        if not data:
            raise EOFError("the other end is closed")
        found += data
    return bytes(found)
