"""Row addresses by episode id."""

from lake import Lake, visible_episodes


def addresses_of(lake: Lake) -> dict[str, int]:
    """Address of every visible episode."""
    rows = visible_episodes(lake).to_pydict()
    return dict(zip(rows["episode_id"], rows["address"], strict=True))
