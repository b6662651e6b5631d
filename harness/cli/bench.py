"""`floodmark bench`: how fast broker, hub, checker, simulated world and page are here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import EXIT_UNKNOWN, Json, Master, Memory, Quiet, print_json

app = typer.Typer(invoke_without_command=True, help="Measure speed on this machine.")


@app.callback()
def bench(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(help="How long each load is measured.")] = 4.0,
    batch: Annotated[int, typer.Option(help="Records a batch.")] = 100,
    record_bytes: Annotated[int, typer.Option(help="Bytes a record, at least 16.")] = 100,
    judged: Annotated[float, typer.Option(help="Seconds of the judged storm; 0: none.")] = 30.0,
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


@app.command("failover")
def bench_failover(
    kills: Annotated[int, typer.Option(help="Leaders killed per protocol.")] = 10,
    protocols: Annotated[str | None, typer.Option(help="With commas [all].")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Measure how long writes stop when a leader dies, and what an idle cluster sends."""
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
        list[float] | None, typer.Option(help="Operations; repeatable [1e4 1e5 1e6 1e7].")
    ] = None,
    keys: Annotated[int, typer.Option(help="Partitions of the history.")] = 20,
    poll_records: Annotated[int, typer.Option(help="Records a poll returns.")] = 5,
    hot: Annotated[float, typer.Option(help="Share of sends to one partition more.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Decides the history.")] = 1,
    valid: Annotated[bool, typer.Option("--valid", help="Plant no anomalies.")] = False,
    repeat: Annotated[int, typer.Option(help="How often each is judged.")] = 1,
    lines: Annotated[bool, typer.Option("--lines", help="Also from history.jsonl.")] = False,
    folder: Annotated[Path | None, typer.Option(help="Where histories are made.")] = None,
    master: Master = None,
    memory: Memory = "",
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Judge made histories of growing size: speed, memory, what was planted and found."""
    from harness.bench.check import SIZES, CheckBench, check_table, run_check_bench
    from harness.runs.judge import SparkOptions
    from harness.runs.progress import Progress

    settings = CheckBench(
        ops=tuple(map(int, ops or SIZES)),
        keys=keys,
        poll_records=poll_records,
        hot=hot,
        seed=seed,
        plant=not valid,
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
    seconds: Annotated[float, typer.Option(help="Processor time for each shape.")] = 10.0,
    rate: Annotated[float, typer.Option(help="Batches per second and producer.")] = 10.0,
    protocol: Annotated[str, typer.Option(help="Replication protocol.")] = "kafka",
    seed: Annotated[int, typer.Option(help="Decides the schedules.")] = 1,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Measure how fast the simulated world is, checks on, and where the time goes."""
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
        list[float] | None, typer.Option(help="Operations; repeatable [1e3 1e5 1e6].")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Build pages of made runs of growing length: their size, the time to build and to paint."""
    from harness.bench.page import SIZES, page_table, run_page_bench
    from harness.runs.progress import Progress

    with Progress(quiet=quiet) as progress:
        found = run_page_bench(tuple(map(int, ops or SIZES)), progress)
    print_json(found) if json else print(page_table(found))
    return 0
