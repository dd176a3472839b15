"""What a render was made from: each file of the app that was read for it, and the packages."""

import hashlib
import json
import re
from collections.abc import Mapping

from mlstack.files import layout
from mlstack.files.appdir import AppDir

_ENVIRONMENT = re.compile(rf"{layout.ENVIRONMENTS}/.+/{re.escape(layout.ENVIRONMENT)}")


def digests(app: AppDir) -> dict[str, str]:
    """Give the hash of each file that was read since the app was opened; empty for files that are not there.

    Which cluster an environment is bound to is no input: an apply itself writes it into the file.
    """
    return {
        file: _without_cluster(app, file) if digest and _ENVIRONMENT.fullmatch(file) else digest
        for file, digest in sorted(app.files.digests.items())
        if file != layout.CURRENT_ENVIRONMENT
    }


def _without_cluster(app: AppDir, file: str) -> str:
    document = app.files.document(file, "Environment")
    value: Mapping[str, object] = document.value if document else {}
    kept = {key: inner for key, inner in value.items() if key != "cluster"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def packages(app: AppDir) -> dict[str, str]:
    """Give the digest of each installed package, by name and version."""
    return {str(each.ref): each.digest for each in app.lock().packages}
