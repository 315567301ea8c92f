"""LeRobot datasets v2.0, v2.1 and v3.0, with GR00T's `modality.json`; read without LeRobot."""
