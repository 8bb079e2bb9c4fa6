"""Tunes two hyper-parameters of a support-vector machine with Optuna, and ends when the answer is good enough.

pip install 'cicpe[optuna]' scikit-learn
python examples/tune_svm.py      # about a minute and a half, nearly all of it training
"""

import math

import optuna
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

import cicpe
from cicpe.integrations.optuna import CicpeSampler, Observations


class ScoreSurface(cicpe.Problem):
    """What a validation score looks like over two hyper-parameters: one broad hill, tilted, on a flat plain.

    Scores are scaled: the plain is near 0 and the top near 1. The loss of an answer is how much worse it scores than
    the best place, so that a long ridge of equally good places is no difficulty.
    """

    query_space = answer_space = cicpe.Box([0.0, 0.0], [1.0, 1.0])
    default_epsilon = (0.04, 0.1)
    horizon = 15

    def sample(self, n, rng):
        def uniform(low, high, *shape):
            return low + (high - low) * torch.rand((n, *shape), generator=rng)

        width = torch.exp(uniform(math.log(0.15), math.log(0.7), 2))
        return {
            "centre": uniform(0.1, 0.9, 2),
            "width": width,
            "angle": uniform(0.0, math.pi),
            "sharpness": uniform(2.0, 4.0),  # 2: a bell; more: a table with steep sides
            "plain": uniform(-0.1, 0.2),
            "top": uniform(0.8, 1.1),
        }

    def value(self, task, query):
        u, v = (query - task["centre"]).unbind(dim=-1)
        cos, sin = task["angle"].cos(), task["angle"].sin()
        along, across = (cos * u + sin * v) / task["width"][:, 0], (cos * v - sin * u) / task["width"][:, 1]
        far = (along**2 + across**2).sqrt()
        return task["plain"] + (task["top"] - task["plain"]) * torch.exp(-0.5 * far ** task["sharpness"])

    def observe(self, task, query, rng):
        return self.value(task, query) + 0.02 * torch.randn(len(query), generator=rng)

    def target(self, task):
        return task["centre"]

    def loss(self, task, answer):
        return task["top"] - self.value(task, answer)


def error_rate(trial):
    """Share of digits that are misread, by cross-validation."""
    c, gamma = trial.suggest_float("C", 1e-2, 1e3, log=True), trial.suggest_float("gamma", 1e-5, 1, log=True)
    images, digits = load_digits(return_X_y=True)
    return 1 - cross_val_score(SVC(C=c, gamma=gamma), images[:500] / 4, digits[:500], cv=3).mean()


if __name__ == "__main__":
    model = cicpe.train(ScoreSurface(), recipe="functions", updates=100, calibration_episodes=300)
    # An error rate within 0.05 of the best, in nine of ten campaigns. Guessing misreads nine digits of ten.
    observations = Observations.measured(ScoreSurface())
    sampler = CicpeSampler(model, epsilon=0.05, delta=0.1, value_range=(0.0, 0.9), observations=observations)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    study.optimize(error_rate)  # no n_trials: it ends by itself
    result = study.user_attrs["cicpe"]
    print(f"after {len(study.trials)} trials: {result['recommendation']}, confidence {result['confidence']:.2f}")
    print(result["reason"]["words"])
