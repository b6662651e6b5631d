"""`floodmark check`: the verdicts of run folders."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from harness.cli.common import EXIT_UNKNOWN, print_json, print_result, tell
from harness.runs.requests import CheckRequest
from node.formats.files import why_not_writable


def check(request: CheckRequest) -> int:
    """Judge run folders, stores or histories of other tools.

    Also judges the folder of a run whose harness was killed. Results about a folder that cannot be
    written go to a temporary one. Exit code: 0 valid, 1 invalid or over a limit, 2
    unknown or not exercised; of several runs the worst."""
    from checker.formats.verdict import EXIT_CODES, worst
    from harness.replay.pages import is_invalid, page_after
    from harness.runs.judge import SparkSoon, judge, summarise, wrong_lines
    from harness.runs.progress import Progress
    from harness.runs.requests import EXIT_OVER
    from harness.runs.run_paths import promise_in, run_folders
    from reports.wording import count

    if request.validate:
        sentences = [sentence for path in request.runs for sentence in wrong_lines(path)]
        print("\n".join(sentences) if sentences else "Every line is an operation.")
        return EXIT_UNKNOWN if sentences else 0
    promise = promise_in(request.promise) if request.promise else None
    folders = run_folders(request.runs, promise)
    spark = SparkSoon(master=request.master) if request.spark else None
    out = request.out
    if out is None and any(why_not_writable(folder) for folder in folders):
        out = Path(mkdtemp(prefix="floodmark-"))
        tell(f"The results are in {out}, because a folder of these runs cannot be written.")
    results_files = [each / "results.json" for each in folders if out is None]
    with Progress(state=partial(_count_since, results_files, time.time())) as progress:
        progress.phase(f"judging {count(len(folders), 'run')}")
        results = judge(folders, spark, tell, out=out, again=request.again)
    if request.json:
        print_json(results)
    else:
        for folder, result in zip(folders, results, strict=True):
            print_result(summarise(folder, result), result.verdict)
        if request.report and not out and len(folders) == 1 and is_invalid(folders[0]):
            print(f"  page        {page_after(folders[0], tell) or 'none'}")
    broken = [(r.run, sentence) for r in results for sentence in request.limits.broken_by(r)]
    for run, sentence in broken:
        tell(f"floodmark: {run}: {sentence}")
    worst_code = EXIT_CODES[worst(result.verdict for result in results)]
    return worst_code or (EXIT_OVER if broken else 0)


def _count_since(files: list[Path], began_s: float) -> str:
    """Return a text: how many of these files were written since a time."""
    written = 0
    for file in files:
        with contextlib.suppress(OSError):
            written += file.stat().st_mtime >= began_s
    return f"{written} done" if written else ""
