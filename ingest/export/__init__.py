"""Out of the lake again, into the formats of others; refused rather than filled or re-timed."""
