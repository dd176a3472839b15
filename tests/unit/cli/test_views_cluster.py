"""What `status` shows: component, object, pods, why, and what to do."""

from mlstack.cli.output import table_text
from mlstack.cli.page import text_width
from mlstack.deploy.result import ComponentStatus, ObjectStatus, PodStatus, StatusResult
from mlstack.readiness.rule import State

NO_GPUS = "no node of this cluster has nvidia.com/gpu (0/1 nodes: Insufficient nvidia.com/gpu)"
HINT = "add GPU nodes with the device plugin, or: mlstack param set --env=gke cnn num_gpus 0"


def found(
    kind: str, state: State, *, reason: str = "", hint: str = "", pods: tuple[PodStatus, ...] = ()
) -> ObjectStatus:
    return ObjectStatus(
        object=f"{kind} default/cnn",
        kind=kind,
        namespace="default",
        name="cnn",
        state=state,
        reason=reason,
        hint=hint,
        pods=pods,
    )


def shown(*objects: ObjectStatus) -> list[str]:
    result = StatusResult(
        ok=False,
        app="demo",
        environment="gke",
        namespace="default",
        context="gke",
        components=(ComponentStatus(name="cnn", ok=False, objects=objects),),
    )
    return table_text(result).splitlines()


def test_status_is_a_tree_that_fits_a_terminal() -> None:
    pods = (
        PodStatus(name="cnn-ps-0", state="ready", reason="", node="node-1"),
        PodStatus(name="cnn-worker-0", state="waiting", reason=NO_GPUS, node=""),
    )
    reason = f"0 of 1 workers run (PS 1 of 1). Workers wait: {NO_GPUS}"
    lines = shown(found("ConfigMap", "ready"), found("TFJob", "waiting", reason=reason, hint=HINT, pods=pods))
    assert all(text_width(line) <= 80 for line in lines)
    assert lines == [
        "cnn: not ready",
        "  ready    ConfigMap default/cnn",
        "  waiting  TFJob default/cnn: 0 of 1 workers run (PS 1 of 1). Workers wait: no",
        "           node of this cluster has nvidia.com/gpu (0/1 nodes: Insufficient",
        "           nvidia.com/gpu)",
        "      ready    pod cnn-ps-0 on node-1",
        "      waiting  pod cnn-worker-0: no node of this cluster has nvidia.com/gpu (0/1",
        "               nodes: Insufficient nvidia.com/gpu)",
        "      hint: add GPU nodes with the device plugin, or:",
        "            mlstack param set --env=gke cnn num_gpus 0",
        "`gke` (context gke, namespace default): not everything works",
    ]


def test_the_same_hint_stands_once_below_the_objects_it_is_for() -> None:
    hint = "mlstack apply gke -c cnn"
    lines = shown(
        found("ConfigMap", "missing", hint=hint),
        found("Secret", "missing", hint=hint),
        found("TFJob", "waiting", hint="other"),
    )
    assert [line.strip() for line in lines if "hint" in line] == [f"hint: {hint}", "hint: other"]
    assert "Secret" in lines[lines.index(f"      hint: {hint}") - 1]


def test_many_pods_with_the_same_trouble_stand_in_one_line() -> None:
    pods = tuple(
        PodStatus(name=f"cnn-worker-{number}", state="waiting", reason="no node fits", node="")
        for number in range(6)
    )
    one = PodStatus(name="cnn-ps-0", state="ready", reason="", node="node-1")
    lines = shown(found("TFJob", "waiting", pods=(one, *pods)))
    assert lines[2:4] == [
        "      ready    pod cnn-ps-0 on node-1",
        "      waiting  6 pods cnn-worker-0 … cnn-worker-5: no node fits",
    ]
