"""The headrace command, the demo and the benches."""
