"""`floodmark bench`: the speed of broker, hub, checker and simulated world, and a soak."""

from __future__ import annotations

from typing import Final

from harness.bench.requests import BenchRequest, CheckBench, PeersBench, SimBench, SoakRequest
from harness.cli.common import print_json
from harness.cli.exit_codes import EXIT_UNKNOWN
from harness.cli.options import Command


def bench(request: BenchRequest) -> int:
    """Measure speed on this machine.

    Measures start-up, throughput, the cost of the link hub, and the time to a verdict."""
    from harness.bench.broker import run_bench, table
    from harness.runs.progress import Progress

    with Progress(quiet=request.quiet) as progress:
        figures = run_bench(request, progress)
    print_json(figures) if request.json else print(table(figures))
    return 0


def check(request: CheckBench) -> int:
    """Measure the checker on generated histories.

    Prints speed and memory for histories of growing size, and compares the anomalies found with
    those injected. Exit code: 2 when they differ, else 0."""
    from harness.bench.check import check_table, run_check_bench
    from harness.runs.progress import Progress

    with Progress(quiet=request.quiet) as progress:
        found = run_check_bench(request, progress)
    print_json(found) if request.json else print(check_table(found))
    return EXIT_UNKNOWN if any(each.missed or each.invented for each in found) else 0


def sim(request: SimBench) -> int:
    """Measure the simulated world.

    All checks are on. Prints virtual seconds, events and schedules per second of processor time."""
    from harness.bench.simulator import run_sim_bench, sim_table
    from harness.runs.progress import Progress

    with Progress(quiet=request.quiet) as progress:
        found = run_sim_bench(request, progress)
    print_json(found) if request.json else print(sim_table(found, request))
    return 0


def peers(request: PeersBench) -> int:
    """Measure our brokers beside NATS, Redis and etcd.

    The systems take turns. Between their turns, synced appends to the same disk are measured, as
    the limit that the disk sets."""
    from harness.bench.peers import peers_table, run_peers_bench
    from harness.runs.progress import Progress

    with Progress(quiet=request.quiet) as progress:
        found = run_peers_bench(request, progress)
    print_json(found) if request.json else print(peers_table(found))
    return 0


def soak(request: SoakRequest) -> int:
    """Storm for an hour and measure what grows.

    Runs storm after storm in one process. Compares memory, open descriptors and disk of the first
    third of the storms with those of the last; and inside of storms, in which brokers delete the
    heads of their logs, the memory and disk of brokers in the middle with those late in the storm.
    Exit code: 1 if a storm was invalid, 2 if something grows, else 0."""
    from checker.formats.verdict import EXIT_CODES, Verdict
    from harness.bench.soak import run_soak, table
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress

    with Interrupts() as interrupts, Progress(quiet=request.quiet) as progress:
        soaked = run_soak(request, progress, interrupts)
    print_json(soaked) if request.json else print(table(soaked))
    if Verdict.INVALID in soaked.verdicts:
        return EXIT_CODES[Verdict.INVALID]
    return 0 if soaked.is_flat else EXIT_UNKNOWN


SUBCOMMANDS: Final[dict[str, Command]] = {"check": check, "sim": sim, "peers": peers, "soak": soak}
