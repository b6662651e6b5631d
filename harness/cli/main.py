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

from checker.formats.verdict import EXIT_CODES, RunResult, worst
from harness.cli.bench import bench_app
from harness.cli.nightly import nightly
from harness.cli.options import Json, Master, Memory, Quiet
from harness.cli.serve import serve
from harness.runs.interrupts import StopNow
from harness.runs.options import Wishes
from node.formats.errors import FloodmarkError

EXIT_UNKNOWN: Final = 2
EXIT_USAGE: Final = 64
EXIT_HARNESS: Final = 70
DEBUG: Final = "--debug"

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Does a replicated log lose data? Put a real cluster through a storm and see.",
)

Runs = Annotated[list[Path], typer.Argument(help="Run folders (store/<name>/<time>).")]
Histories = Annotated[
    list[Path], typer.Argument(help="Run folders, or histories of other tools (history.edn).")
]
NoSpark = Annotated[bool, typer.Option("--no-spark", help="Judge in this process.")]


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
    bug: Annotated[
        list[str] | None, typer.Option(help="Turn a historical bug on; repeatable.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What the run is called in the store.")] = None,
    store: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("store"),
    no_hub: Annotated[bool, typer.Option("--no-hub", help="No link hub: no link faults.")] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Build no page.")] = False,
    no_control: Annotated[
        bool, typer.Option("--no-control", help="Of a failure, do not simulate it for its page.")
    ] = False,
    no_spark: NoSpark = False,
    quiet: Quiet = False,
    json: Json = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> int:
    """Put a real cluster through a storm, judge it, and write the page that explains it."""
    from harness.cli.run import Presentation, run_command

    wishes = Wishes(
        schedule=schedule,
        protocol=protocol,
        brokers=brokers,
        voters=voters,
        partitions=partitions,
        replication_factor=replication_factor,
        min_isr=min_isr,
        acks=acks,
        clients=clients,
        consumers=consumers,
        rate=rate,
        batch=batch,
        time_limit=time_limit,
        faults=faults,
        seed=seed,
        flush=flush,
        bugs=tuple(bug or ()),
        hub=not no_hub,
    )
    how = Presentation(
        name=name,
        store=store,
        hub=not no_hub,
        report=not no_report,
        control=not no_control,
        spark=not no_spark,
        quiet=quiet,
        json=json,
        open_page=open_page,
    )
    return run_command(wishes, how)


@app.command()
def check(
    runs: Histories,
    no_spark: NoSpark = False,
    json: Json = False,
    validate: Annotated[
        bool, typer.Option("--validate", help="Only say what is wrong on which line.")
    ] = False,
    master: Master = None,
    memory: Memory = "",
    out: Annotated[
        Path | None, typer.Option(help="Where results and tables go [the run folders].")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also what was judged and has not changed since.")
    ] = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Build no page of a single failing run.")
    ] = False,
) -> int:
    """Judge run folders, or all in a store: what is there, even of a run that was killed."""
    from harness.runs.judge import Keep, SparkOptions, SparkSoon, judge, run_folders, wrong_lines
    from harness.runs.judge import summarise as summary
    from harness.runs.page_builder import is_invalid, page_after

    if validate:
        sentences = [sentence for path in runs for sentence in wrong_lines(path)]
        print("\n".join(sentences) if sentences else "Every line is an operation.")
        return EXIT_UNKNOWN if sentences else 0
    folders = run_folders(runs)
    spark = None if no_spark else SparkSoon(options=SparkOptions(master, memory))
    results = judge(folders, spark, _tell, Keep(out, again))
    if json:
        _print_json(results)
    else:
        for folder, result in zip(folders, results, strict=True):
            print(summary(folder, result), flush=True)
        if not no_report and out is None and len(folders) == 1 and is_invalid(folders[0]):
            print(f"  page        {page_after(folders[0], _tell) or 'none'}")
    return EXIT_CODES[worst(result.verdict for result in results)]


@app.command()
def report(runs: Runs) -> int:
    """Build the page of run folders or findings; of a failure, run its control first."""
    from harness.runs.judge import run_folder
    from harness.runs.page_builder import is_finding, page_of, page_of_finding

    wanted = [path if is_finding(path) else run_folder(path) for path in runs]
    for path in wanted:
        print(page_of_finding(path, _tell) if is_finding(path) else page_of(path, _tell))
    return 0


