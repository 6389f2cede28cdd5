"""The entries of the op table, a file for each group of families. Order does not matter: no op stands twice."""
