"""Recordings that are arrays with a row per step: what HDF5, Zarr and others of the kind share."""
