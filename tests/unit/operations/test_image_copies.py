"""Images come to another registry by digest, and the files name them there."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlstack.registries.distribution import Distribution, digest_of
from mlstack.registries.images import Images, image_name
from mlstack.yaml.write import to_yaml
from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.deploying import deployment
from tests.support.images import push_image
from tests.support.oci import FakeRegistry, Reply, real_registry
from tests.support.registry import small_app
from tests.unit.operations.test_images import PROTOTYPE, TEMPLATE
from tests.unit.registries.test_oci import log_in

pytestmark = pytest.mark.slow  # each makes an app and two registries


@pytest.fixture
def source() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


@pytest.fixture
def target() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


@pytest.fixture
def shop(tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """An app with a component of two images, and environments `minikube` and `gke`."""
    template = TEMPLATE.split("---")[0].replace('        - {name: fixed, image: "busybox:1"}\n', "")
    head = "      initContainers:\n"
    template = template.replace(head, "{% if params.steps %}\n" + head + "{% endif %}\n")
    small_app(tmp_path, installed=False)
    folder = tmp_path / "registry/tools/server"
    write_tree(folder, {"prototype.yaml": PROTOTYPE, "templates/all.yaml.j2": template})
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("pkg install ours/tools")
    run.ok("generate server shop")
    for name in ("minikube", "gke"):
        run.ok(f"env add {name}")
    return run


def use(run: Runner, host: str) -> tuple[str, str]:
    """Push two images and use them in `gke`; gives their digests."""
    many = push_image(host, "team/server", "2", "amd64", "arm64")
    single = push_image(host, "helper", "1", "amd64")
    run.ok(f"param set --env gke shop image {host}/team/server:2")
    run.ok(f"param set --env gke shop helper {host}/helper:1")
    return many, single


def below(host: str) -> str:
    return host.replace(":", "-")


def test_images_are_copied_with_all_platforms_and_set_by_digest(
    shop: Runner, source: FakeRegistry, target: FakeRegistry
) -> None:
    many, single = use(shop, source.host)
    file = Path("environments/gke/params.yaml")
    file.write_text(file.read_text() + "# the end\n")
    before = file.read_text()
    tried = shop(f"images copy gke --to {target.host}/ml --dry-run -o json").json
    assert [row["state"] for row in tried["images"]] == ["missing", "missing"]
    assert (tried["files"], file.read_text(), target.manifests) == (
        ["environments/gke/params.yaml"],
        before,
        {},
    )
    output = shop.ok(f"images copy gke --to {target.host}/ml")
    server = f"{target.host}/ml/{below(source.host)}/team/server:2@{many}"
    helper = f"{target.host}/ml/{below(source.host)}/helper:1@{single}"
    assert sorted(shop.ok("images gke -o name").split()) == sorted([server, helper])
    assert file.read_text() == before.replace(f"{source.host}/team/server:2", server).replace(
        f"{source.host}/helper:1", helper
    )
    assert "set in gke: shop image" in output
    registries = Images()
    name = image_name(server)
    assert registries.platforms(name, registries.found(name)) == ["linux/amd64", "linux/arm64"]
    assert target.blobs == source.blobs


def test_a_copy_again_sends_nothing_and_changes_no_file(
    shop: Runner, source: FakeRegistry, target: FakeRegistry
) -> None:
    use(shop, source.host)
    shop.ok(f"param set --env gke shop image {source.host}/team/mine:1 --override")  # no file of all has it
    shop.ok(f"images copy gke --to {target.host}")
    file = Path("environments/gke/params.yaml")
    before, count = file.read_text(), len(target.requests)
    again = shop(f"images copy gke --to {target.host} -o json").json
    assert {row["state"] for row in again["images"]} == {"there"}
    assert (again["files"], file.read_text()) == ([], before)
    assert {method for method, *_ in target.requests[count:]} <= {"GET", "HEAD"}


def test_one_platform_alone_is_copied_by_its_own_digest(
    shop: Runner, source: FakeRegistry, target: FakeRegistry
) -> None:
    use(shop, source.host)
    refused = shop(f"images copy gke --to {target.host} --platform linux/arm64")
    assert (refused.code, "helper" in refused.err, "linux/amd64" in refused.err) == (4, True, True), refused
    shop.ok("param unset --env gke shop helper")
    shop.ok("param set --env gke shop helper none")
    shop(f"images copy gke --to {target.host} --platform linux/amd64 --dry-run")
    shop.ok(f"param set --env gke shop helper {source.host}/helper:1")
    shop.ok(f"images copy gke --to {target.host} --platform linux/amd64")
    names = map(image_name, shop.ok("images gke -o name").split())
    registries = Images()
    assert [registries.platforms(name, registries.found(name)) for name in names] == [["linux/amd64"]] * 2


def test_for_all_sets_components_and_environments_keep_their_word(
    shop: Runner, source: FakeRegistry, target: FakeRegistry
) -> None:
    push_image(source.host, "helper", "1", "amd64")
    push_image(source.host, "server", "1", "amd64")
    push_image(source.host, "server", "2", "amd64")
    shop.ok(f"param set shop helper {source.host}/helper:1")
    shop.ok(f"param set shop image {source.host}/server:1")
    shop.ok(f"param set --env gke shop image {source.host}/server:2")
    shop.ok(f"images copy --all --for-all --to {target.host}")
    assert "server:1@sha256:" in Path("components/shop.yaml").read_text()
    assert "server:2@sha256:" in Path("environments/gke/params.yaml").read_text()
    minikube = Path("environments/minikube/params.yaml")
    assert not minikube.exists() or "sha256" not in minikube.read_text()
    for name in ("gke", "minikube"):
        assert all(image.startswith(target.host) for image in shop.ok(f"images {name} -o name").split())


@pytest.mark.parametrize("knows", [True, False])
def test_what_refers_to_an_image_goes_with_it(
    shop: Runner, source: FakeRegistry, target: FakeRegistry, knows: bool
) -> None:
    source.lists_referrers, target.lists_referrers = True, knows
    many, _ = use(shop, source.host)
    signature = refer(source.host, "team/server", many, b"signed")
    refer(source.host, "team/server", signature, b"signed too")
    shop.ok(f"images copy gke --to {target.host}")
    place = f"{below(source.host)}/team/server"
    assert (place, signature) in target.manifests
    assert {b"signed", b"signed too"} <= set(target.blobs.values())
    assert ((place, many.replace(":", "-")) in target.manifests) is not knows  # the account that it lacks
    late = refer(source.host, "team/server", many, b"attested")
    shop.ok("param set --env gke shop image " + f"{source.host}/team/server:2")
    shop.ok(f"images copy gke --to {target.host}")
    assert (place, late) in target.manifests


def refer(host: str, name: str, digest: str, content: bytes) -> str:
    """Push an artifact that says that it belongs to a manifest; gives its digest."""
    registry = Distribution(host)
    layer = {"digest": registry.push_blob(name, content), "size": len(content)}
    config = {"digest": registry.push_blob(name, b"{}"), "size": 2}
    value = {"schemaVersion": 2, "config": config, "layers": [layer], "subject": {"digest": digest}}
    data = json.dumps(value).encode()
    return registry.push_manifest(name, digest_of(data), data)


def test_the_images_of_the_hubs_form_are_set_though_they_are_said_in_parts(
    tmp_path: Path, run: Runner, source: FakeRegistry, target: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    prototype = PROTOTYPE.replace(
        'offered: {type: array, items: {type: string, x-image: true}, default: ["note:1", "note:2"]}',
        "ends: {type: array, items: {type: string, x-image: end}, x-whole-images: offered,"
        ' default: ["note:1", "note:2"]}\n'
        "    offered: {type: array, items: {type: string, x-image: true}, default: []}",
    )
    template = TEMPLATE.split("---")[1].replace(
        'offered: {{ (params.host ~ "/" ~ (params.offered | join("," ~ params.host ~ "/"))) }}',
        'offered: {{ (params.offered or [params.host ~ "/" ~ params.ends[0], params.host ~ "/"'
        ' ~ params.ends[1]]) | join(",") }}',
    )
    template = template.replace('  note: "another-server:1, server:1-gpu-x"\n', "")
    small_app(tmp_path, installed=False)
    folder = tmp_path / "registry/tools/server"
    write_tree(folder, {"prototype.yaml": prototype, "templates/all.yaml.j2": template})
    monkeypatch.chdir(tmp_path / "demo")
    for line in ("pkg install ours/tools", "generate server shop", "env add gke"):
        run.ok(line)
    for tag in "12":
        push_image(source.host, "team/note", tag, "amd64")
    run.ok(f"param set --env gke shop host {source.host}/team")
    output = run.ok(f"images copy gke --to {target.host}")
    images = run.ok("images gke -o name").split()
    assert [(image.startswith(target.host), "@sha256:" in image) for image in images] == [(True, True)] * 2, (
        output
    )
    assert "offered:" in Path("environments/gke/params.yaml").read_text()
    again = run(f"images copy gke --to {target.host} -o json").json
    assert (again["ok"], again["files"]) == (True, [])


def test_what_no_parameter_sets_is_copied_and_named(
    shop: Runner, source: FakeRegistry, target: FakeRegistry
) -> None:
    use(shop, source.host)
    push_image(source.host, "plain", "1", "amd64")
    write_tree(
        Path.cwd(), {"components/plain.yaml": to_yaml(deployment("plain", image=f"{source.host}/plain:1"))}
    )
    copied = shop(f"images copy gke --to {target.host}")
    assert copied.code == 1
    assert "still to do in gke: manifest of plain: write it in components/plain.yaml:" in " ".join(
        copied.out.split()
    )
    assert any(name.endswith("/plain") for name, _ in target.manifests)


def test_an_item_of_a_list_is_set_and_the_others_stay(
    shop: Runner, source: FakeRegistry, target: FakeRegistry
) -> None:
    use(shop, source.host)
    push_image(source.host, "one", "1", "amd64")
    push_image(source.host, "two", "1", "amd64")
    steps = ", ".join(f'{{name: {name}, image: "{source.host}/{name}:1"}}' for name in ("one", "two"))
    shop.ok(f"param set shop steps '[{steps}]'")
    shop.ok(f"images copy gke --to {target.host}")
    images = shop.ok("images gke -o name").split()
    assert [image.startswith(target.host) for image in images] == [True] * 4


def test_a_registry_that_fails_halfway_leaves_the_files_and_is_gone_on_with(
    shop: Runner, source: FakeRegistry, target: FakeRegistry
) -> None:
    use(shop, source.host)
    files = {path: path.read_bytes() for path in Path().rglob("*.yaml")}
    target.fault = lambda running, method, path, headers: (
        Reply(status=500) if method == "PUT" and len(running.blobs) == 3 else None
    )
    refused = shop(f"images copy gke --to {target.host}")
    assert (refused.code, "cannot be copied" in refused.err) == (5, True), refused
    assert {path: path.read_bytes() for path in Path().rglob("*.yaml")} == files
    target.fault = lambda running, method, path, headers: None
    count = len(target.requests)
    shop.ok(f"images copy gke --to {target.host}")
    uploads = [path for method, path, _ in target.requests[count:] if method == "PUT" and "/uploads/" in path]
    assert len(uploads) == len(source.blobs) - 3


@pytest.mark.parametrize("kind", ["manifests", "blobs"])
def test_a_registry_that_lies_about_a_digest_is_found_out(
    shop: Runner, source: FakeRegistry, target: FakeRegistry, kind: str
) -> None:
    use(shop, source.host)
    source.fault = lambda running, method, path, headers: (
        Reply(body=b'{"schemaVersion": 2, "layers": []}' + b" " * 40) if f"/{kind}/sha256:" in path else None
    )
    refused = shop(f"images copy gke --to {target.host}")
    assert (refused.code, "has the digest" in refused.err or "does not speak" in refused.err) == (5, True), (
        refused
    )
    assert shop.ok("images gke -o name").split() == [
        f"{source.host}/helper:1",
        f"{source.host}/team/server:2",
    ]
    assert not [name for name, tag in target.manifests if tag == "2"]


def test_what_was_copied_before_is_taken_where_its_registry_does_not_answer(
    shop: Runner, source: FakeRegistry, target: FakeRegistry
) -> None:
    use(shop, source.host)
    file = Path("environments/gke/params.yaml")
    before = file.read_text()
    shop.ok(f"images copy gke --to {target.host}")
    after = file.read_text()
    file.write_text(before)
    source.fault = lambda running, method, path, headers: Reply(status=403)
    ran = shop(f"images copy gke --to {target.host}")
    assert (ran.code, "as it was copied before" in ran.err) == (0, True), ran
    assert file.read_text() == after


@pytest.mark.parametrize("to", ["", "oci://", "https://x.example.org/y", "one two", "host:80:80"])
def test_an_address_that_is_none_is_refused(shop: Runner, to: str) -> None:
    refused = shop(f"images copy gke --to '{to}'")
    assert (refused.code in (2, 5), "hint:" in refused.err) == (True, True), refused


def test_two_real_registries_one_with_a_login(shop: Runner, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("source", "target")]
    for folder in folders:
        folder.mkdir()
    with real_registry(folders[0]) as source, real_registry(folders[1], login=True) as target:
        many = push_image(source, "team/server", "2", "amd64", "arm64", layer=b"x" * (9 << 20))
        push_image(source, "team/server", f"{many.replace(':', '-')}.sig", "amd64")
        push_image(source, "helper", "1", "amd64")
        shop.ok(f"param set --env gke shop image {source}/team/server:2")
        shop.ok(f"param set --env gke shop helper {source}/helper:1")
        refused = shop(f"images copy gke --to {target}/ml")
        assert (refused.code, f"docker login {target}" in refused.err) == (5, True), refused
        log_in(target)
        shop.ok(f"images copy gke --to {target}/ml")
        server = next(name for name in shop.ok("images gke -o name").split() if "server" in name)
        registries, name = Images(), image_name(server)
        assert registries.platforms(name, registries.found(name)) == ["linux/amd64", "linux/arm64"]
        assert registries.manifest(name, f"{many.replace(':', '-')}.sig") is not None
        again = shop(f"images copy gke --to {target}/ml -o json").json
        assert (again["files"], {row["state"] for row in again["images"]}) == ([], {"there"})
        inside = shop(
            f"images copy gke --to {target}/other -o json"
        ).json  # mounted: nothing is sent through us
        assert inside["ok"]
