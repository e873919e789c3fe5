"""The tools themselves, by tool set; what several sets share lies at the top."""
