"""Prefect flows: `python -m streamdr.flows.fit_transform CONFIG`, or a deployment by module path."""
