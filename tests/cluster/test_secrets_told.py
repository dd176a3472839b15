"""A real API server and its policies quote what they are sent; the command line tells no secret of it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from mlstack.cli.main import main
from tests.support.cluster import TestCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

CANARY = "cAn4ry-of-a-Secret'9"
ENCODED = base64.b64encode(CANARY.encode()).decode()
POLICIES = "/apis/admissionregistration.k8s.io/v1"


def written(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **fields}


# Each is refused in words that quote it: the schema's, the validation's, an admission policy's.
WRONG = {
    "no map": [written("keys", stringData={"a": CANARY}), written("other", data=ENCODED)],
    "no text": [written("keys", data={"a": {"b": CANARY}})],
    "no base64": [written("keys", data={"a": f"%{CANARY}"})],
    "no such type": [written("keys", stringData={"a": CANARY}, type="kubernetes.io/tls")],
    "denied": [written("denied", stringData={"a": CANARY})],
}


@pytest.fixture
def policy(minikube: TestCluster, namespace: str) -> None:
    """Let the server refuse a Secret and say all of it."""
    name = f"quotes-{namespace}"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}]
    quotes = "'denied: ' + string(object.data['a']) + ' of ' + object.metadata.name"
    spec = {
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [{"name": "one", "expression": "object.metadata.name == 'denied'"}],
        "validations": [{"expression": "false", "messageExpression": quotes}],
    }
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
    }
    for kind, body in (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", binding)):
        plural = "validatingadmissionpolicies" if body is spec else "validatingadmissionpolicybindings"
        whole = {"apiVersion": POLICIES[6:], "kind": kind, "metadata": {"name": name}, "spec": body}
        minikube.request("POST", f"{POLICIES}/{plural}", whole)

    def is_denied() -> bool:
        where = f"/api/v1/namespaces/{namespace}/secrets?dryRun=All"
        try:
            minikube.request("POST", where, written("denied", stringData={"a": "x"}))
        except Exception as error:
            return "denied" in str(error)
        return False

    wait_until(is_denied, what="the policy counts")


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.usefixtures("policy")
def test_what_the_server_quotes_is_masked(
    wrong: str,
    tmp_path: Path,
    kubeconfig: Path,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    assert main(["init", "demo"]) == 0
    monkeypatch.chdir(tmp_path / "demo")
    assert (
        main(["env", "add", "minikube", "--no-preset", "--context", "minikube", "--namespace", namespace])
        == 0
    )
    Path("components/a.yaml").write_text("---\n".join(json.dumps(obj) + "\n" for obj in WRONG[wrong]))
    for words in (
        ["apply", "minikube", "--yes"],
        ["diff", "minikube"],
        ["apply", "minikube", "--dry-run", "-o", "json"],
    ):
        capsys.readouterr()
        code = main(words)
        output = "".join(capsys.readouterr())
        assert code != 70, output
        for hidden in ("cAn4ry", ENCODED, ENCODED[4:-4], base64.b64encode(ENCODED.encode()).decode()[4:-4]):
            assert hidden not in output, output
    if wrong == "denied":
        assert "********" in output
