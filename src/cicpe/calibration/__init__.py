"""Calibration on held-out episodes: stop thresholds, shown confidence, the alarm."""
