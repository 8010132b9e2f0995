"""How passes run: partition, order of merging, ledger, memory plan, executors."""
