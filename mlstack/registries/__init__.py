"""Where packages come from; one file a protocol."""
