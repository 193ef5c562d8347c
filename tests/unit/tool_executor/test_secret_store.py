"""Secrets: where a plan names one, what is found of it in a tool's words, and who may have it (docs/secrets.md)."""

import base64
import html
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aetheris.protocol.base import recordable
from aetheris.protocol.base.references import (
    InvalidSecret,
    SecretUse,
    UnresolvedReference,
    resolve,
    secrets,
    with_secrets,
)
from aetheris.protocol.plan.graph import InvalidPlan, Node, check_graph
from aetheris.protocol.planning.schemas import ArgsRefused, check_args, with_defaults
from aetheris.sdk import Failed, NotExecuted, Result, StateChange, ToolContext, tool
from aetheris.sdk.invoke import invoke
from aetheris.sdk.outcomes import Permanent, Retryable, Succeeded
from aetheris.sdk.redaction import SHORTEST, Redactor
from aetheris.tool_executor.secret_store import RedactedStream, SecretsFileInvalid, secrets_of

CTX = ToolContext("aetheris:j:n:0", 0, "ab" * 32, "j", "n")
USE = {"$secret": "pay@1"}
MARK = "[secret pay@1]"
VALUES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\n\r"), min_size=SHORTEST, max_size=40)


def test_secrets_are_found_where_they_stand() -> None:
    args = {"a": USE, "b": [{"x/y": USE}], "c": {"$ref": "n#"}}
    assert list(secrets(args)) == [SecretUse("/a", "pay@1"), SecretUse("/b/0/x~1y", "pay@1")]
    assert with_secrets(args, {"pay@1": "v"}) == {"a": "v", "b": [{"x/y": "v"}], "c": {"$ref": "n#"}}


@pytest.mark.parametrize(
    "wrong", [{"$secret": "pay"}, {"$secret": "a@b@c"}, {"$secret": 1}, {"$secret": "a@1", "x": 1}]
)
def test_what_is_no_name_of_a_secret(wrong: Any) -> None:
    with pytest.raises(InvalidSecret, match="/a"):
        list(secrets({"a": wrong}))
    with pytest.raises(InvalidPlan, match=r"nodes\[0\]\.args/a"):
        check_graph([Node(id="n", tool="t", args={"a": wrong})])
    with pytest.raises(InvalidPlan, match=r"nodes\[0\]\.compensate_with\.args/a"):
        check_graph(
            [Node.model_validate({"id": "n", "tool": "t", "compensate_with": {"tool": "u", "args": {"a": wrong}}})]
        )


def test_only_a_tool_is_given_a_secret() -> None:
    form = {"title": "?", "fields": []}
    with pytest.raises(InvalidPlan, match="only a tool"):
        check_graph([Node.model_validate({"id": "n", "kind": "human", "form": form, "args": {"a": USE}})])


def test_a_result_names_no_secret() -> None:
    with pytest.raises(UnresolvedReference, match="which only a plan may"):
        resolve({"a": {"$ref": "n#/x"}}, {"n": {"x": [{"y": USE}]}})


def test_a_secret_fits_any_place_of_a_schema() -> None:
    inner = {"type": "object", "properties": {"b": {"default": 1}}, "required": ["c"]}
    schema = {"type": "object", "properties": {"a": inner, "n": {"type": "integer"}}}
    for given_args in ({"a": USE}, {"a": {"$ref": "x#"}}):
        assert with_defaults(schema, given_args) == given_args
        check_args(schema, given_args)
    with pytest.raises(ArgsRefused, match="/n"):
        check_args(schema, {"a": USE, "n": "x"})


@given(VALUES)
def test_no_form_of_a_secret_is_left(secret: str) -> None:
    data, redactor = secret.encode(), Redactor({"pay@1": secret})
    written = [
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        html.escape(secret),
        data.hex(),
        data.hex().upper(),
    ]
    for form in written:
        clean = redactor.value({form: [f"<{form}>"]})
        assert clean == {MARK: [f"<{MARK}>"]}
    for place in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            encoded = encode(b"\xff" * place + data + b"\xfe").decode()
            clean = redactor.text(encoded)
            assert MARK in clean
            assert len(clean.replace(MARK, "")) <= 3 + 4, "more is left than what its neighbours share"
    kept = redactor.value(recordable.result({"x": secret, "y": float("nan")})[0])
    assert MARK in base64.b64decode(kept["$raw"]).decode()


