"""The decode process of a rank: its job, its messages, the buffers that both sides share."""
