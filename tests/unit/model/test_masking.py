"""What a person reads holds no secret."""

from mlstack.model.masking import MASK, mask_object, mask_params, mask_text, mask_values, secret_texts
from tests.support.builders import params

DECLARED = params(token={"type": "string", "secret": True}, image={"type": "string"}, other={"secret": True})


def test_secret_parameters_are_masked_and_unset_ones_stay_unset() -> None:
    values = {"token": "hunter2", "image": "a", "other": None}
    assert mask_params(values, DECLARED) == {"token": MASK, "image": "a", "other": None}


def test_the_data_of_a_secret_is_masked_key_by_key() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "s",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hunter2", "a": "b"},
        },
        "data": {"k": "aHVudGVyMg=="},
        "stringData": {"k": "hunter2"},
    }
    masked = mask_object(secret)
    assert masked["data"] == masked["stringData"] == {"k": MASK}
    assert masked["metadata"]["name"] == "s"
    assert masked["metadata"]["annotations"]["a"] == "b"
    assert "hunter2" not in str(masked)
    assert secret["stringData"] == {"k": "hunter2"}


def test_other_objects_stay_as_they_are() -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}}
    assert mask_object(config) == config


def test_texts_lose_every_occurrence_longest_first() -> None:
    secrets = secret_texts({"token": "abc", "other": {"a": ["abcdef", 7]}}, DECLARED)
    assert secrets == ("abcdef", "abc", "7")
    assert mask_text("x abcdef abc", secrets) == f"x {MASK} {MASK}"


def test_plain_data_loses_secrets_wherever_they_stand() -> None:
    data = {"a": ["x abcdef", {"b": 7}], "c": "abc", "d": "x abc", "e": True, "f": None, "g": 70}
    assert mask_values(data, ("abcdef", "abc", "7", "True")) == {
        "a": [f"x {MASK}", {"b": MASK}],
        "c": MASK,
        "d": "x abc",  # three letters stand by chance in too many texts
        "e": True,
        "f": None,
        "g": 70,
    }
