"""Watch what was applied until the readiness rules agree or time is up, and tell the reasons."""
