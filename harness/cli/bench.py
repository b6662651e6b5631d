"""`floodmark bench`: the speed of broker, hub, checker, simulated world and page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from harness.cli.common import Json, Master, Memory, Quiet, print_json
from harness.cli.exit_codes import EXIT_UNKNOWN
from harness.cli.values import SEED, ExistingFolder, Number, Whole, taking

_HOUR_S: Final = 3600
_MOST_OPS: Final = 10**9

app = typer.Typer(invoke_without_command=True, help="Measure speed on this machine.")


@app.callback()
def bench(
    context: typer.Context,
    seconds: Annotated[
        float,
        typer.Option(
            **taking(Number(0, _HOUR_S, above=True)), help="Seconds to measure each load."
        ),
    ] = 4.0,
    batch: Annotated[
        int, typer.Option(**taking(Whole(1, 10_000)), help="Records per batch.")
    ] = 100,
    record_bytes: Annotated[
        int, typer.Option(**taking(Whole(16, 100_000)), help="Bytes per record, at least 16.")
    ] = 100,
    judged: Annotated[
        float,
        typer.Option(
            **taking(Number(0, _HOUR_S)),
            help="Length in seconds of a storm that is judged, to measure the time to a verdict; "
            "0: no storm.",
        ),
    ] = 30.0,
    no_curve: Annotated[
        bool, typer.Option("--no-curve", help="No keys for the processes of the clusters.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Measure start-up, throughput, the cost of the link hub and of keys, and the time to a
    verdict."""
    from harness.bench.broker import BenchSettings, run_bench, table
    from harness.runs.progress import Progress

    if context.invoked_subcommand is not None:
        return 0
    settings = BenchSettings(
        seconds=seconds, batch=batch, record_bytes=record_bytes, judged_s=judged, curve=not no_curve
    )
    with Progress(quiet=quiet) as progress:
        figures = run_bench(settings, progress)
    print_json(figures) if json else print(table(figures))
    return 0


@app.command("failover")
def bench_failover(
    kills: Annotated[
        int, typer.Option(**taking(Whole(1, 10_000)), help="Leaders to kill per protocol.")
    ] = 10,
    protocols: Annotated[
        str | None, typer.Option(help="Protocols, separated by commas [default: all].")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Measure failover times and idle traffic.

    Prints how long writes stop when a leader is killed, and what an idle cluster sends.
    """
    from harness.bench.failover import FailoverSettings, run_failover, table
    from harness.runs.progress import Progress

    wanted = (
        FailoverSettings(kills=kills)
        if protocols is None
        else FailoverSettings(kills=kills, protocols=tuple(protocols.split(",")))
    )
    with Progress(quiet=quiet) as progress:
        measured = run_failover(wanted, progress)
    print_json(measured) if json else print(table(measured))
    return 0


@app.command("check")
def bench_check(
    ops: Annotated[
        list[int] | None,
        typer.Option(
            **taking(Whole(1_000, _MOST_OPS)),
            help="Operations of a history; repeatable [default: 1e4 1e5 1e6 1e7].",
        ),
    ] = None,
    keys: Annotated[
        int, typer.Option(**taking(Whole(1, 10_000)), help="Number of partitions.")
    ] = 20,
    poll_records: Annotated[
        int, typer.Option(**taking(Whole(1, 10_000)), help="Records per poll.")
    ] = 5,
    hot: Annotated[
        float,
        typer.Option(
            **taking(Number(0, 1)),
            help="Share of the sends, 0 to 1, that go to the first partition.",
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(**taking(SEED), help="Seed of the generated history.")] = 1,
    valid: Annotated[bool, typer.Option("--valid", help="Inject no anomalies.")] = False,
    repeat: Annotated[
        int, typer.Option(**taking(Whole(1, 1000)), help="How often to judge each history.")
    ] = 1,
    lines: Annotated[
        bool,
        typer.Option(
            "--lines",
            help="Also measure reading the history from history.jsonl, not only from tables.",
        ),
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            **taking(ExistingFolder()),
            help="Folder for the generated histories [default: a temporary folder].",
        ),
    ] = None,
    master: Master = None,
    memory: Memory = "",
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Measure the checker on generated histories.

    Prints speed and memory for histories of growing size, and compares the anomalies found with
    those injected. Exit code: 2 when they differ, else 0.
    """
    from harness.bench.check import SIZES, CheckBench, check_table, run_check_bench
    from harness.runs.judge import SparkOptions
    from harness.runs.progress import Progress

    settings = CheckBench(
        ops=tuple(ops or map(int, SIZES)),
        keys=keys,
        poll_records=poll_records,
        hot=hot,
        seed=seed,
        inject=not valid,
        repeat=repeat,
        lines=lines,
        folder=folder,
    )
    with Progress(quiet=quiet) as progress:
        found = run_check_bench(settings, SparkOptions(master, memory), progress)
    print_json(found) if json else print(check_table(found))
    return EXIT_UNKNOWN if any(each.missed or each.invented for each in found) else 0


@app.command("sim")
def bench_sim(
    seconds: Annotated[
        float,
        typer.Option(
            **taking(Number(0, _HOUR_S, above=True)),
            help="Processor seconds for each shape of schedule.",
        ),
    ] = 10.0,
    rate: Annotated[
        float,
        typer.Option(
            **taking(Number(0, 1e6, above=True)), help="Batches per second of each producer."
        ),
    ] = 10.0,
    protocol: Annotated[str, typer.Option(help="Replication protocol.")] = "kafka",
    seed: Annotated[int, typer.Option(**taking(SEED), help="Seed of the schedules.")] = 1,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Measure the simulated world.

    All checks are on. Prints virtual seconds, events and schedules per second, and where the time
    goes.
    """
    from harness.bench.simulator import SimBench, run_sim_bench, sim_table
    from harness.runs.progress import Progress

    settings = SimBench(seconds=seconds, rate=rate, protocol=protocol, seed=seed)
    with Progress(quiet=quiet) as progress:
        found = run_sim_bench(settings, progress)
    print_json(found) if json else print(sim_table(found, settings))
    return 0


@app.command("page")
def bench_page(
    ops: Annotated[
        list[int] | None,
        typer.Option(
            **taking(Whole(100, _MOST_OPS)),
            help="Operations of a run; repeatable [default: 1e3 1e5 1e6].",
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Measure the pages of generated runs.

    Prints their size and the time to build and to paint them, for runs of growing length.
    """
    from harness.bench.page import SIZES, page_table, run_page_bench
    from harness.runs.progress import Progress

    with Progress(quiet=quiet) as progress:
        found = run_page_bench(tuple(ops or map(int, SIZES)), progress)
    print_json(found) if json else print(page_table(found))
    return 0
