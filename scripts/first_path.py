"""Times a first-time reader's path: from README.md to the first result of their own, every command as it stands there.

    python scripts/first_path.py     # about ten minutes; writes docs/results/first-path.json and .md

The reader has a clone and nothing else. In a fresh environment they install, save the README's experiment as a file,
check it, train, begin a campaign and tell it what they measure until it stops. The demo is left out: it is not on the
way. The enzyme is a formula here, so measuring takes no time; what a person needs for reading and typing is not timed.
"""

import json
import os
import platform
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
VMAX, KM, NOISE, SEED = 6.0, 1.0, 0.1, 0
"""The enzyme that nobody knows: within the README's ranges."""
BLOCK = re.compile(r"^```(text|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"measure at\s+substrate ([\d.]+) mM")
MOST = 100


def readme_blocks() -> tuple[list[str], str, list[str]]:
    """The two commands, the experiment, and the commands for it."""
    texts = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    (_, first), (_, experiment), (_, own) = texts[:3]
    return commands_of(first), experiment, commands_of(own)


def commands_of(block: str) -> list[str]:
    """Lines without what is said of them."""
    return [line.split("#")[0].strip() for line in block.splitlines()]


def measured(printed: str, rng: random.Random) -> float | None:
    """What the laboratory reads at the place that was asked for; None where nothing was."""
    found = PLACE.search(printed)
    if found is None:
        return None
    substrate = float(found[1])
    return round(VMAX * substrate / (KM + substrate) + rng.gauss(0.0, NOISE), 3)


class Desk:
    """A fresh environment, a folder, and a clock."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "env", with_pip=True)
        self.place = folder / "desk"
        self.place.mkdir()
        path = os.pathsep.join([str(folder / "env" / "bin"), "/usr/local/bin", "/usr/bin", "/bin"])
        own = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("DATA", "STATE")}
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CICPE", "VIRTUAL"))
        }
        self.variables = {**kept, **own, "PATH": path, "COLUMNS": "120"}
        self.rows: list[dict[str, Any]] = []

    def run(self, command: str, where: Path | None = None) -> str:
        """Runs a command and keeps what it took; what it prints is returned."""
        print(f"$ {command}", flush=True)
        began = time.perf_counter()
        done = subprocess.run(
            shlex.split(command), cwd=where or self.place, env=self.variables, capture_output=True, text=True
        )
        self.rows.append({"command": command, "seconds": time.perf_counter() - began, "code": done.returncode})
        if done.returncode:
            sys.exit(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stderr + done.stdout


def walk(folder: Path) -> dict[str, Any]:
    """The whole path."""
    load = os.getloadavg()[0]
    first, experiment, (check, train, new, tell) = readme_blocks()
    desk, rng = Desk(folder), random.Random(SEED)
    desk.run(first[0], ROOT)
    (desk.place / "enzyme.toml").write_text(experiment, encoding="utf-8")
    desk.run(check)
    desk.run(train)
    printed = desk.run(new)
    for _ in range(MOST):
        value = measured(printed, rng)
        if value is None:
            break
        printed = desk.run(f"{tell.rsplit(' ', 1)[0]} {value:g}")
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": load,
        "rows": desk.rows,
        "end": printed.strip(),
    }


def page(result: dict[str, Any]) -> str:
    """The result in words."""
    rows = result["rows"]
    told = [row for row in rows if " tell " in row["command"]]
    before = rows[: len(rows) - len(told)]
    total = sum(row["seconds"] for row in rows)
    lines = [
        "# From the README to a result of one's own",
        "",
        f"Written by `python scripts/first_path.py` on {result['date']}: the commands of the README, in a fresh environment,",
        f"with Python {result['python']} on {result['cores']} cores, which {busy(result['load'])}. The packages came from pip's",
        "cache. What a reader needs to read, to type and to measure comes on top.",
        "",
        f"**{len(before)} commands to the first question, {len(rows)} to the answer; {total / 60:.1f} minutes of waiting.** Training is",
        "given five minutes; where others use the processor, it and all else take longer.",
        "",
        "| command | seconds |",
        "|---|---|",
        *(f"| `{row['command']}` | {row['seconds']:.1f} |" for row in before),
        f"| `cicpe session tell ...`, {len(told)} times | {mean_of(told):.1f} each |",
        "",
        f"The enzyme was a formula (vmax {VMAX:g}, km {KM:g}, noise {NOISE:g}, seed {SEED}). The campaign ended with",
        "",
        "```text",
        result["end"],
        "```",
        "",
        "One path on one machine, for orientation. The numbers are in `docs/results/first-path.json`.",
    ]
    return "\n".join([*lines, ""])


def busy(load: float) -> str:
    """What else the machine did."""
    return f"others used too (a load of {load:.1f} at the start)" if load > 0.5 else "had nothing else to do"


def mean_of(rows: list[dict[str, Any]]) -> float:
    return sum(row["seconds"] for row in rows) / max(len(rows), 1)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        result = walk(Path(folder))
    (RESULTS / "first-path.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / "first-path.md").write_text(page(result))


if __name__ == "__main__":
    main()
