"""The entries of the op table, a file for each group of families. No op stands twice."""
