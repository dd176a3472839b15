"""What a hub of the tests is told: the configuration under test, then what a hub outside a cluster needs.

JupyterHub runs this file; `tests/support/jupyterhub.py` writes `wrapper.json` beside a copy of it.
"""

# ruff: noqa: F821 (JupyterHub gives `get_config` and `load_subconfig` to its configuration files)
# mypy: ignore-errors

import json
from pathlib import Path

_own = json.loads(Path(__file__).with_name("wrapper.json").read_text())
_hub = f"http://127.0.0.1:{_own['hubPort']}"

c = get_config()
load_subconfig(_own["config"])

# Notebooks are told the address that the configuration names, although this hub is elsewhere.
if "hub_connect_url" in c.JupyterHub:
    c.Spawner.hub_connect_url = c.JupyterHub.hub_connect_url
# No container runs, so no notebook ever answers; the hub must not take the pod away meanwhile.
c.Spawner.http_timeout = 3600
# Nor shall who asks for a notebook wait for its answer: the hub says at once that it has begun.
c.JupyterHub.tornado_settings = {**c.JupyterHub.get("tornado_settings", {}), "slow_spawn_timeout": 0}

c.JupyterHub.bind_url = f"http://127.0.0.1:{_own['proxyPort']}"
c.JupyterHub.hub_bind_url = _hub
c.JupyterHub.hub_connect_url = _hub
c.JupyterHub.db_url = f"sqlite:///{_own['state']}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = f"{_own['state']}/cookie_secret"
c.JupyterHub.pid_file = ""
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{_own['apiPort']}"

c.JupyterHub.services = [*c.JupyterHub.get("services", []), {"name": "test", "api_token": _own["token"]}]
_role = {"name": "test", "scopes": ["admin:users", "admin:servers", "read:hub"], "services": ["test"]}
c.JupyterHub.load_roles = [*c.JupyterHub.get("load_roles", []), _role]
