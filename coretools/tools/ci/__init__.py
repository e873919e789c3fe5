"""Build, test, restore and run, and what their output says."""
