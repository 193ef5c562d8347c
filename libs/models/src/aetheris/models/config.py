"""Which models jobs may name, and where they are asked: pydantic-ai's names, or files (docs/models.md)."""

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aetheris.protocol.base.faults import StrangeKey, first_fault, like, only_array, placed, toml_error_line, toml_line
from aetheris.protocol.plan.prompts import ModelName


class ModelsInvalid(ValueError):
    """AETHERIS_MODELS can't be used; the message names the file and the field, never a key."""

    code = "invalid_models"


class ModelSpec(BaseModel):
    """A model: what jobs call it, what pydantic-ai calls it, and what it costs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ModelName
    model: str = Field(min_length=1, max_length=200, description="provider:model, as pydantic-ai names it")
    base_url: str | None = Field(default=None, description="Of a server that speaks OpenAI's protocol")
    api_key_env: str | None = Field(default=None, description="The variable that holds that server's key")
    input_usd_per_mtok: float | None = Field(default=None, ge=0)
    output_usd_per_mtok: float | None = Field(default=None, ge=0)
    timeout_s: float = Field(default=120.0, gt=0, le=3_600)

    @property
    def priced(self) -> bool:
        """Whether the configuration says what it costs."""
        return self.input_usd_per_mtok is not None and self.output_usd_per_mtok is not None

    def cost_usd(self, input_tokens: int, output_tokens: int) -> float | None:
        """What an answer costs by the configuration; None where it doesn't say."""
        if self.input_usd_per_mtok is None or self.output_usd_per_mtok is None:
            return None
        return (input_tokens * self.input_usd_per_mtok + output_tokens * self.output_usd_per_mtok) / 1_000_000

    def key(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """The API key; None for the one that the provider's client finds by itself."""
        return environment.get(self.api_key_env) if self.api_key_env is not None else None


def read_models(entries: Sequence[str]) -> dict[str, ModelSpec]:
    """Name → model. An entry that ends with .toml is a file of [[models]], any other one a name of pydantic-ai's.

    Raises:
        ModelsInvalid: naming the entry.
    """
    found: dict[str, ModelSpec] = {}
    for entry in entries:
        for spec in _file(Path(entry)) if entry.endswith(".toml") else [_named(entry)]:
            if spec.name in found:
                raise ModelsInvalid(f"{entry}: {spec.name} stands twice")
            found[spec.name] = spec
    return found


def _named(entry: str) -> ModelSpec:
    return _spec({"name": entry, "model": entry}, lambda _field: entry)


def _file(path: Path) -> list[ModelSpec]:
    try:
        text = path.read_text()
        parsed = tomllib.loads(text)
    except OSError as error:
        raise ModelsInvalid(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ModelsInvalid(f"{placed(path, toml_error_line(error))}: is not TOML") from None
    try:
        entries = only_array(text, parsed, "models")
    except StrangeKey as error:
        raise ModelsInvalid(f"{placed(path, error.line)}: {error}") from None
    if not entries:
        raise ModelsInvalid(f"{path}: models: is missing")
    return [_of_file(path, text, index, entry) for index, entry in enumerate(entries)]


def _of_file(path: Path, text: str, index: int, entry: Any) -> ModelSpec:
    return _spec(entry, lambda field: f"{placed(path, toml_line(text, 'models', index, field))}: models[{index}]")


def _spec(entry: Any, where: Callable[[str], str]) -> ModelSpec:
    try:
        spec = ModelSpec.model_validate(entry)
    except ValidationError as error:
        place, text = first_fault(error, ModelSpec.model_fields)
        raise ModelsInvalid(f"{where(str(place[0]) if place else '')}: {'.'.join(map(str, place))}: {text}") from None
    if spec.api_key_env is not None and spec.base_url is None:
        rule = "only with base_url; a provider's client knows its own variable"
        raise ModelsInvalid(f"{where('api_key_env')}: api_key_env: {rule}")
    provider, colon, _ = spec.model.partition(":")
    if not colon:
        raise ModelsInvalid(f"{where('model')}: model: must be provider:model, as pydantic-ai names it")
    if spec.base_url is None and not _is_known(provider):
        raise ModelsInvalid(f"{where('model')}: model: pydantic-ai knows no provider {provider}{_meant(provider)}")
    return spec


def _is_known(provider: str) -> bool:
    from pydantic_ai.providers import infer_provider_class  # noqa: PLC0415  slow to import, and not for a base_url

    try:
        infer_provider_class(provider)
    except ValueError:
        return False
    except ImportError:  # known, and its client is not installed: whoever asks it is told so
        return True
    return True


def _meant(provider: str) -> str:
    from pydantic_ai.models import KnownModelName  # noqa: PLC0415  as above

    names: tuple[str, ...] = get_args(KnownModelName.__value__)
    near = like(provider, sorted({name.partition(":")[0] for name in names if ":" in name}))
    return f"; did you mean {near}?" if near is not None else ""
