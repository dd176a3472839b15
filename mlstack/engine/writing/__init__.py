"""Changes → writes, along the graph of what needs what."""
