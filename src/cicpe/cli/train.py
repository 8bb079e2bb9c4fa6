"""``cicpe train``: meta-train an agent on a family of tasks."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicpe.cli import options
from cicpe.cli.arguments import given, number, one_or_two, seed, threads, whole
from cicpe.cli.output import note, print_json
from cicpe.cli.playing import on_a_cluster
from cicpe.cli.tasks import problem_of, read_settings, remember_problem
from cicpe.display import amount
from cicpe.errors import InvalidInput, UnservedWarning

if TYPE_CHECKING:
    from cicpe.model import Model

DELTA = 0.1
"""The delta that a finished run reports on."""
NOT_RELIABLE = 1


def train(
    problem: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM",
            help="An experiment file, a template, a registered name, module:Class, or path/to/file.py:Class.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the model, its checkpoint and its log.")],
    dim: Annotated[int | None, typer.Option(parser=whole, metavar="D", help="Number of dimensions.")] = None,
    noise: Annotated[
        list[float] | None,
        typer.Option(parser=number, metavar="S | LO HI", help="Noise: one level, or a range to train for."),
    ] = None,
    option: options.ProblemOption = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(parser=number, metavar="E | LO HI", help="Epsilon: one value, or a range to train for."),
    ] = None,
    actor: Annotated[
        str | None,
        typer.Option(
            metavar="ts|ttps|ucb|fts|td3|search|acquisition|uniform",
            help="How queries are chosen; by default what suits the problem.",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="answers|fast|functions|paper|particles",
            help="How it learns; by default what suits the problem.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="A setting of the recipe, as JSON or text; a dot goes into a part of it; may be repeated.",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(parser=number, metavar="M", help="Wall-clock budget; 5 if neither budget is given."),
    ] = None,
    updates: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="Budget in gradient steps instead: reproducible bit for bit."),
    ] = None,
    random_seed: Annotated[int, typer.Option("--seed", parser=seed, metavar="N", help="Seeds everything.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in DIR.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model or checkpoint in DIR.")] = False,
    thread_count: Annotated[
        int, typer.Option("--threads", parser=threads, metavar="N", help="Threads of arithmetic.")
    ] = 1,
    calibration_episodes: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Most held-out episodes for the stop thresholds.")
    ] = 32768,
    certify_every: Annotated[
        float | None,
        typer.Option(
            parser=number,
            metavar="M|N",
            help="Certify a checkpoint every M minutes (N updates, with --updates); the best one that passes is kept.",
        ),
    ] = None,
    certify_at: Annotated[
        list[float] | None,
        typer.Option(
            parser=number,
            metavar="E D",
            help="Epsilon and delta to certify for; by default the largest and 0.1.",
        ),
    ] = None,
    jobs: options.Jobs = None,
    backend: options.Backend = "local",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> int:
    """Train an agent for a family of tasks.

    Training ends with the calibration of its stop rules, which --jobs shares out. The result is a folder that
    `cicpe evaluate` and `cicpe.load` read. An interrupted run goes on with --resume. The exit code is 1 if the agent is
    not reliable at any epsilon and delta: the folder is there, and promises nothing.

    \b
    Examples:
      cicpe train anneal.toml --out anneal --minutes 5
      cicpe train binary-search --dim 6 --noise 0.025 0.1 --minutes 2 --out runs/mine
      cicpe train examples/dose_finding.py:DoseFinding --epsilon 0.05 0.15 --out runs/dose
      cicpe train geochem --option split=2 --option 'augment=["flips"]' --out runs/copper
      cicpe train ackley --recipe fast --set network.memory.width=64 --out runs/amortised
    """
    import torch

    import cicpe
    from cicpe.parallel import Executor
    from cicpe.progress import followed

    if minutes is not None and updates is not None:
        raise InvalidInput("updates", updates, "left out with --minutes: a run ends after one or after the other")
    noise_level, epsilon_range = one_or_two("noise", noise), one_or_two("epsilon", epsilon)
    family, _ = problem_of(problem, option, dim=dim, noise=noise_level)
    settings = read_settings(setting)
    _check_folder(out, resume, overwrite)
    torch.set_num_threads(thread_count)
    try:
        with on_a_cluster(backend), followed(True) as callback, warnings.catch_warnings():
            warnings.simplefilter("ignore", UnservedWarning)  # what it cannot is in the report below
            model = cicpe.train(
                family,
                minutes=minutes,
                updates=updates,
                recipe=recipe,
                actor=actor,
                seed=random_seed,
                out=out,
                resume=resume,
                calibration_episodes=calibration_episodes,
                certify_every=certify_every,
                certify_at=_pair("certify-at", certify_at),
                settings=settings,
                callback=callback,
                executor=Executor(jobs, backend),
                **given(epsilon=epsilon_range),
            )
    except KeyboardInterrupt:
        _say_how_to_go_on(out)
        raise typer.Exit(130) from None
    remember_problem(family)
    if as_json:
        print_json(_summary(model, out))
    else:
        _report(model, out)
    return NOT_RELIABLE if model.best_offer(model.description.units.delta or DELTA)[1] is None else 0


def _pair(name: str, values: list[float] | None) -> tuple[float, float] | None:
    if values is None or len(values) == 0:
        return None
    if len(values) != 2:
        raise InvalidInput(name, values, "two numbers: epsilon and delta")
    return values[0], values[1]


def _check_folder(out: Path, resume: bool, overwrite: bool) -> None:
    """Refuses to train over something that would be lost by it."""
    from cicpe.training.run import CHECKPOINT

    finished, begun = (out / "config.json").exists(), (out / CHECKPOINT).exists()
    if out.exists() and not out.is_dir():
        raise InvalidInput("out", str(out), "a folder, or a name for a new one; this is a file")
    if resume and overwrite:
        raise InvalidInput("overwrite", True, "left out with --resume")
    if resume and finished and not begun:
        raise InvalidInput("resume", str(out), "a folder with a checkpoint; this holds a finished model and none")
    if resume and not begun:
        note(f"there is no checkpoint in {out} to go on from; starting at the beginning")
    if (finished or begun) and not resume and not overwrite:
        holds = "a finished model" if finished else "the checkpoint of a run that was interrupted"
        raise InvalidInput(
            "out", str(out), f"a new folder; this one holds {holds}. Add --resume or --overwrite, or choose another"
        )


def _say_how_to_go_on(out: Path) -> None:
    from cicpe.training.run import CHECKPOINT

    if (out / CHECKPOINT).exists():
        note(f"interrupted; the same command with --resume goes on from the checkpoint in {out}")
    else:
        note("interrupted before the first checkpoint; nothing is kept")


def _summary(model: "Model", out: Path) -> dict[str, Any]:
    from cicpe.race import read_table

    about = model.description
    return {
        "out": str(out),
        "problem": about.problem,
        "options": about.problem_options,
        "epsilon": list(about.training.epsilon),
        "actor": about.training.query_rule,
        "recipe": about.recipe,
        **(read_table(out) or {"chosen": about.recipe, "tried": []}),
        "seed": about.seed,
        "minutes": about.minutes,
        "updates": about.updates,
        "horizon": about.horizon,
        "sha256": model.sha256,
        "reliable": model.best_offer(model.description.units.delta or DELTA)[1] is not None,
        "calibrated": calibrated_cells(model),
    }


def calibrated_cells(model: "Model") -> list[dict[str, Any]]:
    """The confidence rule's thresholds at ``DELTA``; null where the model was not reliable enough."""
    calibration = model.calibration
    column = calibration.deltas.index(DELTA)  # the usual one, which every calibration has
    names = model.description.context_names
    rows = []
    for point, by_epsilon in zip(calibration.grid.points, calibration.rules["confidence"], strict=True):
        for epsilon, cells in zip(calibration.epsilons, by_epsilon, strict=True):
            cell = cells[column]
            where = dict(zip(names, point, strict=False))
            figures = None if cell is None else cell._asdict()
            rows.append({**where, "epsilon": epsilon, "delta": DELTA, "cell": figures})
    return rows


def _report(model: "Model", out: Path) -> None:
    about = model.description
    took = f"{about.minutes:.1f} minutes, {amount(about.updates, 'update')}"
    print(f"The model is in {out} ({took}; an episode takes at most {amount(about.horizon, 'query')}).")
    wanted = about.units.delta or DELTA
    epsilon, delta = model.best_offer(wanted)
    if delta is None:
        print("It is not reliable at any (epsilon, delta) yet. Train longer: --overwrite with more --minutes.")
        return
    if delta > wanted:
        print(f"It is not reliable at delta {wanted:g} yet; the best that it can is below. More --minutes may help.")
    if about.units.answers:
        print(f"Next:  cicpe session new {out}" + (f" --sure {1 - delta:g}" if delta > wanted else ""))
    else:
        print(f"Next:  cicpe evaluate {out} --epsilon {epsilon:g} --delta {delta:g}")
