"""The command line: the only place that knows the screen, environment variables and `sys.argv`.

Commands parse, call one operation and show its result; what they do is in `operations/` and below.
"""
