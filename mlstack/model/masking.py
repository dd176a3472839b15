"""What a person must not read: secret parameters and the data of Secrets."""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from mlstack.model.prototype import Param

MASK = "********"


def mask_params(values: Mapping[str, Any], params: Mapping[str, Param]) -> dict[str, Any]:
    """Give the values with every set secret one replaced by the mask."""
    return {name: mask_value(value, params.get(name)) for name, value in values.items()}


def mask_value(value: Any, param: Param | None) -> Any:
    """Give the value, or the mask when the parameter is secret and set."""
    return MASK if param is not None and param.secret and value is not None else value


def mask_object(data: Mapping[str, Any]) -> dict[str, Any]:
    """Give a Kubernetes object without what it keeps secret: `data` and `stringData` of a Secret.

    Annotations with a copy of the object (`kubectl apply` leaves one) are masked as well.
    """
    masked = dict(data)
    if data.get("kind") != "Secret" or data.get("apiVersion") != "v1":
        return masked
    for field in ("data", "stringData"):
        if isinstance(data.get(field), Mapping):
            masked[field] = dict.fromkeys(data[field], MASK)
    metadata = data.get("metadata")
    if isinstance(metadata, Mapping) and isinstance(metadata.get("annotations"), Mapping):
        masked["metadata"] = {**metadata, "annotations": _without_copies(metadata["annotations"])}
    return masked


def texts_of_secret(data: Mapping[str, Any]) -> Iterator[str]:
    """Give what the values of a Secret say, as a whole, in base64 and line by line; of others nothing."""
    if data.get("kind") != "Secret" or data.get("apiVersion") != "v1":
        return
    plain = data.get("stringData")
    values = [str(value).encode() for value in plain.values()] if isinstance(plain, Mapping) else []
    encoded = data.get("data")
    for value in encoded.values() if isinstance(encoded, Mapping) else ():
        with suppress(ValueError):
            values.append(base64.b64decode(str(value)))
    for value in values:
        text = value.decode("utf-8", "replace").strip()
        yield from (text, base64.b64encode(value).decode(), *text.splitlines())


def is_telling(text: str) -> bool:
    """Tell whether a secret is long enough not to stand in other texts by chance."""
    return len(text.strip()) >= _TELLING


_COPIES = "kubectl.kubernetes.io/last-applied-configuration"


def _without_copies(annotations: Mapping[str, Any]) -> dict[str, Any]:
    return {name: MASK if name == _COPIES else value for name, value in annotations.items()}


def secret_texts(values: Mapping[str, Any], params: Mapping[str, Param]) -> tuple[str, ...]:
    """Give the texts of all set secret values, for `mask_text`; longest first."""
    found: set[str] = set()
    for name, value in values.items():
        param = params.get(name)
        if param is not None and param.secret:
            found.update(_texts(value))
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    elif value is not None and not isinstance(value, bool) and str(value):
        yield str(value)


# What is shorter stands by chance in too many texts; as a whole value it is hidden all the same.
_TELLING = 4


def mask_values(value: Any, secrets: Sequence[str]) -> Any:
    """Give plain data in which texts that are or hold a secret are masked, wherever a template put them."""
    if not secrets:
        return value
    if isinstance(value, Mapping):
        return {key: mask_values(inner, secrets) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mask_values(inner, secrets) for inner in value]
    if value is None or isinstance(value, bool):
        return value
    if str(value) in secrets:
        return MASK
    longer = [secret for secret in secrets if len(secret) >= _TELLING]
    return mask_text(value, longer) if isinstance(value, str) else value


def mask_text(text: str, secrets: Iterable[str]) -> str:
    """Give the text with every occurrence of a secret replaced by the mask."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text
