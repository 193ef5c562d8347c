"""What a service's process imports: each needless library costs time after every kill, and memory in each process."""

import subprocess
import sys

import pytest

NOBODY = (
    "jsonschema",
    "prometheus_client",
    "opentelemetry.sdk",
    "opentelemetry.exporter",
    "rich",
    "pygments",
    "psutil",
    "cel",
    "webauthn",
)
NOT_ON_THE_HOT_PATH = ("fastapi", "starlette", "uvicorn", "httpx", "obstore", "mcp", "pydantic_ai")
UNWANTED = {
    "planner": NOBODY + NOT_ON_THE_HOT_PATH,
    "ledger": NOBODY + NOT_ON_THE_HOT_PATH,
    "tool_executor": NOBODY + NOT_ON_THE_HOT_PATH,
    "verifier.prober": NOBODY + NOT_ON_THE_HOT_PATH,
    "verifier": (*NOBODY, "httpx", "obstore", "mcp", "pydantic_ai", "aetheris.sdk", "aetheris.verifier.prober"),
    "console": (*NOBODY, "fastapi", "obstore", "mcp", "pydantic_ai", "aiokafka", "hiredis", "aetheris.runtime.kafka"),
    "scheduler": ("jsonschema", "opentelemetry.sdk", "cel", "webauthn", "fastapi", "starlette", "mcp"),
    "notifier": (
        "jsonschema",
        "opentelemetry.sdk",
        "cel",
        "webauthn",
        "fastapi",
        "starlette",
        "mcp",
        "http_ece",
    ),  # FastStream's own aside
    "gateway": (*NOBODY, "obstore", "mcp", "pydantic_ai"),
}


@pytest.mark.parametrize("service", UNWANTED)
def test_a_service_imports_nothing_that_it_does_not_need(service: str) -> None:
    code = f"import runpy, sys; runpy.run_module('aetheris.{service}.__main__'); print(*sys.modules)"
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert f"aetheris.{service}.app" in loaded
    assert [name for name in UNWANTED[service] if name in loaded] == []
