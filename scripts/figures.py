"""Draws every figure of docs/images and writes docs/results/figures.md, from result files and short runs of the zoo.

    python scripts/figures.py                        # all of them, about an hour on one core
    python scripts/figures.py campaign reliability   # some
    python scripts/figures.py --redraw main          # one of the paper's, from what was measured before
    python scripts/figures.py --tasks 60 robustness-ackley-5d   # another number of tasks per curve or cell
    python scripts/figures.py --survey FOLDER copper-regions    # what needs the samples of the survey

Each figure is a function here or in paper_figures.py: it measures (or reads) and hands arrays to ``cicpe.plots``.
Captions say on how many tasks and with which seed, and are kept in docs/images/captions.json.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from actor_agents import Run
from figure_parts import DELTA, EPISODES, HARDEST, IMAGES, RESULTS, SEED, Drawn, counted, played, small_png
from matplotlib.figure import Figure
from paper_figures import draw_study, studies

import cicpe
from cicpe import zoo
from cicpe.cli.check import check_experiment
from cicpe.data.places import DataError
from cicpe.episodes.table import tabulate_agent
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.evaluation.reliability import EVEN, at_random_times, reliability
from cicpe.experiments import template_names
from cicpe.plots.ackley import Reach, plot_ackley_ranges
from cicpe.plots.maps import plot_maps
from cicpe.plots.methods import plot_methods
from cicpe.plots.query_space import plot_paths, plot_planes
from cicpe.plots.reliability import AtTheStop, plot_reliability
from cicpe.plots.style import COLOURS, GREY, INK, dress, new_figure, styled
from cicpe.plots.trajectory import plot_trajectory
from cicpe.problems import TaskBatch
from cicpe.problems.ackley import DECAY, FREQUENCY, Ackley, AckleyTask
from cicpe.problems.geochem import Geochem
from cicpe.reporting.comparison_page import method_of, read_comparison
from cicpe.reporting.measure import Example, play_examples
from cicpe.reporting.model_page import map_of, path_queries, plane

KINDS = "kinds"
"""Names the figures of the gallery, one per template."""


def compared(name: str) -> Drawn:
    result = read_comparison(RESULTS / f"comparison-{name}.json")
    methods = [method_of(row) for row in result["rows"]]
    tasks = counted({row["tasks"] for row in result["rows"]})
    at = f"epsilon {result['epsilon']:g}, noise {result['noise']:g}, delta {result['delta']:g}"
    figure = plot_methods(methods, goal=1 - result["delta"], title=f"{result['problem']}, d = {result['dim']}: {at}")
    return Drawn(figure, f"Methods on the same tasks, n = {tasks}, seed {result['seed']}, with 95 % intervals.")


def trajectory_figure() -> Drawn:
    epsilon, noise = HARDEST["binary-search-6d"]
    agent, problem, _ = played("binary-search-6d")
    trace = play_examples(agent, problem, 1, SEED)[0].trace
    figure = plot_trajectory(
        *(trace.query, trace.mean, trace.std),
        target=trace.target,
        stop_time=trace.stop_time if trace.stopped else None,
        confidence=trace.confidence,
        title=f"binary-search-6d, epsilon {epsilon:g}, noise {noise:g}",
    )
    ended = f"it stopped after {trace.stop_time} queries with loss {trace.loss:.3f}"
    return Drawn(figure, f"One episode, coordinate by coordinate (n = 1, seed {SEED}): {ended}.")


@styled
def draw_campaign(example: Example, asked: float) -> Figure:
    """Two panels: the measurements by number with the answer, and the confidence after each of them."""
    trace, stop = example.trace, example.trace.stop_time
    assert example.path is not None
    answer, std = float(trace.mean[stop, 0]), float(trace.std[stop, 0])
    figure = new_figure(2.9)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    left.plot(np.linspace(0, 1, len(example.path)), example.path, color=GREY, linewidth=1, linestyle=(0, (2, 2)))
    left.axhspan(answer - std, answer + std, color=COLOURS[3], alpha=0.2, linewidth=0)
    left.axhline(answer, color=COLOURS[3], linewidth=1.4)
    places, values = trace.query[:stop, 0], trace.observation[:stop, 0]
    left.plot(places, values, "o", color=COLOURS[0], markersize=5)
    for number, place in enumerate(zip(places, values, strict=True), start=1):
        left.annotate(str(number), place, textcoords="offset points", xytext=(5, -11))
    left.set(title="What it asked for, and its answer", xlabel="setting", ylabel="measurement")
    right.axhline(asked, color=COLOURS[1], linewidth=1, linestyle=(0, (5, 3)))
    right.annotate("asked for", (0, asked), textcoords="offset points", xytext=(0, 4), color=COLOURS[1])
    right.plot(np.arange(stop + 1), trace.confidence[: stop + 1], color=INK, marker="o", markersize=4)
    right.set(title="How sure it was", xlabel="measurements", ylabel="confidence", ylim=(0, 1.05))
    for panel in (left, right):
        dress(panel)
    return figure


def campaign_figure(example: int = 3) -> Drawn:
    """The figure of the start page: what was asked and seen, and how the confidence came along."""
    epsilon, noise = HARDEST["gp-max-1d"]
    model = cicpe.load("gp-max-1d")
    agent, problem = model.agent(epsilon, DELTA, "each"), model.tasks({"noise": noise})
    chosen = play_examples(agent, problem, example + 1, SEED)[example]
    figure = draw_campaign(chosen, asked=1 - DELTA)
    caption = (
        f"One campaign of `gp-max-1d` (epsilon {epsilon:g}, delta {DELTA:g}, noise {noise:g}, seed {SEED + example}): it stopped "
        f"after {chosen.trace.stop_time} measurements, {chosen.trace.loss:.3f} off."
    )
    return Drawn(figure, caption)


def planes_figure() -> Drawn:
    epsilon, noise = HARDEST["binary-search-6d"]
    agent, problem, _ = played("binary-search-6d")
    examples = play_examples(agent, problem, 3, SEED)
    figure = plot_planes(
        [plane(example, epsilon, whole=False) for example in examples],
        (-1.0, -1.0),
        (1.0, 1.0),
        title=f"binary-search-6d, epsilon {epsilon:g}, noise {noise:g}: two of six coordinates",
    )
    return Drawn(figure, f"Three episodes in query space, not chosen (seeds {SEED} to {SEED + 2}).")


def ackley_planes_figure(epsilon: float = 0.2, noise: float = 0.05) -> Drawn:
    model = cicpe.load("ackley-3d")
    agent, problem = model.agent(epsilon, DELTA), model.tasks({"noise": noise})
    figure = plot_planes(
        [plane(example, epsilon, whole=False) for example in play_examples(agent, problem, 3, SEED)],
        (-1.0, -1.0),
        (1.0, 1.0),
        title=f"ackley-3d, epsilon {epsilon:g}, noise {noise:g}: two of three coordinates",
    )
    return Drawn(figure, f"Three episodes in query space, not chosen (seeds {SEED} to {SEED + 2}).")


def paths_figure() -> Drawn:
    epsilon, noise = HARDEST["gp-max-1d"]
    agent, problem, _ = played("gp-max-1d")
    examples = play_examples(agent, problem, 4, SEED)
    title = f"gp-max-1d, epsilon {epsilon:g}, noise {noise:g}"
    figure = plot_paths([path_queries(example, epsilon) for example in examples], title=title)
    return Drawn(figure, f"Four functions and the queries made of them, not chosen (seeds {SEED} to {SEED + 3}).")


def learned_queries_figure(tasks: int = 500) -> Drawn | None:
    """What the learned actor asks where queries are no answers, and how much its queries differ between histories."""
    run = Run("gp-max", 1, "td3", "fast")
    if not run.is_there:
        print("gp-td3: skipped, benchmarks/actors.py has made no td3 of gp-max here")
        return None
    epsilon, noise = HARDEST["gp-max-1d"]
    model = cicpe.load(run.folder)
    agent, problem = model.agent(epsilon, DELTA), model.tasks({"noise": noise})
    title = f"gp-max-1d, td3 (fast), epsilon {epsilon:g}, noise {noise:g}"
    shown = [path_queries(example, epsilon) for example in play_examples(agent, problem, 4, SEED)]
    trajectories = collected(model, problem, tasks)
    spreads = ", ".join(f"{trajectories[:, k].std():.2f}" for k in range(5))
    caption = (
        f"Four functions and the queries that the learned actor made of them, not chosen (seeds {SEED} to {SEED + 3}). Deployed, it "
        f"draws from its scores at temperature {model.calibration.query_spread:g}. Always at the highest score, and over {tasks} tasks, the standard "
        f"deviations of its first five queries are {spreads}: before anything is seen all histories are alike, and then they "
        "differ (uniform places have 0.29)."
    )
    return Drawn(plot_paths(shown, title=title), caption)


def collected(model: cicpe.Model, problem: cicpe.Problem, tasks: int) -> np.ndarray:
    """The first queries of a model on fresh tasks, without a draw and with no stop: tasks x 5."""
    batch, rng = TaskBatch.draw(problem, tasks, torch.Generator().manual_seed(SEED)), torch.Generator().manual_seed(1)
    belief, queries = model.belief, []
    state = belief.begin(batch.context)
    for _ in range(5):
        query = belief.assess(state, (0.15,), rng, query_spread=0.0).query[:, 0]
        state = belief.update(state, query, batch.observe(query, rng))
        queries.append(query[:, 0].numpy())
    return np.stack(queries, axis=1)


def copper_figure(epsilon: float = 0.2) -> Drawn | None:
    """Held-out regions of split 0, the first three of each group by name."""
    if "geochem-2d" not in zoo.names():
        print("copper-maps: skipped, the zoo has no geochem-2d")
        return None
    model = cicpe.load("geochem-2d")
    agent, family = model.agent(epsilon, DELTA), model.problem
    assert isinstance(family, Geochem)
    assert family.regions == "train"  # on the regions of a split, so that others are held out
    try:
        entries = family.as_surveyed("held-out").entries
    except DataError as error:
        print(f"copper-maps: skipped, {error}")
        return None
    maps = []
    clear, other = ([entry for entry in entries if entry.resolvable == group][:3] for group in (True, False))
    for entry in clear + other:
        (example,) = play_examples(agent, family.as_surveyed([entry.name]), 1, SEED)
        maps.append(map_of(example, epsilon, entry.name))
    title = (
        f"copper, split {family.split}: epsilon {epsilon:g}, delta {DELTA:g}; resolvable regions above, others below"
    )
    caption = (
        f"Regions that the agent has never seen, the first three of each group by name (n = 1 each, seed {SEED}); with "
        '"all" queries made it was truncated at the horizon. Values are standard scores of log copper, from the lowest '
        "to the highest of each region."
    )
    return Drawn(plot_maps(maps, (0.0, 0.0), (1.0, 1.0), names=("east", "north"), title=title), caption)


def reliability_figure() -> Drawn:
    name = "binary-search-6d"
    epsilon, noise = HARDEST[name]
    agent, problem, _ = played(name)
    result = evaluate_agent(agent, problem, epsilon, 4 * EPISODES, SEED)
    beliefs = tabulate_agent(agent, problem, 4 * EPISODES, 25, SEED + 1)
    table = reliability(*at_random_times(beliefs, epsilon, SEED), borders=EVEN)
    stop = AtTheStop(result.confidence, result.accuracy, result.accuracy_ci)
    title = f"{name}, epsilon {epsilon:g}, noise {noise:g}"
    return Drawn(
        plot_reliability(*table.columns, stop=stop, title=title),
        f"Confidence beside accuracy, n = {4 * EPISODES:,} tasks, each once after a random number of queries, seed {SEED + 1}.",
    )


def ackley_figure(tasks: int = 64) -> Drawn:
    dims, middle = (1, 2, 3, 5, 10), (sum(DECAY) / 2, sum(FREQUENCY) / 2)
    decays, frequencies = np.linspace(*DECAY, 9), np.linspace(*FREQUENCY, 9)
    over_b = {d: reach(d, [(b, middle[1]) for b in decays], decays, tasks) for d in dims}
    over_c = {d: reach(d, [(middle[0], c) for c in frequencies], frequencies, tasks) for d in dims}
    title = f"Ackley on [-1, 1]^d: c = {middle[1]:.2f} on the left, b = {middle[0]:.1f} on the right"
    caption = (
        f"Mean over n = {tasks} minimisers (seed {SEED}) of the largest value in reach, and the paper's normalisation "
        "Z = pi - 0.21 d + 9.68 b + 0.04 c. The largest value hardly depends on d, while Z falls with it."
    )
    return Drawn(plot_ackley_ranges(over_b, over_c, title=title), caption)


def reach(dim: int, shapes: list[tuple[float, float]], parameter: np.ndarray, tasks: int) -> Reach:
    measured = [largest(dim, b, c, tasks) for b, c in shapes]
    scale = [math.pi - 0.21 * dim + 9.68 * b + 0.04 * c for b, c in shapes]
    return Reach(parameter, np.array([m * z / 2 for m, z in zip(measured, scale, strict=True)]), np.array(scale))


def largest(dim: int, decay: float, frequency: float, tasks: int, slopes: int = 80) -> float:
    """The mean over minimisers of the largest 1 - value, which is 2 F / Z, on the box.

    F grows in the mean of u^2 and falls in the mean of cos(c u). For every exchange rate of the two, the best u is
    found coordinate by coordinate; the best of those is the maximum up to the grid.
    """
    target = Ackley(dim).answer_space.sample(tasks, torch.Generator().manual_seed(SEED))
    x = torch.linspace(-1, 1, 401)
    u = x - target[..., None]
    rate = torch.logspace(-3, 3, slopes)[:, None, None, None]
    query = x[(rate * u.square() - torch.cos(frequency * u)).argmax(dim=-1)].flatten(0, 1)
    n = len(query)
    task = AckleyTask(target.repeat(slopes, 1), torch.full((n,), decay), torch.full((n,), frequency), torch.zeros(n))
    return float((1 - Ackley(dim).value(task, query)).view(slopes, tasks).amax(dim=0).mean())


FIGURES: dict[str, Callable[[], Drawn | None]] = {
    "campaign": campaign_figure,
    "comparison-binary-search-6d": lambda: compared("binary-search-6d"),
    "comparison-best-arm-5d": lambda: compared("best-arm-5d"),
    "comparison-gp-max-1d": lambda: compared("gp-max-1d"),
    "trajectory": trajectory_figure,
    "query-plane": planes_figure,
    "ackley-plane": ackley_planes_figure,
    "gp-paths": paths_figure,
    "gp-td3": learned_queries_figure,
    "copper-maps": copper_figure,
    "reliability": reliability_figure,
    "ackley-range": ackley_figure,
}


def page(captions: dict[str, str]) -> str:
    lines = [
        "# Figures",
        "",
        "Drawn by `make figures` (`python scripts/figures.py`) from the zoo's models, the actors of `benchmarks/actors.py` and the result files here. "
        "The figures of the paper come first; what they show is kept in `docs/results/paper-figures.json`.",
        "",
    ]
    for name in [*studies(None), *FIGURES]:
        if name in captions:
            lines += [f"## {name}", "", f"![{name}](../images/{name}.png)", "", captions[name], ""]
    return "\n".join(lines)


def draw_kinds() -> None:
    """What `cicpe check NAME --png FILE` draws of every template: the figures of the gallery."""
    for name in template_names():
        check_experiment(name, IMAGES / f"kind-{name}.png", seconds=0.1, seed=0, as_json=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [*studies(None), *FIGURES]
    parser.add_argument("names", nargs="*", help=f"which, of {', '.join(every)} and {KINDS}; all, if left out")
    parser.add_argument(
        "--redraw", action="store_true", help="draw the paper's figures from what is kept; play nothing"
    )
    parser.add_argument("--tasks", type=int, help="per curve, and per cell of a grid, in the paper's figures")
    parser.add_argument(
        "--dim", nargs="*", type=int, help="the dimensions whose actors are played, in the paper's figures"
    )
    parser.add_argument("--survey", type=Path, help="a folder with the samples of the copper survey, as CSV files")
    args = parser.parse_args()
    if unknown := set(args.names) - {*every, KINDS}:
        parser.error(f"no figure {sorted(unknown)[0]}")
    torch.set_num_threads(1)
    IMAGES.mkdir(parents=True, exist_ok=True)
    if not args.names or KINDS in args.names:
        draw_kinds()
    functions = {
        name: partial(draw_study, name, study, args.redraw)
        for name, study in studies(args.survey, args.tasks, args.dim).items()
    }
    functions |= FIGURES
    for name in [name for name in args.names if name != KINDS] if args.names else functions:
        began = time.process_time()
        drawn = functions[name]()
        if drawn is None:
            continue
        (IMAGES / f"{name}.png").write_bytes(small_png(drawn.figure))
        keep_caption(name, drawn.caption, every)
        print(f"{name}: {time.process_time() - began:.1f} s", flush=True)


def keep_caption(name: str, caption: str, every: list[str]) -> None:
    """Writes the page anew, with these words below a figure."""
    file = IMAGES / "captions.json"
    captions = (json.loads(file.read_text()) if file.exists() else {}) | {name: caption}
    file.write_text(json.dumps({name: captions[name] for name in every if name in captions}, indent=1) + "\n")
    (RESULTS / "figures.md").write_text(page(captions))


if __name__ == "__main__":
    main()
