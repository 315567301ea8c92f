"""A small physics simulation: demonstrations to train on, and rollouts to judge a policy by."""
