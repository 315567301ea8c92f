"""Robot recordings of every common format, read without loss, into the lake."""
