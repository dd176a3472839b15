"""What others wrote as components of an app: manifests, apps of ksonnet; read here, written by nobody here.

An importer turns its source into components, patches and environments as values (`plan.ImportPlan`); the use
case writes them, all or none.
"""
