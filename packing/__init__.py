"""Packing: which tokens every training step will eat, decided offline and written down."""
