"""Rewrite `registry/registry.yaml` from the package folders: `python -m tests.generate.registry_index`."""

from mlstack.files import bundled
from mlstack.registries.index import build_index

FOLDER = bundled.folder("registry")


def main() -> None:
    """Write the index of what the packages hold now."""
    (FOLDER / "registry.yaml").write_text(build_index(FOLDER), encoding="utf-8")


if __name__ == "__main__":
    main()
