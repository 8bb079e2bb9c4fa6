"""An experiment file from Python: the Michaelis constant of an enzyme, in the laboratory's own units.

python examples/experiment_file.py     # five minutes, nearly all of it training

What is chosen, read, known and sought is data; the enzyme here is a formula in the place of a laboratory.
"""

import random

import cicpe

ENZYME = """
title = "Michaelis constant of an enzyme"
setting = [{ name = "substrate", unit = "mM", range = [0.05, 20], scale = "log" }]
measurement = { name = "rate", unit = "umol/min", noise = [0.05, 0.3] }
goal = { find = "km", within = "20 %", sure = 0.9, at_most = 60 }
[model]
kind = "formula"
formula = "vmax * substrate / (km + substrate)"
parameters = { vmax = [2, 10], km = { range = [0.1, 5], scale = "log", unit = "mM" } }
"""
NOISE = random.Random(0)


def measure(substrate, vmax=6.0, km=1.0):
    """The laboratory, which knows what the agent does not."""
    return vmax * substrate / (km + substrate) + NOISE.gauss(0.0, 0.1)


def main(experiment=ENZYME, **budget):
    """Trains an agent for the experiment and runs one campaign; returns the session."""
    model = cicpe.train(cicpe.Experiment.from_toml(experiment), **(budget or {"minutes": 5}))
    session = model.session()  # within, and as sure, as the file says
    while not session.stopped:
        asked = session.ask_by_name()  # {"substrate": 0.141}
        session.tell(measure(**asked))
        print(f"at {session.units.query_words(session.history[-1].query)}: confidence {session.confidence:.2f}")
    print(session.units.answer_words(session.recommendation.tolist()))
    print(session.reason.words)
    return session


if __name__ == "__main__":
    main()
