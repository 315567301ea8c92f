"""What is read for coming packs, when, and what of it cannot be read."""
