"""Clusters: TOML files beside this one that say how nodes of a chip are joined, and where ranks stand."""

from torch_loom.chips.topologies.topology import Layout, Topology, available, default_of, layout, load

__all__ = ["Layout", "Topology", "available", "default_of", "layout", "load"]
