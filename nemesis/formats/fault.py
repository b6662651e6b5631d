"""A fault of a schedule, as data: the fields of all kinds, and how a file becomes faults.

The kinds themselves are modules of `nemesis.faults`. The package `nemesis` registers them here when
it is imported, so all code that can import this module can read every fault."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from harness.formats.history import GROUP_PREFIX
from nemesis.formats.cluster_spec import After, Cluster, Milliseconds, Strict, Workload, in_words
from node.formats.errors import unknown_name
from node.formats.json_input import decode
from node.formats.messages import MESSAGE_KINDS
from node.formats.trace import GROUPS_PARTITION

Percent = Annotated[int, msgspec.Meta(ge=1, le=100)]


# Roles name nodes by what they do at the moment of injection; ":partition" narrows some of them.
# Here are their names in sentences.
ROLES: Final = {
    "leader": "the leader",
    "follower": "a follower",
    "another-follower": "another follower",
    "lagging": "a lagging follower",
    "isr": "the in-sync replicas",
    "controller": "the controller",
    "any": "any broker",
    "minority": "a minority",
    "majority": "a majority",
    "all": "all brokers",
    "voters": "the voters",
    "clients": "the clients",
    "rest": "the rest",
    "followers": "all followers",
    "spare": "a spare node",
    "former": "a node that has left",
}
ROLES_OF_A_PARTITION: Final = (
    *("leader", "follower", "another-follower", "lagging", "isr", "followers"),
)
_NODE: Final = re.compile(r"[nvc][1-9]\d*")


class Fault(Strict, frozen=True, kw_only=True, tag_field="what"):
    """The base of all faults: exactly one of `at_ms` and `after` says when it is injected. `for_ms`
    is how long it lasts; None: until the final heal. A fault with a `name` can be undone by a
    `release`. A kind that has targets calls them `on` and `to`."""

    name: str = ""
    at_ms: Milliseconds | None = None
    after: After | None = None
    for_ms: Milliseconds | None = None

    what: ClassVar[str]
    """The name of the kind in the schedule file, from its registration on."""
    lasts: ClassVar[bool] = True
    """False: it is over at once, and nothing undoes it."""

    @property
    def undoes(self) -> str:
        """The name of the fault that this one undoes; "" for all kinds that undo none."""
        return ""

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        """Yield why no run of this cluster and workload could carry the fault out, one sentence
        each. The problems here can occur in every fault; a kind adds its own."""
        if (self.at_ms is None) == (self.after is None):
            yield "needs exactly one of at_ms and after"
        if self.for_ms is not None and not self.lasts:
            yield "a fault of this kind is over at once, so it takes no for_ms"
        if self.after is not None:
            yield from (f"after: {wrong}" for wrong in self.after.problems())
        clients = workload.clients + workload.consumers + len(workload.scripted_clients())
        clients += workload.members
        partitions = (*cluster.partition_names(), *[GROUPS_PARTITION] * (workload.members > 0))
        for field in ("on", "to"):
            target = getattr(self, field, None)
            wrong = target is not None and _wrong_target(target, partitions, cluster, clients)
            if wrong:
                yield f"{field}: {wrong}"
        for kind in getattr(self, "kinds", ()):
            if kind not in MESSAGE_KINDS:
                yield f"no message of kind '{kind}' (known: {', '.join(MESSAGE_KINDS)})"


STRUCTS: Final[dict[str, type[Fault]]] = {}
"""The registered faults by their names in the file, in the order of registration."""


def register(struct: type[Fault]) -> str:
    """Allow faults of this type in schedules from now on; return the name of the kind."""
    name = str(struct.__struct_config__.tag)
    STRUCTS[name] = struct
    struct.what = name
    return name


def decode_all(faults: Any) -> tuple[Fault, ...]:
    """Return the faults of a decoded file. Raises ValidationError with the first error."""
    if not isinstance(faults, list | tuple):
        raise msgspec.ValidationError("faults: must be a list")
    made = []
    for index, fields in enumerate(faults):
        if isinstance(fields, Fault):
            made.append(fields)
            continue
        what = fields.get("what") if isinstance(fields, dict) else None
        if what not in STRUCTS:
            sentence = unknown_name("fault", str(what), STRUCTS)
            raise msgspec.ValidationError(f"fault {index}: {sentence}")
        try:
            made.append(msgspec.convert(fields, STRUCTS[what]))
        except msgspec.ValidationError as error:
            text = in_words(error)
            raise msgspec.ValidationError(f"fault {index} ({what}): {text}") from None
    return tuple(made)


def renamed(faults: Sequence[Fault], names: Mapping[str, str]) -> tuple[Fault, ...]:
    """Return faults with other names of brokers and partitions, in their targets and triggers."""
    text = msgspec.json.encode(faults).decode()
    text = re.sub(r"\b(n|log-)\d+\b", lambda found: names.get(found[0], found[0]), text)
    return decode_all(decode(text, Any))


def _wrong_target(
    text: str, partitions: Sequence[str], cluster: Cluster, clients: int
) -> str | None:
    """Return the error in a target (a node, a comma list of nodes, or a role), or None."""
    role, _, partition = text.partition(":")
    if role in ROLES:
        if partition and role not in ROLES_OF_A_PARTITION:
            return f"role '{role}' takes no partition"
        if partition and partition.removeprefix(GROUP_PREFIX) not in partitions:
            return f"no partition '{partition}' (there are {', '.join(partitions)})"
        return None
    nodes = {*cluster.broker_names(), *cluster.voter_names()}
    for name in text.split(","):
        if _NODE.fullmatch(name) is None:
            return f"'{name}' is neither a node nor a role ({', '.join(ROLES)})"
        if name[0] != "c" and name not in nodes:
            return f"no node '{name}' in this cluster"
        if name[0] == "c" and int(name[1:]) > clients:
            return f"no client '{name}' in this workload"
    return None
