"""Meta-training: rollouts, replay, losses, the loop and its recipes."""
