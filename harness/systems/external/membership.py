"""The members of a third-party cluster and the versions of its nodes, and changes of both.

A change is a generator that the main thread resumes many times a second, because it starts and
stops processes: it asks the adapter, in a thread, and then waits until the nodes themselves say
that it is so. An answer "success" proves nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from harness.formats.run_info import MemberRecord
from harness.runs.clock import now_us
from harness.systems.adapter import Adapter, Members, Node, Refused
from harness.systems.external.calls import begin, in_words
from harness.systems.external.versions import Server, in_order
from nemesis.view import ClusterView
from nemesis.world import ChangeOutcome, ClusterChange
from node.formats.errors import FloodmarkError

if TYPE_CHECKING:
    from harness.systems.external.cluster import ExternalCluster

CALL_TIMEOUT_S: Final = 5.0
RETRY_S: Final = 0.2
TIMES_UNTIL_STUCK: Final = 3
"""A change of the final heal may take so many times as long as any other one."""
TIMES_UNTIL_UNSEEN: Final = 4
_FRESH_US: Final = 1_000_000
"""How old an answer of `members` may be."""

Steps = Iterator[None]


class MemberChanges:
    """The members of a cluster, and the change under way. `nodes` are all slots, whose identities
    it changes; the first `size` of them are the members at the start. A change acts on the cluster
    `actors`."""

    def __init__(
        self,
        adapter: Adapter,
        nodes: dict[str, Node],
        brokers: Sequence[str],
        size: int,
        actors: ExternalCluster,
        *,
        view: ClusterView,
        servers: Sequence[Server] = (),
        copies: int = 1,
    ) -> None:
        self._adapter, self._nodes, self._actors, self._view = adapter, nodes, actors, view
        self._brokers, self._first = tuple(brokers), tuple(brokers[:size])
        self.members: list[str] = list(self._first)
        self._starting = ""
        self._left: dict[str, int] = {}
        self._servers = list(servers)
        self._runs = dict.fromkeys(nodes, 0)
        self._copies = copies
        self._moved: set[str] = set()
        self._steps: Steps | None = None
        self._number, self._began_us, self._answered_us, self._asked = 0, 0, 0, 0
        self._why = ""
        self._outcomes: dict[int, ChangeOutcome] = {}
        self._changed = self._in_doubt = False
        self._stuck, self._healed_us = "", 0
        self._listed: dict[str, list[str]] = {}

    # -- what is asked of it

    def is_member(self, node: str) -> bool:
        """Return whether a node is a member, as far as was confirmed."""
        return node in self.members

    def has_left(self, node: str) -> bool:
        return node in self._left and node not in self.members

    def may_run(self, node: str) -> bool:
        """Return whether a process of the node may be started: it is a member, or joins."""
        return node in self.members or node == self._starting

    def server_of(self, node: str) -> str:
        """Return the executable of the node's next process; "" for the adapter's own."""
        return self._servers[self._runs[node]].path if self._servers else ""

    def record(self) -> MemberRecord | None:
        """Return what `run.json` says of members; None without any change."""
        if not self._changed:
            return None
        versioned = self.members if self._servers else ()
        return MemberRecord(
            nodes=tuple(n for n in self._brokers if n in self._first or self._nodes[n].joins),
            initial=self._first,
            final=tuple(self.members),
            identities={name: self._nodes[name].identity for name in self.members},
            versions={n: self._servers[self._runs[n]].version for n in versioned},
            said=self._listed,
            expected={n: self._known_as(n) for n in self.members},
            stuck=self._stuck,
        )

    def begin(self, change: ClusterChange) -> int:
        """Begin a change; return its number. Raises FloodmarkError while another is under way, or
        while a majority of the members does not agree on who is one."""
        if self._steps is not None:
            raise FloodmarkError("another change of the cluster is under way")
        if change.what not in ("operate", "reassign") and not self._agree():
            raise FloodmarkError("the members do not agree on who is one")
        self._steps = self._plan(change)
        self._number, self._began_us, self._answered_us = self._number + 1, now_us(), 0
        self._why, self._changed = "", True
        return self._number

    def outcome(self, number: int) -> ChangeOutcome | None:
        """Return how a change ended; None while it is under way."""
        return self._outcomes.get(number)

    def step(self) -> None:
        """Go on with the change under way; called many times a second."""
        if self._steps is None:
            return
        in_time = self._elapsed_ms() <= self._adapter.change_ms
        try:
            next(self._steps)
        except StopIteration:
            self._end("installed" if in_time else "late")
        except Refused as error:
            self._why = str(error) or "it was refused"
            self._end("refused")
        except FloodmarkError as error:
            self._why = str(error)
            self._end("unseen")
        else:
            if self._elapsed_ms() > TIMES_UNTIL_UNSEEN * self._adapter.change_ms:
                self._end("unseen")

    def heal(self) -> Steps:
        """Make the members of the start the members again; the steps of the final heal. What does
        not come in time is on record as stuck."""
        if not self._changed:
            return
        if self._steps is not None:
            yield from self._in_time(self._steps, "the change that was under way")
            self._end("unseen" if self._stuck else "late")
            self._stuck = ""
        if self._in_doubt:
            yield from self._in_time(self._adopt(), "the members after an unseen change")
        for name in [name for name in self._actors.running() if name not in self.members]:
            self._actors.end_node(name, kill=False)
        for name in [name for name in self._first if name not in self.members]:
            yield from self._in_time(self._join(name), f"{name} joining again")
        for name in [name for name in self.members if name not in self._first]:
            yield from self._in_time(self._leave(name, alive=True), f"{name} leaving")
        newest = max((self._runs[name] for name in self.members), key=self._age, default=0)
        for name in sorted(self.members, key=lambda name: name in self._leaders()):
            if self._servers and self._age(self._runs[name]) < self._age(newest):
                steps = self._change_version(name, newest, kill=False)
                yield from self._in_time(steps, f"the upgrade of {name}")
        for partition in sorted(self._moved):
            steps = self._ask_change(self.members, partition, self._copies)
            yield from self._in_time(steps, f"the replicas of {partition}")
        if self._stuck:
            return
        self._healed_us = now_us()
        yield from self._in_time(self._until(self._agree), "the members agreeing on who is one")

    def note_listed(self) -> None:
        """Keep the members that each member listed last after the final heal, which reached every
        change; called before the nodes are stopped."""
        answers = self._actors.said() if self._healed_us else {}
        self._listed = {
            name: sorted(answers[name][1].names)
            for name in self.members
            if name in answers and answers[name][1].names and answers[name][0] > self._healed_us
        }

    # -- the changes

    def _plan(self, change: ClusterChange) -> Steps:
        """Return the steps of a change. Raises FloodmarkError for an impossible one."""
        what, node = change.what, change.node
        if what in ("join", "return") and node in self.members:
            raise FloodmarkError(f"{node} is a member already")
        if what not in ("join", "return", "reassign") and node not in self.members:
            if what == "leave" and node in self._actors.running():
                return self._end_of_a_return(node)
            raise FloodmarkError(f"{node} is no member")
        match what:
            case "join":
                return self._join(node)
            case "leave":
                self._refuse_too_few()
                return self._leave(node, alive=change.alive)
            case "replace":
                self._refuse_too_few()
                return self._replace(node, change.by, alive=change.alive)
            case "return":
                return self._return(node)
            case "reassign":
                return self._reassign(change.partition, change.replicas)
            case "operate":
                return self._operate(change.action, node)
            case "upgrade" | "downgrade":
                to = self.next_server(node, change.version, what)
                if to is None:
                    raise FloodmarkError(f"{node} has no other version for this {what}")
                return self._change_version(node, to, kill=change.kill)

    def _join(self, name: str) -> Steps:
        self._actors.end_node(name, kill=True)
        node = self._nodes[name]
        if name in self._left or node.joins:
            again = self._left[name] = self._left.get(name, 0) + 1
            fresh = f"{name}-{again}" if self._adapter.fresh_identity else name
            node = msgspec.structs.replace(node, identity=fresh)
        self._nodes[name] = node = msgspec.structs.replace(node, joins=True)
        self._actors.empty_disk(name)
        self._starting = name
        want = [*self.members, name]
        yield from self._ask(self._adapter.admit, node)
        self._actors.start_node(name)
        # Some systems add only a node that runs.
        yield from self._ask_change(want, "", 0)
        # A node that was announced counts in majorities from now on, and may not have looked yet
        # at the members that its command names.
        for witnesses in (want, [name]):
            yield from self._until(partial(self._confirmed, witnesses, there=(name,)))
        self.members.append(name)
        self._starting = ""
        yield from self._until(self._in_sync)
        copies = min(self._copies, len(self.members))
        for partition in self._view.partitions():
            if len(self._view.replicas(partition)) < copies:
                yield from self._replicate(partition, self.members, copies)

    def _leave(self, name: str, *, alive: bool) -> Steps:
        want = [other for other in self.members if other != name]
        if alive:
            self._actors.expect_end(name)
        else:
            self._actors.end_node(name, kill=True)
        for partition in self._view.partitions():
            if name in self._view.replicas(partition):
                yield from self._move(want, partition, min(self._copies, len(want)))
        yield from self._ask_change(want, "", 0)
        yield from self._until(lambda: self._confirmed(want, gone=(name,)))
        self.members.remove(name)
        self._left.setdefault(name, 0)
        self._actors.end_node(name, kill=False)

    def _replace(self, name: str, by: str, *, alive: bool) -> Steps:
        yield from self._leave(name, alive=alive)
        yield from self._join(by)

    def _return(self, name: str) -> Steps:
        self._starting = name
        self._actors.start_node(name)
        self._actors.expect_end(name)
        yield

    def _end_of_a_return(self, name: str) -> Steps:
        self._starting = ""
        self._actors.end_node(name, kill=True)
        yield

    def _reassign(self, partition: str, replicas: Sequence[str]) -> Steps:
        if not replicas:
            raise FloodmarkError("a reassignment cannot be cancelled here")
        gone = set(self._view.replicas(partition)) - set(replicas)
        others = [name for name in self.members if name not in gone and name not in replicas]
        yield from self._replicate(partition, [*replicas, *others], len(replicas), gone)

    def _change_version(self, name: str, to: int, *, kill: bool) -> Steps:
        self._actors.end_node(name, kill=kill)
        self._runs[name] = to
        wanted = self._servers[to].version
        self._actors.start_node(name)

        def is_so() -> bool:
            answer = self._fresh([name]).get(name)
            right = answer is not None and (not answer.version or wanted.startswith(answer.version))
            return right and self._in_sync(name)

        yield from self._until(is_so)

    def _operate(self, action: str, name: str) -> Steps:
        me, nodes = self._nodes[name], [self._nodes[each] for each in self.members]
        limit_s = TIMES_UNTIL_UNSEEN * self._adapter.change_ms / 1000
        asked = begin(self._adapter.operate, action, me, nodes, timeout_s=limit_s)
        yield from self._until(asked.done)
        self._answered_us = now_us()
        if error := asked.exception():
            raise error if isinstance(error, Refused) else FloodmarkError(in_words(error))

    # -- their parts

    def _replicate(
        self, partition: str, want: Sequence[str], copies: int, gone: Collection[str] = ()
    ) -> Steps:
        """Let `copies` nodes have a replica, none of those that are `gone`, and wait for them."""
        yield from self._move(want, partition, copies)

        def is_so() -> bool:
            have = set(self._view.replicas(partition))
            return len(have) == copies and not have & {*gone} and self._in_sync()

        yield from self._until(is_so)

    def _move(self, want: Sequence[str], partition: str, copies: int) -> Steps:
        """Ask for other replicas of a partition. The final heal restores them, unless the only
        attempt was refused."""
        before, self._moved = self._moved, self._moved | {partition}
        try:
            yield from self._ask_change(want, partition, copies)
        except Refused:
            self._moved = self._moved if self._asked > 1 else before
            raise

    def _ask_change(self, want: Sequence[str], partition: str, copies: int) -> Steps:
        nodes = [self._nodes[name] for name in want]
        return self._ask(self._adapter.change, nodes, partition, copies)

    def _ask(self, method: Callable[..., Any], *arguments: Any) -> Steps:
        """Call a method with the nodes that can be asked, again until it raises nothing; each time
        another node comes first. Raises Refused."""
        self._asked = 0
        while True:
            names = [name for name in self.members if name in self._actors.running()]
            leader = self._view.controller()
            names.sort(key=lambda name: name != leader)
            at = self._asked % len(names) if names else 0
            nodes = [self._nodes[name] for name in (*names[at:], *names[:at])]
            asked = begin(method, nodes, *arguments, timeout_s=CALL_TIMEOUT_S)
            self._asked += 1
            yield from self._until(asked.done)
            error = asked.exception()
            if error is None:
                self._answered_us = self._answered_us or now_us()
                return
            if isinstance(error, Refused):
                # An attempt, or a part of the change, before this one may still have its effect.
                self._in_doubt = self._in_doubt or self._asked > 1 or bool(self._answered_us)
                raise error
            self._why = in_words(error)
            again = time.monotonic() + RETRY_S
            while time.monotonic() < again:
                yield

    def _until(self, is_so: Callable[[], bool]) -> Steps:
        while not is_so():
            yield

    def _in_time(self, steps: Steps, what: str) -> Steps:
        """Go through steps of the final heal, for a limited time and unless others were stuck."""
        times, self._why = TIMES_UNTIL_STUCK * self._adapter.change_ms, ""
        deadline = time.monotonic() + (times + self._adapter.failover_ms) / 1000
        while not self._stuck:
            try:
                next(steps)
            except StopIteration:
                return
            except (Refused, FloodmarkError) as error:
                self._stuck = f"{what}: {in_words(error)}"
            if time.monotonic() > deadline:
                self._stuck = f"{what} took more than {times} ms" + f": {self._why}" * bool(
                    self._why
                )
            yield

    def _adopt(self) -> Steps:
        """Take as members what a majority of the members lists for some time, and let them run: an
        unseen change may have come later."""
        found, since = self._listed_by_most(), time.monotonic()
        while time.monotonic() < since + self._adapter.change_ms / 1000:
            yield
            if found != (listed := self._listed_by_most()):
                found, since = listed, time.monotonic()
        for name in self.members:
            if found and name not in found:
                self._left.setdefault(name, 0)
        self.members = list(found or self.members)
        for name in self.members:
            if name not in self._actors.running():
                self._actors.start_node(name)

    def _listed_by_most(self) -> tuple[str, ...]:
        """Return the nodes that a majority of the members lists; none if there is no such list."""
        known = {name: set(self._known_as(name)) for name in self._brokers}
        lists = Counter(
            tuple(name for name in self._brokers if answer.names & known[name])
            for answer in self._fresh(self.members).values()
        )
        most = ((), 0) if not lists else lists.most_common(1)[0]
        return most[0] if most[1] > len(self.members) // 2 else ()

    def _fresh(self, names: Collection[str]) -> dict[str, Members]:
        """Return the answers of these nodes that are not too old."""
        since = now_us() - _FRESH_US
        answers, running = self._actors.said(), self._actors.running()
        return {
            n: answers[n][1]
            for n in names
            if n in answers and n in running and answers[n][0] > since
        }

    def _known_as(self, name: str) -> tuple[str, ...]:
        """Return the names under which a node may be listed."""
        node = self._nodes[name]
        return (node.identity, *(node.dial(role) for role in node.dialed))

    def _confirmed(
        self, among: Sequence[str], there: Sequence[str] = (), gone: Sequence[str] = ()
    ) -> bool:
        """Return whether a majority of `among` lists the nodes `there` and none that is `gone`. A
        system that lists no members is believed."""

        def agrees(answer: Members) -> bool:
            listed = {n for n in (*there, *gone) if answer.names & set(self._known_as(n))}
            return listed == set(there)

        answers = self._fresh(among)
        votes = [each for each in answers.values() if not each.names or agrees(each)]
        return len(votes) >= len(among) // 2 + 1

    def _agree(self) -> bool:
        """Return whether a majority of the members lists exactly the members, if any can tell."""
        if not self._adapter.writes("members"):
            return True
        others = [n for n in self._nodes if n not in self.members and not n.startswith("v")]
        return self._confirmed(self.members, self.members, others)

    def _in_sync(self, *names: str) -> bool:
        """Return whether each replica on these members (on all) is in sync, as far as nodes
        tell."""
        members = set(names or self.members)
        return all(
            set(self._view.replicas(p)) & members <= set(self._view.isr(p))
            for p in self._view.partitions()
            if self._view.isr(p)
        )

    def _leaders(self) -> set[str]:
        return {self._view.leader(partition) or "" for partition in self._view.partitions()}

    def _refuse_too_few(self) -> None:
        if len(self.members) <= 1:
            raise FloodmarkError("the last member cannot leave")

    def _age(self, server: int) -> list[int]:
        return in_order(self._servers[server].version) if self._servers else []

    def next_server(
        self, node: str, version: str, direction: Literal["upgrade", "downgrade"]
    ) -> int | None:
        """Return the server for a change of version: the named one, or the next one; None if there
        is none."""
        now, up = self._age(self._runs[node]), direction == "upgrade"
        if version:
            return next((i for i, each in enumerate(self._servers) if version in each[:3]), None)
        others = range(len(self._servers))
        found = [i for i in others if (self._age(i) > now if up else self._age(i) < now)]
        nearest = sorted(found, key=self._age, reverse=not up)
        return nearest[0] if nearest else None

    def _elapsed_ms(self) -> int:
        return (now_us() - self._began_us) // 1000

    def _told(self) -> str:
        """Return a sentence on the change under way: what was answered and confirmed."""
        ms = (self._answered_us - self._began_us) // 1000
        answered = f"answered after {ms} ms" if self._answered_us else "not answered"
        witnesses = ", ".join(sorted(self._fresh(self.members)))
        why = f"; last: {self._why}" if self._why else ""
        return f"{answered}, over after {self._elapsed_ms()} ms, told by {witnesses or 'none'}{why}"

    def _end(self, what: Literal["installed", "refused", "late", "unseen"]) -> None:
        self._in_doubt = self._in_doubt or what == "unseen"
        self._outcomes[self._number] = ChangeOutcome(what, self._told())
        self._steps, self._starting = None, ""
