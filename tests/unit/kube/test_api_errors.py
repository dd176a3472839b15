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
from mlstack.kube.transport import error_of, warnings_of

WEBHOOK = (
    'Internal error occurred: failed calling webhook "check.example.com": failed to call webhook: Post '
    '"https://nosvc.q8.svc:443/v?timeout=10s": service "nosvc" not found'
)
CONVERSION = (
    'conversion webhook for ex.com/v2, Kind=Lamp failed: Post "https://a.b.svc:443/": service "a" not found'
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


HINT = "the cluster refuses it, whoever asks"
TEST = "the server rejected our request due to an error in our request"
CRD = "create not allowed while custom resource definition is terminating"
NAMESPACE = refusal(404, 'namespaces "q3" not found', "NotFound", name="q3", kind="namespaces")
OBJECT = refusal(
    404, 'deployments.apps "d" not found', "NotFound", name="d", group="apps", kind="deployments"
)
LARGE = "rpc error: desc = trying to send message larger than max (2143012 vs. 2097152)"
TOO_LARGE = "`Deployment q3/d` is too large for the API server: "
MOVED = "the object has been modified; please apply your changes"
OTHER_UID = "uid mismatch: the provided object specified uid x, and no existing object"
PRECONDITION = "the UID in the precondition (a) does not match the UID in record (b)"
SHORT = {
    "reason": "FieldValueTooLong",
    "field": "spec.name",
    "message": "Too long: may not be more than 5 bytes",
}
MEANTIME = {"message": "`Deployment q3/d` changed or was replaced in the meantime", "conflicts": ()}

# What the server says, and which error with which facts that is.
REFUSALS: dict[str, tuple[Any, type[ClusterError], dict[str, Any]]] = {
    "401": (refusal(401, "Unauthorized", "Unauthorized"), ForbiddenError, {"why": "credentials"}),
    "rights": (
        refusal(403, RIGHTS, "Forbidden", name="d", kind="deployments"),
        ForbiddenError,
        {"why": "rights", "hint": "ask a cluster administrator for this right"},
    ),
    "quota": (refusal(403, QUOTA, "Forbidden", name="p", kind="pods"), ForbiddenError, {"why": "quota"}),
    "policy": (
        refusal(403, POLICY, "Forbidden", causes=[{"message": "no"}]),
        ForbiddenError,
        {"why": "policy", "hint": "a policy of the cluster refuses it"},
    ),
    "plugin": (refusal(403, RESIZE, "Forbidden"), ForbiddenError, {"why": "policy", "hint": HINT}),
    "denied": (
        refusal(403, 'admission webhook "w" denied the request: no', "Forbidden"),
        ForbiddenError,
        {"why": "policy"},
    ),
    "escalation": (refusal(403, ESCALATION, "Forbidden"), ForbiddenError, {"why": "escalation"}),
    "namespace ends": (
        refusal(403, "x", "Forbidden", causes=[{"reason": "NamespaceTerminating"}]),
        ForbiddenError,
        {"why": "terminating"},
    ),
    "definition ends": (refusal(403, CRD, "Forbidden"), ForbiddenError, {"why": "terminating"}),
    "group": ("404 page not found", ObjectNotFoundError, {"what": "kind"}),
    "resource": (
        refusal(404, "the server could not find the requested resource", "NotFound"),
        ObjectNotFoundError,
        {"what": "kind"},
    ),
    "namespace": (NAMESPACE, ObjectNotFoundError, {"what": "namespace"}),
    "object": (OBJECT, ObjectNotFoundError, {"what": "object"}),
    "version": (refusal(409, MOVED, "Conflict", name="d"), ConflictError, MEANTIME),
    "uid": (refusal(409, OTHER_UID, "Conflict"), ConflictError, MEANTIME),
    "precondition": (refusal(409, PRECONDITION, "Conflict"), ConflictError, MEANTIME),
    "exists": (
        refusal(409, 'deployments.apps "d" already exists', "AlreadyExists", name="d"),
        ConflictError,
        {"message": "`Deployment q3/d` already exists"},
    ),
    "dropped version": (
        refusal(500, "request to convert CR to an invalid group/version: kubeflow.org/v1beta1"),
        InvalidError,
        {"hint": "rewrite the object and its managed fields in a version that is served"},
    ),
    "webhook": (
        refusal(500, WEBHOOK, "InternalError"),
        TransientError,
        {"webhook": "check.example.com", "message": 'service "nosvc" not found'},
    ),
    "conversion": (
        refusal(500, CONVERSION),
        TransientError,
        {"webhook": "ex.com/v2, Kind=Lamp", "message": 'service "a" not found'},
    ),
    **{str(code): (refusal(code, "later"), TransientError, {}) for code in (429, 502, 503, 504)},
    "odd": (refusal(500, "something odd"), ClusterError, {}),
    "short": (refusal(422, "is invalid", "Invalid", causes=[SHORT]), InvalidError, {"hint": None}),
    "grpc": (refusal(500, LARGE), InvalidError, {"message": TOO_LARGE + LARGE}),
    "etcd": (
        refusal(500, "etcdserver: request is too large"),
        InvalidError,
        {"message": f"{TOO_LARGE}etcdserver: request is too large"},
    ),
    "json patch": (
        refusal(422, TEST, "Invalid"),
        InvalidError,
        {"causes": (), "message": "patch does not fit"},
    ),
    "gone": (refusal(410, "too old resource version: 4488 (4489)", "Expired"), WatchExpiredError, {}),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_becomes_the_error_that_says_who_can_mend_it(case: str) -> None:
    body, kind, facts = REFUSALS[case]
    error = read(body, code=404 if isinstance(body, str) else None)
    assert type(error) is kind or (case == "dropped version" and isinstance(error, kind))
    assert not isinstance(error, ForbiddenError) or error.hint
    for name, value in facts.items():
        fact = getattr(error, name)
        assert fact == value or (name == "message" and value in fact)


def test_a_missing_namespace_object_is_an_object() -> None:
    error = read(NAMESPACE, kind="Namespace")
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
    ("kind", "field", "reason"),
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
def test_what_is_too_long_is_told_with_its_limit(kind: str, field: str, reason: str) -> None:
    text = "Too long: may not be more than 1048576 bytes"
    cause = {"reason": "FieldValueTooLong", "field": field, "message": text}
    body = refusal(422, f"{kind} is invalid", "Invalid", causes=[cause])
    error = error_of(422, body, subject="`it`", kind=kind)
    assert error.message == f"`it` is refused: {reason}"
    assert error.hint == "bring large files in an image or a volume, and name them in the object"


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
    ("message", "reason"),
    [
        ("Invalid value: the mode is chosen once", "the mode is chosen once"),
        ('Invalid value: ["10.0.0.77"]: may not change once set', '["10.0.0.77"]: may not change once set'),
        ('Invalid value: v1.Spec{A: "hunter2"}', "invalid value"),
        ('Invalid value: ["hunter2", "b"]', "invalid value"),
    ],
    ids=["a rule's own words", "a short list", "a structure", "a list alone"],
)
def test_what_is_no_value_is_told(message: str, reason: str) -> None:
    error = read(refusal(422, "..", causes=[{"field": "spec.mode", "message": message}]))
    assert error.message == f"`Deployment q3/d` is refused: `spec.mode` {reason}"


def test_values_of_secrets_are_not_repeated_however_short() -> None:
    causes = [{"field": "data[key]", "message": 'Invalid value: "hunter2": field is immutable'}]
    error = read(refusal(422, "..", causes=causes), kind="Secret")
    assert "hunter2" not in repr(error.__dict__)


def test_no_message_is_longer_than_a_screen() -> None:
    for code in (400, 403, 405, 413, 422, 429, 500, 503, 599):
        assert len(str(read(refusal(code, "x" * 9000)))) < 600


def test_warnings_are_read_once_each() -> None:
    headers = ['299 - "old \\"thing\\"", 299 - "second"', '299 - "second"']
    assert warnings_of(headers) == ('old "thing"', "second")


def test_a_server_that_wants_https_says_so() -> None:
    error = error_of(400, "Client sent an HTTP request to an HTTPS server.\n", subject="`Namespace a`")
    assert (error.message, error.exit_code) == ("the API server speaks HTTPS alone", 6)
    assert "https://" in str(error.hint)
