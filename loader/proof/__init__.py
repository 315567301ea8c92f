"""Proofs of the loader's guarantees, to be run on a lake and plan of one's own; see README.md."""
