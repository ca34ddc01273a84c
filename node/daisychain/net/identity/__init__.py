"""The cluster key, and who a node is."""
