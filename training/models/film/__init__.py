"""A small policy that learns a task on a CPU in minutes."""
