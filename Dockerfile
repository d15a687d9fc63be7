# The sidecar's image: `docker build --tag bronze-sidecar .`
ARG BASE=python:3.11.14-slim-bookworm
ARG BASE_RUST=rust:1.95.0-slim-bookworm

FROM ${BASE_RUST} AS native
WORKDIR /src
COPY sidecar/native .
# For every Python from 3.11 on, so none is needed to compile it.
RUN PYO3_NO_PYTHON=1 cargo build --quiet --release --locked --config profile.release.strip=true

FROM ${BASE} AS build
# Everything in the image has this time, so that the same sources make the same layers.
ARG SOURCE_DATE_EPOCH=1767225600
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONHASHSEED=0
WORKDIR /src
COPY requirements/image-build.txt requirements/server.txt requirements/
# Only nkeys comes as source, of plain Python: nothing is compiled.
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --only-binary :all: --require-hashes --requirement requirements/image-build.txt \
 && /opt/build/bin/pip wheel --only-binary :all: --no-binary nkeys --no-build-isolation --require-hashes \
      --wheel-dir wheels --requirement requirements/server.txt
COPY pyproject.toml README.md LICENSE ./
COPY client/python client/python
COPY pipeline pipeline
COPY sidecar sidecar
RUN /opt/build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir wheels . \
 && python -m venv --without-pip /opt/bronze-sidecar \
 && /opt/build/bin/pip --python /opt/bronze-sidecar/bin/python install --no-compile --no-index --no-deps wheels/*.whl
COPY --from=native /src/target/release/libbronze_sidecar_native.so \
  /opt/bronze-sidecar/lib/python3.11/site-packages/bronze_sidecar_native.abi3.so
ARG BASE
COPY tools/image_tree.py tools/images.py tools/sbom.py tools/
RUN /opt/build/bin/python tools/sbom.py --image bronze-sidecar --base "${BASE}" \
      --output /image/usr/share/doc/bronze-sidecar \
 && /opt/build/bin/python tools/image_tree.py --image bronze-sidecar --prefix /opt/bronze-sidecar --tree /image

FROM ${BASE}
ARG BASE
ARG REVISION=""
LABEL org.opencontainers.image.title="Bronze Sidecar" \
      org.opencontainers.image.description="Routes normalized market-data events to Kafka, NATS, Kinesis, Redis Streams and SQS" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.url="https://github.com/bronze-sidecar/bronze-sidecar" \
      org.opencontainers.image.source="https://github.com/bronze-sidecar/bronze-sidecar" \
      org.opencontainers.image.documentation="https://github.com/bronze-sidecar/bronze-sidecar/tree/main/docs" \
      org.opencontainers.image.base.name="${BASE}"
# The program in /opt, the standard library compiled, and the list of what is in the image.
COPY --from=build /image/ /
# Nothing is written, so the root file system may be read-only.
ENV PATH=/opt/bronze-sidecar/bin:${PATH} PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A number: Kubernetes cannot tell whether a name is root's.
USER 10001:10001
EXPOSE 9464
HEALTHCHECK --interval=10s --timeout=6s --start-period=20s CMD ["bronze-sidecar", "health"]
ENTRYPOINT ["bronze-sidecar"]
CMD ["run"]
