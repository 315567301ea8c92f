"""Faults below the loader, by seed: an S3 proxy, and a wrapper of what the stream reads from."""
