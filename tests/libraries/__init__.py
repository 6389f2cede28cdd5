"""Programs of the libraries that say cuda, run unchanged by `python -m tests.conformance.suites`."""
