"""Errors of the proofs themselves; what a proof finds is a result, not an error."""

from loader.errors import LoaderError


class ProofError(LoaderError):
    """A proof cannot be run as asked."""
