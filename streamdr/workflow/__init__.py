"""A run of a configuration: what is stale, fit, transform, compare, verify, report."""
