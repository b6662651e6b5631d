"""Runs the shell steps of the action on this machine, as a machine of GitHub would.

    python .github/actions/storms/rehearse.py FOLDER adapter=my.py:MyLog storms=1

FOLDER gets a copy of these sources, the environment, the store, and the files that GITHUB_ENV and
the like name. Steps that use other actions are left out. Prints the exit code of each step."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[2]
FILES = ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")
DEFAULTS = {"requirements": "", "schedule": "", "storms": "0", "budget": "10m"}
DEFAULTS |= {"unknown": "fail", "arguments": ""}
SKIPPED = (".git", ".venv", "tests", "docs", "store", "build", "__pycache__", "*.egg-info")
STEP = re.compile(r"^    - name: (.+)\n((?:      .*\n|\n)+)", re.MULTILINE)
SCRIPT = re.compile(r"^      run: \|\n((?:        .*\n|\n)+)", re.MULTILINE)
GIVEN = re.compile(r"^        ([A-Z]+): \$\{\{ inputs\.([a-z]+) \}\}$", re.MULTILINE)


def rehearse(folder: Path, inputs: dict[str, str], env: dict[str, str]) -> dict[str, int]:
    """Run the shell steps up to the first that fails; return the exit code of each."""
    sources = folder / "sources"
    if not sources.exists():
        shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns(*SKIPPED))
    files = {name: folder / name for name in FILES}
    for file in files.values():
        file.touch()
    env = env | {name: str(file) for name, file in files.items()} | {"RUNNER_TEMP": str(folder)}
    env["GITHUB_ACTION_PATH"] = str(sources / HERE.relative_to(SOURCES))
    first = [str(Path(sys.executable).parent), env["PATH"]]
    codes: dict[str, int] = {}
    for name, step in STEP.findall((HERE / "action.yml").read_text(encoding="utf-8")):
        for script in SCRIPT.findall(step):
            own = {variable: (DEFAULTS | inputs)[key] for variable, key in GIVEN.findall(step)}
            lines = files["GITHUB_ENV"].read_text(encoding="utf-8").splitlines()
            added = dict(line.split("=", 1) for line in lines)
            path = [*files["GITHUB_PATH"].read_text(encoding="utf-8").splitlines(), *first]
            codes[name] = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", textwrap.dedent(script)],
                cwd=folder,
                env=env | added | own | {"PATH": os.pathsep.join(path)},
                check=False,
            ).returncode
        if any(codes.values()):
            break
    return codes


if __name__ == "__main__":
    place, *words = sys.argv[1:]
    Path(place).mkdir(parents=True, exist_ok=True)
    told = rehearse(Path(place).resolve(), dict(w.split("=", 1) for w in words), dict(os.environ))
    sys.stdout.writelines(f"{name}: {code}\n" for name, code in told.items())
    raise SystemExit(max(told.values()))
