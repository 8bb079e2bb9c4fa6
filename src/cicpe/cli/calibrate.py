"""``cicpe calibrate``: stop thresholds chosen anew, for the model's own rule for queries or for another."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cicpe.cli import options
from cicpe.cli.arguments import number, seed, whole
from cicpe.cli.output import print_json
from cicpe.cli.playing import playing
from cicpe.cli.tasks import load_model
from cicpe.cli.train import DELTA, NOT_RELIABLE, calibrated_cells
from cicpe.display import amount
from cicpe.errors import InvalidInput

if TYPE_CHECKING:
    from cicpe.model import Model


def calibrate(
    model: options.Model,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the new model.")],
    actor: Annotated[
        str | None,
        typer.Option(metavar="ts|ttps|uniform", help="Another rule for queries; the model's own, if left out."),
    ] = None,
    episodes: Annotated[int, typer.Option(parser=whole, metavar="N", help="Most held-out episodes.")] = 32768,
    minutes: Annotated[float | None, typer.Option(parser=number, metavar="M", help="A limit in wall-clock.")] = None,
    random_seed: Annotated[int, typer.Option("--seed", parser=seed, metavar="N", help="Seeds them.")] = 1,
    problem: options.OwnProblem = None,
    changed_problem: options.ChangedProblem = False,
    jobs: options.Jobs = None,
    backend: options.Backend = "local",
    as_json: options.Json = False,
) -> int:
    """Choose a model's stop thresholds anew, on fresh held-out episodes.

    Nothing is trained. With --actor queries are chosen by another rule that reads the posterior, and the thresholds are
    its own; such a model has no alarm. The exit code is 1 if it is not reliable at any epsilon and delta.

    \b
    Examples:
      cicpe calibrate best-arm-5d --actor ts --out runs/thompson
      cicpe calibrate ackley-3d --minutes 10 --jobs 2 --out runs/ackley
    """
    import cicpe

    if out.exists():
        raise InvalidInput("out", str(out), "a new folder")
    trained = load_model(model, problem, changed_problem)
    with playing(jobs, backend) as executor:
        if actor is None:
            changed = cicpe.recalibrate(
                trained, episodes=episodes, seed=random_seed, minutes=minutes, executor=executor
            )
        else:
            changed = cicpe.with_actor(
                trained, actor, episodes=episodes, seed=random_seed, minutes=minutes, executor=executor
            )
    changed.save(out)
    is_reliable = _offer(changed)[1] is not None
    if as_json:
        about = {"out": str(out), "actor": changed.description.training.query_rule, "reliable": is_reliable}
        print_json(about | {"episodes": changed.calibration.episodes, "calibrated": calibrated_cells(changed)})
    else:
        _report(changed, out)
    return 0 if is_reliable else NOT_RELIABLE


def _offer(model: "Model") -> tuple[float, float | None]:
    """The best epsilon and delta that a model is reliable at."""
    return model.best_offer(model.description.units.delta or DELTA)


def _report(model: "Model", out: Path) -> None:
    epsilon, delta = _offer(model)
    print(f"The model is in {out} (thresholds chosen on {amount(model.calibration.episodes, 'episode')}).")
    if delta is None:
        print("It is not reliable at any (epsilon, delta). More --episodes may help.")
    else:
        print(f"Next:  cicpe evaluate {out} --epsilon {epsilon:g} --delta {delta:g}")
