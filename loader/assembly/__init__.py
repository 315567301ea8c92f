"""From plan rows and signals to the arrays of a batch."""
