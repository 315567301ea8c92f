"""How the stream reads a lake: through caches, within time-outs, and never in silence."""
