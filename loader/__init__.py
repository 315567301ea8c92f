"""Streams packs from a lake: deterministic, elastic, exactly resumable."""
