"""Small trainers on a lake, one per way of training; run them as `python -m examples.NAME`."""
