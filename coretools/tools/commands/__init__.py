"""run_command and the runs it leaves in the background."""
