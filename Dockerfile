# One image for every role: api, coordinator, migration, Ray head and Ray worker.
# `docker build --build-arg PIP_EXTRA_INDEX_URL=…` takes torch from an index of CPU builds, which
# makes the image several gigabytes smaller where no GPU is used.

FROM python:3.11-slim-bookworm AS build
ARG PIP_EXTRA_INDEX_URL=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/kdnas
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY kdnas kdnas
COPY controller controller
COPY workers workers
COPY api api
COPY migrations migrations
RUN /opt/kdnas/bin/pip install -c constraints.txt ".[demo,onnx]"

FROM python:3.11-slim-bookworm
RUN groupadd --gid 10001 kdnas \
    && useradd --uid 10001 --gid 10001 --create-home kdnas \
    && install --directory --owner kdnas --group kdnas \
        /var/lib/kdnas/home /var/lib/kdnas/store /var/lib/kdnas/data /var/lib/kdnas/locks
COPY --from=build /opt/kdnas /opt/kdnas
ENV PATH=/opt/kdnas/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    RAY_USAGE_STATS_ENABLED=0 \
    KDNAS_HOME=/var/lib/kdnas/home \
    KDNAS_STORE=/var/lib/kdnas/store \
    KDNAS_DATA_ROOTS=/var/lib/kdnas/data
USER kdnas
WORKDIR /var/lib/kdnas
EXPOSE 8000
CMD ["kdnas", "serve", "--host", "0.0.0.0"]
