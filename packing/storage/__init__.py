"""What a plan asks of storage, decoder and memory, modelled as the loader reads it."""
