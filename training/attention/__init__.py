"""Attention over segments of a packed batch: one function, several backends."""
