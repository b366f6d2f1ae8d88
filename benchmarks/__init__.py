"""Benchmarks: ratios within one process, since the machine is shared and noisy. `python -m benchmarks [name …]`."""
