# The sidecar's image: `docker build --tag bronze-sidecar .`
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
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
 && /opt/build/bin/pip --python /opt/bronze-sidecar/bin/python install --no-index --no-deps wheels/*.whl
ARG BASE
COPY tools/images.py tools/sbom.py tools/
RUN /opt/build/bin/python tools/sbom.py --image bronze-sidecar --base "${BASE}" --output /src/sbom

FROM ${BASE}
LABEL org.opencontainers.image.title="Bronze Sidecar" \
      org.opencontainers.image.description="Routes normalized market-data events to Kafka, NATS, Kinesis, Redis Streams and SQS" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/bronze-sidecar /opt/bronze-sidecar
# What is in the image, as CycloneDX.
COPY --from=build /src/sbom/ /usr/share/doc/bronze-sidecar/
# Nothing is written, so the root file system may be read-only.
ENV PATH=/opt/bronze-sidecar/bin:${PATH} PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A number: Kubernetes cannot tell whether a name is root's.
USER 10001:10001
EXPOSE 9464
HEALTHCHECK --interval=10s --timeout=6s --start-period=20s CMD ["bronze-sidecar", "health"]
ENTRYPOINT ["bronze-sidecar"]
CMD ["run"]
