# The HTTP service on an NVIDIA GPU; it does not start where CUDA does not work. Built as the other:
#   docker build --file deploy/gpu.Dockerfile --tag plmcl:gpu .
#   docker run --gpus 1 --read-only --publish 8000:8000 --volume "$PWD/tagger:/models:ro" plmcl:gpu
FROM nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04 AS base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3.12=3.12.3-* \
    && rm -rf /var/lib/apt/lists/*

FROM base AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3.12-venv=3.12.3-* \
    && rm -rf /var/lib/apt/lists/* \
    && python3.12 -m venv /opt/plmcl
COPY requirements.lock deploy/requirements.txt /build/
RUN /opt/plmcl/bin/pip install --constraint /build/requirements.lock \
        --requirement /build/requirements.txt onnxruntime-gpu==1.31.1
COPY pyproject.toml README.md LICENSE /build/plmcl/
COPY src /build/plmcl/src
RUN /opt/plmcl/bin/pip install --no-deps /build/plmcl \
    && /opt/plmcl/bin/pip uninstall --yes pip

FROM base
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
# CUDA takes some seconds to start, and more where it compiles for the card at hand.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=4)"]
ENTRYPOINT ["plmcl"]
CMD ["serve", "--model", "/models/model.onnx", "--host", "0.0.0.0", "--port", "8000", "--provider", "CUDAExecutionProvider", "--batch-size", "64"]
