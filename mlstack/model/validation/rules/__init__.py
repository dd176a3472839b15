"""What the API server checks by code, one function a rule, one file a family of kinds."""
