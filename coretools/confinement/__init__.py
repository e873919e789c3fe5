"""What the kernel holds a child to: Landlock, seccomp, namespaces. Mechanism for `process`; imports nothing heavy."""
