"""Taking back changes to files: a journal of states before and after, and the contents from before."""
