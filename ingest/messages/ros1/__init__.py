"""ROS 1 bags."""
