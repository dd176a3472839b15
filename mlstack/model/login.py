"""A login whose credentials stand in the kubeconfig, so that nobody has to be asked for them."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class FixedLogin:
    """Where an API server is, whom it is trusted by, and who we say we are.

    Attributes:
        context: name of the kubectl context.
        server: address, `https://…`.
        ca_pem: certificates to verify the server with, None for those of the system.
        verify: off only where the kubeconfig says insecure-skip-tls-verify.
        server_name: the name to verify, where it is not that of the address.
        token: bearer token, None without.
        cert_pem: client certificate, None without.
        key_pem: its key.
    """

    context: str
    server: str
    ca_pem: str | None = None
    verify: bool = True
    server_name: str | None = None
    token: str | None = field(default=None, repr=False)
    cert_pem: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
