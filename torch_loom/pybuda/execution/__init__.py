"""How modules run on devices: traced, placed, compiled or op by op, and the loop of a device."""
