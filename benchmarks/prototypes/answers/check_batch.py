"""Checks that an episode does not depend on which others are played beside it, and times single episodes."""

import sys
import time

import torch
from answer_prior import AnswerPrior
from battery import cases
from closeness import Closeness
from fit import Choice, Fit, FitConfig
from learn import make_belief

from cicpe.problems.base import TaskBatch


def main() -> None:
    for name, choice in (
        ("dose", Choice(96, given=True)),
        ("source", Choice(96, given=True)),
        ("source", Choice(8)),
        ("resonance", Choice(1, effects=3)),
    ):
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        case = cases()[name]
        fit = Fit.start(case.problem, choice, FitConfig())
        fit.train(updates=60)
        rng = torch.Generator().manual_seed(0)
        prior = AnswerPrior(case.problem, 8000, rng, fit.numbers)
        belief = make_belief(fit, prior, Closeness(case.problem, rng), case.epsilons)
        hidden = TaskBatch.draw(case.problem, 6, rng)
        queries = case.problem.query_space.sample(48, rng).view(8, 6, -1)
        observations = [hidden.observe(query, rng) for query in queries]
        outcomes = []
        for rows in (torch.arange(6), torch.tensor([3])):
            state = belief.begin(hidden.context[rows])
            began = time.process_time()
            for step, (query, observation) in enumerate(zip(queries, observations, strict=False)):
                seen = belief.assess(state, case.epsilons, torch.Generator().manual_seed(step))
                state = belief.observe(state, query[rows], observation[rows])
            spent = (time.process_time() - began) / 8 * 1000
            seen = belief.assess(state, case.epsilons, torch.Generator().manual_seed(9))
            outcomes.append(
                (
                    seen.confidence[:, -1 if len(rows) == 1 else 3],
                    seen.recommendation[0, -1 if len(rows) == 1 else 3],
                    seen.query[-1 if len(rows) == 1 else 3],
                    spent,
                )
            )
        print(
            name,
            choice,
            [(c.tolist(), r.tolist(), q.tolist(), f"{ms:.1f} ms a step") for c, r, q, ms in outcomes],
            flush=True,
        )


if __name__ == "__main__":
    main()
