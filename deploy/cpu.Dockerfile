# The HTTP service on a CPU. Built from the project's root:
#   docker build --file deploy/cpu.Dockerfile --tag plmcl:cpu .
#   docker run --read-only --publish 8000:8000 --volume "$PWD/tagger:/models:ro" plmcl:cpu
FROM python:3.12.11-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/plmcl
COPY requirements.lock deploy/requirements.txt /build/
RUN /opt/plmcl/bin/pip install --constraint /build/requirements.lock \
        --requirement /build/requirements.txt onnxruntime==1.32.0
COPY pyproject.toml README.md LICENSE /build/plmcl/
COPY src /build/plmcl/src
RUN /opt/plmcl/bin/pip install --no-deps /build/plmcl \
    && /opt/plmcl/bin/pip uninstall --yes pip

FROM python:3.12.11-slim-bookworm
COPY --from=build /opt/plmcl /opt/plmcl
# Nothing calls home, idle threads do not spin, and nothing is written.
ENV PATH=/opt/plmcl/bin:$PATH \
    ORT_DISABLE_TELEMETRY=1 \
    OMP_WAIT_POLICY=passive \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /models
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=4)"]
ENTRYPOINT ["plmcl"]
CMD ["serve", "--model", "/models/model.onnx", "--host", "0.0.0.0", "--port", "8000"]
