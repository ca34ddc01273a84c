"""Authenticated links between nodes: mutual TLS, bounded in everything."""
