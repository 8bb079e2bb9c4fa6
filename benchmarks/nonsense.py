"""Campaigns that are fed nonsense: what is caught, how, and what is not. Writes docs/results/nonsense.md.

    python benchmarks/nonsense.py            # all campaigns, without and with two redundant queries
    python benchmarks/nonsense.py --few      # one seed of each

A campaign plays a simulated task whose readings a fault makes wrong, as a user's slip or an instrument would. It is
*quiet* where it stops by itself, as sure as was asked for, wrong, and without a refusal, a question or a word.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, final

import torch

import cicpe
from cicpe.errors import Implausible, InvalidInput
from cicpe.problems import TaskBatch
from cicpe.streams import stream

PAGE = Path(__file__).parent.parent / "docs" / "results" / "nonsense.md"
DELTA, SEED = 0.1, 60_000
VERIFY = (0, 2)

Readings = list[list[float]]
Fault = Callable[[Readings, list[float]], list[float]]
"""From the true readings so far, the last of them included, and the query: what is told."""


def scaled(factor: float) -> Fault:
    """Every reading in another unit."""
    return lambda readings, query: [factor * value for value in readings[-1]]


def slipped(readings: Readings, query: list[float]) -> list[float]:
    """Every third reading with its decimal point one place to the right."""
    return [10 * value if len(readings) % 3 == 0 else value for value in readings[-1]]


def stuck(readings: Readings, query: list[float]) -> list[float]:
    """From the third on, every reading is the second one."""
    return readings[min(len(readings), 2) - 1]


def constant(readings: Readings, query: list[float]) -> list[float]:
    """Every reading is the first one."""
    return readings[0]


def query_for_reading(readings: Readings, query: list[float]) -> list[float]:
    """The column of the query is typed in the place of the reading."""
    return (query * len(readings[-1]))[: len(readings[-1])]


def next_column(readings: Readings, query: list[float]) -> list[float]:
    """Every entry is typed into the field of the next one."""
    return readings[-1][1:] + readings[-1][:1]


def coded(no: float, yes: float) -> Fault:
    """Yes and no by other numbers."""
    return lambda readings, query: [yes if value > 0 else no for value in readings[-1]]


REAL: dict[str, Fault] = {
    "wrong unit (x 1000)": scaled(1000.0),
    "wrong unit (x 1/100)": scaled(0.01),
    "wrong sign": scaled(-1.0),
    "decimal slip in every third": slipped,
    "stuck from the third on": stuck,
    "constant": constant,
    "the query typed as the reading": query_for_reading,
}
YES_NO: dict[str, Fault] = {
    "wrong unit (percent)": coded(0.0, 100.0),
    "wrong code (7 for yes)": coded(-1.0, 7.0),
    "wrong sign": scaled(-1.0),
    "swapped columns": next_column,
    "stuck from the third on": stuck,
    "constant": constant,
}


@final
class Setting(NamedTuple):
    """A model and what is asked of it."""

    model: str
    epsilon: float
    noise: float
    faults: dict[str, Fault]
    seeds: int


SETTINGS = (
    Setting("best-arm-5d", 0.01, 0.01, REAL, 2),
    Setting("gp-max-1d", 0.2, 0.05, REAL, 2),
    Setting("binary-search-6d", 0.2, 0.05, YES_NO, 2),
    Setting("binary-search-10d", 0.2, 0.05, YES_NO, 2),
)


@final
class Ending(NamedTuple):
    """How a campaign that was fed nonsense ended."""

    how: str
    """refused, confirm, held, doubtful, unsure, warned, harmless or quiet."""
    steps: int
    confidence: float


WORDS = {
    "refused": "the value was refused: it cannot be",
    "confirm": "the value had to be confirmed: it is not plausible",
    "held": "the alarm held the stop",
    "doubtful": "it stopped and said that the data are doubtful",
    "unsure": "it never was as sure as was asked for",
    "warned": "it stopped and said that it could not see a reversed sign",
    "harmless": "it stopped, and the answer was right all the same",
    "quiet": "it stopped quietly, sure and wrong",
}


def play(setting: Setting, fault: Fault, seed: int, verify: int) -> Ending:
    """One campaign, told what the fault makes of its readings."""
    model = cicpe.load(setting.model)
    rng = stream(SEED, "evaluation", "nonsense", seed)
    task = TaskBatch.draw(model.tasks({"noise": setting.noise}), 1, rng)
    session = model.session(setting.epsilon, DELTA, seed=seed, noise=setting.noise, verify=verify)
    readings: Readings = []
    while not session.stopped and not session.held:
        query = session.ask()
        readings.append(task.observe(torch.from_numpy(query)[None], rng)[0].tolist())
        try:
            session.tell(fault(readings, query.tolist()))
        except InvalidInput as error:
            how = "confirm" if isinstance(error, Implausible) else "refused"
            return Ending(how, len(readings), session.confidence)
    wrong = float(task.loss(torch.from_numpy(session.recommendation)[None])[0]) > setting.epsilon
    if session.held:
        how = "held"
    elif session.truncated:
        how = "unsure"
    elif session.in_prior == "doubtful":
        how = "doubtful"
    elif not wrong:
        how = "harmless"
    else:
        how = "warned" if session.observations.mirrored and "sign" in session.reason.words else "quiet"
    return Ending(how, len(readings), session.confidence)


def campaigns(few: bool) -> Iterator[tuple[Setting, str, int]]:
    """Every model with every fault that it can be fed, and a seed."""
    for setting in SETTINGS:
        for name in setting.faults:
            for seed in range(1 if few else setting.seeds):
                yield setting, name, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows, counts = [], {verify: Counter[str]() for verify in VERIFY}
    for setting, name, seed in campaigns(args.few):
        ends = {verify: play(setting, setting.faults[name], seed, verify) for verify in VERIFY}
        for verify, end in ends.items():
            counts[verify][end.how] += 1
        cells = " | ".join(f"{end.how} after {end.steps} (confidence {end.confidence:.2f})" for end in ends.values())
        rows.append(f"| {setting.model} | {name} | {seed} | {cells} |")
        print(rows[-1], flush=True)
    PAGE.write_text(page(rows, counts))


def page(rows: Sequence[str], counts: dict[int, Counter[str]]) -> str:
    """The page."""
    heads = " | ".join(f"verify {verify}" for verify in VERIFY)
    listed = "\n".join(
        f"| {how}: {words} | {' | '.join(str(counts[v][how]) for v in VERIFY)} |" for how, words in WORDS.items()
    )
    return TEXT.format(n=len(rows), heads=heads, rules="|---" * len(VERIFY), listed=listed, rows="\n".join(rows))


TEXT = """# Nonsense

{n} campaigns on simulated tasks whose readings a fault makes wrong, at delta 0.1 with the stop rule *each*: without and with
redundant queries before a stop (`--verify`). A campaign is counted at the first thing that would make a person look.

| what happened | {heads} |
|---{rules}|
{listed}

*warned*: where the prior has every value with either sign, no data can tell a reversed sign from a task of the prior, and every stop of
such a model says so. *harmless* ones were fed a fault that left the answer within epsilon.

| model | fault | seed | {heads} |
|---|---|---{rules}|
{rows}

Made by `python benchmarks/nonsense.py` (seed 60000).
"""

if __name__ == "__main__":
    main()
