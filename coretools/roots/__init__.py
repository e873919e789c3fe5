"""Files beneath the roots: path resolution, deny rules, secrets, reads and writes."""
