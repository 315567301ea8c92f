"""Packets to pictures, on the CPU or a GPU."""
