"""SQL over a lake: a rebuildable DuckDB view, selections, labels, lineage."""
