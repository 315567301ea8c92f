"""Rerun recordings (.rrd)."""
