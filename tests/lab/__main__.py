"""The laboratory: measurements and campaigns that judge floodmark itself.

    python -m tests.lab judges       our checks beside the outside judge, on drawn schedules
    python -m tests.lab outside      the outside judge alone, on run folders
    python -m tests.lab storms       each kind of fault alone, and all pairs of the options of `run`
    python -m tests.lab small_bugs   a blind search for small bugs in the broker
    python -m tests.lab corpus       the schedules that a mixed search varies
    python -m tests.lab kill_campaign       parts of runs are killed, and stores fail
    python -m tests.lab hostile      stores that somebody sent, beside files that must stay
    python -m tests.lab partitions   processor time and memory of a verdict on many partitions
    python -m tests.lab bench        speed on this machine
    python -m tests.lab journeys     the files of a produce request, and of a fault

`python -m tests.lab NAME --help` lists the options of one.
`tests.lab.check_mutants`, which changes lines of the checks, has a command of its own."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Final

from node.formats.errors import FloodmarkError

EXPERIMENTS: Final = (
    *("judges", "outside", "storms", "small_bugs", "kill_campaign", "hostile"),
    *("corpus", "bench", "journeys", "partitions"),
)


def main(words: list[str]) -> int:
    """Run one experiment; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab")
    parser.add_argument("name", choices=EXPERIMENTS)
    name = parser.parse_args(words[:1]).name
    experiment = import_module(f"tests.lab.{name}")
    options = argparse.ArgumentParser(
        prog=f"python -m tests.lab {name}",
        description=experiment.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    experiment.add_options(options)
    given = options.parse_args(words[1:])
    try:
        return experiment.run(given)
    except FloodmarkError as error:
        options.error(str(error))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
