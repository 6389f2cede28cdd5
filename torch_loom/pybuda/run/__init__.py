"""Running pipelines: ``pybuda.run.api`` has the functions."""
