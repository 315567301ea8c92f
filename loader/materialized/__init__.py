"""Packs written once as rows of their own, so that each is one read."""
