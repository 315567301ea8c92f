"""Policies on packed batches, and what they share."""
