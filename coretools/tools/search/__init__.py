"""Search by content and by name, with ripgrep or without."""
