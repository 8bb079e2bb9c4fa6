"""Builds the wheel and the sdist, and tries them in fresh environments, in a folder without the checkout.

    python scripts/try_package.py                    # the core, and every extra alone
    python scripts/try_package.py core store server  # some of them

Every extra gets an environment that holds the core install and what the extra adds; it sees nothing of the Python that
runs this script. `core-sdist` installs from the sdist. Needs `build`, and what `pip` needs to find packages.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 1800
NEEDED = ("server/web/index.html", "sessions/stores/migrations/versions/v0001_campaigns.py", "py.typed")
"""Files that a wheel must hold beside the code; and the zoo, of which every model is looked for."""

CAMPAIGN = [
    "cicpe session new gp-max-1d --name furnace --epsilon 0.2 --delta 0.1 --noise 0.05 --store campaigns.db",
    "cicpe session tell 0.31 --store campaigns.db",
    "cicpe store check --store campaigns.db",
]
STUDY = """
import optuna, cicpe
from cicpe.integrations.optuna import CicpeSampler
sampler = CicpeSampler(cicpe.load("gp-max-1d"), epsilon=0.12, delta=0.1, value_range=(4.0, 6.0))
study = optuna.create_study(direction="minimize", sampler=sampler)
study.optimize(lambda trial: 4.0 + ((trial.suggest_float("celsius", 300, 900) - 480) / 300) ** 2, n_trials=3)
assert "confidence" in study.user_attrs["cicpe"]
"""
ENVIRONMENT = """
import gymnasium, cicpe.integrations.gymnasium
env = gymnasium.make("cicpe/binary-search-v0", dim=1)
env.reset(seed=0)
assert "observation" in env.step(env.action_space.sample())[0]
"""
SURVEY = """
from pathlib import Path
from cicpe.data.synthetic import write_synthetic
write_synthetic(Path("old.csv"), regions=2)
"""
POSTGRES = """
from cicpe.sessions.stores import open_store
from cicpe.testing.postgres import postgres_is_installed, temporary_postgres
if postgres_is_installed():
    with temporary_postgres() as address:
        assert open_store(address).campaigns() == []
else:
    import psycopg
