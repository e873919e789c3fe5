"""Questions to the person behind a call: kinds, and how an answer is found."""
