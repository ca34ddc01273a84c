"""Bundles between nodes: manifests and chunks over mutual TLS, on connections of their own."""
