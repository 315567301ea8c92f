"""The lake: episodes as columns, on disk or in an object store."""
