"""Dexdata: a JSON line per step, pictures in videos or files beside it."""
