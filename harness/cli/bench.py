"""`floodmark bench`: the speed of broker, hub, checker and simulated world, and a soak."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from harness.cli.common import Json, Master, Memory, NoSpark, Quiet, print_json
from harness.cli.exit_codes import EXIT_UNKNOWN
from harness.cli.values import (
    SEED,
    ExistingFolder,
    Number,
    Whole,
    WritableFile,
    WritableFolder,
    taking,
)

_HOUR_S: Final = 3600
_MOST_OPS: Final = 10**9

LoadSeconds = Annotated[
    float,
    typer.Option(**taking(Number(0, _HOUR_S, above=True)), help="Seconds to measure each load."),
]

app = typer.Typer(invoke_without_command=True, help="Measure speed on this machine.")


@app.callback()
def bench(
    context: typer.Context,
    seconds: LoadSeconds = 4.0,
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
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Measure start-up, throughput, the cost of the link hub, and the time to a verdict."""
    from harness.bench.broker import BenchSettings, run_bench, table
    from harness.runs.progress import Progress

    if context.invoked_subcommand is not None:
        return 0
    settings = BenchSettings(
        seconds=seconds, batch=batch, record_bytes=record_bytes, judged_s=judged
    )
    with Progress(quiet=quiet) as progress:
        figures = run_bench(settings, progress)
    print_json(figures) if json else print(table(figures))
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
        list[float] | None,
        typer.Option(
            **taking(Number(0, 1)),
            help="Share of the sends, 0 to 1, that go to the first partition; repeatable, to "
            "compare [default: 0].",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(**taking(SEED), help="Seed of the generated history.")] = 1,
    valid: Annotated[bool, typer.Option("--valid", help="Inject no anomalies.")] = False,
    repeat: Annotated[
        int, typer.Option(**taking(Whole(1, 1000)), help="How often to judge each history.")
    ] = 1,
    lines: Annotated[
        bool,
        typer.Option(
            "--lines",
            help="Also measure histories of lines: ours, and Jepsen's as JSON and as EDN.",
        ),
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            **taking(ExistingFolder()),
            help="Folder for the generated histories [default: a temporary folder].",
        ),
    ] = None,
    no_spark: NoSpark = False,
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

    spark = None if no_spark else SparkOptions(master, memory)
    settings = CheckBench(
        ops=tuple(ops or map(int, SIZES)),
        keys=keys,
        poll_records=poll_records,
        hot=tuple(dict.fromkeys(hot or (0.0,))),
        seed=seed,
        inject=not valid,
        repeat=repeat,
        lines=lines,
        folder=folder,
    )
    with Progress(quiet=quiet) as progress:
        found = run_check_bench(settings, spark, progress)
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


@app.command("peers")
def bench_peers(
    clients: Annotated[
        list[int] | None,
        typer.Option(
            **taking(Whole(1, 1000)), help="Clients of a load; repeatable [default: 1 64]."
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(**taking(Whole(1, 100)), help="How often each system has its turn.")
    ] = 3,
    seconds: LoadSeconds = 3.0,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Measure our brokers beside NATS, Redis, etcd and a log of a few lines.

    The systems take turns, with the limits of the machine measured between them.
    """
    from harness.bench.peers import PeersBench, peers_table, run_peers_bench
    from harness.runs.progress import Progress

    settings = PeersBench(clients=tuple(clients or (1, 64)), rounds=rounds, seconds=seconds)
    with Progress(quiet=quiet) as progress:
        found = run_peers_bench(settings, progress)
    print_json(found) if json else print(peers_table(found))
    return 0


@app.command("soak")
def bench_soak(
    minutes: Annotated[
        float, typer.Option(**taking(Number(0, 10_000, above=True)), help="Minutes in all.")
    ] = 60.0,
    storm: Annotated[
        float, typer.Option(**taking(Number(0, _HOUR_S, above=True)), help="Seconds of each storm.")
    ] = 45.0,
    brokers: Annotated[int, typer.Option(**taking(Whole(3, 99)), help="Number of brokers.")] = 5,
    partitions: Annotated[
        int, typer.Option(**taking(Whole(1, 10_000)), help="Number of partitions.")
    ] = 50,
    rate: Annotated[
        float,
        typer.Option(**taking(Number(0, 1e6, above=True)), help="Batches per second of a client."),
    ] = 5.0,
    retention_records: Annotated[
        int,
        typer.Option(
            **taking(Whole(0, 2**31 - 1)), help="Committed records to keep of a partition, 0: all."
        ),
    ] = 10,
    seed: Annotated[int, typer.Option(**taking(SEED), help="Seed of the first storm.")] = 1,
    store: Annotated[
        Path,
        typer.Option(
            **taking(WritableFolder()), help="Folder for the runs; valid ones are removed."
        ),
    ] = Path("store"),
    samples: Annotated[
        Path | None,
        typer.Option(
            **taking(WritableFile()), help="File to which each storm appends a line of figures."
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Storm for an hour and measure what grows.

    Runs storm after storm in one process. Compares memory, open descriptors and disk of the first
    third of the storms with those of the last; and inside of storms, in which brokers delete the
    heads of their logs, the memory and disk of brokers in the middle with those late in the storm.
    Exit code: 1 if a storm was invalid, 2 if something grows, else 0.
    """
    from checker.formats.verdict import EXIT_CODES, Verdict
    from harness.bench.soak import SoakSettings, run_soak, table
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress

    settings = SoakSettings(
        store=store,
        minutes=minutes,
        storm_s=storm,
        brokers=brokers,
        partitions=partitions,
        rate=rate,
        retention_records=retention_records,
        seed=seed,
    )
    with Interrupts() as interrupts, Progress(quiet=quiet) as progress:
        soaked = run_soak(settings, progress, interrupts, samples)
    print_json(soaked) if json else print(table(soaked))
    if Verdict.INVALID in soaked.verdicts:
        return EXIT_CODES[Verdict.INVALID]
    return 0 if soaked.is_flat else EXIT_UNKNOWN
