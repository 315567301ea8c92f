"""The order in which people number things."""

import re


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sort key that reads digit runs as numbers, so that `demo_2` comes before `demo_10`."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"(\d+)", name)
        if part
    ]
