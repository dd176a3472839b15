# The image of mlstack: the command line, and the controller of elastic training jobs (`mlstack elastic run`).
#
#   docker build -t mlstack .
#   docker run --rm mlstack --version
#
# Nothing is written at run time: it works on a read-only root, as any user.

FROM python:3.11.14-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY mlstack mlstack
COPY prototypes prototypes
COPY registry registry
COPY environments environments
RUN python -m venv /opt/mlstack
RUN /opt/mlstack/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-compile .
RUN /opt/mlstack/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/mlstack/lib

FROM python:3.11.14-slim-bookworm
COPY --from=build /opt/mlstack /opt/mlstack
ENV PATH=/opt/mlstack/bin:/usr/local/bin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["mlstack"]
CMD ["--help"]
