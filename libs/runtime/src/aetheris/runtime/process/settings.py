"""Settings that every service has; each is one environment variable, AETHERIS_<NAME>."""

import re
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, ValidationError
from pydantic.functional_validators import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from aetheris.runtime.base.prefix import check_prefix
from aetheris.runtime.base.refusal import SettingInvalid
from aetheris.runtime.blobs.store import s3_place
from aetheris.runtime.redis.location import BadRedisUrl, redis_at

S = TypeVar("S", bound=BaseSettings)

_KEY_ID = re.compile(r"[0-9a-f]{64}")


def split(value: object) -> object:
    """A comma-separated list, as environments have it."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _blobs_url(value: str) -> str:
    if value:
        try:
            s3_place(value)
        except ValueError as error:
            raise PydanticCustomError("not_s3_url", "{rule}", {"rule": str(error)}) from None
    return value


def _redis_url(value: str) -> str:
    """Empty where a service is told of none: who needs one does not start."""
    try:
        if value:
            redis_at(value)
    except BadRedisUrl as error:
        raise PydanticCustomError("not_redis_url", "{words}", {"words": str(error)}) from None
    return value


def _prefix(value: str) -> str:
    try:
        return check_prefix(value)
    except ValueError as error:
        raise PydanticCustomError("not_a_prefix", "{rule}", {"rule": str(error)}) from None


def _no_settings(value: tuple[str, ...]) -> tuple[str, ...]:
    if any(one.startswith("AETHERIS_") for one in value):
        raise PydanticCustomError("names_a_setting", "settings of ours, which may hold credentials, are no tool's")
    return value


def _key_ids(value: tuple[str, ...]) -> tuple[str, ...]:
    if not all(_KEY_ID.fullmatch(one) for one in value):
        raise PydanticCustomError("not_key_ids", "key ids are 64 hex digits, as `aetheris root show` prints them")
    return value


class RuntimeSettings(BaseSettings):
    """Where the parts are, and who this process is."""

    model_config = SettingsConfigDict(env_prefix="AETHERIS_", frozen=True, extra="ignore")

    kafka: str = Field(
        "localhost:9092",
        description="Kafka's bootstrap servers, host:port[,host:port], and behind a ? how to log in",
    )
    kafka_ca: Path | None = Field(None, description="CA of the brokers (PEM); set: Kafka is spoken over TLS")
    kafka_cert: Path | None = Field(None, description="This process's certificate for Kafka (PEM)")
    kafka_key: Path | None = Field(None, description="The private key of that certificate (PEM)")
    kafka_in_sync: int | None = Field(
        None, ge=1, description="Replicas that acknowledge a record, of brokers that don't tell min.insync.replicas"
    )
    kafka_retention_days: int | None = Field(
        None, ge=7, description="Days for which brokers keep records that keep none for ever; unset: they must"
    )
    prefix: Annotated[str, AfterValidator(_prefix)] = Field(
        "", description="What stands before each topic, group, key and bucket folder, where several share the servers"
    )
    redis: Annotated[str, AfterValidator(_redis_url)] = Field(
        "redis://localhost:6379/0",
        description="Redis or Valkey: redis://…, redis+sentinel://…, redis+cluster://…, rediss for TLS, or unix://…",
    )
    data: Path = Field(Path("data"), description="Folder of blobs, bundles and locks")
    blobs: Annotated[str, AfterValidator(_blobs_url)] = Field(
        "", description="Where results over 64 KiB lie: s3://bucket[/prefix]; not set: the folder blobs below data"
    )
    worker_id: str = Field(
        "", description="This process's stable name, no other's; unset: worker-0 and the id of the data folder"
    )
    listen: str = Field("127.0.0.1", description="Address that HTTP servers listen on")
    health_port: int = Field(0, description="Port of /livez, /readyz and /metrics; 0 picks a free one")
    http_port: int = Field(8080, description="Port of the gateway's API and of the verifier's proofs")
    partitions: int = Field(
        4, ge=1, description="Partitions that topics keyed by job_id begin with; stays, also where they are given more"
    )
    replication: int = Field(1, ge=1, description="Replicas of topics that are created where dev is set")
    dev: bool = Field(default=False, description="Run on a broker that could lose acknowledged records")
    trace_sample: float = Field(1.0, ge=0, le=1, description="Share of jobs that are traced")
    session_timeout_s: float = Field(6.0, ge=1, description="Silence after which a member's partitions move")
    commit_interval_s: float = Field(1.0, gt=0, description="Pause between commits of offsets")
    installation: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split), AfterValidator(_key_ids)] = Field(
        (),
        description="Key ids of the roots whose jobs count (hex), comma-separated; set: only jobs with signed records",
    )
    revocations: Path | None = Field(
        None, description="Revoked keys of services (JSON, of `aetheris root bring`), for who reads or writes jobs"
    )
    lazy_pause_s: float = Field(0.03, gt=0, description="Pause between reads where nobody waits")
    lease_ttl_s: float = Field(5.0, gt=0, description="How long a lease outlives its last heartbeat")
    effect_ttl_s: float = Field(7 * 86400.0, gt=0, description="How long the effect store keeps an effect")
    drain_s: float = Field(5.0, gt=0, description="Time that a stopping or revoked partition has to finish")

    @property
    def credential_files(self) -> tuple[Path, ...]:
        """Files, and folders of them, by which this service is who it is: nobody else is to read them."""
        return (self.kafka_key,) if self.kafka_key is not None else ()


class SigningSettings(RuntimeSettings):
    """What a service that signs its records has beside."""

    record_key: Path | None = Field(
        None, description="Ed25519 private key that its records are signed with (PEM, mode 0600)"
    )
    record_cert: Path | None = Field(
        None, description="The root's certificate for that key (JSON, of `aetheris root certify`)"
    )

    @property
    def credential_files(self) -> tuple[Path, ...]:
        """With the key that signs records."""
        return (*super().credential_files, *((self.record_key,) if self.record_key is not None else ()))


class SubjectSettings(RuntimeSettings):
    """What a service that hides people's values, or opens them, has beside."""

    subject_keys: Path | None = Field(
        None, description="Folder of the keys of people whose values are hidden; unset: nothing is hidden, or opened"
    )
    subject_kms: str | None = Field(
        None, description="What wraps those keys: a file (64 hex digits, mode 0600), or vault+https:// of a transit key"
    )

    @property
    def credential_files(self) -> tuple[Path, ...]:
        """With the keys of people, and what opens them."""
        named = [str(self.subject_keys)] if self.subject_keys is not None else []
        if self.subject_kms is not None:
            sources = parse_qs(urlsplit(self.subject_kms).query).get("token-source", [self.subject_kms])
            named += [one.removeprefix("file:") for one in sources]
        return (*super().credential_files, *map(Path, named))


