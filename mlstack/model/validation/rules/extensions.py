"""Rules on what extends the API: CustomResourceDefinitions and webhooks."""

from __future__ import annotations

from mlstack.model.validation import syntax
from mlstack.model.validation.base import Field, Problems, shown
from mlstack.model.validation.rules.shared import needed_name, one_of, selector, unique
from mlstack.model.validation.rules.table import Subject, rule

_CRD = "apiextensions.k8s.io/CustomResourceDefinition"
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_WEBHOOKS = (
    "admissionregistration.k8s.io/MutatingWebhookConfiguration",
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
)


@rule(_CRD)
def definition_is_named_after_its_kind(subject: Subject) -> Problems:
    """A definition is called plural.group, and all its names are DNS labels."""
    names, group = subject.spec.at("names"), subject.spec.at("group")
    expected = f"{names.at('plural').text}.{group.text}"
    name = subject.metadata.at("name")
    if name.text != expected:
        yield name.says(f"must be `{expected}` (plural and group), got {shown(name.value)}")
    for field in ("plural", "kind"):
        yield from needed_name(names.at(field), lambda text: syntax.label_1035(text.lower()))
    for field in ("singular", "listKind"):
        if names.at(field).text:
            yield from needed_name(names.at(field), lambda text: syntax.label_1035(text.lower()))
    if names.at("listKind").text and names.at("listKind").text == names.at("kind").text:
        yield names.at("listKind").says("must differ from `kind`")
    for field in ("shortNames", "categories"):
        for one in names.at(field).items:
            yield from needed_name(one, syntax.label_1035)


@rule(_CRD)
def definition_belongs_to_a_domain(subject: Subject) -> Problems:
    """The group is a domain, the scope one of two."""
    group, scope = subject.spec.at("group"), subject.spec.at("scope")
    yield from needed_name(group, syntax.subdomain)
    if group.text and "." not in group.text:
        yield group.says(f"must be a domain with a dot, got {shown(group.value)}")
    if scope.text not in ("Cluster", "Namespaced"):
        yield scope.says(f"must be `Cluster` or `Namespaced`, got {shown(scope.value)}")


@rule(_CRD)
def versions_fit(subject: Subject) -> Problems:
    """Exactly one version is stored; each has a name and a schema of its own."""
    versions = subject.spec.at("versions")
    stored = [one for one in versions.items if one.at("storage").value is True]
    if len(stored) != 1:
        yield versions.says(f"must have exactly one version with `storage: true`, got {len(stored)}")
    yield from unique((one.at("name") for one in versions.items), what="version")
    for one in versions.items:
        yield from needed_name(one.at("name"), syntax.label_1035)
        schema = one.at("schema", "openAPIV3Schema")
        if not schema:
            yield schema.says("is required")
        else:
            yield from _root_schema(schema)
        for column in one.at("additionalPrinterColumns").items:
            yield from column.at("jsonPath").needed()


def _root_schema(schema: Field) -> Problems:
    if schema.at("type").text != "object":
        yield schema.at("type").says(f"must be `object` at the root, got {shown(schema.at('type').value)}")
    yield from _structural(schema)


def _structural(schema: Field) -> Problems:
    """Check what makes a schema structural: every part has a type and says what is in it."""
    open_part = any(
        schema.at(name).value is True
        for name in ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
    )
    kind = schema.at("type")
    if not kind.text and not open_part:
        yield kind.says("is required")
    elif kind.text and kind.text not in _TYPES:
        yield kind.says(f"must be one of {', '.join(f'`{one}`' for one in _TYPES)}, got {shown(kind.value)}")
    if schema.at("type").text == "array" and not schema.at("items"):
        yield schema.at("items").says("is required with `type: array`")
    if schema.at("properties").names and schema.at("additionalProperties").names:
        yield schema.at("additionalProperties").says("must not stand beside `properties`")
    yield from _list_keys(schema)
    for _, inner in schema.at("properties").entries:
        yield from _structural(inner)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.at(name).value, dict):
            yield from _structural(schema.at(name))
    yield from _combinations(schema)


def _combinations(schema: Field) -> Problems:
    """Check that combinations only limit values: what there is stands outside them."""
    parts = [one for name in ("allOf", "anyOf", "oneOf") for one in schema.at(name).items]
    if schema.at("x-kubernetes-int-or-string").value is True:
        parts = [one for one in parts if one.names != ("type",)]
    for part in (*parts, schema.at("not")):
        for name in ("additionalProperties", "default", "description", "nullable", "type"):
            if part.at(name).value not in (None, "", False):
                yield part.at(name).says("must stand outside `allOf`, `anyOf`, `oneOf` and `not`")


def _list_keys(schema: Field) -> Problems:
    keys = [key.text for key in schema.at("x-kubernetes-list-map-keys").items]
    is_map = schema.at("x-kubernetes-list-type").text == "map"
    if is_map != bool(keys):
        yield schema.at("x-kubernetes-list-map-keys").says("go together with `x-kubernetes-list-type: map`")
    items = schema.at("items")
    required = [one.text for one in items.at("required").items]
    for key in keys:
        described = items.at("properties", key)
        if not described:
            yield items.at("properties", key).says("is a key of the list and must be described")
        elif key not in required and not described.at("default"):
            yield items.at("required").says(f"must hold `{key}`, a key of the list without a default")


@rule(*_WEBHOOKS)
def webhooks_fit(subject: Subject) -> Problems:
    """A webhook has a name with a domain, a place, versions and no hidden effects."""
    webhooks = subject.root.at("webhooks").items
    yield from unique((one.at("name") for one in webhooks), what="webhook")
    for one in webhooks:
        name = one.at("name")
        yield from needed_name(name, syntax.subdomain)
        if name.text.count(".") < 2:
            yield name.says(f"must have at least three parts between dots, got {shown(name.value)}")
        yield from _review_versions(one.at("admissionReviewVersions"))
        yield from one_of(one.at("clientConfig"), ("service", "url"), what="place")
        url = one.at("clientConfig", "url")
        if url and not url.text.startswith("https://"):
            yield url.says(f"must start with `https://`, got {shown(url.value)}")
        for each in one.at("rules").items:
            yield from _matching(each)
        effects = one.at("sideEffects")
        if effects.text not in ("None", "NoneOnDryRun"):
            yield effects.says(f"must be `None` or `NoneOnDryRun`, got {shown(effects.value)}")
        if one.at("timeoutSeconds"):
            yield from one.at("timeoutSeconds").between(1, 30)
        for selecting in ("namespaceSelector", "objectSelector"):
            yield from selector(one.at(selecting))


def _review_versions(versions: Field) -> Problems:
    yield from versions.needed()
    if versions.items and not {"v1", "v1beta1"} & {one.text for one in versions.items}:
        yield versions.says(f"must hold `v1`, got {shown(versions.value)}")
    for one in versions.items:
        yield from needed_name(one, syntax.label_1035)


def _matching(each: Field) -> Problems:
    """Check what a webhook is asked about."""
    for name in ("apiGroups", "apiVersions", "operations", "resources"):
        yield from each.at(name).needed()
        if name != "apiGroups":
            for one in each.at(name).items:
                yield from one.needed()
