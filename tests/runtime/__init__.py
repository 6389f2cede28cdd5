"""Random programs over the allocator, streams, events and graphs, checked against models."""
