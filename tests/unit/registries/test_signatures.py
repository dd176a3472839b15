"""Signatures of cosign: packages of real OCI registries and of folders, unsigned, by another key, changed."""

import base64
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlstack import programs
from mlstack.app.app_dir import AppDir
from mlstack.app.files import read_folder
from mlstack.app.package import PackageFolder, digest, file_digests
from mlstack.errors import ConfigError, RegistryError
from mlstack.operations import app as apps
from mlstack.operations import package_changes, packages, registries
from mlstack.operations.registries import publish_package
from tests.support import sigstore
from tests.support.builders import read_tree, write_tree
from tests.support.charts import STRICT, packed
from tests.support.oci import real_registry
from tests.support.packages import COMMON
from tests.support.tools import tool

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make two pairs of keys, once: their passwords are made slow to guess."""
    folder = tmp_path_factory.mktemp("pairs")
    for name in ("ours", "theirs"):
        (folder / name).mkdir()
        command = ["env", "COSIGN_PASSWORD=", str(tool("cosign")), "generate-key-pair"]
        programs.run(command, cwd=folder / name)
    return folder


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pairs: Path) -> Iterator[str]:
    """A real registry; beside it two pairs of keys, and the package `common` in a folder."""
    monkeypatch.setenv("PATH", f"{tool('cosign').parent}:/usr/bin:/bin")
    monkeypatch.setenv("COSIGN_PASSWORD", "")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing leaves the machine
    shutil.copytree(pairs, tmp_path, dirs_exist_ok=True)
    write_tree(tmp_path, {f"common/{path}": text for path, text in COMMON.items()})
    (tmp_path / "server").mkdir()
    with real_registry(tmp_path / "server") as host:
        yield host


def new_app(tmp_path: Path, address: str, rule: str = "key: ours.pub", protocol: str = "") -> AppDir:
    """Make an app that asks for signatures, by our key if it is not told otherwise."""
    shutil.rmtree(tmp_path / "demo", ignore_errors=True)
    apps.init(tmp_path / "demo", "demo", default_registry=False)
    app = AppDir(tmp_path / "demo")
    shutil.copy(tmp_path / "ours/cosign.pub", app.root / "ours.pub")
    registries.add_registry(app, "own", address, protocol=protocol)
    file = app.root / "app.yaml"
    file.write_text(file.read_text() + f"verify:\n- {{registry: own, {rule}}}\n")
    return AppDir(app.root)


def refused(app: AppDir) -> RegistryError:
    """Try to install, and give the refusal; nothing is written then."""
    before = read_tree(app.root)
    with pytest.raises(RegistryError) as caught:
        packages.install_packages(app, ["own/common"])
    assert read_tree(app.root) == before
    return caught.value


def key(tmp_path: Path, whose: str) -> str:
    return str(tmp_path / whose / "cosign.key")


def cosign_sign(tmp_path: Path, whose: str, artifact: str, *more: str) -> None:
    """Sign an artifact in its registry as people do without mlstack."""
    options = ["--yes", "--tlog-upload=false", "--use-signing-config=false", *more]
    programs.run(["cosign", "sign", *options, f"--key={key(tmp_path, whose)}", artifact])


def kept_signatures() -> Path:
    return Path(os.environ["XDG_CACHE_HOME"], "mlstack/signatures")


def test_what_is_published_with_a_key_is_signed_in_both_ways(host: str, tmp_path: Path) -> None:
    address = f"oci://{host}/ml"
    published = publish_package(tmp_path / "common", address, app=None, key=key(tmp_path, "ours"))
    assert (published.is_new, published.signed) == (True, True)
    artifact = f"{host}/ml/common@{published.revision}"
    options = [f"--key={tmp_path}/ours/cosign.pub", "--insecure-ignore-tlog=true"]
    assert programs.run(["cosign", "verify", *options, artifact]).stdout
    app = new_app(tmp_path, address)
    packages.install_packages(app, ["own/common"])
    verified = package_changes.verify_packages(AppDir(app.root))
    assert (verified.ok, verified.signed) == (True, 1)
    assert publish_package(tmp_path / "common", address, app=None).is_new is False  # keeps its signature
    assert "signature: " in (app.root / "mlstack.lock").read_text()


@pytest.mark.parametrize("form", ["true", "false"])
def test_what_cosign_signed_in_a_registry_is_let_in(host: str, tmp_path: Path, form: str) -> None:
    address = f"oci://{host}/ml"
    published = publish_package(tmp_path / "common", address, app=None)
    artifact = f"{host}/ml/common@{published.revision}"
    app = new_app(tmp_path, address)
    unsigned = refused(app)
    assert "`own/common@0.1.0` is not signed, and app.yaml asks for signatures" in str(unsigned)
    assert unsigned.hint == f"its keeper signs with: cosign sign --key KEY {artifact}"
    cosign_sign(tmp_path, "theirs", artifact, f"--new-bundle-format={form}")
    assert "is not by the key `ours.pub`" in str(refused(app))
    cosign_sign(tmp_path, "ours", artifact, f"--new-bundle-format={form}")
    packages.install_packages(app, ["own/common"])
    verified = package_changes.verify_packages(AppDir(app.root))
    assert (verified.ok, verified.signed) == (True, 1)
    file = app.root / "vendor/own/common@0.1.0/package.yaml"
    file.write_text(file.read_text() + "#")
    faults = package_changes.verify_packages(AppDir(app.root)).faults
    assert [fault.fault for fault in faults] == ["`package.yaml` was changed"]
    lock, content = app.root / "mlstack.lock", read_folder(file.parent)
    digests = AppDir(app.root).lock.packages[0]
    text = lock.read_text().replace(digests.digest, digest(content))
    lock.write_text(text.replace(digests.files["package.yaml"], file_digests(content)["package.yaml"]))
    (fault,) = package_changes.verify_packages(AppDir(app.root)).faults
    assert "is not the one that mlstack.lock holds" in fault.fault  # the signed artifact has other content


@pytest.mark.parametrize("form", ["true", "false"])
def test_what_cosign_alone_signed_is_verified_again_without_its_registry(
    host: str, tmp_path: Path, form: str
) -> None:
    (tmp_path / "away").mkdir()
    with real_registry(tmp_path / "away") as away:
        published = publish_package(tmp_path / "common", f"oci://{away}/ml", app=None)
        artifact = f"{away}/ml/common@{published.revision}"
        cosign_sign(tmp_path, "ours", artifact, f"--new-bundle-format={form}")
        app = new_app(tmp_path, f"oci://{away}/ml")
        packages.install_packages(app, ["own/common"])
    verified = package_changes.verify_packages(AppDir(app.root))
    assert (verified.faults, verified.signed) == ((), 1)
    shutil.copy(tmp_path / "theirs/cosign.pub", app.root / "ours.pub")  # what is kept is no passport
    (fault,) = package_changes.verify_packages(AppDir(app.root)).faults
    assert "cannot verify package `own/common@0.1.0`" in fault.fault


def test_what_the_cache_keeps_of_another_artifact_signs_nothing(host: str, tmp_path: Path) -> None:
    write_tree(tmp_path, {f"next/{path}": text.replace("0.1.0", "0.2.0") for path, text in COMMON.items()})
    address = f"oci://{host}/ml"
    older = publish_package(tmp_path / "common", address, app=None).revision
    newer = publish_package(tmp_path / "next", address, app=None).revision
    cosign_sign(tmp_path, "ours", f"{host}/ml/common@{older}")
    app = new_app(tmp_path, address)
    packages.install_packages(app, ["own/common@0.1.0"])
    (folder,) = kept_signatures().glob(older.removeprefix("sha256:"))
    shutil.copytree(folder, folder.with_name(newer.removeprefix("sha256:")))
    with pytest.raises(RegistryError, match=r"`own/common@0\.2\.0` is not signed"):
        packages.install_packages(AppDir(app.root), ["own/common@0.2.0"])


def test_an_index_signed_by_another_key_hides_no_signature_of_the_artifact(host: str, tmp_path: Path) -> None:
    address = f"oci://{host}/ml"
    published = publish_package(tmp_path / "common", address, app=None, key=key(tmp_path, "theirs"))
    app = new_app(tmp_path, address)
    assert "is not by the key `ours.pub`" in str(refused(app))
    publish_package(tmp_path / "common", address, app=None, key=key(tmp_path, "ours"))
    assert published.is_new
    packages.install_packages(new_app(tmp_path, address), ["own/common"])


def test_a_registry_that_is_away_and_a_key_that_is_none_are_told(host: str, tmp_path: Path) -> None:
    address = f"oci://{host}/ml"
    publish_package(tmp_path / "common", address, app=None, key=key(tmp_path, "ours"))
    app = new_app(tmp_path, address)
    (app.root / "ours.pub").write_text("no key")
    assert "cannot verify package `own/common@0.1.0`: loading verifier" in str(refused(app))
    (app.root / "ours.pub").unlink()
    with pytest.raises(ConfigError, match=r"there is no key `ours\.pub`"):
        packages.install_packages(app, ["own/common"])


def test_what_is_published_into_a_folder_is_signed_in_its_index(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COSIGN_PASSWORD")  # the key has none
    (tmp_path / "folder").mkdir()
    publish_package(tmp_path / "common", str(tmp_path / "folder"), app=None)
    app = new_app(tmp_path, str(tmp_path / "folder"))
    assert refused(app).hint == "its keeper signs with: mlstack registry index DIR --sign KEY"
    publish_package(tmp_path / "common", str(tmp_path / "folder"), app=None, key=key(tmp_path, "ours"))
    packages.install_packages(app, ["own/common"])
    assert package_changes.verify_packages(AppDir(app.root)).signed == 1


def test_a_wrong_password_publishes_nothing(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSIGN_PASSWORD", "wrong")
    for address in (f"oci://{host}/ml", str(tmp_path / "server")):
        with pytest.raises(
            RegistryError, match=r"cannot sign `common@0\.1\.0`: .*decryption failed"
        ) as caught:
            publish_package(tmp_path / "common", address, app=None, key=key(tmp_path, "ours"))
        assert "COSIGN_PASSWORD" in str(caught.value.hint)
    assert not (tmp_path / "server/common@0.1.0").exists()
    with pytest.raises(RegistryError, match="nothing was published there"):
        registries.add_registry(AppDir(new_empty(tmp_path)), "own", f"oci://{host}/ml")


def test_charts_of_an_oci_registry_are_asked_for_signatures_and_restored_by_digest(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tool('helm').parent}:{tool('cosign').parent}:/usr/bin:/bin")
    push = ["helm", "push", "strict-0.1.0.tgz", f"oci://{host}/charts", "--plain-http"]

    def pushed(more: dict[str, str]) -> str:
        (tmp_path / push[2]).write_bytes(packed("strict", STRICT | more))
        result = programs.run(push, cwd=tmp_path)
        return re.findall("sha256:[0-9a-f]{64}", result.stdout.decode() + result.stderr)[0]

    digest = pushed({})
    app = new_app(tmp_path, f"oci://{host}/charts", protocol="helm")
    before = read_tree(app.root)
    with pytest.raises(RegistryError, match=r"`own/strict@0\.1\.0` is not signed") as caught:
        packages.install_packages(app, ["own/strict"])
    assert caught.value.hint == f"its keeper signs with: cosign sign --key KEY {host}/charts/strict@{digest}"
    assert read_tree(app.root) == before
    cosign_sign(tmp_path, "ours", f"{host}/charts/strict@{digest}")
    packages.install_packages(app, ["own/strict"])
    assert AppDir(app.root).lock.packages[0].revision == digest
    assert package_changes.verify_packages(AppDir(app.root)).signed == 1
    options = ["--key", str(app.root / "ours.pub"), "--insecure-ignore-tlog=true", "--local-image"]
    (folder,) = kept_signatures().glob(digest.removeprefix("sha256:"))
    assert programs.run(["cosign", "verify", *options, str(folder)]).stdout
    assert pushed({"templates/more.yaml": "# other\n"}) != digest  # the tag leads elsewhere now
    shutil.rmtree(app.root / "vendor")
    packages.install_packages(AppDir(app.root), [])
    assert package_changes.verify_packages(AppDir(app.root)).signed == 1


# --- signatures without a key ---

ADA = "identity: ada@example.com, issuer: 'https://idp.example.com', trustedRoot: root.json"


def signed_index(tmp_path: Path) -> tuple[str, Path]:
    """Publish into a folder, and sign in its index as cosign would for somebody who is logged in."""
    (tmp_path / "folder").mkdir()
    publish_package(tmp_path / "common", str(tmp_path / "folder"), app=None)
    index = tmp_path / "folder/registry.yaml"
    content = PackageFolder(read_folder(tmp_path / "common"), source="common").digest
    statement = f"common@0.1.0 {content}\n".encode()
    bundle = sigstore.bundle(statement, identity="ada@example.com", issuer="https://idp.example.com")
    line = f"    digest: {content}\n"
    assert line in index.read_text()
    signature = f"    signature: {base64.b64encode(bundle).decode()}\n"
    index.write_text(index.read_text().replace(line, line + signature))
    return str(tmp_path / "folder"), sigstore.trusted_root(tmp_path)


def test_who_signs_without_a_key_is_let_in_by_name_with_nothing_asked_of_a_network(
    host: str, tmp_path: Path
) -> None:
    address, root = signed_index(tmp_path)
    app = new_app(tmp_path, address, ADA)
    with pytest.raises(ConfigError, match=r"there is no trusted root `root\.json`") as caught:
        packages.install_packages(app, ["own/common"])
    assert "cosign trusted-root create" in str(caught.value.hint)
    shutil.copy(root, app.root)
    packages.install_packages(app, ["own/common"])
    assert package_changes.verify_packages(AppDir(app.root)).signed == 1


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            ADA.replace("ada@", "eve@"),
            "the signature of package `own/common@0.1.0` is not by `eve@example.com`",
        ),
        (ADA.replace("idp.", "other."), "is not by `ada@example.com`"),
        ("key: ours.pub", "is not by the key `ours.pub`"),
        (ADA.partition(", trustedRoot")[0], "cannot verify package `own/common@0.1.0`: "),  # Sigstore's own
        ("key: 'awskms:///nobody'", "kms specification should be in the format awskms://"),
        ("key: 'k8s://nowhere/key'", "cannot verify package `own/common@0.1.0`: "),
    ],
    ids=["another person", "another provider", "a key", "no network", "kms", "cluster"],
)
def test_what_others_signed_or_nobody_can_check_is_refused(
    host: str, tmp_path: Path, rule: str, message: str
) -> None:
    address, root = signed_index(tmp_path)
    app = new_app(tmp_path, address, rule)
    shutil.copy(root, app.root)
    assert message in str(refused(app))


def test_artifacts_nobody_signed_are_refused_where_a_person_is_asked_for(host: str, tmp_path: Path) -> None:
    published = publish_package(tmp_path / "common", f"oci://{host}/ml", app=None)
    app = new_app(tmp_path, f"oci://{host}/ml", ADA)
    shutil.copy(sigstore.trusted_root(tmp_path), app.root)
    unsigned = refused(app)
    assert "is not signed, and app.yaml asks for signatures" in str(unsigned)
    assert unsigned.hint == f"its keeper signs with: cosign sign {host}/ml/common@{published.revision}"
    with pytest.raises(RegistryError, match=r"cannot sign `common@0\.1\.0`") as caught:
        publish_package(tmp_path / "common", f"oci://{host}/ml", app=None, key="keyless")
    assert "SIGSTORE_ID_TOKEN" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (ADA, ""),
        (
            ADA.replace("ada@", "eve@"),
            "the signature of package `own/common@0.1.0` is not by `eve@example.com`",
        ),
        (ADA.replace("idp.", "other."), "is not by `ada@example.com`"),
        ("key: ours.pub", "is not by the key `ours.pub`"),
    ],
    ids=["whom it asks for", "another person", "another provider", "a key"],
)
@pytest.mark.parametrize("as_bundle", [True, False], ids=["bundle", "claims"])
def test_artifacts_signed_without_a_key_are_let_in_by_name(
    host: str, tmp_path: Path, rule: str, message: str, as_bundle: bool
) -> None:
    published = publish_package(tmp_path / "common", f"oci://{host}/ml", app=None)
    app = new_app(tmp_path, f"oci://{host}/ml", rule)
    shutil.copy(sigstore.trusted_root(tmp_path), app.root)
    artifact = f"{host}/ml/common@{published.revision}"
    ada = {"identity": "ada@example.com", "issuer": "https://idp.example.com"}
    sigstore.sign_artifact(artifact, tmp_path, as_bundle=as_bundle, **ada)
    if message:
        assert message in str(refused(app))
        return
    packages.install_packages(app, ["own/common"])
    assert package_changes.verify_packages(AppDir(app.root)).signed == 1


def new_empty(tmp_path: Path) -> Path:
    apps.init(tmp_path / "empty", "empty", default_registry=False)
    return tmp_path / "empty"
