"""A LAN of machines on this one: namespaces, shaped links, cuts, CPU quotas; for tests and benches."""
