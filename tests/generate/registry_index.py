"""Rewrite `registry/registry.yaml` from the package folders: `python -m tests.generate.registry_index`."""

from mlstack.app import files
from mlstack.registries.publish import build_index

FOLDER = files.folder("registry")


def main() -> None:
    """Write the index of what the packages hold now."""
    (FOLDER / "registry.yaml").write_text(build_index(FOLDER).text, encoding="utf-8")


if __name__ == "__main__":
    main()