"""
SWEEP = """
from pathlib import Path
Path("sweep.toml").write_text('''problem = "binary-search"
out = "sweep"
cells = [{ epsilon = 0.4, delta = 0.3 }]
episodes = 100
[train]
noise = 0.1
epsilon = [0.2, 0.4]
updates = 10
calibration-episodes = 100
[product]
dim = [1]
''')
"""
FRAME = "import cicpe; assert len(cicpe.load('gp-max-1d').session(epsilon=0.2, delta=0.1).to_frame()) == 0"
TENSORBOARD = "from pathlib import Path; assert any(Path('run/tensorboard').iterdir())"

TRIALS: dict[str, list[str]] = {
    "core": [
        "cicpe --version",
        "cicpe zoo list",
        "cicpe problems",
        "python -m cicpe zoo show gp-max-1d",
        "cicpe demo --minutes 0.1 --dim 1 --out demo",
    ],
    "core-sdist": ["cicpe --version", "cicpe zoo list"],
    "train": [
        "cicpe train binary-search --dim 1 --epsilon 0.3 0.4 --recipe fast --updates 20 --calibration-episodes 100 --out run",
        TENSORBOARD,
    ],
    "baselines": ["cicpe compare gp-max --epsilon 0.2 --noise 0.1 --methods cicpe,tpe,gp-ucb --episodes 3 --json"],
    "store": CAMPAIGN,
    "postgres": [*CAMPAIGN, POSTGRES],
    "server": [*CAMPAIGN, "serve"],
    "optuna": [STUDY],
    "gymnasium": [ENVIRONMENT],
    "geo": [SURVEY, "cicpe data show old.csv"],
    "ray": [SWEEP, "cicpe sweep sweep.toml --backend ray"],
    "docs": ["mkdocs --version"],
    "frames": [FRAME],
    "races": ["import git_bayesect, questplus"],
}
"""Per extra: commands, Python programs, and `serve`, which is started and asked for its page."""
MAY_SAY_NO = ("cicpe demo", "cicpe train", "cicpe sweep")
"""Commands whose exit code 1 is an answer: so little training may be refused."""


def build(out: Path) -> tuple[Path, Path]:
    """The wheel and the sdist."""
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)], check=True, stdout=subprocess.DEVNULL
    )
    (wheel,), (sdist,) = sorted(out.glob("*.whl"))[-1:], sorted(out.glob("*.tar.gz"))[-1:]
    held = set(zipfile.ZipFile(wheel).namelist())
    zoo = [f"zoo/{path.parent.name}/config.json" for path in (ROOT / "src" / "cicpe" / "zoo").glob("*/config.json")]
    missing = [name for name in (*NEEDED, *zoo) if f"cicpe/{name}" not in held]
    if missing:
        sys.exit(f"{wheel.name} lacks {', '.join(missing)}")
    return wheel, sdist


def fresh(folder: Path, requirement: str, base: Path | None) -> Path:
    """An environment with a requirement installed; with what ``base`` holds already there, if one is given."""
    venv.create(folder, with_pip=True)
    (site,) = folder.glob("lib/python*/site-packages")
    if base is not None:
        (core,) = base.glob("lib/python*/site-packages")
        (site / "core.pth").write_text(f"{core}\n")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), requirement], check=True)
    return folder


def run(environment: Path, base: Path, place: Path, trial: str) -> None:
    """One command or program, with this environment's programs and nothing else's."""
    path = os.pathsep.join([str(environment / "bin"), str(base / "bin"), "/usr/local/bin", "/usr/bin", "/bin"])
    variables = {"PATH": path, "HOME": str(place), "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}
    python = str(environment / "bin" / "python")
    if trial == "serve":
        serve(python, place, variables)
        return
    if trial.startswith("cicpe "):
        words = [python, "-m", *trial.split()]
    else:
        words = [python, *trial.split()[1:]] if trial.startswith("python ") else [python, "-c", trial]
    if trial.startswith("mkdocs"):
        words = [python, "-m", *trial.split()]
    done = subprocess.run(words, cwd=place, env=variables, capture_output=True, text=True, timeout=SECONDS)
    allowed = (0, 1) if trial.startswith(MAY_SAY_NO) else (0,)
    if done.returncode not in allowed or "Traceback" in done.stderr:
        sys.exit(f"{trial}\nended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


def serve(python: str, place: Path, variables: dict[str, str]) -> None:
    """Starts the server, and asks it for its page and its campaigns."""
    words = [python, "-m", "cicpe", "serve", "--port", "0", "--store", "campaigns.db"]
    server = subprocess.Popen(words, cwd=place, env=variables, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[0]
        for page, word in (("", "<title>"), ("api/campaigns", "furnace")):
            text = urllib.request.urlopen(address + page, timeout=60).read().decode()
            if word not in text:
                sys.exit(f"{address}{page} does not hold {word!r}")
    finally:
        server.terminate()
        server.wait(timeout=30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", help=f"which, of {', '.join(TRIALS)}; all, if left out")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where wheel and sdist are put")
    chosen = parser.parse_args()
    if unknown := set(chosen.extras) - set(TRIALS):
        parser.error(f"no extra {sorted(unknown)[0]}")
    wheel, sdist = build(chosen.out)
    print(f"built {wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB) and {sdist.name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        base = fresh(Path(folder) / "core", str(wheel), None)
        for name in chosen.extras or TRIALS:
            began = time.perf_counter()
            place = Path(folder) / f"work-{name}"
            place.mkdir()
            environment = base
            if name == "core-sdist":
                environment = fresh(Path(folder) / name, str(sdist), None)
            elif name != "core":
                environment = fresh(Path(folder) / name, f"cicpe[{name}] @ {wheel.as_uri()}", base)
            for trial in TRIALS[name]:
                run(environment, base, place, trial)
            print(f"{name}: {len(TRIALS[name])} tried, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
