"""Policies: what each training job gets, decided from one moment of a cluster."""
