"""Read what an API server says of the kinds it has: aggregated discovery, and the older one by group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mlstack.model.kinds import Kind

AGGREGATED = ",".join(
    (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    )
)


PARTS = frozenset({"items", "groups", "versions", "resources"})
"""What answers with kinds hold, each one of them."""


def is_aggregated(content_type: str) -> bool:
    """Say whether an answer is the aggregated form: servers before 1.26 give the older one."""
    return "as=APIGroupDiscoveryList" in content_type.replace(" ", "")


def aggregated_kinds(body: Mapping[str, Any]) -> Iterator[Kind]:
    """Give the kinds of one `APIGroupDiscoveryList`."""
    for group in body.get("items") or ():
        name = str((group.get("metadata") or {}).get("name") or "")
        for version in group.get("versions") or ():
            for resource in version.get("resources") or ():
                yield Kind(
                    group=name,
                    version=str(version["version"]),
                    kind=str((resource.get("responseKind") or {}).get("kind") or ""),
                    plural=str(resource["resource"]),
                    namespaced=resource.get("scope") == "Namespaced",
                    has_status=any(
                        one.get("subresource") == "status" for one in resource.get("subresources") or ()
                    ),
                )


def group_paths(core: Mapping[str, Any], groups: Mapping[str, Any]) -> list[str]:
    """Give the path of every group and version that the older `/api` and `/apis` answers name."""
    return [f"/api/{version}" for version in core.get("versions") or ()] + [
        f"/apis/{version['groupVersion']}"
        for group in groups.get("groups") or ()
        for version in group.get("versions") or ()
    ]


def listed_kinds(body: Mapping[str, Any]) -> Iterator[Kind]:
    """Give the kinds of one `APIResourceList`; subresources are no kinds."""
    group, _, version = str(body.get("groupVersion") or "").rpartition("/")
    names = {str(resource["name"]) for resource in body.get("resources") or ()}
    for resource in body.get("resources") or ():
        if "/" not in resource["name"]:
            yield Kind(
                group=group,
                version=version,
                kind=str(resource["kind"]),
                plural=str(resource["name"]),
                namespaced=bool(resource.get("namespaced")),
                has_status=f"{resource['name']}/status" in names,
            )
