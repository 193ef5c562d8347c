"""Settings that every service has; each is one environment variable, AETHERIS_<NAME>."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.functional_validators import BeforeValidator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


def _split(value: object) -> object:
    """A comma-separated list, as environments have it."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


class RuntimeSettings(BaseSettings):
    """Where the parts are, and who this process is."""

    model_config = SettingsConfigDict(env_prefix="AETHERIS_", frozen=True, extra="ignore")

    kafka: str = Field("localhost:9092", description="Kafka's bootstrap servers, host:port[,host:port]")
    redis: str = Field("redis://localhost:6379/0", description="Redis or Valkey: redis://… or unix://…")
    data: Path = Field(Path("data"), description="Folder of blobs, bundles and locks")
    worker_id: str = Field("worker-0", description="This process's stable name; no two live ones share it")
    listen: str = Field("127.0.0.1", description="Address that HTTP servers listen on")
    health_port: int = Field(0, description="Port of /livez and /readyz; 0 picks a free one")
    http_port: int = Field(8080, description="Port of the gateway's API and of the verifier's proofs")
    partitions: int = Field(4, ge=1, description="Partitions of every topic keyed by job_id; never changes")
    dev: bool = Field(default=False, description="Run on a broker that could lose acknowledged records")
    trace_sample: float = Field(0.05, ge=0, le=1, description="Share of idempotency keys that are traced")
    session_timeout_s: float = Field(6.0, ge=1, description="Silence after which a member's partitions move")
    commit_interval_s: float = Field(1.0, gt=0, description="Pause between commits of offsets")
    lazy_pause_s: float = Field(0.015, gt=0, description="Pause between reads where nobody waits")
    lease_ttl_s: float = Field(5.0, gt=0, description="How long a lease outlives its last heartbeat")
    effect_ttl_s: float = Field(7 * 86400.0, gt=0, description="How long the effect store keeps an effect")
    drain_s: float = Field(5.0, gt=0, description="Time that a stopping or revoked partition has to finish")
    tools: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)] = Field(
        (), description="Modules with @tool functions to import, comma-separated"
    )
