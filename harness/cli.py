"""The command `floodmark`: reads the command line, prints results, decides the exit code.

Exit codes: 0 valid, 1 invalid, 2 unknown or not exercised, 64 the request cannot be carried out
as written, 70 the harness itself could not go on. Each error is one sentence on stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from checker.verdict import EXIT_CODES, RunResult, worst
from harness.interrupts import StopNow
from harness.options import Wishes
from node.errors import FloodmarkError

EXIT_UNKNOWN: Final = 2
EXIT_USAGE: Final = 64
EXIT_HARNESS: Final = 70
DEBUG: Final = "--debug"

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Does a replicated log lose data? Put a real cluster through a storm and see.",
)  # fmt: skip

Runs = Annotated[list[Path], typer.Argument(help="Run folders (store/<name>/<time>).")]
NoSpark = Annotated[bool, typer.Option("--no-spark", help="Judge in this process.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.callback()
def _all(
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error.")] = False,
) -> None:
    """Options of all commands; `--debug` is taken out before, wherever it stands."""


@app.command()
def run(
    schedule: Annotated[
        Path | None, typer.Option(help="A file, a ready-made one's name, or a run folder: again.")
    ] = None,
    protocol: Annotated[str | None, typer.Option(help="See `floodmark protocols`.")] = None,
    brokers: Annotated[int | None, typer.Option(help="How many brokers [3].")] = None,
    voters: Annotated[int | None, typer.Option(help="Metadata voters: 1, 3, 5 [1].")] = None,
    partitions: Annotated[int | None, typer.Option(help="Partitions of the log [4].")] = None,
    replication_factor: Annotated[int | None, typer.Option(help="Replicas each [3].")] = None,
    min_isr: Annotated[int | None, typer.Option(help="min.insync.replicas [2].")] = None,
    acks: Annotated[str | None, typer.Option(help="0, 1 or all [all].")] = None,
    clients: Annotated[int | None, typer.Option(help="Producers [8].")] = None,
    consumers: Annotated[int | None, typer.Option(help="Consumers [4].")] = None,
    rate: Annotated[
        float | None, typer.Option(help="Batches a second and producer; 0: no pause [10].")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Records a batch [5].")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds of storm [30].")] = None,
    faults: Annotated[
        str | None, typer.Option(help="Kinds, such as kill,pause,partition; none; all [all].")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides storm and workload.")] = None,
    flush: Annotated[str | None, typer.Option(help="sync, async or async:MS [sync].")] = None,
    switch: Annotated[
        list[str] | None, typer.Option(help="Turn a historical bug on; repeatable.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What the run is called in the store.")] = None,
    store: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("store"),
    no_hub: Annotated[bool, typer.Option("--no-hub", help="No link hub: no link faults.")] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Build no page.")] = False,
    no_spark: NoSpark = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: Json = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> int:
    """Put a real cluster through a storm, judge it, and write the page that explains it."""
    from harness.cli_run import Presentation, run_command

    wishes = Wishes(
        schedule=schedule, protocol=protocol, brokers=brokers, voters=voters,
        partitions=partitions, replication_factor=replication_factor, min_isr=min_isr, acks=acks,
        clients=clients, consumers=consumers, rate=rate, batch=batch, time_limit=time_limit,
        faults=faults, seed=seed, flush=flush, switches=tuple(switch or ()), hub=not no_hub,
    )  # fmt: skip
    how = Presentation(
        name=name, store=store, hub=not no_hub, report=not no_report, spark=not no_spark,
        quiet=quiet, json=json, open_page=open_page,
    )  # fmt: skip
    return run_command(wishes, how)


@app.command()
def check(runs: Runs, no_spark: NoSpark = False, json: Json = False) -> int:
    """Judge run folders again: what is there, even of a run that was killed."""
    from harness.judge import SparkSoon, judge, run_folder, summarise

    folders = [run_folder(path) for path in runs]
    results = judge(folders, None if no_spark else SparkSoon(), _tell)
    if json:
        _print_json(results)
    else:
        for folder, result in zip(folders, results, strict=True):
            print(summarise(folder, result))
    return EXIT_CODES[worst(result.verdict for result in results)]


@app.command()
def report(runs: Runs) -> int:
    """Build the page of run folders again."""
    from harness.judge import run_folder
    from reports import build

    for folder in [run_folder(path) for path in runs]:
        print(build(folder))
    return 0


@app.command()
def bench(
    seconds: Annotated[float, typer.Option(help="How long each load is measured.")] = 4.0,
    batch: Annotated[int, typer.Option(help="Records a batch.")] = 100,
    record_bytes: Annotated[int, typer.Option(help="Bytes a record, at least 16.")] = 100,
    judged: Annotated[float, typer.Option(help="Seconds of the judged storm; 0: none.")] = 30.0,
    failover: Annotated[
        bool, typer.Option("--failover", help="Instead: failover times, and idle traffic.")
    ] = False,
    kills: Annotated[int, typer.Option(help="Leaders killed per protocol (--failover).")] = 10,
    protocols: Annotated[
        str | None, typer.Option(help="Protocols, with commas (--failover) [all].")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: Json = False,
) -> int:
    """Measure start-up, throughput, the cost of the link hub, and the time to a verdict."""
    import msgspec

    from harness import bench_failover
    from harness.bench import BenchSettings, run_bench, table
    from harness.progress import Progress

    if failover:
        wanted = bench_failover.FailoverSettings(kills=kills)
        if protocols is not None:
            wanted = msgspec.structs.replace(wanted, protocols=tuple(protocols.split(",")))
        with Progress(quiet=quiet) as progress:
            measured = bench_failover.run_failover(wanted, progress)
        print(msgspec.json.encode(measured).decode() if json else bench_failover.table(measured))
        return 0
    settings = BenchSettings(
        seconds=seconds, batch=batch, record_bytes=record_bytes, judged_s=judged
    )
    with Progress(quiet=quiet) as progress:
        figures = run_bench(settings, progress)
    print(msgspec.json.encode(figures).decode() if json else table(figures))
    return 0


@app.command()
def faults() -> None:
    """List the kinds of faults that a storm can be drawn from."""
    from nemesis.draw import ALIASES, STORM_KINDS

    print("\n".join(STORM_KINDS))
    for alias, kinds in ALIASES.items():
        print(f"{alias} = {', '.join(kinds)}")


@app.command()
def protocols() -> None:
    """List the replication protocols."""
    from node.core.protocol import REGISTRY

    for protocol in REGISTRY.values():
        broken = [name for name, expected in protocol.expected if expected == "violable"]
        known = f"; known to break {', '.join(broken)}" if broken else ""
        print(f"{protocol.name}: {protocol.citation}{known}")


@app.command()
def switches() -> None:
    """List the historical bugs that can be switched on."""
    from node.core.exhibits import EXHIBITS

    for exhibit in EXHIBITS:
        print(f"{exhibit.name} ({exhibit.code}): {exhibit.summary}; seen in {exhibit.seen_in}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in words
    code = _run_command([word for word in words if word != DEBUG], debug=debug)
    sys.stdout.flush()
    raise SystemExit(code)


def _run_command(words: list[str], *, debug: bool) -> int:
    """The exit code; errors have been printed."""
    try:
        code = app(words, standalone_mode=False, prog_name="floodmark")
    except (StopNow, KeyboardInterrupt):
        _tell("floodmark: stopped.")
        return EXIT_UNKNOWN
    except BrokenPipeError:
        return EXIT_HARNESS
    except Exception as error:
        if debug:
            raise
        return _explain(error)
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> int:
    """Print an error as one sentence; returns the exit code it stands for."""
    format_message = getattr(error, "format_message", None)
    if format_message is not None:
        # The command line itself was wrong; typer words that well.
        message = " ".join(str(format_message()).split())
        _tell(f"floodmark: {message}" if message else "floodmark: see floodmark --help")
        return EXIT_USAGE
    if isinstance(error, FloodmarkError) or hasattr(error, "exit_code"):
        _tell(f"floodmark: {' '.join(str(error).split())}")
        return int(getattr(error, "exit_code", EXIT_HARNESS))
    _tell(
        f"floodmark: unexpected {type(error).__name__}: {' '.join(str(error).split())} "
        f"({DEBUG} shows where)"
    )
    return EXIT_HARNESS


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _print_json(results: list[RunResult]) -> None:
    import msgspec

    print(msgspec.json.encode(results).decode())


if __name__ == "__main__":
    main()
