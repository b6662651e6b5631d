"""The CURVE keys of one run: a pair for each process, made when the run begins, and kept in memory.

Child processes get their keys through the pipe that starts them; no key is ever in a file. A node
keeps its pair when it restarts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import zmq

from node.formats.errors import FloodmarkError
from node.formats.wire import ADMIN
from node.runtime.curve import ANY_NAME, Caller, CurveKeys

HUB: Final = "hub"
CLIENTS: Final = "clients"


class Keyring:
    """The key pairs of all nodes, of the clients' process, the harness (ADMIN) and the hub."""

    def __init__(self, nodes: Iterable[str], clients: Iterable[str], *, with_hub: bool) -> None:
        """Make the keys. Raises FloodmarkError where ZeroMQ was built without CURVE."""
        if not zmq.has("curve"):
            raise FloodmarkError(
                "this ZeroMQ has no CURVE: give --set curve=off to do without keys"
            )
        self._names: dict[str, tuple[str, ...]] = {name: (name,) for name in (*nodes, ADMIN)}
        self._names[CLIENTS] = tuple(clients)
        self._with_hub = with_hub
        owners = [*self._names, HUB] if with_hub else [*self._names]
        self._pairs = {owner: zmq.curve_keypair() for owner in owners}

    def public(self, owner: str) -> str:
        """Return the public key of a process."""
        return self._pairs[owner][0].decode()

    def of(self, owner: str, addresses: Mapping[str, str]) -> CurveKeys:
        """Return the keys that the process of `owner` needs: its own pair, and the public keys of
        the listeners in `addresses` (listener -> address)."""
        public, secret = self._pairs[owner]
        servers = {address: self.public(name) for name, address in addresses.items()}
        return CurveKeys(
            public=public.decode(),
            secret=secret.decode(),
            servers=servers,
            callers=tuple(self._callers(owner)),
        )

    def _callers(self, owner: str) -> Iterable[Caller]:
        """Behind the hub only the hub calls, for everybody; the hub, and everybody if there is
        none, is called by each process under its own names."""
        if self._with_hub and owner != HUB:
            yield Caller(public=self.public(HUB), names=(ANY_NAME,))
            return
        for name, names in self._names.items():
            if name != owner:
                yield Caller(public=self.public(name), names=names)
