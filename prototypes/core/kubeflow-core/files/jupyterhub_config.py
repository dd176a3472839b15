"""Configuration of the hub: the same for everyone, its values in `hub.json` beside this file.

Hub and proxy are two containers of one pod, so they find each other on the loopback; notebooks are
pods of their own and find the hub through its headless Service. Secrets are read from the files of a
mounted Secret and never stand in `hub.json`. Runs on JupyterHub 5 and 6 with KubeSpawner 7.
"""

import json
import os
from pathlib import Path

OAUTH_CLASSES = {
    "github": "GitHubOAuthenticator",
    "google": "GoogleOAuthenticator",
    "generic-oauth": "GenericOAuthenticator",
}
# Nobody needs to be named to log in with these two.
OPEN_TO_ALL = ("dummy", "shared-password")
IAP_ISSUER = "https://cloud.google.com/iap"
IAP_KEYS = "https://www.gstatic.com/iap/verify/public_key-jwk"


def configure(c, values):
    """Set everything that the hub, its login and its notebooks need.

    Args:
        c: the configuration object of JupyterHub.
        values: the content of `hub.json`.
    """
    configure_hub(c, values)
    configure_login(c, values["login"], values["stateDir"])
    configure_notebooks(c, values["notebook"], values["namespace"])


def configure_hub(c, values):
    """Tell the hub its addresses, its proxy and where it keeps its state."""
    c.JupyterHub.bind_url = "http://:8000"
    c.JupyterHub.hub_bind_url = "http://:8081"
    c.JupyterHub.hub_connect_url = values["hubConnect"]
    # The proxy runs beside the hub and outlives it: notebooks stay reachable while the hub restarts.
    c.ConfigurableHTTPProxy.should_start = False
    c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:8001"
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.db_url = f"sqlite:///{values['stateDir']}/jupyterhub.sqlite"
    c.JupyterHub.cookie_secret_file = f"{values['stateDir']}/cookie_secret"
    c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"


def configure_login(c, login, state_dir):
    """Choose the authenticator and who may log in."""
    name = login["authenticator"]
    c.JupyterHub.authenticator_class = iap_authenticator() if name == "iap" else name
    c.Authenticator.allowed_users = set(login["allowedUsers"])
    c.Authenticator.admin_users = set(login["adminUsers"])
    c.Authenticator.allow_all = name in OPEN_TO_ALL and not login["allowedUsers"]
    if name == "shared-password":
        c.SharedPasswordAuthenticator.user_password = secret(login, "password")
        c.SharedPasswordAuthenticator.admin_password = secret(login, "admin-password", required=False)
    elif name == "firstuse":
        c.FirstUseAuthenticator.dbm_path = f"{state_dir}/passwords.dbm"
    elif name == "iap":
        c.IapAuthenticator.audience = login["iapAudience"]
    elif name in OAUTH_CLASSES:
        configure_oauth(getattr(c, OAUTH_CLASSES[name]), login)


def configure_oauth(oauth, login):
    """Tell an OAuth login its client, its way back and, if it is a generic one, the service."""
    oauth.client_id = secret(login, "client-id")
    oauth.client_secret = secret(login, "client-secret")
    if login["publicUrl"]:
        oauth.oauth_callback_url = f"{login['publicUrl'].rstrip('/')}/hub/oauth_callback"
    for option, value in login["oauth"].items():
        setattr(oauth, option, value)


def secret(login, key, *, required=True):
    """Read one key of the mounted Secret; an optional one that is missing is empty."""
    file = Path(login["secretDir"]) / key
    return file.read_text(encoding="utf-8").strip() if required or file.is_file() else ""


def iap_authenticator():
    """Make the login that trusts the signed header of Google's Identity-Aware Proxy."""
    import asyncio

    import jwt
    from jupyterhub.auth import Authenticator
    from tornado.web import HTTPError
    from traitlets import Unicode

    class IapAuthenticator(Authenticator):
        """Log in whoever the proxy's signed header names.

        The plain header with the address is not looked at: any pod of the cluster could write it.
        """

        auto_login = True
        audience = Unicode(help="What the header's token must be meant for.").tag(config=True)
        keys_url = Unicode(IAP_KEYS, help="Where the proxy's public keys are.").tag(config=True)

        def signing_key(self, token):
            """Give the key that signed a token; the proxy's keys are fetched and kept by the client."""
            if not hasattr(self, "_keys"):
                self._keys = jwt.PyJWKClient(self.keys_url)
            return self._keys.get_signing_key_from_jwt(token).key

        async def authenticate(self, handler, data):
            """Give the address in a valid token; refuse with 401 otherwise."""
            token = handler.request.headers.get("X-Goog-IAP-JWT-Assertion", "")
            try:
                key = await asyncio.to_thread(self.signing_key, token)
                claims = jwt.decode(token, key, ["ES256"], audience=self.audience, issuer=IAP_ISSUER)
                return claims["email"]
            except (jwt.PyJWTError, KeyError) as error:
                raise HTTPError(401, "no valid token of the Identity-Aware Proxy") from error

    return IapAuthenticator


