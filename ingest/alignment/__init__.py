"""Streams of several rates onto one grid of steps, by a policy that is recorded."""
