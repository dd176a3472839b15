"""The app directory, package folders and the user's own files."""
