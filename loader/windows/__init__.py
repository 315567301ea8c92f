"""Single samples with deltas in time, for trainers that exist."""
