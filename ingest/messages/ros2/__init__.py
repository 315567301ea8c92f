"""ROS 2 bags (rosbag2)."""
