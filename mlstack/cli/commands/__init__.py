"""One file a noun or family of commands; each is imported when one of its commands runs."""