@app.command()
def replay(
    file: Annotated[
        Path, typer.Argument(help="A schedule file, a ready-made one's name, or a run folder.")
    ],
    world: Annotated[str, typer.Option(help="simulated or real.")] = "simulated",
    times: Annotated[int, typer.Option(help="How often; each time with the next seed.")] = 1,
    least: Annotated[
        int | None, typer.Option(help="How many must be as expected [invalid: 1; valid: all].")
    ] = None,
    expect: Annotated[
        str, typer.Option(help="valid, invalid or invalid:PROPERTY [what the schedule says].")
    ] = "",
    protocol: Annotated[str | None, typer.Option(help="Under another protocol.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the first run [the workload's].")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="List every step in words.")] = False,
    keep: Annotated[
        Path | None, typer.Option(help="Leave the run folders there [simulated: none].")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Run a schedule again; exit 0 when the runs are what it expects, 1 when not."""
    from harness.cli.replay import Replay, replay_command

    return replay_command(
        Replay(
            file=file,
            world=world,
            times=times,
            least=least,
            expect=expect,
            protocol=protocol,
            seed=seed,
            trace=trace,
            keep=keep,
            quiet=quiet,
            json=json,
        )
    )


@app.command()
def search(
    protocol: Annotated[str, typer.Option(help="The protocol to break.")] = "kafka",
    bug: Annotated[
        list[str] | None, typer.Option(help="Turn a historical bug on; repeatable.")
    ] = None,
    engine: Annotated[str, typer.Option(help="random, guided or hypothesis.")] = "random",
    seed: Annotated[int, typer.Option(help="The same seed tries the same schedules.")] = 0,
    seconds: Annotated[float, typer.Option(help="Stop after so long; 0: no limit.")] = 0.0,
    schedules: Annotated[int, typer.Option(help="Stop after so many; 0: no limit.")] = 0,
    until_failure: Annotated[
        bool, typer.Option("--until-failure", help="Stop at the first finding.")
    ] = False,
    cores: Annotated[int, typer.Option(help="Worker processes; 0: one a core.")] = 0,
    master: Annotated[
        str | None, typer.Option(help="Search on the cores of this Spark master instead.")
    ] = None,
    store: Annotated[Path, typer.Option(help="Findings go to findings/ there.")] = Path("store"),
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Look for a schedule that breaks a protocol, in simulated worlds; exit 1 when one is found."""
    import os

    from harness.cli.search import SearchWish, search_command

    return search_command(
        SearchWish(
            protocol=protocol,
            bugs=tuple(bug or ()),
            engine=engine,
            seed=seed,
            seconds=seconds,
            schedules=schedules,
            until_failure=until_failure,
            cores=cores or os.cpu_count() or 1,
            master=master,
            store=store,
            quiet=quiet,
            json=json,
        )
    )


@app.command()
def museum(
    only: Annotated[
        list[str] | None, typer.Option(help="Only this exhibit, by code or name; repeatable.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Of one core, for each search.")] = 300.0,
    seeds: Annotated[int, typer.Option(help="Searches for each exhibit.")] = 3,
    schedules_for_correct: Annotated[
        int, typer.Option(help="Schedules on each protocol that should hold.")
    ] = 0,
    real: Annotated[int, typer.Option(help="Replays of each in real processes.")] = 0,
    real_seconds: Annotated[
        float, typer.Option(help="Begin no replays of another one after so long; 0: no limit.")
    ] = 0.0,
    cores: Annotated[int, typer.Option(help="Worker processes.")] = 1,
    store: Annotated[Path, typer.Option(help="Kept in museum/ there.")] = Path("store"),
    page: Annotated[Path | None, typer.Option(help="Write the table as Markdown there.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Find every known bug again by blind search; what was found before is kept."""
    from harness.cli.bugs import BugSearchRequest, find_bugs_command

    return find_bugs_command(
        BugSearchRequest(
            only=tuple(only or ()),
            seconds=seconds,
            seeds=seeds,
            real=real,
            real_seconds=real_seconds,
            cores=cores,
            schedules_for_correct=schedules_for_correct,
            store=store,
            page=page,
            quiet=quiet,
            json=json,
        )
    )


app.command()(nightly)
app.command()(serve)
app.add_typer(bench_app, name="bench")


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
def bugs() -> None:
    """List the historical bugs that can be switched on."""
    from node.core.bugs import KNOWN_BUGS

    for exhibit in KNOWN_BUGS:
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
