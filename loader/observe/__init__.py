"""What a loader spends, and on what: as figures, log lines and a live table."""
