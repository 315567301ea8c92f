"""The demo: from a simulated recording to an assessed policy in minutes."""
