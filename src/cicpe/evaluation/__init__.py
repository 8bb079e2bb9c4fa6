"""Playing agents on fresh tasks, and the statistics of it."""
