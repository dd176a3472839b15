"""What does not go back to an earlier revision."""

from mlstack.deploy.replacement import earlier_state
from mlstack.objects.kube_object import DesiredState, KubeObject
from tests.support.deploying import crd
from tests.support.revisions import one


def test_a_claim_stays_as_it_is_now_and_is_told() -> None:
    def claims(**size: str) -> DesiredState:
        made = tuple(one(name, kind="PersistentVolumeClaim", storage=value) for name, value in size.items())
        return DesiredState(app="demo", environment="gke", namespace="ml", objects=made)

    mixed, told = earlier_state(claims(data="1Gi", old="1Gi"), claims(data="5Gi", later="1Gi"))
    assert [each.data["spec"]["storage"] for each in mixed.objects] == ["5Gi", "1Gi"]
    assert told == ("PersistentVolumeClaim ml/data stays as it is: a claim is not rolled back",)


def versions(*names: str, **fields: str) -> DesiredState:
    """Build a set of one definition."""
    made = crd(group="x.org")
    version = made["spec"]["versions"][0]
    made["spec"]["versions"] = [{**version, "name": name, "storage": name == names[0]} for name in names]
    found = KubeObject(data={**made, "metadata": {**made["metadata"], **fields}}, component="a")
    return DesiredState(app="demo", environment="gke", namespace="ml", objects=(found,))


def test_a_definition_that_would_lose_a_version_stays_as_it_is() -> None:
    today = versions("v1", "v2")
    mixed, told = earlier_state(versions("v1"), today)
    assert mixed.objects == today.objects
    assert told[0].startswith("CustomResourceDefinition widgets.x.org stays as it is: going back would lose")


def test_a_definition_that_loses_nothing_goes_back() -> None:
    earlier = versions("v1", "v2")
    mixed, told = earlier_state(earlier, versions("v1"))
    assert mixed.objects == earlier.objects
    assert told == ()
