"""From a graph to a plan: which op runs on which cores, when, and where its buffers lie."""
