# One image for each service: build with --build-arg SERVICE=FOLDER, one of services/.
# The prober is the verifier's, by another command: /app/venv/bin/python -m aetheris.verifier.prober.
# EXTRAS names extras of its package, with blanks between: timestamps of cli, pkcs11 of verifier.
# BASE needs Python 3.11 or newer with venv, and a shell; RUNTIME the same Python at the same place, and no shell.
ARG BASE=docker.io/library/python:3.11.16-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7
ARG RUNTIME=${BASE}

FROM ${BASE} AS build
ENV UV_PROJECT_ENVIRONMENT=/app/venv UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy
WORKDIR /src
COPY deploy/uv.txt ./
RUN python3 -m venv /uv \
 && /uv/bin/pip install --quiet --disable-pip-version-check --no-cache-dir --require-hashes --only-binary=:all: -r uv.txt
COPY pyproject.toml uv.lock LICENSE ./
COPY libs libs
COPY services services
ARG SERVICE
ARG EXTRAS=
RUN /uv/bin/uv sync --quiet --frozen --no-dev --no-editable --no-cache --compile-bytecode \
      --package "aetheris-$(echo "${SERVICE:?--build-arg SERVICE is missing}" | tr _ -)" \
      $(for one in ${EXTRAS}; do echo "--extra ${one}"; done) \
      $(grep -q '^parquet = ' "services/${SERVICE}/pyproject.toml" && echo --extra parquet) \
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
