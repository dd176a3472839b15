"""Policies for what runs in any cluster: what serves stays up, and nobody may do more than the work needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlstack.objects.kube_object import KubeObject
from mlstack.validate.checks import amount_of, selects
from mlstack.validate.formats import Field
from mlstack.validate.policies import Pods, PolicyContext, Violations, policy

# --- what runs stays up ---


@policy(
    "image-tag",
    "reliability",
    reason="`latest` is another image tomorrow: workers of one job differ, and no rollback leads back",
    fix="name a version, or better a digest: `image:1.2.3`, `image@sha256:…`",
)
def _image_tag(stack: PolicyContext) -> Violations:
    for pods, container in stack.containers:
        image = container.at("image")
        name, at, _ = image.text.partition("@")
        tag = name.rpartition("/")[2].partition(":")[2]
        if image.text and not at and tag in ("", "latest"):
            says = "has the tag `latest`" if tag else "has no tag, which means `latest`"
            yield pods.obj, image.says(f"{image.text} {says}")


@policy(
    "requests",
    "reliability",
    severity="warning",
    reason="without requests the container counts as nothing to the scheduler, and is the first to be killed",
    fix="set `resources.requests` of cpu and memory, in the template or by the component's parameters",
)
def _requests(stack: PolicyContext) -> Violations:
    for pods in stack.whole_pods:
        whole = {name for part in pods.spec.at("resources").all("requests|limits") for name in part.names}
        for container in pods.containers:
            resources = container.at("resources")
            asked = whole | {name for part in resources.all("requests|limits") for name in part.names}
            missing = [name for name in ("cpu", "memory") if name not in asked]
            if missing:
                yield pods.obj, resources.says(f"asks for no {' and no '.join(missing)}")


def _serving(stack: PolicyContext) -> Iterator[Pods]:
    """Give the pods that Services lead to."""
    services = [
        (obj.namespace, Field(obj.data).at("spec", "selector")) for obj in stack.of_kind("", "Service")
    ]
    for pods in stack.pods:
        if (pods.obj.group, pods.obj.kind) in (("apps", "Deployment"), ("apps", "StatefulSet")) and any(
            namespace == pods.obj.namespace
            and selector.names
            and all(pods.labels.get(name) == value.value for name, value in selector.entries)
            for namespace, selector in services
        ):
            yield pods


@policy(
    "readiness-probe",
    "reliability",
    severity="warning",
    reason="without a probe a model server gets requests before its model is loaded, and after it hangs",
    fix="give the container that the Service leads to a `readinessProbe`",
)
def _readiness_probe(stack: PolicyContext) -> Violations:
    for pods in _serving(stack):
        if not any(container.at("readinessProbe") for container in pods.containers):
            yield pods.obj, pods.spec.at("containers").says("serve without a `readinessProbe`")


@policy(
    "disruption-budget",
    "reliability",
    severity="warning",
    reason="without a budget a drain of nodes, as of an upgrade, may take all replicas of a service at once",
    fix="add a PodDisruptionBudget with `maxUnavailable: 1` that selects these pods",
)
def _disruption_budget(stack: PolicyContext) -> Violations:
    for pods in _serving(stack):
        replicas = Field(pods.obj.data).at("spec", "replicas")
        if (replicas.number or 1) > 1 and not any(_budgets(stack, pods)):
            yield (
                pods.obj,
                replicas.says(f"{replicas.number} replicas serve and no PodDisruptionBudget selects them"),
            )


def _budgets(stack: PolicyContext, pods: Pods) -> Iterator[KubeObject]:
    for budget in stack.of_kind("policy", "PodDisruptionBudget"):
        selector = Field(budget.data).at("spec", "selector")
        if budget.namespace == pods.obj.namespace and selector and selects(selector, pods.labels):
            yield budget


@policy(
    "budget-blocks",
    "reliability",
    reason="a budget that lets no pod go stops every drain: upgrades of nodes hang until somebody deletes it",
    fix="let one pod go: `maxUnavailable: 1`, or fewer in `minAvailable` than there are replicas",
)
def _budget_blocks(stack: PolicyContext) -> Violations:
    for pods in stack.pods:
        replicas = Field(pods.obj.data).at("spec", "replicas")
        if pods.obj.group == "apps" and not pods.template.is_per_node:
            for budget in _budgets(stack, pods):
                spec, count = Field(budget.data).at("spec"), 1 if replicas.number is None else replicas.number
                least, most = spec.at("minAvailable"), spec.at("maxUnavailable")
                bound = 100 if least.text else count
                if count and amount_of(most) == 0:
                    yield budget, most.says(f"lets no pod of {pods.obj.identity} go")
                elif count and (amount_of(least) or 0) >= bound:
                    yield (
                        budget,
                        least.says(f"{least.value} of {count} pods of {pods.obj.identity}: lets none go"),
                    )


@policy(
    "claim-rollout",
    "reliability",
    reason="the new pod of a rolling update waits for the volume of the old one, and the old one for it",
    fix="set `strategy: {type: Recreate}`, or use a claim that many nodes may mount",
)
def _claim_rollout(stack: PolicyContext) -> Violations:
    modes = {
        (obj.namespace, obj.name): {mode.text for mode in Field(obj.data).at("spec", "accessModes").items}
        for obj in stack.of_kind("", "PersistentVolumeClaim")
    }
    for pods in stack.pods:
        strategy = Field(pods.obj.data).at("spec", "strategy")
        surge = strategy.at("rollingUpdate", "maxSurge")
        is_rolling = strategy.at("type").text in ("", "RollingUpdate") and not (
            surge and amount_of(surge) == 0
        )
        if (pods.obj.group, pods.obj.kind) != ("apps", "Deployment") or not is_rolling:
            continue
        for claim in pods.spec.all("volumes[].persistentVolumeClaim?.claimName"):
            of_claim = modes.get((pods.obj.namespace, claim.text))
            if of_claim and of_claim <= {"ReadWriteOnce", "ReadWriteOncePod"}:
                yield (
                    pods.obj,
                    strategy.says(f"rolls over while one node alone may mount claim `{claim.text}`"),
                )


# --- nobody may do more than the work needs ---

_OF_NODE = {"hostNetwork": "the network", "hostPID": "the processes", "hostIPC": "the memory"}
_HARMLESS = frozenset({"NET_BIND_SERVICE"})


@policy(
    "privileged",
    "security",
    reason="a privileged pod, or one in its node's namespaces, can read what all others on the node do",
    fix="leave it out; what needs one capability adds that one, or waives this with the reason",
)
def _privileged(stack: PolicyContext) -> Violations:
    for pods in stack.pods:
        for name, what in _OF_NODE.items():
            if pods.spec.at(name).value is True:
                yield pods.obj, pods.spec.at(name).says(f"shares {what} of its node")
        for container in pods.all_containers:
            context = container.at("securityContext")
            if context.at("privileged").value is True:
                yield pods.obj, context.at("privileged").says("is privileged")
            for capability in context.all("capabilities.add[]"):
                if capability.text not in _HARMLESS:
                    yield pods.obj, capability.says(f"adds the capability {capability.text}")


@policy(
    "host-path",
    "security",
    reason="a folder of the node leads to what other pods and the node itself keep there",
    fix="use a claim, an `emptyDir`, or a local PersistentVolume",
)
def _host_path(stack: PolicyContext) -> Violations:
    for pods in stack.pods:
        for volume in pods.spec.all("volumes[].hostPath?"):
            yield pods.obj, volume.says(f"mounts {volume.at('path').text or 'a folder'} of the node")


_CREDENTIAL = re.compile(
    r"(.*_)?(PASSWORD|PASSWD|SECRET|TOKEN|CREDENTIALS?|API_?KEY|ACCESS_KEY(_ID)?|SECRET_KEY|PRIVATE_KEY)",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@$]*:[^/\s@$]+@", re.IGNORECASE)


@policy(
    "secret-in-env",
    "security",
    reason="what stands in an object is read by everybody who may list pods, and kept in every backup",
    fix="put it into a Secret and name that by `valueFrom.secretKeyRef`",
)
def _secret_in_env(stack: PolicyContext) -> Violations:
    for pods, container in stack.containers:
        for variable in container.at("env").items:
            name, value = variable.at("name").text, variable.at("value")
            # A path leads to a file, and `$(NAME)` to another variable.
            is_literal = bool(value.text) and not value.text.startswith(("/", "$("))
            if is_literal and (_CREDENTIAL.fullmatch(name) or _IN_ADDRESS.search(value.text)):
                yield pods.obj, value.says(f"`{name}` holds a credential")


@policy(
    "non-root",
    "security",
    severity="warning",
    reason="root in a container is root on the node once it finds a way out of it",
    fix="set `runAsNonRoot: true` and `runAsUser` in the pod's `securityContext`",
)
def _non_root(stack: PolicyContext) -> Violations:
    for pods in stack.whole_pods:
        for container in pods.all_containers if pods.spec.at("os", "name").text != "windows" else ():
            contexts = [holder.at("securityContext") for holder in (container, pods.spec)]
            user = next((context.at("runAsUser") for context in contexts if context.at("runAsUser")), None)
            claims = [context.at("runAsNonRoot").value for context in contexts if context.at("runAsNonRoot")]
            if user is not None and user.value == 0:
                yield pods.obj, user.says("runs as root")
            elif user is None and claims[:1] != [True]:
                yield pods.obj, contexts[0].says("may run as root")


@policy(
    "restricted",
    "security",
    severity="warning",
    reason="a namespace of Pod Security level `restricted` refuses pods that keep more than they need",
    fix="set `allowPrivilegeEscalation: false`, `capabilities.drop: [ALL]`, `seccompProfile` RuntimeDefault",
)
def _restricted(stack: PolicyContext) -> Violations:
    for pods in stack.whole_pods:
        profile = pods.spec.at("securityContext", "seccompProfile", "type")
        for container in pods.all_containers if pods.spec.at("os", "name").text != "windows" else ():
            context = container.at("securityContext")
            own = context.at("seccompProfile", "type").text or profile.text
            dropped = [capability.text for capability in context.all("capabilities.drop[]")]
            lacking = [
                name
                for name, is_set in (
                    ("allowPrivilegeEscalation", context.at("allowPrivilegeEscalation").value is False),
                    ("capabilities.drop", "ALL" in dropped),
                    ("seccompProfile", own in ("RuntimeDefault", "Localhost")),
                )
                if not is_set
            ]
            if lacking:
                yield pods.obj, context.says(f"is not restricted: {', '.join(lacking)}")


@policy(
    "default-account",
    "security",
    reason="every pod of the namespace that names no other account has the rights of the account `default`",
    fix="make a ServiceAccount for what needs the rights, and bind them to that",
)
def _default_account(stack: PolicyContext) -> Violations:
    for obj in stack.of_kind("rbac.authorization.k8s.io", "ClusterRoleBinding", "RoleBinding"):
        for subject in Field(obj.data).at("subjects").items:
            if (subject.at("kind").text, subject.at("name").text) == ("ServiceAccount", "default"):
                yield obj, subject.says("gives rights to the account `default`")


@policy(
    "rbac-wildcard",
    "security",
    reason="`*` grants what exists today and what is added tomorrow, to whoever gets hold of the account",
    fix="name the resources and verbs that are used",
)
def _rbac_wildcard(stack: PolicyContext) -> Violations:
    for obj in stack.of_kind("rbac.authorization.k8s.io", "Role", "ClusterRole"):
        for rule in Field(obj.data).at("rules").items:
            if all("*" in [item.text for item in rule.at(part).items] for part in ("resources", "verbs")):
                yield obj, rule.says("grants every verb on every resource")
    for obj in stack.of_kind("rbac.authorization.k8s.io", "ClusterRoleBinding", "RoleBinding"):
        role = Field(obj.data).at("roleRef", "name")
        if role.text == "cluster-admin":
            yield obj, role.says("binds `cluster-admin`")
