"""Messages and job files to and from bytes: pure, versioned, bounded in size."""
