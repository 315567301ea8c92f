"""RLDS and TFDS recordings (Open X-Embodiment), read without TensorFlow."""