def test_numbers_and_lines_are_looked_through_too() -> None:
    redactor = Redactor({"n@1": "12345678", "k@1": "-----BEGIN-----\n0123456789abcdef0123456789abcdef\nend"})
    assert redactor.value([12345678, 912345678.5, 1, None, True]) == ["[secret n@1]", "9[secret n@1].5", 1, None, True]
    assert redactor.text("a 0123456789abcdef0123456789abcdef b") == "a [secret k@1] b"
    assert redactor.text("nothing to see") == "nothing to see"


@pytest.mark.parametrize(("error", "kind"), [(Failed, Permanent), (NotExecuted, Retryable)])
async def test_a_reason_is_redacted_before_it_is_cut(error: type[Exception], kind: Callable[[str], Any]) -> None:
    @tool("t", effect_class="opaque", irreversible=False)
    async def says(token: str) -> None:
        raise error("x" * 495 + token)

    outcome = await invoke(says, {"token": "hunter2hunter2"}, CTX, Redactor({"p@1": "hunter2hunter2"}))
    assert outcome == kind("x" * 495 + "[secr")


async def test_what_a_tool_returns_is_redacted_everywhere() -> None:
    @tool("t", effect_class="opaque", irreversible=False)
    async def says(token: str) -> Result:
        return Result({token: token}, f"id {token}", [StateChange("a", token, "b", etag=token)])

    outcome = await invoke(says, {"token": "hunter2hunter2"}, CTX, Redactor({"p@1": "hunter2hunter2"}))
    mark = "[secret p@1]"
    assert outcome == Succeeded({mark: mark}, f"id {mark}", (StateChange("a", mark, "b", etag=mark),))


def test_what_a_process_prints_is_redacted() -> None:
    out = io.StringIO()
    stream = RedactedStream(out, lambda: Redactor({"p@1": "hunter2hunter2"}))
    print("it is", "hunter2hunter2", file=stream)  # type: ignore[arg-type]
    stream.writelines(["a hunter2hunter2", "\n"])
    stream.flush()
    assert out.getvalue() == "it is [secret p@1]\na [secret p@1]\n"


@pytest.mark.parametrize(
    ("text", "wording"),
    [
        ("nonsense", "not readable as TOML"),
        ("# mine\n[[secret]]", "secrets.toml:2: secret: there is no such key; did you mean secrets?"),
        ("secrets = 3", r"secrets.toml:1: secrets: is no \[\[secrets\]\]"),
        ('[[secrets]]\nname = "pay"\nenv = "P"', "secrets.0.name: must be name@version"),
        ('[[secrets]]\nname = "pay@1"', "secrets.0: either env or file"),
        ('[[secrets]]\nname = "pay@1"\nenv = "P"\nfile = "f"', "secrets.0: either env or file"),
        ('[[secrets]]\nname = "pay@1"\nenv = "P"\nuses = ["refund"]', "refund is not tool#/argument"),
        ('[[secrets]]\nname = "pay@1"\nenv = "P"\nvalue = "hunter2hunter2"', "secrets.0.value"),
        ('[[secrets]]\nname = "a@1"\nenv = "P"\n[[secrets]]\nname = "a@1"\nenv = "Q"', "a@1 stands twice"),
    ],
)
def test_a_file_of_secrets_that_cannot_be_used(tmp_path: Path, text: str, wording: str) -> None:
    path = tmp_path / "secrets.toml"
    path.write_text(text)
    with pytest.raises(SecretsFileInvalid, match=wording) as refused:
        secrets_of(path)
    assert "hunter2" not in str(refused.value)
    with pytest.raises(SecretsFileInvalid, match="No such file"):
        secrets_of(tmp_path / "none")
