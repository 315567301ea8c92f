"""Replay buffers in Zarr: diffusion policy's layout, and UMI's zip of it."""
