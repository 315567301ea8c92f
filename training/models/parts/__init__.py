"""Building blocks that several policies share."""
