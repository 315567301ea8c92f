"""LeRobot datasets, v3.0 and v2.1, with GR00T's `modality.json`."""
