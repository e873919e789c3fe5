"""Build, test and restore: detection of the project, and readers of test output."""
