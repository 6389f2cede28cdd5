"""The kernels of ops, by what decides their time."""
