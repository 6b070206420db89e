# spmark in a container.
#
#   docker build --target cpu --build-arg COMMIT="$(git rev-parse HEAD)" --tag spmark:cpu .
#   docker build --target gpu --build-arg COMMIT="$(git rev-parse HEAD)" --tag spmark:gpu .
#   mkdir -p data   # Docker would make it root's
#   docker run --rm --volume "$PWD/data:/data" --user "$(id -u):$(id -g)" spmark:cpu quickstart
#   docker run --rm --gpus all --volume "$PWD/data:/data" --user "$(id -u):$(id -g)" spmark:gpu reproduce liteform
#
# Targets: cpu (the default), gpu (driver 580 or newer on the host) and test (cpu with the test suite, runs pytest).
# BASE_IMAGE is any Debian or Ubuntu with Python 3.11 as python3, the one that DGL has; without a Docker engine, see
# scripts/build_container.sh. Everything that the image keeps between runs lies under /data: caches, results, pages.

ARG BASE_IMAGE=""

# g++ stays in the images: kernels on the host (device host-simt) are compiled with it, and nvcc needs it. Debian's
# packages follow the base, whatever release that is; what can change a number is pinned in requirements/.
FROM ${BASE_IMAGE:-debian:bookworm-slim} AS base
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ python3 python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --no-log-init --uid 10001 --home-dir /data --create-home spmark \
 && chmod 1777 /data

# The wheel is built without the network and without anything of the checkout but the sources.
FROM base AS wheel
WORKDIR /build
COPY requirements/build.txt ./
RUN python3 -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes --only-binary :all: --requirement build.txt
COPY pyproject.toml MANIFEST.in README.md LICENSE ./
COPY scripts/build_backend.py scripts/
COPY spmark/ spmark/
COPY impls/ impls/
COPY records/ records/
COPY studies/ studies/
COPY datasets/ datasets/
COPY suite/ suite/
COPY report/ report/
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-index --no-build-isolation --wheel-dir /wheels .

FROM base AS build-cpu
COPY requirements/cpu.txt /build/
RUN python3 -m venv /opt/spmark \
 && /opt/spmark/bin/pip install --no-cache-dir --require-hashes --only-binary :all: --requirement /build/cpu.txt
COPY --from=wheel /wheels/ /wheels/
RUN /opt/spmark/bin/pip install --no-cache-dir --no-deps --no-index --find-links /wheels spmark

# CUDA's libraries and compilers come as wheels, pinned by hash; the driver comes from the host. PyTorch, DGL and OGB are
# in this image alone: with them an image takes gigabytes.
FROM base AS build-gpu
COPY requirements/gpu.txt /build/
RUN python3 -m venv /opt/spmark \
 && /opt/spmark/bin/pip install --no-cache-dir --require-hashes --only-binary :all: --requirement /build/gpu.txt
COPY --from=wheel /wheels/ /wheels/
RUN /opt/spmark/bin/pip install --no-cache-dir --no-deps --no-index --find-links /wheels spmark

FROM base AS gpu
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-gpu /opt/spmark /opt/spmark
ENV HOME=/data PATH=/opt/spmark/bin:$PATH PYTHONUNBUFFERED=1
ARG COMMIT=""
ENV SPMARK_COMMIT=$COMMIT
LABEL org.opencontainers.image.title="spmark" \
      org.opencontainers.image.description="Benchmarks of sparse GPU kernels (SpMM, SDDMM)" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.revision="$COMMIT"
USER 10001
WORKDIR /data
ENTRYPOINT ["spmark"]
CMD ["--help"]

FROM base AS cpu
COPY --from=build-cpu /opt/spmark /opt/spmark
ENV HOME=/data PATH=/opt/spmark/bin:$PATH PYTHONUNBUFFERED=1
ARG COMMIT=""
ENV SPMARK_COMMIT=$COMMIT
LABEL org.opencontainers.image.title="spmark" \
      org.opencontainers.image.description="Benchmarks of sparse GPU kernels (SpMM, SDDMM)" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.revision="$COMMIT"
USER 10001
WORKDIR /data
ENTRYPOINT ["spmark"]
CMD ["--help"]

# The tests run against the installed wheel: from /data, where no folder of the checkout can be imported.
FROM cpu AS test
USER 0
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends git make \
 && rm -rf /var/lib/apt/lists/*
COPY requirements/test.txt /src/requirements/
RUN /opt/spmark/bin/pip install --no-cache-dir --require-hashes --only-binary :all: \
    --requirement /src/requirements/test.txt
COPY . /src/
# Tests make checkouts of their own, with commits of their own.
ENV SPMARK_COMMIT=""
USER 10001
ENTRYPOINT ["pytest", "-c", "/src/pyproject.toml", "--rootdir", "/src", "-p", "no:cacheprovider"]
CMD ["/src/tests"]

# What a build without --target gives.
FROM cpu AS default
