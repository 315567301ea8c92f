"""MCAP."""
