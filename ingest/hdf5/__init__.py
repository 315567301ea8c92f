"""HDF5 recordings: ALOHA/ACT files and robomimic, robosuite and LIBERO files."""
