"""The order in which people number things."""

import re


def natural_key(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key that reads digit runs as numbers, so that `demo_2` comes before `demo_10`.

    Names that differ in leading zeros only are told apart by the name itself.
    """
    key = []
    for part in re.findall(r"[0-9]+|[^0-9]+", name):
        digits = part.lstrip("0")
        # By length, then as text: a run of thousands of digits is no int in Python.
        key.append((0, len(digits), digits) if part[0] in "0123456789" else (1, 0, part))
    return key, name
