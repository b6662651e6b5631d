"""Historical bugs as bugs: each is one boolean consulted at one decision point.

A correct broker has all of them off. `exhibits.py` says what each one is; a bug is named on
the command line by its name or its code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from node.core.bug_catalogue import KNOWN_BUGS
from node.core.protocol import Protocol, Truncation
from node.formats.errors import UsageError


@dataclass(frozen=True, slots=True)
class Bugs:
    """Which bugs are on. One field an exhibit, in the catalogue's sections."""

    # truncation
    truncate_to_own_hw: bool = False
    truncate_to_leader_hw: bool = False
    never_truncate: bool = False
    epoch_end_without_epoch: bool = False
    undefined_to_own_hw: bool = False
    one_round_only: bool = False
    no_local_lookup: bool = False
    compare_offsets_only: bool = False
    lazy_epoch_cache: bool = False
    keep_empty_epoch: bool = False
    cut_inside_batch: bool = False

    # in-sync set
    expand_stale_process: bool = False
    expand_fenced: bool = False
    expand_at_hw: bool = False
    expand_by_lag_only: bool = False
    hw_ignores_min_isr: bool = False
    no_epoch_fencing: bool = False
    fetch_without_current_epoch: bool = False
    no_fsync_before_ack: bool = False
    unclean_as_clean: bool = False
    no_maximal_isr: bool = False
    rollback_on_timeout: bool = False
    count_diverging_fetch: bool = False
    hw_from_diverging_response: bool = False
    keep_peer_state: bool = False

    # high watermark
    stale_epoch_response: bool = False
    ack_on_demotion: bool = False
    ack_before_isr: bool = False
    read_beyond_hw: bool = False
    commit_leader_only: bool = False
    accept_any_response: bool = False
    match_by_offset_only: bool = False
    keep_hw_at_truncation: bool = False

    # controller
    no_partition_epoch_test: bool = False
    elect_any_replica: bool = False
    reassign_drops_first: bool = False
    keep_elr_at_min_isr: bool = False

    # quorum
    count_old_terms: bool = False
    forget_vote: bool = False
    cut_on_every_answer: bool = False
    last_index_matches: bool = False
    no_previous_check: bool = False
    ack_before_commit: bool = False

    # Liftbridge
    liftbridge_epoch_offset: bool = False
    liftbridge_fallback: bool = False
    liftbridge_witness: bool = False
    liftbridge_monotone: bool = False


RULES: Final[dict[str, dict[str, Any]]] = {
    "truncate_to_own_hw": {"truncation": Truncation.OWN_HW},
    "truncate_to_leader_hw": {"truncation": Truncation.LEADER_HW},
    "never_truncate": {"truncation": Truncation.NONE},
    "epoch_end_without_epoch": {"truncation": Truncation.EPOCH_END_V0},
    "undefined_to_own_hw": {"truncation": Truncation.EPOCH_END_V1},
    "count_old_terms": {"counts_old_terms": True},
    "count_diverging_fetch": {"last_index_matches": True},
    "last_index_matches": {"last_index_matches": True},
    "no_epoch_fencing": {"fences_by_epoch": False},
    "no_previous_check": {"truncation": Truncation.NONE, "appends_by_index": True},
}
"""Bugs that are another protocol's rule: what they change in a protocol. The rule is there once."""

NAMES: Final = tuple(exhibit.name for exhibit in KNOWN_BUGS)
_BY_ANY_NAME: Final = {key.lower(): e.name for e in KNOWN_BUGS for key in (e.name, e.code)}

assert {f.name.replace("_", "-") for f in fields(Bugs)} == set(NAMES)


def canonical(name: str) -> str:
    """The bug's one name, from its name or code. Raises UsageError if there is none."""
    found = _BY_ANY_NAME.get(name.lower())
    if found is None:
        known = ", ".join(f"{e.name} ({e.code})" for e in KNOWN_BUGS)
        raise UsageError(f"unknown bug '{name}' (known: {known})")
    return found


def parse(names: Iterable[str]) -> Bugs:
    """Bugs from their names or codes. Raises UsageError on an unknown one."""
    wanted = {canonical(name).replace("-", "_") for name in names}
    return Bugs(**{f.name: True for f in fields(Bugs) if f.name in wanted})


def spoil(protocol: Protocol, bugs: Bugs) -> Protocol:
    """The protocol with the rules of the bugs that are on in the place of its own. None of them is
    to stop a node before it can do harm: what a bug breaks is for the checker to find."""
    for name, rules in RULES.items():
        if getattr(bugs, name):
            protocol = replace(protocol, **rules)
    return protocol if bugs == Bugs() else replace(protocol, hw_only_rises=False)
