"""params.yaml as frozen, strictly typed sections; the only reader of that file.

A plug-in's section (`sources.<name>`, `methods.<name>`) stays plain here and is checked by the
plug-in's own class (`parse_section`): so a stage depends on the one method it runs, and a new
method changes no file that the others depend on.
"""

import difflib
import json
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from plmcl.data import MAX_PIXELS
from plmcl.errors import PlmclError

SettingName = Annotated[str, Field(pattern=r"^(ffl|fspl|given|(fpl|sfl|sspl)-([1-9][0-9]?|100))$")]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Version = Annotated[str, Field(pattern=r"^(none|v[0-9]{4,})$")]


class Section(BaseModel):
    """A part of params.yaml: no unknown key, no missing key, no silent conversion, no change."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=()
    )


class Grid(Section):
    """The table that `dvc repro` makes: every setting with every method."""

    settings: Annotated[tuple[SettingName, ...], Field(min_length=1)]
    methods: Annotated[tuple[Name, ...], Field(min_length=1)]


class Data(Section):
    """Which source is read, the folder or archive that it reads (if any), and what came later.

    `deliveries` is `none`, or a version (`v0001`) of the images that were delivered since.
    """

    source: Name
    path: str
    deliveries: Version


class Image(Section):
    """The pixel recipe's parameters; see `plmcl.data.images.Recipe`."""

    size: Annotated[int, Field(ge=32, le=2048)]
    background: tuple[
        Annotated[int, Field(ge=0, le=255)],
        Annotated[int, Field(ge=0, le=255)],
        Annotated[int, Field(ge=0, le=255)],
    ]
    max_pixels: Annotated[int, Field(ge=1, le=MAX_PIXELS)]


class Split(Section):
    """Shares of images held out, and what the best epoch is chosen on.

    `holdout` chooses on the validation split. `paper` trains on all training images and chooses
    on the test split, as the paper reports; its figures are optimistic and say so.
    `draw` is how the validation split and the one positive of an image are drawn: by hashes of
    ids, or bit for bit as the reference code (`cole`).
    """

    protocol: Literal["holdout", "paper"]
    draw: Literal["hash", "cole"]
    val: Annotated[float, Field(gt=0, lt=1)]
    test: Annotated[float, Field(gt=0, lt=1)]


class Labels(Section):
    """What is known of the labels as a whole."""

    # k of the expected-positive regulariser. null: the mean of the training truth, where known.
    per_image: Annotated[float, Field(gt=0)] | None


class Model(Section):
    """Backbone, its weights, how its features are pooled, and the head.

    Weights: `none`, `imagenet`, `package`, or a path to a state dict. Pooling is by the `mean`
    over the places of an image, by their standard `deviation`, or by `parts`: that, and what
    stands out at the top, in the middle and at the bottom. The head is `linear`; `unit`, on
    centred features of length 1; or `boostlu`, which is applied at each place and pools then.
    """

    backbone: str
    weights: str
    pooling: Literal["mean", "deviation", "parts"]
    head: Literal["linear", "unit", "boostlu"]


class Phase(Section):
    """One optimisation phase: Adam at a constant learning rate, as Cole et al. train."""

    epochs: Annotated[int, Field(ge=1)]
    batch_size: Annotated[int, Field(ge=1)]
    learning_rate: Annotated[float, Field(gt=0)]


class Linear(Phase):
    """The head alone, on cached features.

    `views` is how many augmented views of an image are cached beside the plain one, for the
    methods that want them.
    """

    views: Annotated[int, Field(ge=1)]


class FineTune(Phase):
    """All weights.

    The head learns at `head_rate` times the learning rate. `frozen` batch norm keeps the
    statistics of pretraining. With an `ema_decay` above 0, the average of the weights over the
    steps is what is scored and kept. `compile` fuses the network's kernels, where a GPU replays its
    steps.
    """

    head_rate: Annotated[float, Field(gt=0)]
    batch_norm: Literal["train", "frozen"]
    augmentation: Literal["flip", "crop", "randaugment"]
    ema_decay: Annotated[float, Field(ge=0, lt=1)]
    compile: bool


class Train(Section):
    """Which phases run, and each phase's settings.

    `linear` trains the head on frozen features; `linear_init` does so and then fine-tunes all
    weights; `end_to_end` fine-tunes from the backbone's own weights. `warm_start` is `none`, or
    the version (`v0001`) of the champion whose weights and label state training starts from.
    `precision` `auto` is `bf16-mixed` on a GPU that computes in bfloat16, and else `32-true`.
    Label state of more than `state_memory_mb` (MB of 10^6 bytes) lies in files, below the
    training's checkpoints; `state_precision` is that of its numbers, wherever they lie.
    """

    mode: Literal["linear", "linear_init", "end_to_end"]
    warm_start: Version
    precision: Literal["auto", "32-true", "bf16-mixed"]
    threads: Annotated[int, Field(ge=1)]
    state_memory_mb: Annotated[int, Field(ge=0)]
    state_precision: Literal["float32", "float16"]
    linear: Linear
    fine_tune: FineTune


class Export(Section):
    """The ONNX file, and files in fewer bits beside it.

    `tolerance` is the parity gate: the largest difference in probability that an export may show.
    Each of `variants` is kept if the figure that epochs are chosen by (mAP, on the validation
    split) falls by at most `max_drop`, as a fraction, and all scores are finite.
    """

    tolerance: Annotated[float, Field(gt=0)]
    variants: tuple[Literal["fp16", "int8"], ...]
    max_drop: Annotated[float, Field(ge=0, le=1)]


