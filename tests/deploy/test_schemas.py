"""Every rendered object is one that Kubernetes takes, and a wrong field in any kind of them is caught."""

import warnings
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from jsonschema import ValidationError as ShapeError

from tests.deploy import shapes
from tests.deploy.manifests import DEPLOY, EVERY, Manifest, kubectl_needed, name, rendered

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the package's own imports
    import kubernetes_validate

pytestmark = kubectl_needed

VERSION = "1.37"


class Refused(Exception):
    """The object is not one of its kind."""


def check(manifest: Manifest) -> None:
    """Raises: Refused."""
    kind = (manifest["apiVersion"], manifest["kind"])
    try:
        if kind in shapes.schemas():
            Draft7Validator(shapes.schemas()[kind]).validate(manifest)
        else:
            kubernetes_validate.validate(manifest, VERSION, strict=True)
    except (ShapeError, kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        raise Refused(str(error).splitlines()[0]) from None


def spoiled(manifest: Manifest) -> Iterator[Manifest]:
    """The object with one field too many, and with a value of the wrong type, wherever its kind has its content."""
    content = next(key for key in ("spec", "data", "metadata") if key in manifest)
    yield {**manifest, "specification": {}}
    more: Any = deepcopy(manifest)
    more[content] = {**more[content], "replicaz": 3} if content == "spec" else ["wrong"]
    yield more
    yield {**manifest, content: "wrong"}


@pytest.mark.parametrize("overlay", EVERY)
def test_every_object_is_valid(overlay: str) -> None:
    for manifest in rendered(overlay):
        try:
            check(manifest)
        except Refused as error:
            pytest.fail(f"{overlay}: {manifest['kind']} {name(manifest)}: {error}")


@pytest.mark.parametrize("overlay", EVERY)
def test_a_wrong_field_in_each_kind_is_caught(overlay: str) -> None:
    kinds = {manifest["kind"]: manifest for manifest in rendered(overlay)}
    kinds.pop("ServiceAccount", None)  # has no content but its name: below
    for kind, manifest in kinds.items():
        for wrong in spoiled(manifest):
            with pytest.raises(Refused):
                check(wrong)
            assert wrong["kind"] == kind


def test_what_is_applied_by_hand_is_valid() -> None:
    job = yaml.safe_load((DEPLOY / "components/witness/init.yaml").read_text())
    check(job)
    job["spec"]["template"]["spec"]["containers"][0]["argv"] = []
    with pytest.raises(Refused):
        check(job)


def test_a_misspelt_field_deep_in_a_pod_is_caught() -> None:
    [gateway] = [m for m in rendered("production") if m["kind"] == "Deployment"]
    wrong: Any = deepcopy(gateway)
    container = wrong["spec"]["template"]["spec"]["containers"][0]
    container["securityContext"]["readOnlyRootFileSystem"] = True
    with pytest.raises(Refused):
        check(wrong)
    [account, *_] = [m for m in rendered("production") if m["kind"] == "ServiceAccount"]
    with pytest.raises(Refused):
        check({**account, "automountServiceAccountTokens": False})
