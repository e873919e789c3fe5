"""What holds strangers off: names, headers, bodies, deadlines, shares."""
