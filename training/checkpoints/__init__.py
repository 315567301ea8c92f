"""Checkpoints, whole or not at all, and as they were written."""
