"""Figures: one a function, from results that are computed elsewhere."""
