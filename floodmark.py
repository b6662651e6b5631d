"""The public interface of floodmark: the types that an adapter or a test needs, and the command.

    from floodmark import Adapter, LogSlice, Node, Record, Refused, Roles, Setting

An adapter (`docs/your-own-system.md`) is a subclass of `Adapter`. `python -m floodmark` and the
command `floodmark` are the same. Types are imported on first use, so that the command starts fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from harness.formats.run_info import GroupPromise, Promise
    from harness.systems.adapter import (
        SERVER,
        Adapter,
        Delivery,
        LogSlice,
        Members,
        Node,
        Polled,
        Position,
        Record,
        Refused,
        Roles,
        Setting,
        http_json,
    )
    from harness.systems.external.client_program import ClientProgram
    from node.formats.errors import UsageError

__all__ = [
    "SERVER",
    "Adapter",
    "ClientProgram",
    "Delivery",
    "GroupPromise",
    "LogSlice",
    "Members",
    "Node",
    "Polled",
    "Position",
    "Promise",
    "Record",
    "Refused",
    "Roles",
    "Setting",
    "UsageError",
    "__version__",
    "http_json",
    "main",
]
__version__: Final = "0.2.0"
_STOPPED: Final = 2
_ELSEWHERE: Final = {"ClientProgram": "harness.systems.external.client_program"}


def __getattr__(name: str) -> Any:
    """Import a public type when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'floodmark' has no attribute '{name}'")
    return getattr(import_module(_ELSEWHERE.get(name, "harness.systems.adapter")), name)


def main() -> NoReturn:
    """Run the command `floodmark` with the arguments of this process; exit with its exit code."""
    try:
        from harness.cli.main import main as command
    except KeyboardInterrupt:
        # The command installs its own handlers, once it is imported.
        sys.stderr.write("floodmark: stopped.\n")
        raise SystemExit(_STOPPED) from None
    command()
    raise AssertionError("the command exits")


if __name__ == "__main__":
    main()
