"""From a desired state to a cluster that has it: diff, conflicts, inventory, history, writes, waiting.

Rendering is in `render/`, requests in `kube/`, the verbs that put the steps in order in `operations/`.
"""