def configure_notebooks(c, notebook, namespace):
    """Say what pod a user gets."""
    spawner = c.KubeSpawner
    spawner.namespace = os.environ.get("POD_NAMESPACE") or namespace
    spawner.image = notebook["image"]
    spawner.image_pull_policy = "IfNotPresent"
    spawner.default_url = notebook["defaultUrl"]
    spawner.cpu_guarantee = notebook["cpu"]
    spawner.mem_guarantee = notebook["memory"]
    # Images with GPU libraries are many gigabytes: their first pull takes a while.
    spawner.start_timeout = 1800
    # Never `app: tf-hub`: the hub's Services would lead to notebooks.
    spawner.common_labels = {"app": "jupyterhub"}
    spawner.profile_list = [profile(notebook)]
    configure_user(spawner, notebook)
    configure_volumes(spawner, notebook)


def configure_user(spawner, notebook):
    """Run notebooks as an ordinary user, in a pod that the strictest Pod Security level admits, unless as root."""
    spawner.fs_gid = 100
    if notebook["uid"] >= 0:
        spawner.uid = notebook["uid"]
    if notebook["gid"] >= 0:
        spawner.gid = notebook["gid"]
    ordinary = {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}
    spawner.container_security_context = {
        **(ordinary if notebook["uid"] != 0 else {}),
        "allowPrivilegeEscalation": False,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def configure_volumes(spawner, notebook):
    """Mount the user's home, the shared disks and the Google credentials."""
    # A home outlives its user: what was deleted by mistake is worth more than the space.
    spawner.delete_pvc = False
    volumes, mounts = [], []
    if notebook["home"]:
        spawner.storage_pvc_ensure = True
        spawner.storage_capacity = notebook["storage"]
        spawner.pvc_name_template = "claim-{user_server}"
        if notebook["storageClass"]:
            spawner.storage_class = notebook["storageClass"]
        volumes.append({"name": "home", "persistentVolumeClaim": {"claimName": "{pvc_name}"}})
        mounts.append({"name": "home", "mountPath": notebook["home"]})
    for number, disk in enumerate(notebook["disks"]):
        volumes.append({"name": f"disk-{number}", "persistentVolumeClaim": {"claimName": disk}})
        mounts.append({"name": f"disk-{number}", "mountPath": f"/mnt/{disk}"})
    if notebook["gcpSecret"]:
        volumes.append({"name": "gcp-credentials", "secret": {"secretName": notebook["gcpSecret"]}})
        mounts.append({"name": "gcp-credentials", "mountPath": "/secret/gcp-credentials", "readOnly": True})
        spawner.environment = {"GOOGLE_APPLICATION_CREDENTIALS": "/secret/gcp-credentials/key.json"}
    spawner.volumes, spawner.volume_mounts = volumes, mounts


def profile(notebook):
    """Give the one entry of the form: a choice of image and, if there are any, of GPUs."""
    options = {"image": image_option(notebook)}
    if notebook["gpus"]:
        options["gpu"] = gpu_option(notebook)
    return {"display_name": "Notebook", "slug": "notebook", "default": True, "profile_options": options}


def image_option(notebook):
    """Offer the listed images, and a field for any other."""
    return {
        "display_name": "Image",
        "choices": {
            f"i{number}": {
                "display_name": image.rpartition("/")[2],
                "default": image == notebook["image"],
                "kubespawner_override": {"image": image},
            }
            for number, image in enumerate(notebook["images"])
        },
        "unlisted_choice": {
            "enabled": True,
            "display_name": "Another image",
            "validation_regex": r"^\S+$",
            "validation_message": "an image has no white space in its name",
            "kubespawner_override": {"image": "{value}"},
        },
    }


def gpu_option(notebook):
    """Offer no GPU up to the most that a user may have."""
    choices = {"g0": {"display_name": "none", "default": True, "kubespawner_override": {}}}
    for count in range(1, notebook["gpus"] + 1):
        override = {"extra_resource_limits": {notebook["gpuResource"]: str(count)}}
        if notebook["gpuNodeSelector"]:
            override["node_selector"] = notebook["gpuNodeSelector"]
        choices[f"g{count}"] = {"display_name": str(count), "kubespawner_override": override}
    return {"display_name": "GPUs", "choices": choices}


configure(
    get_config(),  # noqa: F821 - JupyterHub defines it for configuration files
    json.loads(Path(__file__).with_name("hub.json").read_text(encoding="utf-8")),
)
