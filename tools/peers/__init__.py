"""Other loaders, each in an environment of its own: see README.md."""
