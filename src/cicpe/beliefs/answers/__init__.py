"""A posterior over answers by a likelihood that is learned from simulations."""
