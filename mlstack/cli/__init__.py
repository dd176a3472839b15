"""The command line: the only place that knows the screen, environment variables and sys.argv."""
