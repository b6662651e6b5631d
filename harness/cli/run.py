"""`floodmark run`: a run, its verdict, its page, and what is printed of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.common import (
    Bugs,
    Json,
    NoSpark,
    Quiet,
    Settings,
    SystemFile,
    one_system,
    print_json,
)
from harness.cli.values import SEED, WEEK_S, Number, Readable, Whole, WritableFolder, taking

if TYPE_CHECKING:
    from nemesis.formats.schedule import Schedule


def run(
    system: Annotated[
        str | None,
        typer.Option(
            help="System under test; `floodmark systems` lists them [default: that of the run "
            "folder of --schedule, else floodmark]."
        ),
    ] = None,
    system_file: SystemFile = None,
    setting: Settings = None,
    schedule: Annotated[
        Path | None,
        typer.Option(
            **taking(Readable()),
            help="Run this schedule instead of a drawn storm: a schedule file, the name of a "
            "ready-made schedule, or a run folder (runs its schedule again).",
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="Replication protocol; `floodmark protocols` lists them [default: kafka]."
        ),
    ] = None,
    brokers: Annotated[
        int | None, typer.Option(**taking(Whole(1, 99)), help="Number of brokers [default: 3].")
    ] = None,
    voters: Annotated[
        int | None,
        typer.Option(
            **taking(Whole(1, 5)), help="Number of metadata voters: 1, 3 or 5 [default: 1]."
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(**taking(Whole(1, 10_000)), help="Number of partitions [default: 4]."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(**taking(Whole(1, 99)), help="Replicas of each partition [default: 3]."),
    ] = None,
    min_isr: Annotated[
        int | None, typer.Option(**taking(Whole(1, 99)), help="min.insync.replicas [default: 2].")
    ] = None,
    retention_records: Annotated[
        int | None,
        typer.Option(
            **taking(Whole(0, 2**31 - 1)),
            help="Committed records to keep of a partition, 0: all [default: 0].",
        ),
    ] = None,
    fetch_max_bytes: Annotated[
        int | None,
        typer.Option(
            **taking(Whole(0, 16 << 20)),
            help="Bytes that a follower asks for at once; it gets one batch at least "
            "[default: 1048576].",
        ),
    ] = None,
    acks: Annotated[
        str | None, typer.Option(help="Acknowledgements of a send: 0, 1 or all [default: all].")
    ] = None,
    clients: Annotated[
        int | None, typer.Option(**taking(Whole(0, 1000)), help="Number of producers [default: 8].")
    ] = None,
    consumers: Annotated[
        int | None, typer.Option(**taking(Whole(0, 1000)), help="Number of consumers [default: 4].")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            **taking(Number(0, 1e6)),
            help="Batches per second of each producer; 0: as fast as possible [default: 10].",
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(**taking(Whole(1, 10_000)), help="Records per batch [default: 5].")
    ] = None,
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="Producers are idempotent: they send again.")
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option(
            **taking(Number(0, WEEK_S, above=True)),
            help="Length of the storm in seconds [default: 30].",
        ),
    ] = None,
    faults: Annotated[
        str | None,
        typer.Option(
            help="Kinds of faults to draw, such as kill,pause,partition; none; all [default: all]."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            **taking(SEED), help="Seed of the drawn storm and of the workload [default: random]."
        ),
    ] = None,
    flush: Annotated[
        str | None,
        typer.Option(help="When brokers sync to disk: sync, async or async:MS [default: sync]."),
    ] = None,
    bug: Bugs = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the run in the store [default: protocol and bugs].")
    ] = None,
    store: Annotated[
        Path, typer.Option(**taking(WritableFolder()), help="Folder for run folders.")
    ] = Path("store"),
    links: Annotated[
        str | None,
        typer.Option(
            help="What stands between the nodes: hub or none for our own brokers, proxy, kernel or "
            "none for other systems; with none, link faults are impossible [default: the first]."
        ),
    ] = None,
    disk: Annotated[
        str | None,
        typer.Option(
            help="What the disks of the nodes are: user-space, declared or plain; journal or "
            "user-space for our own brokers; auto: what the faults need [default: auto]."
        ),
    ] = None,
    write_back_ms: Annotated[
        int | None,
        typer.Option(
            **taking(Whole(0, 86_400_000)),
            help="Age in ms at which a disk in user space writes back by itself, 0: never, and not "
            "when the storm begins [default: 30000].",
        ),
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Do not build the page.")] = False,
    no_baseline: Annotated[
        bool,
        typer.Option(
            "--no-baseline",
            help="Do not repeat a failed run under a correct protocol for comparison.",
        ),
    ] = False,
    no_spark: NoSpark = False,
    quiet: Quiet = False,
    json: Json = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> int:
    """Run a cluster through a storm of faults and judge it.

    Draws a storm, or takes the one of --schedule. Starts real processes, injects the faults while
    clients write and read, checks the history against the logs of the replicas, and writes a page.
    Exit code: 0 valid, 1 invalid, 2 unknown or not exercised.
    """
    import sys
    import webbrowser

    if system in (None, "floodmark") and system_file is None:
        # It imports what the nodes need while this process imports what it needs itself.
        from harness.systems.floodmark import processes

        processes.prepare()
    from checker.formats.verdict import EXIT_CODES
    from harness.runs.interrupts import Interrupts
    from harness.runs.judge import SparkSoon, summarise
    from harness.runs.options import (
        RunRequest,
        default_name,
        kinds_of,
        settings_of,
        system_of,
        to_schedule,
    )
    from harness.runs.program import called
    from harness.runs.progress import Progress
    from harness.runs.run import Run, RunSettings
    from harness.runs.run_and_judge import run_and_judge
    from harness.systems.external.links import KERNEL_LINKS
    from nemesis.links import namespaces

    request = RunRequest(
        system=one_system(system, system_file),
        settings=settings_of(setting or ()),
        schedule=schedule,
        protocol=protocol,
        brokers=brokers,
        voters=voters,
        partitions=partitions,
        replication_factor=replication_factor,
        min_isr=min_isr,
        retention_records=retention_records,
        fetch_max_bytes=fetch_max_bytes,
        write_back_ms=write_back_ms,
        acks=acks,
        clients=clients,
        consumers=consumers,
        rate=rate,
        batch=batch,
        idempotent=idempotent or None,
        time_limit=time_limit,
        faults=faults,
        seed=seed,
        flush=flush,
        bugs=tuple(bug or ()),
        links=links,
        disk=disk,
    )
    wanted = to_schedule(request)
    target = system_of(schedule, request.system, request.settings)
    if target.link_form(links) == KERNEL_LINKS:
        namespaces.enter()
    settings = RunSettings(
        name=name or default_name(wanted),
        seed=wanted.workload.seed,
        store=store,
        command=(*called(), *sys.argv[1:]),
        links=target.link_form(links),
        disk=target.disk_form(disk, kinds_of(wanted)),
    )
    with Interrupts() as interrupts, Progress(quiet=quiet) as progress:
        run = Run(wanted, settings, target, progress=progress, interrupts=interrupts)
        folder = run.folder.path
        progress.note(_headline(wanted, folder, run.info.replay))
        spark = None if no_spark else SparkSoon(folder / "output" / "spark.txt")
        result = run_and_judge(run, progress, interrupts, spark=spark, source=schedule)
    if not json:
        print(summarise(folder, result), flush=True)
    page = None if no_report else _page(folder, baseline=not no_baseline, quiet=quiet)
    if json:
        place = {"path": str(folder), "page": str(page) if page else None}
        print_json(place | {"replay": run.info.replay, "result": result})
    else:
        print(f"  page        {page}" if page else f"  folder      {folder}")
    if open_page and page is not None:
        webbrowser.open(page.absolute().as_uri())
    return EXIT_CODES[result.verdict]


def _page(folder: Path, *, baseline: bool, quiet: bool) -> Path | None:
    """The page, after the verdict: nothing that goes wrong with it changes that."""
    from harness.runs.page_builder import page_after
    from harness.runs.progress import Progress

    with Progress(quiet=quiet) as progress:
        progress.phase("building the page")
        return page_after(folder, progress.note, baseline_too=baseline)


def _headline(schedule: Schedule, folder: Path, again: str) -> str:
    """What is run, and how to run it again, before anything can go wrong."""
    cluster = schedule.cluster
    bugs = f" with {', '.join(cluster.bugs)}" if cluster.bugs else ""
    return (
        f"{cluster.protocol}{bugs}: {cluster.brokers} brokers, {len(schedule.faults)} faults, "
        f"seed {schedule.workload.seed}, schedule {schedule.digest()}, in {folder}\n"
        f"again: {again}"
    )
