# One image for each service: build with --build-arg SERVICE=gateway|planner|ledger|tool_executor|verifier.
# BASE needs Python 3.11 or newer with venv, and a shell; RUNTIME the same Python at the same place, and no shell.
ARG BASE=docker.io/library/python:3.11-slim
ARG RUNTIME=${BASE}

FROM ${BASE} AS build
ARG UV_VERSION=0.13.9
ENV UV_PROJECT_ENVIRONMENT=/app/venv UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy
WORKDIR /src
RUN python3 -m venv /uv && /uv/bin/pip install --quiet --disable-pip-version-check --no-cache-dir uv==${UV_VERSION}
COPY pyproject.toml uv.lock LICENSE ./
COPY libs libs
COPY services services
ARG SERVICE
RUN /uv/bin/uv sync --quiet --frozen --no-dev --no-editable --no-cache --compile-bytecode \
      --package "aetheris-$(echo "${SERVICE:?--build-arg SERVICE is missing}" | tr _ -)" \
 && printf '#!/app/venv/bin/python\nimport runpy\n\nrunpy.run_module("aetheris.%s", run_name="__main__", alter_sys=True)\n' "${SERVICE}" > /app/service \
 && chmod 0555 /app/service \
 && mkdir -p /data/blobs /data/keys /data/workers

FROM ${RUNTIME}
COPY --from=build /app /app
COPY --from=build --chown=10001:10001 /data /data
ENV AETHERIS_DATA=/data AETHERIS_LISTEN=0.0.0.0 AETHERIS_HTTP_PORT=8080 AETHERIS_HEALTH_PORT=9090 \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /data
EXPOSE 8080 9090
STOPSIGNAL SIGTERM
ENTRYPOINT ["/app/service"]
