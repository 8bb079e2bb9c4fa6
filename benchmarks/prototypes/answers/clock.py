"""The clock that budgets are kept by."""

import time

CLOCK = time.process_time
"""Processor time here, because the machine is shared; wall-clock (``time.perf_counter``) in the library."""
