"""Benches: what is compared with what, on the same data in the same order."""
