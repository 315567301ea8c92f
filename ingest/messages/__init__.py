"""Logs of messages: MCAP, ROS 1 bags, ROS 2 bags."""
