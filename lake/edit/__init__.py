"""Edits of episodes that rewrite nothing: delete, undelete, split, merge, by metadata alone."""