class Retraining(Section):
    """When new images start a retraining, and what it starts from; no stage reads this."""

    incoming: Annotated[str, Field(min_length=1)]
    settle_seconds: Annotated[float, Field(ge=0)]
    min_images: Annotated[int, Field(ge=1)]
    max_age_hours: Annotated[float, Field(gt=0)]
    setting: SettingName
    start: Literal["champion", "scratch"]
    update_checkout: bool


class Gate(Section):
    """What a challenger must show to replace the champion; no stage reads this.

    `min_gain` bounds the lower end of the 95 % interval of the gain in test mAP, over `resamples`
    paired resamples of the test images. `max_label_drop` bounds the fall of any label's AP that
    has at least `min_positives`.
    """

    min_gain: Annotated[float, Field(ge=-1, le=1)]
    max_label_drop: Annotated[float, Field(ge=0, le=1)]
    min_positives: Annotated[int, Field(ge=1)]
    resamples: Annotated[int, Field(ge=1)]


class Tracking(Section):
    """MLflow's experiment name; its address comes from MLFLOW_TRACKING_URI."""

    experiment: Annotated[str, Field(min_length=1)]


class Params(Section):
    """The whole of params.yaml."""

    seed: Annotated[int, Field(ge=0)]
    grid: Grid
    data: Data
    sources: dict[Name, dict[str, Any]]
    image: Image
    split: Split
    labels: Labels
    model: Model
    train: Train
    methods: dict[Name, dict[str, Any]]
    export: Export
    retraining: Retraining
    gate: Gate
    tracking: Tracking

    @model_validator(mode="after")
    def _cached_features_are_vectors(self) -> Self:
        if self.model.head == "boostlu" and self.train.mode != "end_to_end":
            raise ValueError(
                f"model.head: boostlu sees feature maps, and train.mode {self.train.mode} caches "
                "one vector an image: set train.mode to end_to_end, or model.head to linear"
            )
        if self.model.head == "boostlu" and self.model.pooling != "mean":
            raise ValueError(
                f"model.head: boostlu pools by the mean after the head, and model.pooling is "
                f"{self.model.pooling}: set it to mean, or model.head to linear"
            )
        return self


SectionT = TypeVar("SectionT", bound=BaseModel)


def load_params(path: Path) -> Params:
    """Read and check a params.yaml.

    Raises:
        PlmclError: The file is missing, is not YAML 1.2, or breaks a rule; each broken rule is
            a line with the key's dotted path, what was expected and what stands there.
    """
    if not path.exists():
        raise PlmclError(f"{path}: not found; run this in the project's root")
    return _parse(Params, read_yaml(path), f"{path}: ")


def read_yaml(path: Path) -> Any:
    """The values of a YAML file.

    Raises:
        PlmclError: The file is missing, or is not YAML 1.2.
    """
    try:
        # The dialect (1.2) and the reader that DVC uses: 1e-3 is a number, `no` is a word.
        return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PlmclError(f"{path}: cannot be read: {error}") from None
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1
        raise PlmclError(f"{path}: not valid YAML: line {line}: {error.problem}") from None
    except YAMLError as error:
        raise PlmclError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None


def parse_section(cls: type[SectionT], values: object, where: str) -> SectionT:
    """Check `values` (plain YAML types) against a section's class.

    Args:
        cls: The section's class.
        values: What stands in the file.
        where: Dotted path of the section, for error messages.

    Raises:
        PlmclError: As from `load_params`.
    """
    return _parse(cls, values, f"{where}.")


def _parse(cls: type[SectionT], values: object, prefix: str) -> SectionT:
    try:
        # JSON mode: strict, yet a YAML list may be a tuple. A date (YAML has more types than JSON)
        # becomes a mapping, which no field takes.
        text = json.dumps(values, default=lambda value: {type(value).__name__: str(value)})
        return cls.model_validate_json(text)
    except ValueError as error:
        if not isinstance(error, ValidationError):  # json.dumps: an alias that holds itself
            raise PlmclError(f"{prefix.rstrip(': .')}: {error}") from None
        problems = [problem for problem in error.errors() if not _echoes(problem, error.errors())]
        lines = [_describe(cls, problem, prefix) for problem in problems]
        raise PlmclError("\n".join(lines)) from None


def _echoes(problem: Any, problems: list[Any]) -> bool:
    # A list whose items are wrong counts as too short, too; only the items are the problem.
    inside = [other for other in problems if other["loc"][: len(problem["loc"])] == problem["loc"]]
    return problem["type"] == "too_short" and len(inside) > 1


def _describe(cls: type[BaseModel], problem: Any, prefix: str) -> str:
    location = (prefix + ".".join(str(part) for part in problem["loc"])).rstrip(": .")
    if problem["type"] == "extra_forbidden":
        siblings = _keys_beside(cls, problem["loc"])
        close = difflib.get_close_matches(str(problem["loc"][-1]), siblings, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(siblings)}"
        return f"{location}: unknown key; {hint}"
    if problem["type"] == "missing":
        return f"{location}: missing"
    if problem["type"] == "value_error":  # a rule of ours, over several keys that it names
        return f"{location}: {problem['ctx']['error']}"
    expected = problem["msg"][0].lower() + problem["msg"][1:]
    found = json.dumps(problem["input"], ensure_ascii=False)  # as in the file: true, null, "text"
    return f"{location}: {expected}, found {found if len(found) <= 80 else found[:79] + '…'}"


def _keys_beside(cls: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    kind: Any = cls
    for part in location[:-1]:
        # A section's field or a value of a mapping, and either may be null.
        kind = kind.model_fields[part].annotation if _is_section(kind) else get_args(kind)[1]
        kind = get_args(kind)[0] if isinstance(kind, UnionType) else kind
    return list(kind.model_fields)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
