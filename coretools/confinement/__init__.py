"""What the kernel enforces: Landlock, seccomp, namespaces, hidden files."""
