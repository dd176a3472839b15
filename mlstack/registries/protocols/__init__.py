"""The protocols, one file each; `catalog` loads this folder."""
