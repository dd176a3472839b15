"""Each refusal of a real API server (1.36, recorded) becomes the error that says who can mend it."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.errors import (
    Cause,
    ClusterError,
    ConflictError,
    FieldConflict,
    ForbiddenError,
    InvalidError,
    ObjectNotFoundError,
    TransientError,
    WatchExpiredError,
)
from mlstack.kube.api_errors import error_of, warnings_of

WEBHOOK = (
    'Internal error occurred: failed calling webhook "check.example.com": failed to call webhook: Post '
    '"https://nosvc.q8.svc:443/v?timeout=10s": service "nosvc" not found'
)
QUOTA = (
    'pods "p" is forbidden: exceeded quota: rq, requested: requests.nvidia.com/gpu=2, '
    "used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=1"
)
RIGHTS = (
    'deployments.apps "d" is forbidden: User "nobody" cannot patch resource "deployments" in API group "apps"'
)
RESIZE = 'persistentvolumeclaims "d" is forbidden: only dynamically provisioned pvc can be resized'
POLICY = "configmaps \"vap\" is forbidden: ValidatingAdmissionPolicy 'P' with binding 'B' denied request: no"
ESCALATION = (
    'roles.rbac.authorization.k8s.io "r" is forbidden: user "u" (groups=["g"]) is attempting to grant RBAC '
    'permissions not currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
)


def refusal(code: int, message: str = "", reason: str = "", **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "message": message, "reason": reason, "details": details}


def read(body: Any, *, code: int | None = None, kind: str = "Deployment") -> ClusterError:
    return error_of(code or body["code"], body, subject=f"`{kind} q3/d`", namespace="q3", kind=kind)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (refusal(401, "Unauthorized", "Unauthorized"), "credentials"),
        (refusal(403, RIGHTS, "Forbidden", name="d", kind="deployments"), "rights"),
        (refusal(403, QUOTA, "Forbidden", name="p", kind="pods"), "quota"),
        (refusal(403, POLICY, "Forbidden", causes=[{"message": "no"}]), "policy"),
        (refusal(403, 'admission webhook "w" denied the request: no', "Forbidden"), "policy"),
        (refusal(403, ESCALATION, "Forbidden"), "escalation"),
        (refusal(403, "x", "Forbidden", causes=[{"reason": "NamespaceTerminating"}]), "terminating"),
        (
            refusal(403, "create not allowed while custom resource definition is terminating", "Forbidden"),
            "terminating",
        ),
    ],
    ids=["401", "rights", "quota", "policy", "webhook", "escalation", "namespace", "definition"],
)
def test_a_refusal_says_what_kind_it_is(body: dict[str, Any], why: str) -> None:
    error = read(body)
    assert isinstance(error, ForbiddenError)
    assert error.why == why
    assert error.hint


def test_nobody_is_sent_for_rights_when_an_admission_plugin_refuses() -> None:
    assert read(refusal(403, RESIZE, "Forbidden")).hint == "the cluster refuses it, whoever asks"
    assert read(refusal(403, RIGHTS, "Forbidden")).hint == "ask a cluster administrator for this right"


@pytest.mark.parametrize(
    ("body", "code", "what"),
    [
        ("404 page not found", 404, "kind"),
        (refusal(404, "the server could not find the requested resource", "NotFound"), None, "kind"),
        (
            refusal(404, 'namespaces "q3" not found', "NotFound", name="q3", kind="namespaces"),
            None,
            "namespace",
        ),
        (
            refusal(
                404, 'deployments.apps "d" not found', "NotFound", name="d", group="apps", kind="deployments"
            ),
            None,
            "object",
        ),
    ],
    ids=["group", "resource", "namespace", "object"],
)
def test_what_is_missing_is_told(body: Any, code: int | None, what: str) -> None:
    error = read(body, code=code)
    assert isinstance(error, ObjectNotFoundError)
    assert error.what == what


def test_a_missing_namespace_object_is_an_object() -> None:
    body = refusal(404, 'namespaces "q3" not found', "NotFound", name="q3", kind="namespaces")
    error = read(body, kind="Namespace")
    assert isinstance(error, ObjectNotFoundError)
    assert error.what == "object"


def test_a_conflict_names_every_field_and_its_owner() -> None:
    causes = [
        ('conflict with "kubectl" with subresource "scale" using apps/v1', ".spec.replicas"),
        (
            'conflict with "kubectl-edit" using apps/v1',
            '.spec.template.spec.containers[name="main"].env[name="A"].value',
        ),
        ('conflict with "argocd"', '.spec.ports[port=80,protocol="TCP"].targetPort'),
    ]
    body = refusal(
        409,
        "Apply failed with 3 conflicts: ..",
        "Conflict",
        causes=[{"reason": "FieldManagerConflict", "message": m, "field": f} for m, f in causes],
    )
    error = read(body)
    assert isinstance(error, ConflictError)
    assert error.conflicts == (
        FieldConflict(manager="kubectl", path=".spec.replicas", subresource="scale"),
        FieldConflict(manager="kubectl-edit", path=causes[1][1]),
        FieldConflict(manager="argocd", path=causes[2][1]),
    )
    assert error.managers == ("argocd", "kubectl", "kubectl-edit")
    assert ".spec.replicas" in error.message


@pytest.mark.parametrize(
    "body",
    [
        refusal(409, "the object has been modified; please apply your changes", "Conflict", name="d"),
        refusal(409, "uid mismatch: the provided object specified uid x, and no existing object", "Conflict"),
        refusal(409, "the UID in the precondition (a) does not match the UID in record (b)", "Conflict"),
    ],
    ids=["version", "uid", "precondition"],
)
def test_a_moved_object_is_a_conflict_without_fields(body: dict[str, Any]) -> None:
    error = read(body)
    assert isinstance(error, ConflictError)
    assert error.conflicts == ()
    assert "in the meantime" in error.message


def test_an_existing_object_is_a_conflict() -> None:
    error = read(refusal(409, 'deployments.apps "d" already exists', "AlreadyExists", name="d"))
    assert isinstance(error, ConflictError)
    assert error.message == "`Deployment q3/d` already exists"


@pytest.mark.parametrize(
    ("text", "causes"),
    [
        (
            "failed to create typed patch object (q3/bad; apps/v1, Kind=Deployment): .bogus: "
            "field not declared in schema",
            [Cause(field=".bogus", message="field not declared in schema")],
        ),
        (
            "failed to create typed patch object (q3/bad; v1, Kind=Secret): .data.password: expected string, "
            "got &value.valueUnstructured{Value:12345678}",
            [Cause(field=".data.password", message="expected string, got a number")],
        ),
        (
            "failed to create typed patch object (q3/bad; apps/v1, Kind=Deployment): errors:\n"
            "  .spec.a: field not declared in schema\n  .spec.b: field not declared in schema",
            [
                Cause(field=".spec.a", message="field not declared in schema"),
                Cause(field=".spec.b", message="field not declared in schema"),
            ],
        ),
        (
            "failed to create typed patch object (q3/bad; apps/v1, Kind=Deployment): .spec.env: "
            'duplicate entries for key [name="A"]',
            [Cause(field=".spec.env", message='duplicate entries for key [name="A"]')],
        ),
        (
            "failed to convert new object (q3/bad; v1, Kind=Pod) to proper version: quantities must match "
            "the regular expression '^x$'",
            [Cause(message="quantities must match the regular expression '^x$'")],
        ),
    ],
    ids=["unknown field", "no secret", "several", "duplicate key", "quantity"],
)
def test_a_wrong_manifest_is_answered_with_500_and_never_worth_another_try(
    text: str, causes: list[Cause]
) -> None:
    error = read(refusal(500, text))
    assert isinstance(error, InvalidError)
    assert list(error.causes) == causes
    assert "12345678" not in str(error)


def test_an_object_of_a_dropped_version_is_invalid_and_says_how_to_mend_it() -> None:
    error = read(refusal(500, "request to convert CR to an invalid group/version: kubeflow.org/v1beta1"))
    assert isinstance(error, InvalidError)
    assert error.hint is not None
    assert "rewrite" in error.hint


def test_a_failing_webhook_is_worth_another_try() -> None:
    error = read(refusal(500, WEBHOOK, "InternalError"))
    assert isinstance(error, TransientError)
    assert error.webhook == "check.example.com"
    assert 'service "nosvc" not found' in error.message


def test_a_conversion_that_does_not_answer_is_worth_another_try() -> None:
    why = 'Post "https://a.b.svc:443/": service "a" not found'
    message = f"conversion webhook for ex.com/v2, Kind=Lamp failed: {why}"
    error = read(refusal(500, message))
    assert isinstance(error, TransientError)
    assert error.webhook == "ex.com/v2, Kind=Lamp"
    assert 'service "a" not found' in error.message


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_a_server_that_asks_for_patience_is_worth_another_try(code: int) -> None:
    assert isinstance(read(refusal(code, "later")), TransientError)


def test_other_failures_of_the_server_are_no_fault_of_the_manifest() -> None:
    error = read(refusal(500, "something odd"))
    assert type(error) is ClusterError


def test_an_invalid_object_lists_its_faults() -> None:
    causes = [
        {
            "reason": "FieldValueInvalid",
            "field": "spec.ports[0].targetPort",
            "message": 'Invalid value: "8080": must contain at least one letter (a-z)',
        },
        {"reason": "FieldValueRequired", "field": "spec.selector", "message": "Required value"},
    ]
    error = read(refusal(422, "Service is invalid: ..", "Invalid", causes=causes))
    assert isinstance(error, InvalidError)
    assert error.message == (
        "`Deployment q3/d` is refused: "
        '`spec.ports[0].targetPort` "8080": must contain at least one letter (a-z); '
        "`spec.selector` Required value"
    )
    assert error.causes[1].reason == "FieldValueRequired"


@pytest.mark.parametrize(
    ("kind", "field", "said"),
    [
        ("ConfigMap", "[]", "its values together take more than the 1048576 bytes that a ConfigMap may hold"),
        (
            "Secret",
            "data",
            "`data` its values together take more than the 1048576 bytes that a Secret may hold",
        ),
        (
            "Deployment",
            "metadata.annotations",
            "`metadata.annotations` takes more than the 1048576 bytes that it may hold",
        ),
    ],
)
def test_what_is_too_long_is_told_with_its_limit(kind: str, field: str, said: str) -> None:
    text = "Too long: may not be more than 1048576 bytes"
    cause = {"reason": "FieldValueTooLong", "field": field, "message": text}
    body = refusal(422, f"{kind} is invalid", "Invalid", causes=[cause])
    error = error_of(422, body, subject="`it`", kind=kind)
    assert error.message == f"`it` is refused: {said}"
    assert error.hint == "bring large files in an image or a volume, and name them in the object"


def test_a_short_limit_of_a_field_is_no_matter_of_files() -> None:
    text = "Too long: may not be more than 5 bytes"
    cause = {"reason": "FieldValueTooLong", "field": "spec.name", "message": text}
    assert read(refusal(422, "is invalid", "Invalid", causes=[cause])).hint is None


@pytest.mark.parametrize(
    "said",
    [
        "rpc error: desc = trying to send message larger than max (2143012 vs. 2097152)",
        "etcdserver: request is too large",
    ],
)
def test_an_object_too_large_for_the_store_is_invalid(said: str) -> None:
    error = read(refusal(500, said))
    assert isinstance(error, InvalidError)
    assert error.message == f"`Deployment q3/d` is too large for the API server: {said}"


@pytest.mark.parametrize(
    "value",
    [
        'core.PodTemplateSpec{ObjectMeta:v1.ObjectMeta{Name:"", Env: "hunter2"}, Spec: core.PodSpec{'
        + "x" * 7000
        + "}}",
        'map[string]string{"password": "hunter2"}',
        '"hunter2 ' + "long " * 20 + '"',
    ],
    ids=["template", "map", "long text"],
)
def test_refused_values_are_not_repeated(value: str) -> None:
    causes = [
        {
            "reason": "FieldValueInvalid",
            "field": "spec.template",
            "message": f"Invalid value: {value}: field is immutable",
        }
    ]
    error = read(
        refusal(422, f'Job.batch "j" is invalid: spec.template: Invalid value: {value}', causes=causes)
    )
    assert error.message == "`Deployment q3/d` is refused: `spec.template` field is immutable"
    assert "hunter2" not in repr(error.__dict__)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Invalid value: the mode is chosen once", "the mode is chosen once"),
        ('Invalid value: ["10.0.0.77"]: may not change once set', '["10.0.0.77"]: may not change once set'),
        ('Invalid value: v1.Spec{A: "hunter2"}', "invalid value"),
        ('Invalid value: ["hunter2", "b"]', "invalid value"),
    ],
    ids=["a rule's own words", "a short list", "a structure", "a list alone"],
)
def test_what_is_no_value_is_told(message: str, said: str) -> None:
    error = read(refusal(422, "..", causes=[{"field": "spec.mode", "message": message}]))
    assert error.message == f"`Deployment q3/d` is refused: `spec.mode` {said}"


def test_values_of_secrets_are_not_repeated_however_short() -> None:
    causes = [{"field": "data[key]", "message": 'Invalid value: "hunter2": field is immutable'}]
    error = read(refusal(422, "..", causes=causes), kind="Secret")
    assert "hunter2" not in repr(error.__dict__)


def test_a_failed_test_of_a_json_patch_is_invalid_without_causes() -> None:
    error = read(refusal(422, "the server rejected our request due to an error in our request", "Invalid"))
    assert isinstance(error, InvalidError)
    assert error.causes == ()
    assert "patch does not fit" in error.message


def test_a_version_that_is_gone_ends_a_watch() -> None:
    assert isinstance(
        read(refusal(410, "too old resource version: 4488 (4489)", "Expired")), WatchExpiredError
    )


def test_no_message_is_longer_than_a_screen() -> None:
    for code in (400, 403, 405, 413, 422, 429, 500, 503, 599):
        assert len(str(read(refusal(code, "x" * 9000)))) < 600


def test_warnings_are_read_once_each() -> None:
    headers = ['299 - "old \\"thing\\"", 299 - "second"', '299 - "second"']
    assert warnings_of(headers) == ('old "thing"', "second")


def test_a_server_that_wants_https_says_so() -> None:
    found = error_of(400, "Client sent an HTTP request to an HTTPS server.\n", subject="`Namespace a`")
    assert (found.message, found.exit_code) == ("the API server speaks HTTPS alone", 6)
    assert "https://" in str(found.hint)
