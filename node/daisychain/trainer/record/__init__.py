"""What a run leaves behind: journal, audit, result."""