class SubmitterSettings(RuntimeSettings):
    """What a service that submits jobs of its own has beside."""

    gateway_url: str = Field("http://127.0.0.1:8080", description="The gateway's HTTP address")
    gateway_token: Path = Field(description="File with the token that it submits by")
    ca: Path | None = Field(None, description="CA of the gateway (PEM), where that is called by https")

    @property
    def credential_files(self) -> tuple[Path, ...]:
        """With the token."""
        return (*super().credential_files, self.gateway_token)


class ToolSettings(RuntimeSettings):
    """What a service that loads tools has beside."""

    tools: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split)] = Field(
        (), description="Modules with @tool functions to import, comma-separated"
    )
    tools_folder: Path | None = Field(
        None, description="Folder that they may lie in, behind all that is installed; `up` sets the project's"
    )
    tool_isolation: Annotated[Literal["none", "process"], BeforeValidator(lambda value: value or "none")] = Field(
        "none", description="process: tools are imported and called in processes of their own, without credentials"
    )
    tool_env: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split), AfterValidator(_no_settings)] = Field(
        (), description="Variables that those processes are given beside PATH, HOME, language and time zone"
    )
    tool_user: str | None = Field(
        None, description="User of the system that those processes run as; unset: as the service itself"
    )


class HttpSettings(RuntimeSettings):
    """What a service with an HTTP API has beside."""

    hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split)] = Field(
        (), description="Names that it answers to beside localhost, comma-separated; *.example.org is all below it"
    )
    internal_key: Path | None = Field(
        None, description="Key that gateway and verifier share (hex); default: keys/internal.key in the data folder"
    )
    http_cert: Path | None = Field(None, description="Certificate of its HTTP API (PEM, with its chain); set: https")
    http_key: Path | None = Field(None, description="The private key of that certificate (PEM)")
    ca: Path | None = Field(None, description="CA of gateway and verifier (PEM), for who calls them by https")
    connections: int = Field(1000, ge=1, description="HTTP connections that are open at a time")
    connections_per_address: int = Field(500, ge=1, description="The same, of one client's address")


def load(kind: type[S]) -> S:
    """The settings of this environment.

    Raises:
        SettingInvalid: naming the variables, never their values.
    """
    try:
        return kind.model_validate({})
    except ValidationError as error:
        wrong = [
            f"{_variable(str(one['loc'][0]))}: {one.get('ctx', {}).get('words', one['type'])}"
            for one in error.errors(include_input=False)
        ]
        raise SettingInvalid("; ".join(wrong)) from None


def _variable(name: str) -> str:
    return name.upper() if name.upper().startswith("AETHERIS_") else f"AETHERIS_{name.upper()}"
