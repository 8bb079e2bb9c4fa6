"""The peak of a region's copper field, in a region that the agent has never seen.

    cicpe data fetch && cicpe data fit     # once: the survey, and a field for each of its regions
    python examples/copper.py              # seconds

Without the fitted fields it says so and ends.
"""

import torch

import cicpe
from cicpe.data.places import DataError
from cicpe.problems import TaskBatch


def main(epsilon=0.2, delta=0.1):
    """Runs one campaign on the first held-out region; returns the loss of its answer, or None without data."""
    model = cicpe.load("geochem-2d")
    try:
        region = model.problem.as_surveyed("held-out")
        rng = torch.Generator().manual_seed(0)
        task = TaskBatch.draw(region, 1, rng)
    except DataError as error:
        print(f"no copper data: {error}")
        return None
    session = model.session(epsilon=epsilon, delta=delta)
    while not session.stopped:
        place = torch.from_numpy(session.ask())[None]
        session.tell(task.observe(place, rng)[0].tolist())
    loss = float(task.loss(torch.from_numpy(session.recommendation)[None])[0])
    east, north = session.recommendation
    print(f"after {len(session.history)} visits: the peak is at ({east:.2f}, {north:.2f}) of the sheet, {loss:.3f} off")
    print(session.reason.words)
    return loss


if __name__ == "__main__":
    main()
