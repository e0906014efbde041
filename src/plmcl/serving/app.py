"""The routes; what they answer is described at /openapi.json."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Any

import onnxruntime
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from plmcl.inference import to_record
from plmcl.machine import usable_cores
from plmcl.serving.gate import Gate
from plmcl.serving.page import page
from plmcl.serving.refusal import Refusal
from plmcl.serving.service import Service
from plmcl.serving.uploads import Upload, read_uploads

MODEL_HEADER = "Plmcl-Model"

_BINARY = {"type": "string", "format": "binary"}
_FORM = {"type": "object", "properties": {"images": {"type": "array", "items": _BINARY}}}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": _FORM},
            "application/octet-stream": {"schema": _BINARY},
            "image/*": {"schema": _BINARY},
        },
    }
}


class Label(BaseModel):
    """What the model says of one label."""

    label: str
    score: float
    threshold: float
    decision: bool


class Tagged(BaseModel):
    """What the model says of one file: an error, or all labels in the model's order."""

    file: str
    error: str | None
    labels: list[Label]


class Answer(BaseModel):
    """Of one request."""

    model: str
    predictions: list[Tagged]


class Detail(BaseModel):
    """Why there is no answer."""

    detail: str


_REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Detail, "description": "Empty or broken body."},
    401: {"model": Detail, "description": "The bearer token is missing or wrong."},
    408: {"model": Detail, "description": "The body came too slowly."},
    413: {"model": Detail, "description": "Too many bytes or images."},
    415: {"model": Detail, "description": "The body is of a type that is not read."},
    422: {"model": Answer, "description": "No image could be used; each says why."},
    429: {"model": Detail, "description": "Too much work waits: come again (Retry-After)."},
    503: {"model": Detail, "description": "No answer in time: come again (Retry-After)."},
}


def make_app(service: Service, *, token: str | None) -> Gate:
    """The service as an ASGI application.

    Args:
        service: Started and stopped with the application.
        token: That requests must bear, or None.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="plmcl",
        description="Multi-label image tagging.",
        version=metadata.version("plmcl"),
        lifespan=lifespan,
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )

    @app.exception_handler(Refusal)
    async def refuse(_: Request, refusal: Refusal) -> Response:
        return JSONResponse({"detail": refusal.detail}, refusal.status, refusal.headers)

    @app.post("/predict", response_model=Answer, responses=_REFUSALS, openapi_extra=_BODY)
    async def predict(request: Request) -> Response:
        """Tag one or many images; a bad one has its own error, and stops no other."""
        service.check_queue()  # before a byte is read
        with service.memory.claim() as claim:
            uploads = await _read(request, claim)
            request.state.images = len(uploads)
            served, predictions = await service.tag(uploads)
        records = [to_record(prediction) for prediction in predictions]
        content = json.dumps({"model": served.sha256, "predictions": records}, ensure_ascii=False)
        usable = any(prediction.error is None for prediction in predictions)
        return Response(
            content,
            status_code=200 if usable else 422,
            headers={MODEL_HEADER: served.sha256},
            media_type="application/json",
        )

    async def _read(request: Request, claim: Any) -> list[Upload]:
        seconds = service.limits.request_seconds
        try:
            async with asyncio.timeout(seconds):
                return await read_uploads(request.headers, request.stream(), claim, service.limits)
        except TimeoutError:
            raise Refusal(408, f"the request was not there within {seconds:g} s") from None
        except ClientDisconnect:
            raise Refusal(400, "the client went away") from None

    @app.get("/live")
    async def live() -> dict[str, str]:
        """200 while the process answers at all."""
        return {"status": "live"}

    @app.get("/ready")
    async def ready() -> dict[str, str]:
        """200 while a model is served, also where a newer file was refused."""
        newer = "none" if service.slot.problem is None else "refused; see /model"
        return {"status": "ready", "newer_model": newer}

    @app.get("/model")
    async def model() -> Response:
        """All that is known of the model, and why a newer file was refused."""
        return JSONResponse(_describe(service))

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    # FastAPI describes it; its own way from a request to the function took a tenth of the time
    # that this process has for an image.
    app.router.routes.insert(0, Route("/predict", predict, methods=["POST"]))

    html, policy = page()

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return HTMLResponse(html, headers={"Content-Security-Policy": policy})

    return Gate(app, token=token, limits=service.limits, metrics=service.metrics)


def _describe(service: Service) -> dict[str, Any]:
    served = service.slot.current
    card = served.tagger.card
    return {
        "model": served.sha256,
        "name": served.name,
        "loaded": served.loaded,
        "newer_model_refused": service.slot.problem,
        "providers": served.tagger.providers,
        "cores": usable_cores(),
        "versions": {"plmcl": metadata.version("plmcl"), "onnxruntime": onnxruntime.__version__},
        "label_names": list(card.label_names),
        "thresholds": served.tagger.thresholds,
        "threshold_rules": list(card.threshold_rules),
        "recipe": served.recipe.to_dict(),
        "setting": card.setting,
        "method": card.method,
        "data_sha256": card.data_sha256,
        "splits_sha256": card.splits_sha256,
        "code_commit": card.code_commit,
        "run_id": card.run_id,
        "parity": dict(card.parity),
    }
