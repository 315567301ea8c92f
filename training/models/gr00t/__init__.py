"""GR00T N1.5 on packed batches."""
