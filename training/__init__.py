"""A thin trainer on packed variable-length batches, and the closed loop."""
