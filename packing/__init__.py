"""Offline packing: which spans of which episodes every training step will eat."""
