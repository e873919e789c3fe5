"""Trust in entries and approval of calls: decisions of a person, and the operator's policy."""
